"""The screens as text, which a review can read, and a few as pictures.

After an intended change: `pytest --snapshot-update`, and look at the difference.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Select

from gputop.agent.snapshot import Record, Source
from gputop.bench.events import Verified
from gputop.bench.run.run import Run
from gputop.ui.benchmark.readout import ReadoutView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests.runs import gpu_run
from tests.streams import PreparedStream, crowd, inventory, lost, no_driver, readings, sample
from tests.ui import scenes
from tests.ui.conftest import Same
from tests.ui.pilots import app_with, open_form, settle, shown, until
from tests.ui.together import GPUS, Scripted, begun

Scene = Callable[[], list["Record"]]
"""Makes the records of a screen, in the test that shows it."""
NARROW, USUAL, MEDIUM, LARGE = (60, 24), (80, 24), (120, 40), (200, 60)


def named(size: object) -> str:
    return f"{size[0]}x{size[1]}" if isinstance(size, tuple) else f"{size}"


def ready(*keys: str) -> Any:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press(*keys)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await settle(pilot)

    return run_before


CROWD = tuple(crowd(1000))


@pytest.mark.parametrize(
    ("records", "size", "keys"),
    [
        pytest.param(partial(scenes.job, 8), USUAL, "", id="8 devices"),
        pytest.param(partial(scenes.job, 1), MEDIUM, "", id="1 device"),
        pytest.param(partial(scenes.job, 64), MEDIUM, "", id="64 devices"),
        pytest.param(partial(scenes.job, 16), LARGE, "", id="16 devices"),
        pytest.param(scenes.faults, NARROW, "", id="faults"),
        pytest.param(lambda: [no_driver(), sample()], NARROW, "", id="no driver"),
        pytest.param(partial(scenes.job, 2), NARROW, "enter", id="page, narrow"),
        pytest.param(partial(scenes.job, 2), MEDIUM, "enter", id="page"),
        pytest.param(partial(scenes.job, 8, 2, processes=CROWD), NARROW, "3", id="processes"),
        pytest.param(partial(scenes.job, 8), USUAL, "3 f9 enter", id="signal"),
        pytest.param(partial(scenes.job, 2), NARROW, "question_mark", id="help, narrow"),
        pytest.param(partial(scenes.job, 2), MEDIUM, "question_mark", id="help"),
        pytest.param(partial(scenes.job, 8), USUAL, "f2", id="settings"),
        pytest.param(partial(scenes.job, 2), NARROW, "2", id="benchmark"),
        pytest.param(partial(scenes.job, 2), NARROW, "b", id="question"),
    ],
)
def test_screen(same_text: Same, records: Scene, size: tuple[int, int], keys: str) -> None:
    app = app_with(*records())
    assert same_text(app, terminal_size=size, run_before=ready(*keys.split()))


def test_alerts(same_text: Same) -> None:
    app = GputopApp(PreparedStream(*scenes.alarming(8)))  # which judges each sample
    assert same_text(app, terminal_size=MEDIUM, run_before=ready())


@pytest.mark.parametrize(
    ("records", "size", "keys"),
    [
        pytest.param(partial(scenes.job, 8), MEDIUM, "", id="monitor"),
        pytest.param(scenes.faults, MEDIUM, "", id="faults"),
        pytest.param(partial(scenes.job, 2), MEDIUM, "enter", id="page"),
        pytest.param(partial(scenes.job, 8), MEDIUM, "2", id="benchmark"),
        pytest.param(partial(scenes.job, 2), USUAL, "ctrl+p", id="palette"),
    ],
)
def test_picture(snap_compare: Any, records: Scene, size: tuple[int, int], keys: str) -> None:
    app = app_with(*records())
    assert snap_compare(app, terminal_size=size, run_before=ready(*keys.split()))


@pytest.mark.parametrize("size", [USUAL, MEDIUM], ids=named)
def test_benchmark_simulated_with_a_throttle(
    snap_compare: Any, same_text: Same, size: tuple[int, int]
) -> None:
    run = gpu_run(60.0, 45.0)
    target = dataclasses.replace(run.request.target, name="simulated H100", simulated=True)
    run.request = dataclasses.replace(run.request, target=target)
    run.add_event(Verified(45, 0, 44))
    app = app_with(dataclasses.replace(inventory(2), source=Source.SIMULATED), sample(2))

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        tab = pilot.app.query_one(BenchmarkTab)
        tab._show_run(Run.of(run))
        tab._redraw_run()
        await settle(pilot)

    same = snap_compare if size == MEDIUM else same_text
    assert same(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize(("count", "size"), [(2, USUAL), (8, MEDIUM)], ids=named)
def test_benchmark_of_several_devices(
    same_text: Same, scripted: type[Scripted], count: int, size: tuple[int, int]
) -> None:
    scripted.script = {gpu.number: begun(gpu, 24.0) for gpu in GPUS}
    app = app_with(inventory(count), sample(count, []))

    async def run_before(pilot: Pilot[None]) -> None:
        await open_form(pilot)
        app.query_one("#device", Select).value = "all"
        await settle(pilot)
        await pilot.press("b")
        await until(pilot, lambda: shown(pilot, ReadoutView).count("24 s of 1:00") == 1)
        app.query_one(BenchmarkTab)._redraw_run()
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


def test_header_at_many_widths(snapshot: Any) -> None:
    """With a device that does not answer, one whose readings are old and one without power."""
    others = (lost(0), readings(1, age_seconds=5.0), readings(2, power_watts=None))
    unknown = (readings(3, memory_used_bytes=None), readings(4, memory_total_bytes=None))
    devices = (*others, *unknown, readings(5, memory_used_bytes=0), readings(6), readings(7))
    telemetry = Telemetry()
    telemetry.receive(inventory(8, interval_seconds=0.5, hostname="node07.rack-3.example.org"))
    telemetry.receive(dataclasses.replace(sample(8), devices=devices))
    header = Header(telemetry)
    header.recording = True
    found = []
    for width in (30, 59, 60, 79, 80, 100, 120, 140, 180):
        for row in header.draw(width, 3):
            found.append("".join(span.text for span in row).rstrip())
    assert "\n".join(found) == snapshot
