"""Pages of results as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.bench.results.outliers import devices_page
from gputop.output.result_pages import page_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.bench.results.outliers import DeviceOutcome


def devices_text(members: Sequence[DeviceOutcome], width: int | None = None) -> str:
    """Return the page of several devices."""
    return page_text(devices_page(members), width)
