"""Pages of results as text."""

from collections.abc import Sequence

from gputop.bench.results.outliers import DeviceOutcome, devices_page
from gputop.output.result_pages import page_text


def devices_text(members: Sequence[DeviceOutcome], width: int | None = None) -> str:
    """Return the page of several devices."""
    return page_text(devices_page(members), width)
