"""The screens as text, and a few as pictures.

After an intended change: `pytest --snapshot-update`, and look at the difference. Layout and words
are compared as text, which a review can read. A picture (SVG) is only of what has to look right.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input, Select

from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import Sample, Source
from gputop.bench.events import Verified
from gputop.bench.results import store
from gputop.bench.run.run import Run
from gputop.settings import Settings
from gputop.ui.benchmark import running
from gputop.ui.benchmark.readout import ReadoutView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.drawing.look import Terminal
from gputop.ui.processes.process_page import ProcessDetailsView
from gputop.ui.shell.app import GputopApp
from tests.agent.reader import Clock
from tests.bench.kept import soak
from tests.driver.platforms import PLATFORMS
from tests.runs import gpu_run
from tests.sessions import table_events, table_result
from tests.streams import NOW, PreparedStream, host, inventory, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import app_with, ended, lines, settle, shown, text_of, until
from tests.ui.together import GPUS, begun

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

    from gputop.agent.snapshot import Record
    from tests.driver import FakeDevice, FakeDriver
    from tests.sessions import PreparedSession
    from tests.ui.conftest import Same
    from tests.ui.together import Scripted

Scene = Callable[[], list["Record"]]
"""Makes the records of a screen, in the test that shows it."""
NARROW, USUAL, MEDIUM, LARGE = (60, 24), (80, 24), (120, 40), (200, 60)


def named(size: object) -> str:
    return f"{size[0]}x{size[1]}" if isinstance(size, tuple) else f"{size}"


def judged(*records: Record, **looks: Any) -> GputopApp:
    """Return a dashboard that judges each record, since findings depend on those before."""
    return GputopApp(PreparedStream(*records), **looks)


def ready(*keys: str) -> Any:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False
        await settle(pilot)

    return run_before


# Devices, sizes and looks.


def no_device() -> list[Record]:
    return [no_driver(), Sample(NOW, host(16))]


@pytest.mark.parametrize(
    ("records", "size", "keys"),
    [
        pytest.param(partial(scenes.job, 8), USUAL, "", id="8 devices"),
        pytest.param(partial(scenes.job, 1), MEDIUM, "", id="1 device"),
        pytest.param(partial(scenes.job, 64), MEDIUM, "", id="64 devices"),
        pytest.param(partial(scenes.job, 16), LARGE, "", id="16 devices"),
        pytest.param(scenes.faults, NARROW, "", id="faults"),
        pytest.param(no_device, NARROW, "", id="no driver"),
        pytest.param(partial(scenes.job, 2), NARROW, "enter", id="page, narrow"),
        pytest.param(partial(scenes.job, 2), MEDIUM, "enter", id="page"),
        pytest.param(scenes.one_is_lost, USUAL, "enter", id="page of a lost device"),
        pytest.param(partial(scenes.busy_machine, 1000), NARROW, "3", id="processes"),
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


@pytest.mark.parametrize(
    ("records", "size", "keys"),
    [
        pytest.param(partial(scenes.alarming, 8), MEDIUM, "", id="alerts"),
        pytest.param(scenes.slow, MEDIUM, "", id="monitor"),
        pytest.param(scenes.slow, USUAL, "w w", id="why"),
    ],
)
def test_findings(same_text: Same, records: Scene, size: tuple[int, int], keys: str) -> None:
    app = judged(*records())
    assert same_text(app, terminal_size=size, run_before=ready(*keys.split()))


async def screen_of(app: GputopApp, size: tuple[int, int], *keys: str) -> list[Strip]:
    async with app.run_test(size=size) as pilot:
        await ready(*keys)(pilot)
        return lines(app)


def test_monitor_in_ascii(snapshot: Any) -> None:
    looks = {"settings": Settings(ascii=True), "terminal": Terminal(colours=16)}
    text = text_of(asyncio.run(screen_of(app_with(*scenes.job(8), **looks), USUAL)))
    assert text.isascii()
    assert "\n".join(line.rstrip() for line in text.splitlines()) == snapshot


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


@pytest.mark.parametrize(
    ("records", "size", "keys", "looks"),
    [
        pytest.param(scenes.slow, MEDIUM, "w", {}, id="why"),
        # A picture has a dark background whatever the theme.
        pytest.param(partial(scenes.alarming, 8), USUAL, "", {"theme": "light"}, id="light"),
    ],
)
def test_picture_of_findings(
    snap_compare: Any,
    records: Scene,
    size: tuple[int, int],
    keys: str,
    looks: dict[str, Any],
) -> None:
    app = judged(*records(), settings=Settings(**looks))
    assert snap_compare(app, terminal_size=size, run_before=ready(*keys.split()))


# What may be wrong.


# Machines that have not all that an H100 has.


def preset(name: str, **changes: Any) -> FakeDevice:
    """One of `tests.driver.platforms`; GPM begins with Hopper."""
    return PLATFORMS[name](**{"gpm_supported": int(name in ("h100", "gb10")), **changes})


def machine_of(nvml: FakeDriver, *devices: FakeDevice) -> list[Record]:
    """Return the inventory of these devices in one machine."""
    nvml.write(*devices)
    start()
    clock = Clock()
    readers = [NvmlReader(n, "580.95.05", clock) for n in range(len(devices))]
    for reader in readers:  # rates need two readings
        reader.read(gpm=True)
    clock.seconds += 1.0
    return scenes.platform(*(r for reader in readers for r in reader.read(gpm=True)))


@pytest.mark.driver
@pytest.mark.parametrize(
    ("names", "size", "keys"),
    [
        (["a100_mig"], MEDIUM, ""),
        (["gb10"], USUAL, ""),
        (["gb10"], MEDIUM, "enter"),
        (["vgpu_guest"], USUAL, ""),
        ([*PLATFORMS], MEDIUM, ""),
    ],
    ids=["mig", "gb10", "page of gb10", "vgpu guest", "each"],
)
def test_platforms(
    same_text: Same, nvml: FakeDriver, names: list[str], size: tuple[int, int], keys: str
) -> None:
    app = app_with(*machine_of(nvml, *map(preset, names)))
    assert same_text(app, terminal_size=size, run_before=ready(*keys.split()))


# What opens over the tabs.


def test_process_page(same_text: Same, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.processes.process_page.read_details", lambda *_: scenes.DETAILS)

    async def run_before(pilot: Pilot[None]) -> None:
        await ready("3", "enter")(pilot)
        await until(pilot, lambda: "Parents" in shown(pilot, ProcessDetailsView))
        await settle(pilot)

    assert same_text(app_with(*scenes.job(2)), terminal_size=USUAL, run_before=run_before)


# Stress tests.


def test_benchmark_after_a_run(same_text: Same, session: type[PreparedSession]) -> None:
    app = app_with(no_driver(), sample())

    async def run_before(pilot: Pilot[None]) -> None:
        await ready("b")(pilot)
        await ended(pilot)

    assert same_text(app, terminal_size=USUAL, run_before=run_before)


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


@pytest.mark.parametrize("keys", ["d j d", "j delete"])
def test_benchmark_results(same_text: Same, monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    between: dict[str, Any] = {"tflops_mean_interval": (778.0, 782.0), "torch_version": "2.9.1"}
    kept = [soak(780.0, **between), soak(720.0, ago=3600.0, tflops_mean_interval=(719.0, 721.0))]
    kept += [soak(790.0 - n, ago=7200.0 + n) for n in range(9)]
    monkeypatch.setattr(store, "recent", lambda _: kept)
    app = app_with(no_driver(), sample())

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "H200" in shown(pilot, ResultsView))
        await pilot.press(*keys.split())
        pilot.app.clear_notifications()
        await settle(pilot)

    assert same_text(app, terminal_size=USUAL, run_before=run_before)


@pytest.mark.parametrize(("count", "size"), [(2, USUAL), (8, MEDIUM)], ids=named)
def test_benchmark_of_several_devices(
    same_text: Same, scripted: type[Scripted], count: int, size: tuple[int, int]
) -> None:
    scripted.script = {gpu.number: begun(gpu, 24.0) for gpu in GPUS}
    app = app_with(inventory(count), sample(count, []))

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        app.query_one("#kind", Select).value = "soak"
        app.query_one("#device", Select).value = "all"
        await settle(pilot)
        await pilot.press("b")
        await until(pilot, lambda: shown(pilot, ReadoutView).count("24 s of 1:00") == 1)
        app.query_one(BenchmarkTab)._redraw_run()
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize("kind", ["step", "copy"])
def test_benchmark_of_every_kind(
    same_text: Same, session: type[PreparedSession], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(store, "recent", lambda _: [table_result("sweep")])
    monkeypatch.setattr(running, "Run", partial(Run, now=lambda: 0.0))
    session.to_send = table_events(kind)
    app = app_with(no_driver(), sample())

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "sweep" in shown(pilot, ResultsView))
        app.query_one("#kind", Select).value = kind
        await settle(pilot)
        await pilot.press("b")
        await ended(pilot)

    assert same_text(app, terminal_size=USUAL, run_before=run_before)
