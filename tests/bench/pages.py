"""Pages of results as text, with everything on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results import page
from gputop.output import result_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.events import Result
    from gputop.bench.results.outliers import DeviceOutcome


def result_text(result: Result) -> str:
    """Return the page of a result, also its method."""
    return result_pages.page_text(page.result_page(result), details=True)


def devices_text(members: Sequence[DeviceOutcome], width: int | None = None) -> str:
    """Return the page of several devices."""
    from gputop.bench.results.outliers import devices_page

    return result_pages.page_text(devices_page(members), width)
