"""What is true of any bytes that are taken for a stream: shared by all that make some up."""

import contextlib
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

from rich.console import Console

from gputop.agent.lines import to_line
from gputop.agent.pacing import Pacing
from gputop.agent.sender import handle_requests
from gputop.agent.snapshot import Host, Inventory, Record, Sample
from gputop.output.csv_lines import DEFAULT_QUERY, CsvLines, parse_query
from gputop.output.process_tables import users_document
from gputop.output.prometheus.metrics import families
from gputop.output.prometheus.state import ExporterState
from gputop.output.status_page import View, page, users_page
from gputop.recording.reader import CHUNK_BYTES, GZIP_MAGIC, UNREADABLE, read_lines
from gputop.schema.decode import decode
from gputop.schema.limits import LINE_BYTES, NUMBER_LIMIT, DecodeError
from gputop.settings import AUTO, DENSITIES
from gputop.ui.device.events import EventsView
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.timeline import TimelineView
from gputop.ui.device.title import DeviceTitle
from gputop.ui.device.why_page import FindingsView
from gputop.ui.drawing.cells import fit, width_of
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.page import ScrolledPage
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.screen import HostView
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry

GOOD = Sample(1_763_640_000.125, Host(cpu_percent=12.5))
"""What comes after whatever it was."""


def check_line(line: str | bytes) -> Record | None:
    try:
        record = decode(line)
    except DecodeError as error:
        assert 0 < len(str(error)) < 1000  # noqa: PT017 - either way is right
        return None
    again = to_line(record)
    assert to_line(decode(again)) == again
    assert again.isascii()
    assert "\n" not in again
    return record


def check_stream(data: bytes) -> list[Record]:
    """Return the records that can be read of it, plain or gzip."""
    records = []
    for line in _lines(data):
        assert len(line) <= LINE_BYTES + CHUNK_BYTES
        record = check_line(line)
        if record is not None:
            records.append(record)
            assert abs(record.time) < NUMBER_LIMIT
    check_shown(records)
    sampler: Any = _Asked()
    handle_requests(sampler, Pacing(), data.splitlines())
    return records


def _lines(data: bytes) -> Iterator[bytes]:
    file: Any = io.BytesIO(data)
    if data.startswith(GZIP_MAGIC):
        file = gzip.GzipFile(fileobj=file)
    with contextlib.suppress(*UNREADABLE):
        yield from read_lines(file)


def check_shown(records: Sequence[Record]) -> None:
    """What was accepted is known, judged and printed as any other."""
    telemetry, csv = Telemetry(lambda: 100.0), CsvLines(COLUMNS)
    follower = ExporterState(clock=lambda: 100.0)
    inventory: Inventory | None = None
    for record in records:
        telemetry.receive(record)
        follower.add_record(record)
        assert all(line.isprintable() for line in csv.lines_of(record))
        if isinstance(record, Inventory):
            inventory = record
        elif inventory is not None:
            for view in VIEWS:
                text = page(inventory, record, view)
                assert all(line.isprintable() for line in text.split("\n")), ascii(text)
            assert all(line.isprintable() for line in users_page(inventory, record).split("\n"))
            json.dumps(users_document(inventory, record))
    for finding in telemetry.findings:
        assert finding.title.isprintable()
    for dcgm in (False, True):
        families(follower, processes=True, dcgm=dcgm)
    number = crc32("".join(map(to_line, records)).encode())
    if number % 4 == 0:  # to draw takes as long as all the rest
        check_drawn(telemetry, number)


def check_drawn(telemetry: Telemetry, number: int) -> None:
    """Every view of the monitor and of a device fits, and shows nothing but printable text.

    The number chooses the size, the first device, the density, and the zoom of the charts.
    """
    width, height = SIZES[number % len(SIZES)]
    console = Console(width=width, height=height, file=io.StringIO())
    for each in pages(telemetry):
        for part in (each.title(), each.page()):
            for line in console.render_lines(part):
                text = "".join(segment.text for segment in line)
                assert text.isprintable(), f"{type(each).__name__}: {text!r}"
    for view in monitor(telemetry):
        if isinstance(view, DevicesView):
            view.density = (AUTO, *DENSITIES)[number % (1 + len(DENSITIES))]
            view.plan(width, height)
        if isinstance(view, TimelineView):
            view.action_zoom(number % 5)
        if isinstance(view, ProcessesView):
            view.redraw()
            view.action_sort(number % 15)
            view.action_move(3)
        for row in view.draw(width, height)[:height]:
            text = "".join(span.text for span in row)
            assert text.isprintable(), f"{type(view).__name__}: {text!r}"
            fitted = fit(row, width)
            assert width_of(fitted) == width, f"{type(view).__name__}: {fitted}"


SIZES = ((1, 1), (2, 2), (7, 80), (12, 9), (250, 1), (40, 10), (80, 24), (120, 40), (250, 80))


def monitor(telemetry: Telemetry) -> Iterator[LiveView]:
    for view in (DeviceTitle(telemetry), TimelineView(telemetry), EventsView(telemetry)):
        view.device = telemetry.devices[0] if telemetry.devices else None
        yield view
    yield from (DevicesView(telemetry), ProcessesView(telemetry))
    yield from (Header(telemetry), HostView(telemetry))


def pages(telemetry: Telemetry) -> Iterator[ScrolledPage]:
    for of_all in (True, False):
        findings = FindingsView(telemetry)
        findings.of_all = of_all
        findings.device = telemetry.devices[0] if telemetry.devices else None
        yield findings
    details = DetailsView(telemetry)
    details.device = telemetry.devices[0] if telemetry.devices else None
    yield details


VIEWS = (View(processes="below"), View(width=60))
COLUMNS = parse_query(DEFAULT_QUERY)


class _Asked:
    """A sampler that is asked for nothing that there is not."""

    def set_interval(self, seconds: float) -> None:
        assert 0.25 <= seconds <= 60

    def set_gpm(self, *, wanted: bool) -> None:
        assert isinstance(wanted, bool)
