"""Films the shipped command: `python -m screenshots.film FILE.svg`.

`gputop --demo` is run in a terminal, a person's keys are pressed, and what is on the screen twice a
second becomes one animated SVG. Each line of the screen is kept once for as long as it stays, so
that the film is as small as what gputop sends.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from screenshots.scenes import color_of
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyte.screens import Char

SIZE = (100, 30)
FRAME_SECONDS = 0.5
CELL, LINE = 8.4, 18.0
"""Width and height of a cell, in the picture's units."""
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PAPER, INK = "#1e1e1e", "#c5c8c6"
NAMED = {
    "black": "#1e1e1e",
    "red": "#cc555a",
    "green": "#98a84b",
    "yellow": "#d0b344",
    "blue": "#608ab1",
    "magenta": "#98729f",
    "cyan": "#68a0b3",
    "white": "#c5c8c6",
}
WORDS = re.compile(r"\S+( \S+)*")
SCRIPT = (("", 7.0), ("b", 19.0), ("x", 4.0))
"""Keys, and how long one looks at what each of them did."""


@dataclass(frozen=True)
class Shown:
    """One line of the screen, from a frame until another."""

    row: int
    markup: str
    begin: int
    end: int


def frames(gputop: str) -> Iterator[tuple[str, ...]]:
    """Yield the lines of each frame, as markup."""
    with tempfile.TemporaryDirectory() as home:
        env = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": "",
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
        }
        with Terminal(
            [gputop, "--demo", "--interval", "0.5"], env, *SIZE
        ) as terminal:
            terminal.wait_for("8 GPUs")
            for keys, seconds in SCRIPT:
                terminal.send(keys)
                for _ in range(round(seconds / FRAME_SECONDS)):
                    terminal.collect(FRAME_SECONDS)
                    yield tuple(
                        markup(terminal, row) for row in range(SIZE[1])
                    )


def markup(terminal: Terminal, row: int) -> str:
    """Return a line of the screen: its backgrounds, then its text."""
    cells = [terminal.screen.buffer[row][column] for column in range(SIZE[0])]
    paper, ink, column = [], [], 0
    for (fore, back, bold), run in groupby(cells, look):
        text = "".join(cell.data for cell in run)
        x, width = f"{column * CELL:g}", f"{len(text) * CELL:g}"
        if back != PAPER:
            paper.append(
                f'<rect x="{x}" width="{width}" height="{LINE:g}" fill="{back}"/>'
            )
        weight = ' font-weight="bold"' if bold else ""
        # Part by part: in some fonts braille is wider than a blank.
        ink += [
            f'<text x="{(column + part.start()) * CELL:g}" y="13.5" '
            f'textLength="{len(part[0]) * CELL:g}" fill="{fore}"{weight}>'
            f"{html.escape(part[0])}</text>"
            for part in WORDS.finditer(text)
        ]
        column += len(text)
    return "".join(paper + ink)


def look(cell: Char) -> tuple[str, str, bool]:
    """Return the colours of a cell, and whether it is bold."""
    fore, back = hexadecimal(cell.fg, INK), hexadecimal(cell.bg, PAPER)
    return (back, fore, cell.bold) if cell.reverse else (fore, back, cell.bold)


def hexadecimal(name: str, default: str) -> str:
    """Return a colour of pyte's as SVG has it."""
    color = color_of(name)
    if color is None:
        return default
    return (
        color
        if color.startswith("#")
        else NAMED[color.removeprefix("bright_")]
    )


def lines(film: list[tuple[str, ...]]) -> Iterator[Shown]:
    """Yield each line with the frames in which it is shown."""
    for row in range(SIZE[1]):
        begin = 0
        for text, run in groupby(frame[row] for frame in film):
            end = begin + len(list(run))
            if text:
                yield Shown(row, text, begin, end)
            begin = end


def drawn(film: list[tuple[str, ...]]) -> str:
    """Return the film as an animated SVG."""
    width, height = SIZE[0] * CELL + 20, SIZE[1] * LINE + 20
    seconds = len(film) * FRAME_SECONDS
    body = "\n".join(
        animated(each, len(film), seconds) for each in lines(film)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="{FONT}" font-size="14">'
        "<style>text{white-space:pre}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def animated(shown: Shown, count: int, seconds: float) -> str:
    """Return a line which is there in its frames only."""
    place = f'transform="translate(10 {10 + shown.row * LINE:g})"'
    if (shown.begin, shown.end) == (0, count):
        return f"<g {place}>{shown.markup}</g>"
    turns = [(shown.begin, "visible"), (shown.end, "hidden")]
    if shown.begin:
        turns.insert(0, (0, "hidden"))
    turns = [(at, state) for at, state in turns if at < count]
    times = ";".join(f"{at / count:.4g}" for at, _ in turns)
    values = ";".join(state for _, state in turns)
    return (
        f'<g {place} visibility="hidden"><animate attributeName="visibility" calcMode="discrete" '
        f'dur="{seconds:g}s" repeatCount="indefinite" keyTimes="{times}" values="{values}"/>'
        f"{shown.markup}</g>"
    )


def main() -> None:
    """Write the film."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--gputop", default=str(Path(sys.executable).with_name("gputop"))
    )
    options = parser.parse_args()
    film = list(frames(options.gputop))
    options.file.write_text(drawn(film))
    print(
        f"{options.file}: {len(film)} frames, {options.file.stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main()
