"""The page of options agrees with the parser."""

from __future__ import annotations

from tests.reference import PAGE, reference, replaced


def test_the_page_has_every_option_as_it_is_now() -> None:
    page = PAGE.read_text()
    assert reference() in page, "run `python -m tests.reference`"
    assert replaced(page) == page
