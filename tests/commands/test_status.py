"""`gputop status` as a command: where its snapshots come from, once and again and again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gputop import cli
from gputop.agent.device import Absence
from gputop.agent.problem import Problem
from gputop.commands import status
from gputop.stream.child import Interruption, Snapshot, StreamError
from gputop.stream.launch import module_command
from tests.driver import GPU_IS_LOST, FakeDevice, FakeProcess
from tests.streams import NO_DRIVER, device, inventory, no_driver, process, readings, sample
from tests.terminal import SHOW_CURSOR, Terminal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.driver import FakeDriver

STATUS = [*module_command("gputop"), "status"]
BOUND = 60.0
STOPPED = Interruption(
    Problem("The sampler stopped", "\x1b[31mred\nalert", "It is being restarted")
)


class Prepared:
    """Stands for the source of the snapshots: these, and then the error, or Ctrl+C."""

    def __init__(self, *found: Snapshot | Interruption | BaseException) -> None:
        self.found = found
        self.asked: dict[str, Any] = {}
        self.taken = 0

    async def __call__(self, *_: object, **asked: Any) -> AsyncGenerator[Snapshot | Interruption]:
        self.asked = asked
        for each in self.found:
            self.taken += 1
            if isinstance(each, BaseException):
                raise each
            yield each


def prepare(monkeypatch: pytest.MonkeyPatch, *found: Any) -> Prepared:
    prepared = Prepared(*found)
    monkeypatch.setattr(status, "snapshots", prepared)
    return prepared


def ended(*arguments: str) -> int | str | None:
    """The exit status."""
    try:
        return cli.main(["status", *arguments])
    except SystemExit as end:
        return end.code


ONE = Snapshot(inventory(1), sample(1))


def test_it_waits_for_the_users_of_the_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a busy machine their look-up takes longer than the first reading."""
    early = process(71, 0, user=None, command=None, absent={"user": Absence.NO_DATA_YET})
    known = process(71, 0, user="ada", command="python train.py")
    shots = [Snapshot(inventory(1), sample(1, [each])) for each in (early, known, known)]
    prepared = prepare(monkeypatch, *shots)
    assert ended("--processes") == 0
    assert "ada" in capsys.readouterr().out
    assert prepared.taken == 2


def test_a_driver_problem_is_said_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the host is shown all the same."""
    prepare(monkeypatch, Snapshot(no_driver(), sample(0)))
    assert ended("--json") == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["inventory"]["problem"]["what"] == NO_DRIVER.what
    assert said.err == f"gputop: error: {NO_DRIVER}\n"


def test_a_list_is_of_gpus_and_instances_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = device(0, name="A\x1b[2J")
    part = device(0, uuid="MIG-1", parent_uuid=gpu.uuid, mig_index=12, name="A MIG 1c.2g.10gb")
    found = dataclasses.replace(inventory(1), devices=(gpu, part))
    prepare(monkeypatch, Snapshot(found, sample(1)))
    assert ended("-L") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"GPU 0: A␛[2J (UUID: {gpu.uuid})",
        "  MIG 1c.2g.10gb  Device 12: (UUID: MIG-1)",
    ]
    prepare(monkeypatch, Snapshot(no_driver(), sample(0)))
    assert ended("--list-gpus") == 3
    assert capsys.readouterr().out == ""


def test_an_order_or_a_number_of_processes_shows_their_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = (process(7, 0, memory_used_bytes=1 << 30), process(3, 0, memory_used_bytes=2 << 30))
    found = Snapshot(inventory(1), sample(1, processes))
    for arguments, pids in (
        (["--sort", "pid"], ["3", "7"]),
        (["--sort", "memory", "--top", "1"], ["3"]),
        (["--top", "1"], ["3"]),
        (["--processes"], ["7", "3"]),
    ):
        prepare(monkeypatch, found)
        assert ended(*arguments) == 0
        table = capsys.readouterr().out.split("\n\n")[1].splitlines()
        assert [line.split()[1] for line in table] == ["PID", *pids]


def test_totals_of_users_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    processes = (process(7, 0, user="ada"), process(3, 0, user="bo"))
    prepare(monkeypatch, Snapshot(inventory(1), sample(1, processes)))
    assert ended("--by-user", "--json", "--user", "bo") == 0
    (user,) = json.loads(capsys.readouterr().out)["users"]
    assert (user["user"], user["processes"]) == ("bo", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by-user", "--columns", "busy"], "--columns is not for totals by user"),
        (["--by-user", "--top", "3"], "--top is not for totals by user"),
        (["-L", "--json"], "--json is not for a list of the GPUs"),
        (["--json", "--sort", "pid"], "--sort is not for JSON, which has every reading"),
        (["--no-processes", "--sort", "pid"], "--sort is not for a page without them"),
        (["--sort", "name"], "invalid choice: 'name'"),
    ],
)
def test_options_that_contradict_each_other(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_sampler_that_fails_is_said_in_one_inert_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(monkeypatch, StreamError(Problem("It stopped", "\x1b[31mred\nalert", "Try again")))
    assert ended() == 3
    assert capsys.readouterr().err == "gputop: error: It stopped: ␛[31mred␊alert. Try again\n"


WAITING = {"pcie_rx_bytes_per_second": Absence.NO_DATA_YET}


def with_readings(**changes: Any) -> Snapshot:
    return Snapshot(inventory(1), dataclasses.replace(sample(1), devices=(readings(0, **changes),)))


EARLY = with_readings(absent=WAITING)
LATER = with_readings(pcie_rx_bytes_per_second=5 << 20)


@pytest.mark.parametrize(
    ("columns", "found", "taken", "shown"),
    [
        ("pcie-rx", (EARLY, LATER, LATER), 2, "5.00 MiB/s"),
        ("pcie-rx", (EARLY, EARLY, LATER, LATER), 3, "5.00 MiB/s"),
        ("pcie-rx", (EARLY, EARLY, EARLY, EARLY, LATER), 4, "–"),
        ("pcie-rx", (EARLY, STOPPED), 2, "–"),
        ("busy", (EARLY, LATER), 1, "97 %"),
    ],
)
def test_a_column_that_needs_two_readings_gets_them(
    columns: str,
    found: Any,
    taken: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepared = prepare(monkeypatch, *found)
    assert ended("--columns", columns) == 0
    assert capsys.readouterr().out.splitlines()[-1].strip() == shown
    assert prepared.taken == taken


@pytest.mark.parametrize(
    ("arguments", "gpm"),
    [([], False), (["--columns", "busy"], False), (["--columns", "sm-active"], True)],
)
def test_profiling_counters_are_sampled_for_who_looks_at_them(
    arguments: list[str], gpm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(monkeypatch, ONE)
    assert ended(*arguments) == 0
    assert prepared.asked["gpm"] is gpm


def test_watching_into_a_pipe_appends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until Ctrl+C, which is no fault; what breaks off is said beside it."""
    prepared = prepare(monkeypatch, ONE, STOPPED, ONE, KeyboardInterrupt())
    assert ended("--watch", "2.5") == 0
    assert prepared.asked["interval"] == 2.5
    said = capsys.readouterr()
    first, second = said.out.split("\n\n")
    assert f"{first}\n" == second
    assert said.err.startswith("gputop: The sampler stopped: ␛[31mred␊alert. ")


def test_watching_as_json_is_a_document_on_each_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(monkeypatch, ONE, ONE, KeyboardInterrupt())
    assert ended("--watch", "--json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    keys = {"inventory", "sample", "bound_by"}
    assert all(json.loads(line).keys() == keys for line in lines)


def test_watching_without_a_driver_says_so_on_the_page_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(monkeypatch, Snapshot(no_driver(), sample(0)), ONE, KeyboardInterrupt())
    assert ended("--watch") == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1] == str(NO_DRIVER)
    assert "H100" in said.out
    assert said.err == ""


def run(*command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [*STATUS[:-1], *command],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=BOUND,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.driver
def test_in_a_terminal_it_is_in_colour_and_fits(driver: FakeDriver) -> None:
    process = FakeProcess(os.getpid(), memory_bytes=24 << 30)
    driver.write(FakeDevice(processes=(process,)), FakeDevice(name="NVIDIA Test", fan_percent=30))
    driver.change(1, code=GPU_IS_LOST)
    for columns in (60, 80, 120):
        with Terminal(STATUS, env=driver.environment(), columns=columns) as terminal:
            assert terminal.wait(BOUND) == 0
            assert "97 %" in terminal.text
            assert "24.0/79.6 GiB" in terminal.text
            assert "LOST" in terminal.text
            assert len(terminal.text.rstrip().splitlines()) == 4  # nothing was broken
            column, row = terminal.find("LOST")
            assert terminal.screen.buffer[row][column].fg == "red"
            terminal.wait_until_gone()


@pytest.mark.driver
def test_rates_of_byte_counters_have_values(driver: FakeDriver) -> None:
    """They are read every 0.8 s, and the snapshots are half a second apart."""
    rates = "pcie-rx,pcie-tx,nvlink-rx,nvlink-tx"
    driver.write(FakeDevice())
    shown = run("status", "--columns", rates, environment=driver.environment())
    assert shown.splitlines()[2].split() == ["0", "B/s"] * 4


@pytest.mark.driver
@pytest.mark.parametrize("end", ["\x03", signal.SIGTERM, signal.SIGKILL])
def test_watching_in_place(end: str | signal.Signals, driver: FakeDriver) -> None:
    """Each page over the one before, without a blank between; the cursor is there at any end."""
    driver.write(FakeDevice(gpu_utilization_percent=11, memory_used_bytes=1 << 30))
    watch = [*STATUS, "--watch", "0.25"]
    with Terminal(
        ["/bin/sh", "-c", 'echo before; exec "$@"', "sh", *watch], env=driver.environment()
    ) as terminal:
        terminal.wait_for("11 %", BOUND)
        drawn = terminal.raw.index(b"\x1b[H")
        assert terminal.raw[:drawn].count(b"\n") > 24  # what was there is scrolled up, not lost
        before = samplers(terminal)
        driver.change(0, gpu_utilization_percent=22)
        terminal.wait_for("22 %", BOUND)
        assert terminal.text.count("GPU") == 1
        assert samplers(terminal) == before
        assert b"\x1b[2J" not in terminal.raw
        if isinstance(end, str):
            terminal.send(end)
        else:
            terminal.kill(end)
        assert terminal.wait(BOUND) == (0 if isinstance(end, str) else -end)
        assert SHOW_CURSOR in terminal.modes
        terminal.wait_until_gone()


def samplers(terminal: Terminal) -> set[int]:
    return {pid for pid, command in terminal.processes().items() if " stream " in command}
