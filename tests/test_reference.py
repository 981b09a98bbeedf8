"""The README's options are those of the parser."""

from __future__ import annotations

from tests.reference import README, reference, replaced


def test_the_readme_has_every_option_as_it_is_now() -> None:
    readme = README.read_text()
    assert reference() in readme, "run `python -m tests.reference`"
    assert replaced(readme) == readme
