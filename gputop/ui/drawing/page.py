"""Long pages that Rich draws and that scroll. Foreign text goes through `visible` into `Text`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import (
    Console,
    ConsoleOptions,
    Group,
    RenderableType,
    RenderResult,
)
from rich.segment import Segment
from rich.table import Table
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from gputop.agent.device import Device
from gputop.ui.drawing.palette import ACCENT, DIM

if TYPE_CHECKING:
    from gputop.ui.telemetry import Telemetry

LABEL = 14
"""Cells of the labels in a group of readings."""
NARROWEST_COLUMN = 54


class ScrolledPage(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Page about a device, which scrolls under its title. A subclass implements `page`."""

    DEFAULT_CSS = """
    ScrolledPage { scrollbar-size-vertical: 1; }
    ScrolledPage > .title { dock: top; height: auto; }
    """
    device: Device | None = None

    def __init__(self, telemetry: Telemetry, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._telemetry = telemetry
        self._title, self._page = Static(classes="title"), Static()

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._page

    def title(self) -> RenderableType:
        """Return the line above the page; by default there is none."""
        return Group()

    def page(self) -> RenderableType:
        """Return the page, however long it is."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again."""
        self._title.update(self.title())
        self._page.update(self.page())

    def action_move(self, step: int) -> None:
        self.scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 2))


class OfWidth:
    """Part of a page that depends on the cells in a line. Textual renders it more than once."""

    def __init__(self, draw: Callable[[int], RenderableType]) -> None:
        self._draw = draw
        self._drawn: dict[int, list[Segment]] = {}

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        width = options.max_width
        if width not in self._drawn:
            drawn = console.render(self._draw(width), options)
            self._drawn[width] = [*drawn]
        yield from self._drawn[width]


def titled_table(title: str, *, padding: tuple[int, int] = (0, 0)) -> Table:
    """Return an empty table without lines, under a title."""
    return Table(
        title=title,
        title_style=ACCENT,
        title_justify="left",
        box=None,
        show_header=False,
        padding=padding,
    )


def group_table(title: str) -> Table:
    """Return an empty table of labels and values under a title."""
    table = titled_table(title)
    table.expand = True
    table.add_column(style=DIM, width=LABEL)
    table.add_column(ratio=1, overflow="fold")
    return table


def side_by_side(tables: Sequence[Table], width: int) -> RenderableType:
    """Return the tables in as many columns as fit, in order and of about the same height."""
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    many = max(1, width // NARROWEST_COLUMN)
    heights = [1 + table.row_count for table in tables]
    columns: list[list[RenderableType]] = [[] for _ in range(many)]
    above = 0
    for table, height in zip(tables, heights, strict=True):
        columns[above * many // sum(heights)] += [table, ""]
        above += height
    for _ in columns:
        grid.add_column(ratio=1)
    grid.add_row(*[Group(*column) for column in columns])
    return grid
