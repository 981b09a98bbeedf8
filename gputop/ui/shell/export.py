"""The current page as text: the content of the screen, cell by cell."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip

from gputop.files import write_whole


def page_text(screen: Screen[object]) -> str:
    """Return the text on a screen, without notifications."""
    rows = [[" "] * screen.size.width for _ in range(screen.size.height)]
    for widget in screen.query("*").exclude("Toast"):
        if widget.is_on_screen and not widget.children:
            place = widget.region
            drawn = widget.render_lines(Region(0, 0, *widget.size))
            for row, strip in zip(rows[place.y :], drawn, strict=False):
                _write(row, place.x, strip)
    return "\n".join("".join(row).rstrip() for row in rows).rstrip() + "\n"


def write_page(name: str, content: str) -> Path:
    """Write a page to a new file in the working directory. Return its path. Raises `OSError`."""
    file = Path(name).absolute()
    # The page contains command lines.
    write_whole(file, content.encode(), 0o600)
    return file


def _write(
    row: list[str],
    x: int,
    strip: Strip,
) -> None:
    """Write a strip into the cells of a row. A wide character empties the cell after it."""
    for character in strip.text:
        width = cell_len(character)
        if 0 <= x <= len(row) - width:
            row[x : x + width] = [character, *[""] * (width - 1)]
        x += width
