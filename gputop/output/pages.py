"""Parts of text pages, which are made of rich's tables, and their rendering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.control import Control
from rich.screen import Screen
from rich.table import Table
from rich.text import Text

from gputop.text import ABSENT, cells, fit_columns

DIM, BOLD = "dim", "bold"
GREEN, YELLOW, MAGENTA, CYAN = "green", "yellow", "magenta", "cyan"
LOUD_RED, LOUD_YELLOW = "bold red", "bold yellow"
GAP = 2
"""Spaces between columns."""
UNBROKEN = 100_000
"""Width of a page whose lines must not be broken, as for a pipe."""
_DOT = " · "
_ASCII = str.maketrans(
    {"–": "-", "…": "~", "·": "|", "°": " ", "µ": "u", "×": "x"}
)


def cell(text: str, style: str = "") -> Text:
    """Return text with a style, never as markup. It is cut with "…" if it does not fit."""
    return Text.assemble((text, style), no_wrap=True, overflow="ellipsis")


def reading(text: str, style: str = "") -> Text:
    """Return a cell for a reading. The sign of absence is dim."""
    if text == ABSENT:
        style = DIM
    return cell(text, style)


def simulated(*, is_so: bool) -> Text:
    """Return the mark of simulated numbers, or nothing."""
    if is_so:
        return cell("SIMULATED", LOUD_YELLOW)
    return cell("")


def joined(parts: Iterable[Text], width: int | None = None) -> Text:
    """Return the parts as one line with dots between them. Leave out last parts that do not fit."""
    parts = [part for part in parts if part]
    if width is not None:
        first, *rest = parts
        room = width - first.cell_len
        rest = fit_columns(rest, room, lambda part: part.cell_len + len(_DOT))
        parts = [first, *rest]
    dot = Text.assemble((_DOT, DIM), no_wrap=True, overflow="ellipsis")
    return dot.join(parts)


def table(*, header: bool = True) -> Table:
    """Return an empty table without lines around its cells."""
    return Table(
        box=None,
        show_header=header,
        header_style="",
        padding=(0, GAP, 0, 0),
        pad_edge=False,
    )


def add_column(
    to: Table,
    name: str,
    *,
    left: bool = False,
    cut: bool = False,
) -> None:
    """Add a column of numbers, or of `left` aligned text. With `cut` it may shrink to fit."""
    justify: JustifyMethod = "right"
    if left:
        justify = "default"
    to.add_column(cell(name, DIM), justify=justify, no_wrap=not cut)


@dataclass(frozen=True)
class Column:
    """A column of a table. It is left out if there is no room for it."""

    name: str
    cells: Sequence[RenderableType]
    left: bool = False
    least: int | None = None
    """Minimum width if cells may be cut; None if not."""

    @property
    def width(self) -> int:
        """Width in cells, including the gap before the next column."""
        if self.least is not None:
            return self.least + GAP
        widest = max((cells(str(each)) for each in self.cells), default=0)
        return max(widest, cells(self.name)) + GAP


def fitting(
    columns: Sequence[Column], ranked: Sequence[str], width: int | None
) -> list[Column]:
    """Return the columns that fit. Columns in `ranked` are left out first, from its end."""
    if width is None:
        return list(columns)
    room = width + GAP
    others = []
    for column in columns:
        if column.name in ranked:
            others.append(column)
        else:
            room -= column.width
    others.sort(key=lambda column: ranked.index(column.name))
    kept = fit_columns(others, room, lambda column: column.width)
    return [
        each for each in columns if each.name not in ranked or each in kept
    ]


def table_of(columns: Sequence[Column], *, header: bool = True) -> Table:
    """Return a table of these columns."""
    made = table(header=header)
    for column in columns:
        cut = column.least is not None
        add_column(
            made,
            column.name,
            left=column.left,
            cut=cut,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*row)
    return made


def remedy(text: str) -> Table:
    """Return a remedy with a mark before it. Further lines are aligned with the first."""
    grid = Table.grid()
    grid.add_row("> ", Text(text))
    return grid


def rendered(*parts: RenderableType, width: int | None, colour: bool) -> str:
    """Return a page as text without trailing spaces. Without a width, lines are not broken."""
    system = None
    if colour:
        system = "standard"
    console = Console(
        file=StringIO(),
        width=width or UNBROKEN,
        color_system=system,  # type: ignore[arg-type]
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(Group(*parts))
    lines = [line.rstrip() for line in capture.get().split("\n")]
    return "\n".join(lines[:-1])


def as_ascii(text: str) -> str:
    """Return the text in ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def colour_is_wanted() -> bool:
    """Return True if rich would write colours, based on NO_COLOR, FORCE_COLOR and TERM."""
    console = Console()
    return console.color_system is not None and not console.no_color


def draw_over(text: str, *, first: bool) -> None:
    """Draw a page over the previous page in a single write. The first page scrolls the screen up.

    If a page is taller than the terminal, its last line says how many lines are missing.
    """
    console = Console(highlight=False)
    lines = text.split("\n")
    room = console.height
    if len(lines) > room:
        lines[room - 1 :] = [f"{ABSENT} {len(lines) - room + 1} more lines"]
    if first:
        print("\n" * (room - 1))
    page = Screen(Text.from_ansi("\n".join(lines)))
    console.print(Control.home(), page, end="")
