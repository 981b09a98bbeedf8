"""A page of results as one self-contained HTML document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from gputop import __version__
from gputop.bench.results.page import (
    Block,
    Chart,
    Facts,
    Heading,
    Page,
    Sentence,
    Strip,
    result_page,
)
from gputop.bench.results.svg_charts import chart_figure, strip_figure, text
from gputop.bench.results.tables import TextTable
from gputop.text import moment

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from gputop.bench.run.series import RunCurves


def _template() -> str:
    return Path(__file__).with_suffix(".html").read_text(encoding="utf-8")


def html_page(result: Result, course: RunCurves) -> str:
    """Return the document about a result and its run over time."""
    return html_document(result_page(result, course), result.started_at)


def html_document(page: Page, started_at: float) -> str:
    """Return the document. It has no script and loads no resources, and foreign text is escaped.

    Its title is the first heading of the page.
    """
    title = next(
        (block.text for block in page if isinstance(block, Heading)), ""
    )
    return Template(_template()).substitute(
        title=text(title),
        when=text(moment(started_at, "%d %B %Y, %H:%M %Z")),
        body="\n".join(html for block in page for html in _html(block)),
        version=text(__version__),
    )


def _html(block: Block) -> Iterator[str]:
    if isinstance(block, Sentence):
        yield f'<div class="verdict {block.level}">{text(block.text)}</div>'
    elif isinstance(block, Heading):
        yield f"<h1>{text(block.text)}</h1>"
    elif isinstance(block, TextTable):
        yield _table(block)
    elif isinstance(block, Chart):
        yield chart_figure(block)
    elif isinstance(block, Strip):
        yield strip_figure(block)
    elif isinstance(block, Facts):
        yield _facts(block)


def _table(table: TextTable) -> str:
    rows = ""
    for y, line in enumerate(table.lines):
        cells = ""
        for x, cell in enumerate(line):
            tag = "td" if y else "th"
            kind = ""
            if (y, x) in table.best:
                kind = " class=best"
            if (y, x) in table.spoiled:
                kind = " class=spoiled"
            cells += f"<{tag}{kind}>{text(cell)}</{tag}>"
        rows += f"<tr>{cells}</tr>\n"
    return f'<div class="scroll"><table class="rows">{rows}</table></div>'


def _facts(facts: Facts) -> str:
    rows = ""
    for name, said in facts.rows:
        label = name[:1].upper() + name[1:]
        rows += f"<tr><th>{text(label)}</th><td>{text(said)}</td></tr>\n"
    heading = f"<h2>{text(facts.title)}</h2>\n" if facts.title else ""
    return f"{heading}<table>\n{rows}</table>"
