"""Pages about results of stress tests as text, and the list of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from gputop.bench.results.columns import COLUMNS, DEVICE, VERDICT
from gputop.bench.results.page import Facts, Heading, Sentence
from gputop.bench.results.tables import TextTable
from gputop.output.pages import (
    Column,
    add_column,
    cell,
    fitting,
    rendered,
    table,
    table_of,
)
from gputop.text import ABSENT, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gputop.bench.events import Result
    from gputop.bench.results.page import Block, Page

STYLES = {"good": "green", "warn": "bold yellow", "fault": "bold red", "": ""}
"""Styles of sentences by their levels."""
INDENT = "  "
NAME_CELLS = 12
"""Minimum width of a fact's name, with the indent."""
LEAST_DEVICE = 16
"""Minimum width of a device's name. Less useful columns are left out to keep it."""


def page_text(
    page: Page,
    width: int | None = None,
    *,
    details: bool = False,
    colour: bool = False,
) -> str:
    """Return a page, with prose wrapped at words. Facts marked as details need `details`."""
    texts: list[str] = []
    before: Block | None = None
    for block in page:
        part = _part(block, details=details)
        if part is None:
            continue
        apart = isinstance(before, TextTable) or isinstance(
            block, (TextTable, Heading)
        )
        if before is not None and apart:
            texts.append("")
        room = width
        # rich would cut its numbers.
        if isinstance(block, TextTable):
            room = None
        texts.append(rendered(part, width=room, colour=colour))
        before = block
    return "\n".join(texts)


def _part(block: Block, *, details: bool) -> RenderableType | None:
    """Return a block for rich. Charts have no text."""
    if isinstance(block, Sentence):
        return Text(visible(block.text), STYLES[block.level])
    if isinstance(block, Heading):
        return Text(visible(block.text))
    if isinstance(block, TextTable):
        return _table(block)
    if isinstance(block, Facts) and (details or not block.details):
        return _facts(block)
    return None


def _table(block: TextTable) -> Table:
    (first, *titles), *lines = block.lines
    made = table()
    add_column(made, INDENT + visible(first), left=True)
    for title in titles:
        add_column(made, visible(title))
    for name, *texts in lines:
        made.add_row(
            cell(INDENT + visible(name)), *(visible(text) for text in texts)
        )
    return made


def _facts(block: Facts) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(min_width=NAME_CELLS)
    for name, text in block.rows:
        grid.add_row(cell(INDENT + name), Text(visible(text)))
    return grid


def result_list(results: Sequence[Result], width: int | None = None) -> str:
    """Return results as a table of the columns that have values and room."""
    columns = []
    for column in COLUMNS:
        texts = [column.text(result) for result in results]
        if set(texts) == {ABSENT}:
            continue
        least = None
        if column is DEVICE:
            least = min(LEAST_DEVICE, max(map(len, [column.title, *texts])))
        cells = [cell(text) for text in texts]
        columns.append(Column(column.title, cells, not column.right, least))
    ranked = []
    for column in sorted(COLUMNS, key=lambda each: each.rank):
        if column not in (DEVICE, VERDICT):
            ranked.append(column.title)
    shown = fitting(columns, ranked, width)
    return rendered(table_of(shown), width=width, colour=False)
