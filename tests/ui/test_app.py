import dataclasses
import os
import re
import shutil
import signal
from contextvars import Context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.events import Key
from textual.widgets import ContentSwitcher
from textual.widgets._toast import Toast

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, Sample, Source
from gputop.bench.events import Done, Result, RunLimit
from gputop.bench.results import store
from gputop.bench.run import simulation
from gputop.console import INTERRUPTED
from gputop.health.findings import Finding, Severity
from gputop.settings import Settings
from gputop.stream.child import Interruption
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.device.title import DeviceTitle
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.layout import Density
from gputop.ui.monitor.screen import HostView
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.actions import ACTIONS, HOSTS, TRAINING
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.events import EventWatch, Notice
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import Help
from gputop.ui.telemetry import Telemetry
from tests.sessions import EVENTS, RESULT, PreparedSession
from tests.streams import (
    NOW,
    PreparedStream,
    device,
    inventory,
    no_driver,
    process,
    readings,
    sample,
)
from tests.ui.pilots import (
    app_with,
    dashboard_of,
    ended,
    keep_in,
    noted,
    resize,
    send,
    settled,
    shown,
    until,
)


async def test_without_a_driver_the_host_is_shown_until_devices_appear() -> None:
    stream = PreparedStream(no_driver(), sample())
    async with settled(GputopApp(stream), (80, 24)) as (app, pilot):
        assert "No NVIDIA driver: libnvidia-ml.so.1 is not found." in shown(pilot, HostView)
        assert not app.query_one(DevicesView).display
        await send(pilot, stream, inventory(1), sample(1))
        assert not app.query_one(HostView).display
        assert "H100" in shown(pilot, DevicesView)


async def test_the_selection_follows_the_keys_and_the_mouse_and_stays_with_its_device() -> None:
    stream = PreparedStream(inventory(8), sample(8))
    async with settled(GputopApp(stream)) as (app, pilot):
        view = app.query_one(DevicesView)
        for each in re.findall(r"\w+", "j1 down2 up1 end7 home0 right1 left0 k0"):
            await pilot.press(each[:-1])
            assert view.device == device(int(each[-1])), each
        await pilot.click(DevicesView, offset=(70, 9))
        assert view.device == device(3)
        await send(
            pilot,
            stream,
            dataclasses.replace(inventory(8), devices=inventory(8).devices[2:]),
            sample(8),
        )
        assert view.device == device(3)


async def test_the_density_can_be_chosen_by_hand() -> None:
    async with settled(app_with(inventory(2), sample(2))) as (app, pilot):
        for density in (Density.ROW, Density.COMPACT, Density.FULL):
            await pilot.press("c")
            assert app.query_one(DevicesView).current_layout.density == density


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


@pytest.mark.parametrize("readonly", [False, True])
async def test_help_names_every_key(*, readonly: bool) -> None:
    """Those of a replay, of several hosts and of a training are listed where there is one."""
    elsewhere = [a for a in ACTIONS if a.tabs in (HOSTS, TRAINING) or a.id == "tab.training"]
    elsewhere += [a for a in ACTIONS if a.name == "signal" and readonly]
    here = [a for a in ACTIONS if a.when != "replay" and a not in elsewhere]
    app = app_with(inventory(1), sample(1), settings=Settings(readonly=readonly))
    async with settled(app, (100, 60)) as (_, pilot):
        for opens, closes in (("question_mark", "escape"), ("h", "h")):
            await pilot.press(opens)
            assert isinstance(app.screen, Help)
            groups = app.screen.groups.values()
            entries = {entry for group in groups for entry in group.items()}
            assert {(" ".join(action.key_names), action.help) for action in here} <= entries
            others = {action.help for action in elsewhere} - {action.help for action in here}
            assert not others & {text for _, text in entries}
            await pilot.press(closes)
            assert not isinstance(app.screen, Help)


async def test_a_key_right_after_a_signal_does_not_hold_up_the_end() -> None:
    async with settled(app_with(inventory(1), sample(1)), (80, 24)) as (app, pilot):
        app.post_message(Key("2", "2"))
        os.kill(os.getpid(), signal.SIGTERM)
        app.post_message(Key("2", "2"))
        await until(pilot, lambda: not app.is_running)
    assert (app.fault, app.return_code) == (None, INTERRUPTED)


@pytest.mark.parametrize("debug", ["", "1"])
async def test_a_bug_ends_with_a_line_and_with_its_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], debug: str
) -> None:
    monkeypatch.setenv("GPUTOP_DEBUG", debug)
    app = app_with(inventory(1), sample(1))
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - it is raised at the end of the block
        async with settled(app, (80, 24)) as (_, pilot):
            app.call_later(lambda: 1 // 0)
            await until(pilot, lambda: not app.is_running)
    assert app.fault == (None if debug else "ZeroDivisionError: integer division or modulo by zero")
    assert ("Traceback" in capsys.readouterr().err) == bool(debug)


async def test_escape_never_quits_and_q_does() -> None:
    stream = PreparedStream(inventory(1), sample(1))
    async with settled(GputopApp(stream), (80, 24)) as (app, pilot):
        await pilot.press("escape", "2", "escape", "escape")
        assert app.is_running
        assert app.query_one(ContentSwitcher).current == "monitor"
        await pilot.press("q")
        await pilot.pause()
    assert stream.closed


async def test_any_size_of_terminal_is_survived() -> None:
    async with settled(app_with(inventory(3), sample(3)), (1, 1)) as (app, pilot):
        app._resize_timer = app.set_timer(3600, lambda: None)  # one that Textual dropped
        for size, layouts in (
            ((40, 12), "-narrow -low"),
            ((120, 38), "-roomy -tall"),
            ((300, 100), "-widest -tall"),
            ((70, 20), "-medium -short"),
        ):
            await pilot.press("2", "3", "1")
            await resize(pilot, *size)
            assert set(layouts.split()) <= app.screen.classes, size
        assert "H100" in shown(pilot, DevicesView)
        await pilot.press("enter")
        for width in (69, 70):
            await resize(pilot, width, 40)
            assert app.query_one("#map").display is (width == 70)


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
        await send(pilot, stream, sample(2))
        await pilot.press("x")
        await ended(pilot)
        assert "heat limit: 86°C" in shown(pilot, ReadoutView)
        assert "Stopped" in shown(pilot, TitleView)
        assert "on GPU 0 simulated H100 80GB HBM3" in shown(pilot, TitleView)
        assert stream.asked["loads"] == {}
        assert " simulated H100" in shown(pilot, ResultsView)
        app.query_one(ThroughputChart).run = None
        await pilot.press("enter")  # its curve is there though nothing is kept
        assert shown(pilot, ThroughputChart).startswith(" simulated  TFLOP/s")
    assert session.requests == []
    assert kept == []


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
        assert "heat limit: 86°C" in shown(pilot, ReadoutView)
        assert shown(pilot, ResultsView).splitlines()[1].endswith("too hot")


# What the screen says while something is missing, and what it keeps.


STARTING: dict[str, Any] = {"driver_state": DriverState.STARTING, "driver_version": None}


async def test_a_sampler_that_is_started_again_takes_no_device_from_the_screen() -> None:
    stream = PreparedStream(inventory(2), sample(2))
    async with settled(GputopApp(stream)) as (app, pilot):
        await send(
            pilot,
            stream,
            Interruption(Problem("The sampler stopped", "it was killed", "")),
            inventory(**STARTING),
            sample(0),
        )
        assert "1 H100 80GB HBM3" in shown(pilot, DevicesView)
        assert "it was killed. Restarting the sampler" in shown(pilot, Header)
        assert not app.query_one(HostView).display
        await send(pilot, stream, inventory(2), sample(2))
        assert "No data" not in shown(pilot, Header)


@pytest.mark.usefixtures("counts_silence")
async def test_a_dashboard_that_was_stopped_blames_no_sampler() -> None:
    async with settled(GputopApp(PreparedStream(inventory(1), sample(1)))) as (app, pilot):
        telemetry = dashboard_of(app).telemetry
        telemetry.receive(sample(1))
        telemetry.received_at -= 60
        telemetry._ticked_at -= 60
        dashboard_of(app).show()
        assert "No data" not in shown(pilot, Header)
        app._tick()
        assert "No data" not in shown(pilot, Header)
        telemetry.received_at -= 5
        app._tick()
        assert re.search(r"No data for 1:\d\d", shown(pilot, Header))


CRASH = Problem("The NVIDIA library crashed", "SIGSEGV", "Reinstall the driver", "nvml")


@pytest.mark.parametrize("devices", [0, 2])
async def test_a_crash_is_named_with_its_remedy_until_the_driver_answers_again(
    devices: int,
) -> None:
    stream = PreparedStream(inventory(devices), sample(devices))
    if not devices:
        stream = PreparedStream(inventory(**STARTING), sample())
    async with settled(GputopApp(stream), (80, 24)) as (_, pilot):
        for _ in range(2):
            await send(pilot, stream, Interruption(CRASH), inventory(**STARTING), sample())
            assert "The NVIDIA library crashed: no data for" in shown(pilot, Header)
            place = Header if devices else HostView
            assert "SIGSEGV. Reinstall the driver" in shown(pilot, place)
            assert "Waiting" not in shown(pilot, HostView)
        await send(pilot, stream, inventory(2), sample(2))
        assert "crashed" not in shown(pilot, Header)


def late(age: float) -> Sample:
    return dataclasses.replace(sample(2), devices=(readings(0), readings(1, age_seconds=age)))


async def test_old_readings_do_not_look_like_new_ones() -> None:
    stream = PreparedStream(inventory(2), late(1.6))
    async with settled(GputopApp(stream)) as (_, pilot):
        assert " old" not in shown(pilot, DevicesView)
        assert "slow" not in shown(pilot, Header)
        await send(pilot, stream, late(2.0))
        assert "2.0 s old" in shown(pilot, DevicesView)
        assert "1 slow" in shown(pilot, Header)
        await pilot.press("down", "enter")
        assert "Readings are 2.0 s old." in shown(pilot, DeviceTitle)


async def test_a_driver_that_takes_its_time_is_waited_for_with_a_number_and_a_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with settled(app_with(inventory(**STARTING), sample()), (80, 24)) as (app, pilot):
        telemetry = dashboard_of(app).telemetry
        for seconds, waiting in ((1.9, "Waiting"), (2.0, "Waiting for 2 s")):
            monkeypatch.setattr(telemetry, "_clock", lambda s=seconds: telemetry.began_at + s)
            dashboard_of(app).show()
            assert f"{waiting} for the NVIDIA driver to answer." in shown(pilot, HostView)
            assert ("Xid in `dmesg`" in shown(pilot, HostView)) == (seconds == 2.0)


@pytest.mark.usefixtures("counts_silence")
def test_silence_is_noticed_one_interval_before_it_is_a_fault() -> None:
    times = [0.0]
    telemetry = Telemetry(lambda: times[0])
    telemetry.receive(inventory(1, interval_seconds=2.0))
    telemetry.receive(sample(1))
    for times[0], silent in ((3.9, None), (4.1, 4.1)):
        assert telemetry.silent_seconds == silent


def warm(celsius: int, seconds: float = 0.0, **changes: Any) -> Sample:
    devices = (readings(0, temperature_celsius=celsius),)
    return dataclasses.replace(sample(1), devices=devices, time=NOW + seconds, **changes)


async def test_what_is_wrong_is_said_and_rung_for_also_while_it_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rung: list[bool] = []
    monkeypatch.setattr(GputopApp, "bell", lambda _: rung.append(True))
    stream = PreparedStream(inventory(1), warm(41))
    async with settled(GputopApp(stream, settings=Settings(bell=True))) as (_, pilot):
        await pilot.press("space")
        for second in (1, 2):
            bad = dataclasses.replace(readings(0), ecc_uncorrected=second)
            await send(pilot, stream, dataclasses.replace(warm(41, second), devices=(bad,)))
        assert "GPU 0: 1 uncorrected ECC error" in shown(pilot, Header)
        assert rung == [True]
        assert "PAUSED" in shown(pilot, Header)
        await pilot.press("space")
        assert "PAUSED" not in shown(pilot, Header)


def test_nothing_that_came_meanwhile_is_lost() -> None:
    telemetry = Telemetry()
    telemetry.receive(inventory(1))
    telemetry.receive(warm(40))
    uuid = inventory(1).devices[0].uuid
    telemetry.pause()
    event = Event(NOW + 1, uuid, "xid", 79)
    telemetry.receive(warm(90, 1, events=(event,)))
    telemetry.receive(warm(42, 2))
    assert telemetry.sample == warm(40)
    assert telemetry.latest == warm(42, 2)
    assert telemetry.events(uuid) == []
    telemetry.pause()
    assert telemetry.sample == telemetry.latest == warm(42, 2)
    assert telemetry.events(uuid) == [event]
    series = telemetry.history.series(uuid, "temperature_celsius")
    assert [value for value in series if value is not None][-3:] == [40, 90, 42]


def test_a_pause_holds_so_much_and_then_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.ui.telemetry.MOST_HELD", 3)
    telemetry = Telemetry()
    telemetry.receive(inventory(1))
    telemetry.receive(warm(40))
    telemetry.pause()
    for second in range(1, 6):
        telemetry.receive(warm(40 + second, second))
    assert telemetry.sample == warm(42, 2)
    assert telemetry.latest == warm(45, 5)
    telemetry.pause()
    assert telemetry.sample == warm(45, 5)


# Events that a user may wait for: what they are, and how they are told.


DEVICES = inventory(2).devices
EARLY = sample().time - 60
JOB = (
    process(5, 0, start_time=EARLY, command="python train.py"),
    process(5, 1, start_time=EARLY, command="python train.py"),
    process(6, 1, start_time=EARLY, command="python train.py"),
)
RUNNING = sample(2, JOB)


def after(before: Sample, now: Sample, *alerts: Finding) -> list[Notice]:
    watch = EventWatch()
    assert not [each for each in watch.notices(before, DEVICES, ()) if each.kind != "fault"]
    return list(watch.notices(now, DEVICES, alerts))


def test_the_end_of_a_job_frees_its_gpus() -> None:
    ended = Notice("job-ended", "Ended: python train.py and 1 more")
    assert after(RUNNING, sample(2, ())) == [ended, Notice("gpu-free", "Free: GPU 0, 1")]
    one = after(RUNNING, sample(2, JOB[:2]))
    assert one == [Notice("job-ended", "Ended: python train.py")]
    long = process(8, 0, start_time=EARLY, command="train " * 20)
    assert after(sample(2, (long,)), sample(2, ()))[0].text == f"Ended: {'train ' * 10}"
    assert after(RUNNING, RUNNING) == []
    short = process(7, 0, start_time=sample().time - 59)
    assert after(sample(2, (short,)), sample(2, ())) == [Notice("gpu-free", "Free: GPU 0")]


def test_a_device_that_does_not_say_its_processes_is_not_free() -> None:
    for changes in (
        {"state": DeviceState.NOT_RESPONDING},
        {"absent": {"processes": "no_permission"}},
    ):
        away = tuple(readings(n, **changes) for n in range(2))
        assert after(RUNNING, dataclasses.replace(sample(2, ()), devices=away)) == []


def test_a_fault_is_told_once() -> None:
    lost = Finding(Severity.FAULT, "lost", rule="lost", device_uuid="GPU-1", label="1")
    warm = dataclasses.replace(lost, severity=Severity.WARNING, title="warm")
    watch = EventWatch()
    told = [list(watch.notices(RUNNING, DEVICES, (lost, warm))) for _ in range(2)]
    assert told == [[Notice("fault", "GPU 1: lost")], []]


async def test_a_command_is_run_and_the_terminal_shows_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    command = f"sh -c 'echo \"$GPUTOP_EVENT: $0\" >> {said}'"
    stream = PreparedStream(inventory(2), RUNNING)
    app = GputopApp(stream, settings=Settings(notes=True, on_event=command))
    async with settled(app) as (_, pilot):
        written: list[str] = []
        monkeypatch.setattr(app, "terminal", SimpleNamespace(write=written.append))
        stream.send(sample(2, JOB[:2]))
        await until(pilot, lambda: said.exists() and bool(said.read_text()))
        assert said.read_text() == "job-ended: Ended: python train.py\n"
        assert "\x1b]9;gputop: Ended: python train.py\x07" in written
        app.settings = dataclasses.replace(app.settings, on_event="/no/such/command")
        stream.send(sample(2, ()))
        await until(pilot, lambda: "/no/such/command: No such file or directory" in noted(app))


async def test_a_page_is_exported_or_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with settled(app_with(inventory(2), RUNNING), (80, 24)) as (app, pilot):
        for key, ending, first in (("E", "txt", " gputop  1 Monitor"), ("V", "svg", "<svg")):
            await pilot.press(key)
            await until(pilot, lambda ending=ending: noted(app).endswith(ending))  # type: ignore[misc]
            file = tmp_path / noted(app)
            text = file.read_text()
            assert text.startswith(first)
            assert "train.py" in text
            assert file.stat().st_mode & 0o777 == 0o600
            assert key == "V" or len(text.splitlines()) == 24
        shutil.rmtree(tmp_path)
        await pilot.press("E")
        await until(pilot, lambda: "No such file or directory" in noted(app))


# Notifications: the newest is shown, and nothing is left of those before.


def said(app: GputopApp) -> list[str]:
    return [str(each.render()) for each in app.screen.query("Toast").results(Toast)]


async def test_what_was_said_leaves_nothing_behind() -> None:
    async with settled(app_with(inventory(1), sample(1)), notifications=True) as (app, pilot):
        for n in range(10):
            Context().run(app.notify, f"number {n}")
            await pilot.pause()
        await until(pilot, lambda: said(app) == ["number 9"])
        assert len(app.screen.query("ToastHolder")) <= 2, "its own, and perhaps the one before"
