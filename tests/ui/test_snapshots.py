"""The screens as text, and a few as pictures.

After an intended change: `pytest --snapshot-update`, and look at the difference. Layout and words
are compared as text, which a review can read. A picture (SVG) is only of what has to look right.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from rich.color import ColorSystem
from rich.style import Style
from textual.widgets import Input, Select

from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import DriverState, Inventory, Sample, Source
from gputop.bench.events import Done, Progress, Verified
from gputop.bench.run.run import Run
from gputop.settings import Settings
from gputop.ui.benchmark import screen
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.benchmark.throughput_chart import ThroughputChart
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
from tests.ui.pilots import app_with, at_second, dashboard_of, lines, settle, shown, text_of, until
from tests.ui.together import GPUS, begun, mean, result

if TYPE_CHECKING:
    from textual.pilot import Pilot
    from textual.strip import Strip

    from gputop.agent.snapshot import Record
    from gputop.bench.plan.request import Target
    from tests.driver import FakeDevice, FakeDriver
    from tests.sessions import PreparedSession
    from tests.ui.conftest import Same
    from tests.ui.together import Scripted

HEIGHTS = {60: 24, 80: 24, 120: 40, 200: 60}
SIZES = [*HEIGHTS.items()]
NARROW, USUAL, MEDIUM, LARGE = SIZES


def named(size: object) -> str:
    return f"{size[0]}x{size[1]}" if isinstance(size, tuple) else f"{size}"


every_size = pytest.mark.parametrize("size", SIZES, ids=named)


def judged(*records: Record, **looks: Any) -> GputopApp:
    """Return a dashboard that judges each record, since findings depend on those before."""
    return GputopApp(PreparedStream(*records), **looks)


def ready(*keys: str) -> Any:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        await settle(pilot)

    return run_before


# Devices, sizes and looks.


@pytest.mark.parametrize(
    ("devices", "size"),
    [(1, USUAL), (2, USUAL), (8, USUAL), (1, MEDIUM), (8, MEDIUM), (64, MEDIUM), (16, LARGE)],
    ids=named,
)
def test_monitor(same_text: Same, devices: int, size: tuple[int, int]) -> None:
    assert same_text(app_with(*scenes.job(devices)), terminal_size=size, run_before=ready())


async def screen_of(app: GputopApp, size: tuple[int, int], *keys: str) -> list[Strip]:
    async with app.run_test(size=size) as pilot:
        await ready(*keys)(pilot)
        return lines(app)


def styled(strips: list[Strip]) -> str:
    """Each row and, under it, how many cells are in which style; the styles follow.

    A style is what Rich sends to a terminal of 16 colours, without the escapes around it.
    """
    names: dict[str, str] = {}
    rows = []
    for strip in strips:
        runs: list[tuple[str, int]] = []
        for segment in strip:
            sent = "" if segment.style is None else sent_for(segment.style)
            # Of a blank nothing is seen but its background.
            sent = sent if segment.text.strip() or is_filled(sent) else ""
            runs.append((names.setdefault(sent, chr(ord("a") + len(names))), segment.cell_length))
        merged = [
            f"{name}{sum(n for _, n in group)}"
            for name, group in itertools.groupby(runs, lambda run: run[0])
        ]
        rows += [f"|{strip.text.rstrip()}", " ".join(merged)]
    return "\n".join([*rows, *(f"{name} = {sent or 'plain'}" for sent, name in names.items())])


def sent_for(style: Any) -> str:
    # A new one: Rich keeps what a style was first rendered as, in whatever colours.
    names = ("bold", "dim", "italic", "underline", "reverse", "strike")
    attributes = {name: getattr(style, name) for name in names}
    style = Style(color=style.color, bgcolor=style.bgcolor, **attributes)
    before, _, _ = style.render("x", color_system=ColorSystem.STANDARD).partition("x")
    return str(before).strip("\x1b[m")


def is_filled(sent: str) -> bool:
    return any(code == "7" or code.startswith(("4", "10")) for code in sent.split(";"))


def test_monitor_in_16_colours(snapshot: Any) -> None:
    app = app_with(*scenes.job(8), terminal=Terminal(colours=16))
    strips = asyncio.run(screen_of(app, USUAL))
    assert styled(strips) == snapshot


def test_monitor_in_ascii(snapshot: Any) -> None:
    looks = {"settings": Settings(ascii=True), "terminal": Terminal(colours=16)}
    text = text_of(asyncio.run(screen_of(app_with(*scenes.job(8), **looks), USUAL)))
    assert text.isascii()
    assert "\n".join(line.rstrip() for line in text.splitlines()) == snapshot


@pytest.mark.parametrize(
    ("records", "keys"),
    [(scenes.job(8), ()), (scenes.faults(), ()), (scenes.job(2), ("enter",)), (scenes.job(8), "2")],
    ids=["monitor", "faults", "page", "benchmark"],
)
def test_picture(snap_compare: Any, records: list[Record], keys: tuple[str, ...]) -> None:
    assert snap_compare(app_with(*records), terminal_size=MEDIUM, run_before=ready(*keys))


def test_light_theme(snap_compare: Any) -> None:
    """A picture has a dark background whatever the theme."""
    app = judged(*scenes.alarming(8), settings=Settings(theme="light"))
    assert snap_compare(app, terminal_size=USUAL, run_before=ready())


# What may be wrong.


@pytest.mark.parametrize("size", [NARROW, MEDIUM], ids=named)
def test_faults(same_text: Same, size: tuple[int, int]) -> None:
    assert same_text(app_with(*scenes.faults()), terminal_size=size, run_before=ready())


@pytest.mark.parametrize("size", [NARROW, MEDIUM], ids=named)
def test_alerts(same_text: Same, size: tuple[int, int]) -> None:
    assert same_text(judged(*scenes.alarming(8)), terminal_size=size, run_before=ready())


@pytest.mark.parametrize("size", [NARROW, MEDIUM], ids=named)
def test_no_driver(same_text: Same, size: tuple[int, int]) -> None:
    records: list[Record] = [no_driver(), Sample(NOW, host(16))]
    assert same_text(app_with(*records), terminal_size=size, run_before=ready())


def test_the_driver_does_not_answer_yet(same_text: Same) -> None:
    machine = inventory(driver_state=DriverState.STARTING, driver_version=None, cuda_version=None)
    app = app_with(machine, Sample(NOW, host(16)))

    async def run_before(pilot: Pilot[None]) -> None:
        at_second(app, 12)
        await settle(pilot)

    assert same_text(app, terminal_size=USUAL, run_before=run_before)


def test_paused(same_text: Same, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_with(*scenes.job(2))

    async def run_before(pilot: Pilot[None]) -> None:
        await ready("space")(pilot)
        assert dashboard_of(app).telemetry.paused
        dashboard_of(app).show()
        await settle(pilot)

    assert same_text(app, terminal_size=USUAL, run_before=run_before)


def test_simulated(same_text: Same) -> None:
    machine, *others = scenes.job(2)
    assert isinstance(machine, Inventory)
    simulated = dataclasses.replace(machine, source=Source.SIMULATED)
    app = app_with(simulated, *others)
    assert same_text(app, terminal_size=NARROW, run_before=ready())


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
def test_mig(same_text: Same, nvml: FakeDriver) -> None:
    app = app_with(*machine_of(nvml, preset("a100_mig")))
    assert same_text(app, terminal_size=MEDIUM, run_before=ready())


@pytest.mark.driver
@pytest.mark.parametrize("name", ["gb10", "wsl", "orin", "vgpu_guest"])
def test_platform(same_text: Same, nvml: FakeDriver, name: str) -> None:
    app = app_with(*machine_of(nvml, preset(name)))
    assert same_text(app, terminal_size=USUAL, run_before=ready())


@pytest.mark.driver
def test_platforms_in_rows(same_text: Same, nvml: FakeDriver) -> None:
    app = app_with(*machine_of(nvml, *map(preset, PLATFORMS)))
    assert same_text(app, terminal_size=MEDIUM, run_before=ready())


# Why is it slow.


@pytest.mark.parametrize("size", [USUAL, LARGE], ids=named)
def test_why(same_text: Same, size: tuple[int, int]) -> None:
    assert same_text(judged(*scenes.slow()), terminal_size=size, run_before=ready("w", "w"))


def test_why_of_all_devices(snap_compare: Any) -> None:
    app = judged(*scenes.slow())
    assert snap_compare(app, terminal_size=MEDIUM, run_before=ready("w"))


def test_monitor_with_findings(same_text: Same) -> None:
    assert same_text(judged(*scenes.slow()), terminal_size=MEDIUM, run_before=ready())


# The device's page.


@every_size
def test_page(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(*scenes.job(2))
    assert same_text(app, terminal_size=size, run_before=ready("enter"))


@pytest.mark.driver
@pytest.mark.parametrize(("name", "size"), [("orin", USUAL), ("gb10", MEDIUM)], ids=named)
def test_page_with_many_absences(
    same_text: Same, nvml: FakeDriver, name: str, size: tuple[int, int]
) -> None:
    app = app_with(*machine_of(nvml, preset(name)))
    assert same_text(app, terminal_size=size, run_before=ready("enter"))


def test_page_of_a_lost_device(same_text: Same) -> None:
    app = app_with(*scenes.one_is_lost())
    assert same_text(app, terminal_size=USUAL, run_before=ready("enter"))


# Processes.


@pytest.mark.parametrize("size", [NARROW, LARGE], ids=named)
def test_processes(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(*scenes.busy_machine(1000))
    assert same_text(app, terminal_size=size, run_before=ready("3"))


# What opens over the tabs.


@pytest.mark.parametrize("size", [NARROW, USUAL, MEDIUM], ids=named)
def test_help(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(*scenes.job(2))
    assert same_text(app, terminal_size=size, run_before=ready("question_mark"))


def test_help_further_down(same_text: Same) -> None:
    app = app_with(*scenes.job(2))
    keys = ("question_mark", *["pagedown"] * 3)
    assert same_text(app, terminal_size=USUAL, run_before=ready(*keys))


@pytest.mark.daily(2)
@pytest.mark.parametrize("keys", [("f9",), ("f9", "enter")], ids=["choosing", "asking"])
def test_signal(same_text: Same, keys: tuple[str, ...]) -> None:
    app = app_with(*scenes.job(8))
    assert same_text(app, terminal_size=USUAL, run_before=ready("3", *keys))


def test_process_page(same_text: Same, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.processes.process_page.read_details", lambda *_: scenes.DETAILS)

    async def run_before(pilot: Pilot[None]) -> None:
        await ready("3", "enter")(pilot)
        await until(pilot, lambda: "Parents" in shown(pilot, ProcessDetailsView))
        await settle(pilot)

    assert same_text(app_with(*scenes.job(2)), terminal_size=USUAL, run_before=run_before)


@pytest.mark.daily(3)
@pytest.mark.parametrize("size", [USUAL, MEDIUM], ids=named)
@pytest.mark.parametrize("key", ["f2", "o", "g"], ids=["settings", "columns", "number"])
def test_dialog_with_choices(same_text: Same, key: str, size: tuple[int, int]) -> None:
    assert same_text(app_with(*scenes.job(8)), terminal_size=size, run_before=ready(key))


def test_the_palette_of_commands(snap_compare: Any) -> None:
    app = app_with(*scenes.job(2))
    assert snap_compare(app, terminal_size=USUAL, run_before=ready("ctrl+p"))


# Stress tests.


@pytest.mark.parametrize("size", [NARROW, MEDIUM], ids=named)
def test_benchmark_before_a_run(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(*scenes.job(2))
    assert same_text(app, terminal_size=size, run_before=ready("2"))


@pytest.mark.parametrize("size", [NARROW, USUAL], ids=named)
def test_benchmark_after_a_run(
    same_text: Same, session: type[PreparedSession], size: tuple[int, int]
) -> None:
    app = app_with(no_driver(), sample())
    assert same_text(app, terminal_size=size, run_before=ready("b"))


def test_benchmark_with_a_wrong_field(same_text: Same) -> None:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        pilot.app.query_one("#kind", Select).value = "soak"
        await settle(pilot)
        pilot.app.query_one("#size", Input).value = "63"
        await pilot.press("b")
        await settle(pilot)

    app = app_with(no_driver(), sample())
    assert same_text(app, terminal_size=NARROW, run_before=run_before)


@pytest.mark.parametrize("size", SIZES, ids=named)
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


@pytest.mark.daily(3)
@pytest.mark.parametrize("size", [USUAL], ids=named)
@pytest.mark.parametrize("keys", ["j", "d j d", "j delete"])
def test_benchmark_results(
    same_text: Same, monkeypatch: pytest.MonkeyPatch, keys: str, size: tuple[int, int]
) -> None:
    between: dict[str, Any] = {"tflops_mean_interval": (778.0, 782.0), "torch_version": "2.9.1"}
    kept = [soak(780.0, **between), soak(720.0, ago=3600.0, tflops_mean_interval=(719.0, 721.0))]
    kept += [soak(790.0 - n, ago=7200.0 + n) for n in range(9)]
    monkeypatch.setattr(screen, "recent", lambda _: kept)
    app = app_with(no_driver(), sample())

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "H200" in shown(pilot, ResultsView))
        await pilot.press(*keys.split())
        await settle(pilot)
        pilot.app.clear_notifications()
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize("size", [USUAL, MEDIUM], ids=named)
@pytest.mark.parametrize("count", [2, 8])
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
        app.query_one(ThroughputChart).redraw()
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize("size", [USUAL], ids=named)
def test_benchmark_of_pairs(
    same_text: Same, scripted: type[Scripted], size: tuple[int, int]
) -> None:
    def slower(gpu: Target, share: float) -> list[Any]:
        faster = [
            dataclasses.replace(e, tflops=share * e.tflops) if isinstance(e, Progress) else e
            for e in begun(gpu, 20.0)
        ]
        return [*faster, Done(result(gpu, tflops_mean=share * mean(gpu), seconds=20.0))]

    scripted.script = {gpu.number: slower(gpu, 1.0) for gpu in GPUS}
    scripted.together = {gpu.number: slower(gpu, 0.9) for gpu in GPUS}
    app = app_with(inventory(2), sample(2, []))

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        app.query_one("#kind", Select).value = "pairs"
        await settle(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "Done" in shown(pilot, TitleView))
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize("size", [USUAL], ids=named)
def test_several_devices_to_choose(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(inventory(4), sample(4, []))

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        app.query_one("#device", Select).value = "more"
        await settle(pilot)
        await pilot.press("down", "space")
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)


@pytest.mark.parametrize("size", [NARROW, USUAL], ids=named)
def test_the_question(same_text: Same, size: tuple[int, int]) -> None:
    app = app_with(*scenes.job(2))
    assert same_text(app, terminal_size=size, run_before=ready("b"))


@pytest.mark.daily(6)
@pytest.mark.parametrize("size", [USUAL], ids=named)
@pytest.mark.parametrize("kind", ["sweep", "latency", "copy"])
def test_benchmark_of_every_kind(
    same_text: Same,
    session: type[PreparedSession],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    size: tuple[int, int],
) -> None:
    monkeypatch.setattr(screen, "recent", lambda _: [table_result("sweep")])
    monkeypatch.setattr(screen, "Run", partial(Run, now=lambda: 0.0))
    session.to_send = table_events(kind)
    app = app_with(no_driver(), sample())

    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("2")
        await until(pilot, lambda: "sweep" in shown(pilot, ResultsView))
        app.query_one("#kind", Select).value = kind
        await settle(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "Done" in shown(pilot, TitleView))
        await settle(pilot)

    assert same_text(app, terminal_size=size, run_before=run_before)
