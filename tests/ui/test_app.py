"""The dashboard through its keys, fed by a prepared stream."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from textual.events import Key
from textual.widgets import ContentSwitcher

from gputop.agent.snapshot import Source
from gputop.bench.events import Done, RunLimit
from gputop.bench.results import store
from gputop.bench.run import simulation
from gputop.console import INTERRUPTED
from gputop.settings import Settings
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.look import Terminal
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.host import HostView
from gputop.ui.monitor.layout import Density
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.actions import ACTIONS, HOSTS, TRAINING
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import Help
from gputop.ui.shell.tabs import Tabs
from tests.sessions import EVENTS, RESULT
from tests.streams import PreparedStream, device, inventory, no_driver, process, readings, sample
from tests.ui import scenes
from tests.ui.pilots import (
    app_with,
    dashboard_of,
    ended,
    keep_in,
    lines,
    open_form,
    resize,
    settle,
    settled,
    shown,
    text_of_help,
    until,
)

if TYPE_CHECKING:
    from gputop.bench.events import Result
    from tests.sessions import EndlessSession, PreparedSession


async def test_without_a_driver_the_host_is_shown_until_devices_appear() -> None:
    stream = PreparedStream(no_driver(), sample())
    async with settled(GputopApp(stream), (80, 24)) as (app, pilot):
        text = shown(pilot, HostView)
        assert "No NVIDIA driver: libnvidia-ml.so.1 is not found." in text
        assert "Install the driver" in text
        assert "load 3.20" in shown(pilot, Header)
        assert not app.query_one(DevicesView).display
        stream.send(inventory(1))
        stream.send(sample(1))
        await settle(pilot)
        assert not app.query_one(HostView).display
        assert "H100" in shown(pilot, DevicesView)


async def test_the_selection_follows_the_keys_and_the_mouse_and_stays_with_its_device() -> None:
    stream = PreparedStream(inventory(8), sample(8))
    async with settled(GputopApp(stream)) as (app, pilot):
        view = app.query_one(DevicesView)
        await pilot.press("j", "down", "up", "end")
        assert view.device is not None
        assert view.device.index == 7
        await pilot.press("home", "k")
        assert view.device.index == 0
        await pilot.click(DevicesView, offset=(70, 9))
        assert view.device.index == 3
        gone = dataclasses.replace(inventory(8), devices=inventory(8).devices[2:])
        stream.send(gone)
        stream.send(sample(8))
        await settle(pilot)
        assert view.device.index == 3


async def test_the_density_can_be_chosen_by_hand() -> None:
    async with settled(app_with(inventory(2), sample(2))) as (app, pilot):
        seen = []
        for _ in range(3):
            await pilot.press("c")
            seen.append(app.query_one(DevicesView).current_layout)
        assert [layout.density for layout in seen if layout] == [
            Density.ROW,
            Density.COMPACT,
            Density.FULL,
        ]


LOOKS: list[dict[str, Any]] = [
    {},
    {"settings": Settings(theme="light", density="row")},
    {"settings": Settings(ascii=True)},
    *({"terminal": Terminal(colours=colours)} for colours in (16, 0)),
]


@pytest.mark.daily(3)
@pytest.mark.parametrize("looks", LOOKS)
async def test_what_is_selected_is_seen_in_every_look(looks: dict[str, Any]) -> None:
    """The selected row of the list with the focus is reversed, and that of the other is bold."""
    async with settled(app_with(*scenes.job(2), **looks)) as (app, pilot):

        def marked(attribute: str) -> str:
            """Return the text below the header in that style."""
            rows = [[*row] for row in lines(app)[2:-1]]
            found = (s.text for row in rows for s in row if s.style and getattr(s.style, attribute))
            return "".join(found)

        await pilot.press("down")
        assert marked("reverse").split()[:2] == ["1", "H100"]
        assert "pretrain.py" in marked("bold")
        await pilot.press("tab")
        assert "H100" not in marked("reverse")
        assert "1 H100" in marked("bold")
        assert "pretrain.py" in marked("reverse")
        assert "pretrain.py" not in marked("bold")


@pytest.mark.usefixtures("counts_silence")
async def test_a_tick_while_the_screen_goes_ends_nothing() -> None:
    async with settled(app_with(inventory(1), sample(1))) as (app, _):
        dashboard = dashboard_of(app)
        await dashboard.query_one("#monitor").remove()
        dashboard.telemetry.received_at -= 10
        app._tick()


async def test_foreign_text_is_inert() -> None:
    evil = "evil \x1b[2J[bold red]x[/] \u202egnp.exe\x00"
    processes = [process(1, 0, command=evil, user="[blink]root\x07")]
    app = app_with(inventory(1, hostname="\x1b]0;h\x07"), sample(1, processes))
    async with settled(app) as (_, pilot):
        text = shown(pilot, ProcessesView)
        assert "evil ␛[2J[bold red]x[/] ⟨202e⟩gnp.exe␀" in text
        assert "[blink]root␇" in text
        assert "␛]0;h␇" in shown(pilot, Header)


async def test_help_names_every_key() -> None:
    """Those of a replay, of several hosts and of a training are listed where there is one."""
    elsewhere = [a for a in ACTIONS if a.tabs in (HOSTS, TRAINING) or a.id == "tab.training"]
    here = [a for a in ACTIONS if a.when != "replay" and a not in elsewhere]
    listed = {action.help for action in here}
    app = app_with(inventory(1), sample(1))
    async with app.run_test(size=(100, 60)) as pilot:
        for opens, closes in (("question_mark", "escape"), ("h", "h")):
            await pilot.press(opens)
            assert isinstance(app.screen, Help)
            text = text_of_help(app)
            assert {a.help for a in ACTIONS if a.help in text} == listed
            assert all(" ".join(action.key_names) in text for action in here)
            await pilot.press(closes)
            assert not isinstance(app.screen, Help)


@pytest.mark.parametrize("by", ["q", "a signal"])
async def test_the_end_waits_for_the_benchmark_tab_that_is_being_made(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual fails at a tab that is mounted while its screen is removed."""
    app = app_with(inventory(1), sample(1))
    may_go_on, add = asyncio.Event(), Tabs.add_content

    async def add_later(tabs: Tabs, tab: Any) -> None:
        if isinstance(tab, BenchmarkTab):
            await may_go_on.wait()
        await add(tabs, tab)

    monkeypatch.setattr(Tabs, "add_content", add_later)
    async with settled(app, (80, 24)) as (_, pilot):
        making = asyncio.create_task(dashboard_of(app).tabs.get_benchmark())
        await settle(pilot)
        pressed = asyncio.create_task(pilot.press("q")) if by == "q" else None
        if pressed is None:
            os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.is_running
        may_go_on.set()
        await until(pilot, lambda: not app.is_running)
        assert isinstance(making.result(), BenchmarkTab)
    assert (app.fault, app.return_code) == (None, 0 if by == "q" else INTERRUPTED)


async def test_a_key_right_after_a_signal_does_not_hold_up_the_end() -> None:
    async with settled(app_with(inventory(1), sample(1)), (80, 24)) as (app, pilot):
        app.post_message(Key("2", "2"))
        os.kill(os.getpid(), signal.SIGTERM)
        app.post_message(Key("2", "2"))
        await until(pilot, lambda: not app.is_running)
    assert (app.fault, app.return_code) == (None, INTERRUPTED)


async def fail_in(app: GputopApp) -> None:
    async with settled(app, (80, 24)) as (_, pilot):
        app.call_later(lambda: 1 // 0)
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("debug", ["", "1"])
async def test_a_bug_ends_with_a_line_and_with_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str
) -> None:
    monkeypatch.setenv("GPUTOP_DEBUG", debug)
    app = app_with(inventory(1), sample(1))
    with pytest.raises(ZeroDivisionError):
        await fail_in(app)
    assert app.fault == (None if debug else "ZeroDivisionError: integer division or modulo by zero")
    assert ("Traceback" in capsys.readouterr().err) == bool(debug)


async def test_escape_never_quits_and_q_does() -> None:
    stream = PreparedStream(inventory(1), sample(1))
    app = GputopApp(stream)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("escape", "2", "escape", "escape")
        assert app.is_running
        assert app.query_one(ContentSwitcher).current == "monitor"
        await pilot.press("q")
        await pilot.pause()
    assert stream.closed


async def test_any_size_of_terminal_is_survived() -> None:
    async with settled(app_with(inventory(3), sample(3)), (1, 1)) as (_, pilot):
        for size in ((5, 3), (19, 4), (300, 100), (80, 24)):
            for tab in "231":
                await pilot.press(tab)
            await resize(pilot, *size)
        assert "H100" in shown(pilot, DevicesView)


async def test_a_size_whose_timer_textual_dropped_is_handed_on() -> None:
    """As it does where another process has the processor at the wrong moment: then all are lost."""
    async with settled(app_with(inventory(1), sample(1))) as (app, pilot):
        app._resize_timer = app.set_timer(3600, lambda: None)
        await resize(pilot, 80, 24)
        await resize(pilot, 100, 30)


async def test_a_device_that_others_use_is_asked_about_first(
    session: type[PreparedSession],
) -> None:
    async with settled(app_with(inventory(2), sample(2))) as (app, pilot):
        await pilot.press("b")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("n")
        assert session.requests == []
        await pilot.press("1", "b")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("y")
        assert len(session.requests) == 1


async def test_a_test_of_a_simulated_device_is_simulated(
    session: type[PreparedSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Result] = []
    monkeypatch.setattr(store, "append", keep_in(kept))
    monkeypatch.setattr(simulation, "STEP_SECONDS", 0.0)
    stream = PreparedStream(inventory(2, source=Source.SIMULATED), sample(2))
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("b")  # the device is in use, but that disturbs nobody
        await until(pilot, lambda: shown(pilot, ThroughputChart).startswith(" simulated  TFLOP/s"))
        uuid = inventory(2).devices[0].uuid
        assert list(stream.asked["loads"]) == [uuid]
        await pilot.press("x")
        await ended(pilot)
        assert "Stopped" in shown(pilot, TitleView)
        assert "on GPU 0 simulated H100 80GB HBM3" in shown(pilot, TitleView)
        assert stream.asked["loads"] == {}
        assert " simulated H100" in shown(pilot, ResultsView)
        app.query_one(ThroughputChart).run = None
        await pilot.press("enter")  # its curve is there though nothing is kept
        await until(pilot, lambda: app.query_one(ThroughputChart).run is not None)
        await settle(pilot)
        assert shown(pilot, ThroughputChart).startswith(" simulated  TFLOP/s over time")
    assert session.requests == []
    assert kept == []


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ((80, 24), "heat limit: 86°C, memory 92°C"),
        ((120, 40), "heat limit: 86°C (slowdown at 89°C), memory 92°C (maximum 95°C)"),
    ],
)
async def test_the_heat_limit_that_holds_is_named_during_the_run(
    endless: type[EndlessSession], size: tuple[int, int], text: str
) -> None:
    gpu = device(0, temperature_slowdown_celsius=89, memory_temperature_max_celsius=95)
    read = readings(0, memory_temperature_celsius=70)
    records = (
        dataclasses.replace(inventory(1), devices=(gpu,)),
        dataclasses.replace(sample(1, processes=[]), devices=(read,)),
    )
    endless.to_send = (*EVENTS[:-1], *records, EVENTS[-1])
    app = app_with(*records)
    async with app.run_test(size=size) as pilot:
        await open_form(pilot)
        await pilot.press("b")
        await until(pilot, lambda: "heat limit" in shown(pilot, ReadoutView))
        _, progress, *_ = shown(pilot, ReadoutView).splitlines()
        assert progress.rstrip().endswith(text)
        assert "58 s left" in progress


async def test_a_device_that_gets_too_hot_ends_its_run_while_another_tab_is_shown(
    session: type[PreparedSession],
) -> None:
    why = "it reached 88°C, and its limit is 86°C (slowdown at 89°C)"
    limit = RunLimit("limit", "Too hot", why)
    last = Done(dataclasses.replace(RESULT, stopped="limit"))
    session.to_send = (*EVENTS[:-1], inventory(1), sample(1), limit, last)
    async with settled(app_with(inventory(1), sample(1, processes=[]))) as (_, pilot):
        await pilot.press("space", "b", "1")  # paused: what is shown is not what is watched
        await ended(pilot)
        await pilot.press("2")
        assert "Too hot: it reached 88°C, and its limit is 86°C" in shown(pilot, TitleView)
        assert "heat limit: 86°C (slowdown at 89°C)" in shown(pilot, ReadoutView)
        assert shown(pilot, ResultsView).splitlines()[1].endswith("too hot")
