import dataclasses
import re
from signal import Signals
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from gputop.agent.device import Absence
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Process
from gputop.ui.drawing.cells import Row, text_of
from gputop.ui.drawing.palette import DIM, STRONG, TEXT
from gputop.ui.processes import signals
from gputop.ui.processes.screen import ProcessesTab, ProcessesView
from gputop.ui.processes.signal_dialog import Order, send
from gputop.ui.processes.users import UsersView
from gputop.ui.telemetry import Telemetry
from tests.streams import GIB, crowd, device, inventory, process, readings, sample
from tests.ui import pilots
from tests.ui.pilots import app_with, dashboard_of, settle, settled, shown, type_at_once


class TableApp(App[None]):
    def __init__(self, *processes: Process) -> None:
        super().__init__()
        self.telemetry = Telemetry()
        self.telemetry.receive(inventory(2))
        self.telemetry.receive(sample(2, processes))
        self.view = ProcessesView(self.telemetry)

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.view.redraw()


def drawn(view: ProcessesView, width: int = 120, height: int = 20) -> list[Row]:
    view.redraw()
    return view.draw(width, height)


def view_of(*processes: Process) -> ProcessesView:
    return TableApp(*processes).view


def lines(pilot: Pilot[None]) -> list[str]:
    return pilot.app.query_one(ProcessesView).text().splitlines()


def test_a_row_says_all_that_is_known(snapshot: Any) -> None:
    known = process(
        4242,
        1,
        memory_used_bytes=71 * GIB,
        sm_utilization_percent=98,
        memory_utilization_percent=45,
        encoder_utilization_percent=1,
        decoder_utilization_percent=2,
        cpu_percent=103.4,
        memory_resident_bytes=9 * GIB,
        slurm_job="71524",
    )
    assert "\n".join(text_of(row).rstrip() for row in drawn(view_of(known), 180)) == snapshot


def test_what_is_unknown_is_a_dim_dash_and_zero_is_not() -> None:
    other = process(2, 1, cpu_percent=7.0, memory_resident_bytes=7)
    row = drawn(view_of(process(1, 0, sm_utilization_percent=0), other), 200)[1]
    styles = [(span.text.strip(), span.style == DIM) for span in row]
    assert styles.count(("–", True)) == 2
    assert styles.count(("0", False)) == 2  # the device, too
    assert ("–", False) not in styles


def test_the_command_keeps_half_of_its_room_however_deep_the_tree_is() -> None:
    chain = [process(n, 0, parent_pid=n - 1, command=f"name{n}") for n in range(1, 40)]
    view = view_of(*chain)
    view.action_tree()
    assert text_of(drawn(view, 80, 60)[39]).rstrip().endswith("             └─ name39")


def test_a_launcher_has_only_its_pid_and_command_and_is_dim() -> None:
    torchrun = {"parent_pid": 50, "parent_command": "/opt/bin/torchrun x.py"}
    view = view_of(*(process(n, n, **torchrun) for n in (1, 2)))
    view.action_tree()
    heading, launcher, rank, _ = drawn(view)
    assert text_of(heading).split()[-3:] == ["AGE", "COMMAND", "(tree)"]
    assert text_of(launcher).split() == ["▌", "50", "torchrun", "x.py"]
    assert {span.style for span in launcher if span.text.strip()} == {DIM}
    assert [span.text.strip() for span in rank if span.style == STRONG] == ["3.00 GiB"]
    assert rank[-1].style == TEXT


def test_to_the_side_columns_go_then_the_command_up_to_its_end_and_back() -> None:
    command = "python train.py " + " ".join(f"--option-{n}" for n in range(12))
    view = view_of(process(1, 0, command=command), process(2, 0))
    first = [text_of(row) for row in drawn(view, 60)]
    view.action_side(1)
    heading = text_of(drawn(view, 60)[0])
    assert heading.split() == ["←", "GPU▲", "PID", "TYPE", "GPU", "MEM", "AGE", "COMMAND"]
    for _ in range(30):
        view.action_side(1)
        last = [text_of(row) for row in drawn(view, 60)]
    assert last[0].split() == ["←", "GPU▲", "PID", "COMMAND"]
    assert last[1].rstrip().endswith(" on-11")
    assert last[2].split() == ["0", "2"]  # of a short one nothing is left
    assert view._side == 13
    for _ in range(14):
        view.action_side(-1)
    assert [text_of(row) for row in drawn(view, 60)] == first


def test_a_driver_that_lists_nothing_is_told_from_no_process() -> None:
    app = TableApp()
    assert "No processes" in text_of(drawn(app.view)[0])
    instance = device(0, uuid="MIG-1", parent_uuid=device(0).uuid, mig_index=1)
    app.telemetry.receive(dataclasses.replace(inventory(), devices=(instance,)))
    silent = readings(0, uuid="MIG-1", absent={"processes": Absence.NO_PERMISSION})
    app.telemetry.receive(dataclasses.replace(sample(), devices=(silent,)))
    said = text_of(drawn(app.view)[0])
    assert "The driver does not list the processes of GPU 0:1" in said


async def test_typing_narrows_down_and_nothing_typed_is_lost() -> None:
    app = app_with(inventory(2), sample(2, tuple(crowd(1000, 2))))

    def bar() -> str:
        return pilots.text_of(pilots.lines(app)).splitlines()[-2]

    async with settled(app, (120, 20)) as (_, pilot):
        await pilot.press("3")
        await type_at_once(pilot, "slash", *"grace rankx")
        view = dashboard_of(app).tabs.query_one("#processes").query_one(ProcessesView)
        assert bar().startswith(" / grace rankx ")
        assert bar().endswith(" 0 of 1000 match  Enter keeps · Esc clears ")
        assert "No processes with all of these words" in view.text()
        await type_at_once(pilot, "ctrl+w", "enter")
        assert bar().startswith(" / grace ")
        assert bar().endswith("200 of 1000 match  / changes it · Esc clears ")
        assert all("grace" in line for line in view.text().splitlines()[1:-1])
        await type_at_once(pilot, "slash", "escape", "x")
        assert "1 to 14 of 1000 processes" in bar()


@pytest.mark.parametrize(("end", "kept"), [("enter", "grace"), ("escape", "")])
async def test_keys_typed_right_after_the_end_of_a_filter_are_commands(end: str, kept: str) -> None:
    async with settled(app_with(inventory(2), sample(2, tuple(crowd(50, 2))))) as (app, pilot):
        await type_at_once(pilot, "slash", *"grace", end, "t")
        view = app.screen.query_one(ProcessesView)
        assert (view.typed, view.state.tree) == (kept, True)


async def test_each_key_of_the_list_draws_it_again() -> None:
    processes = (process(1, 0), process(2, 1, user="bo", parent_pid=1, cpu_percent=9.0))
    async with settled(app_with(inventory(2), sample(2, processes))) as (app, pilot):
        await pilot.press("3")
        view = app.screen.query_one(ProcessesTab).processes
        for key in ("full_stop", "comma", "I", "P", "M", "N", "t", "right", "left", "u", "u"):
            before = view.text()
            await pilot.press(key)
            assert view.text() != before, key


async def test_a_click_on_a_title_sorts_and_again_reverses() -> None:
    async with settled(TableApp(*crowd(50, 2)), (200, 20)) as (_, pilot):
        for title, end in (("PID▲", 0), ("PID▼", 2), ("CPU%▼", 3), ("CPU%▲", 0)):
            at = lines(pilot)[0].index(title[:-1])
            await pilot.click(ProcessesView, offset=(at + end, 0))
            assert re.findall(r"\S+[▲▼]", lines(pilot)[0]) == [title]


async def test_a_click_on_a_row_selects_it() -> None:
    async with settled(TableApp(*crowd(50, 2)), (120, 12)) as (app, pilot):
        app.view.action_move(30)
        await settle(pilot)
        wanted = lines(pilot)[3].split()
        await pilot.click(ProcessesView, offset=(20, 3))
        assert app.view.process is not None
        assert str(app.view.process.pid) in wanted
        assert lines(pilot)[3].startswith("▌")
        before = app.view.process
        await pilot.click(ProcessesView, offset=(20, 11))  # the last line counts
        assert app.view.process == before


PROCESSES = [
    process(1, 0, user="ada", memory_used_bytes=GIB),
    process(2, 1, user="bo", memory_used_bytes=5 * GIB),
    process(3, 1, user="bo", memory_used_bytes=None),
    process(4, 0, user=None, memory_used_bytes=2 * GIB),
]


async def test_a_line_for_each_user_which_enter_opens_and_esc_leaves() -> None:
    async with settled(app_with(inventory(2), sample(2, PROCESSES)), (100, 20)) as (app, pilot):
        await pilot.press("3", "U")
        rows = [row.replace("▌", "").split() for row in shown(pilot, UsersView).splitlines() if row]
        assert rows[0] == ["USER", "GPUS", "PROCESSES", "GPU", "MEM▼", "BUSIEST", "ON", "GPU"]
        assert [" ".join(row) for row in rows[1:]] == [
            "bo 1 2 ≥5.00 GiB GPU 1 93 % 1",
            "– 1 1 2.00 GiB GPU 0 97 % 0",
            "ada 1 1 1.00 GiB GPU 0 97 % 0",
        ]
        tab = app.screen.query_one(ProcessesTab)
        assert tab.process is None
        await pilot.press("slash", *"ad", "enter")
        assert [row.name for row in tab.users.state.lines] == ["ada"]
        await pilot.press("enter")
        assert (tab.users.display, tab.processes.display) == (False, True)
        assert {row.process.user for row in tab.processes.state.lines} == {"ada"}
        await pilot.press("escape", "U", "escape", "escape")
        assert not tab.users.display
        assert len(tab.processes.state.lines) == 4


@pytest.mark.parametrize(
    ("number", "pids", "left", "said"),
    [
        (Signals.SIGTERM, (1,), 0, ["TERM was sent to 1", "1 ended after 2.5 s"]),
        (
            Signals.SIGKILL,
            (1, 2),
            1,
            [
                "KILL was sent to 2 processes",
                "2 processes: 1 not ended 2 s after KILL",
            ],
        ),
        (Signals.SIGUSR1, (1,), 0, ["USR1 was sent to 1"]),
        (Signals.SIGTERM, (9,), 0, ["Not permitted: it is root's. Ask root"]),
    ],
)
async def test_a_signal_and_its_effect_are_reported(
    monkeypatch: pytest.MonkeyPatch,
    number: Signals,
    pids: tuple[int, ...],
    left: int,
    said: list[str],
) -> None:
    async def seconds_until_end(*_: object) -> tuple[float, int]:
        return 2.5, left

    refused = Problem("Not permitted", "it is root's", "Ask root")
    monkeypatch.setattr(signals, "seconds_until_end", seconds_until_end)

    def send_signal(pid: int, *_: object) -> None:
        if pid == 9:
            raise ProblemError(refused)

    monkeypatch.setattr(signals, "send_signal", send_signal)
    async with settled(app_with(inventory(2), sample(2, PROCESSES))) as (app, pilot):
        order = Order(number, tuple(process(pid, 0) for pid in pids))
        await send(app, order)
        await settle(pilot)
        assert [note.message for note in app._notifications] == said
