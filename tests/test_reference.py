"""The page of options and the manual page agree with the parser."""

from __future__ import annotations

from tests.reference import MANUAL, PAGE, manual, reference, replaced


def test_the_page_has_every_option_as_it_is_now() -> None:
    page = PAGE.read_text()
    assert reference() in page, "run `python -m tests.reference`"
    assert replaced(page) == page


def test_the_manual_page_has_every_option_as_it_is_now() -> None:
    assert MANUAL.read_text() == manual(), "run `python -m tests.reference`"
