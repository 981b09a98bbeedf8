"""Text pages: when there are colours, and pages drawn over each other."""

import re

import pytest

from gputop.output import pages
from gputop.output.pages import cell, colour_is_wanted, draw_over, rendered


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({}, False),  # standard output is no terminal here
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_when_there_are_colours(
    environment: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colour_is_wanted() is colour


def test_text_is_never_markup() -> None:
    table = pages.table()
    pages.add_column(table, "[bold]name[/]", left=True)
    table.add_row(cell("[red]x[/] :smile:"))
    assert rendered(table, width=None, colour=False).splitlines() == [
        "[bold]name[/]",
        "[red]x[/] :smile:",
    ]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [(4, ["1", "2", "3", "4"]), (3, ["1", "2", "– 2 more lines"]), (1, ["– 4 more lines"])],
)
def test_a_page_taller_than_the_terminal_says_what_is_left_out(
    rows: int,
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("COLUMNS", "20")
    draw_over("1\n2\n3\n4", first=False)
    drawn = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", capsys.readouterr().out)
    assert [line.strip() for line in drawn.splitlines()] == shown
