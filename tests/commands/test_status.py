import dataclasses
import json
import signal
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gputop.agent.device import Absence
from gputop.agent.problem import Problem
from gputop.stream.child import Snapshot, StreamError
from tests.commands.conftest import STOPPED, Prepared, Ran
from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import GPUTOP
from tests.streams import NO_DRIVER, device, inventory, lost, no_driver, process, readings, sample
from tests.terminal import SHOW_CURSOR, Terminal

BOUND = 60.0


ONE = Snapshot(inventory(1), sample(1))


def test_it_waits_for_the_users_of_the_processes(ran: Ran) -> None:
    """On a busy machine their look-up takes longer than the first reading."""
    early = process(71, 0, user=None, command=None, absent={"user": Absence.NO_DATA_YET})
    known = process(71, 0, user="ada", command="python train.py")
    shots = [Snapshot(inventory(1), sample(1, [each])) for each in (early, known, known)]
    prepared = Prepared(*shots)
    status, out, _ = ran(prepared, "status", "--processes")
    assert (status, prepared.taken) == (0, 2)
    assert "ada" in out


def test_a_driver_problem_is_said_on_standard_error(ran: Ran) -> None:
    status, out, err = ran([Snapshot(no_driver(), sample(0))], "status", "--json")
    assert json.loads(out)["inventory"]["problem"]["what"] == NO_DRIVER.what
    assert (status, err) == (3, f"gputop: error: {NO_DRIVER}\n")
    _, out, _ = ran([Snapshot(no_driver(), sample(0))], "status")
    assert NO_DRIVER.what not in out
    _, out, _ = ran([Snapshot(no_driver(), sample(0)), KeyboardInterrupt()], "status", "--watch")
    assert NO_DRIVER.what in out


def test_a_list_is_of_gpus_and_instances_only(ran: Ran) -> None:
    gpu = device(0, name="A\x1b[2J")
    part = device(0, uuid="MIG-1", parent_uuid=gpu.uuid, mig_index=12, name="A MIG 1c.2g.10gb")
    gone = device(2, absent={"uuid": Absence.LOST})
    found = dataclasses.replace(inventory(1), devices=(gpu, part, gone))
    seen = dataclasses.replace(sample(1), devices=(*sample(1).devices, lost(2)))
    status, out, _ = ran([Snapshot(found, seen)], "status", "-L")
    assert (status, out.splitlines()) == (
        0,
        [
            f"GPU 0: A␛[2J (UUID: {gpu.uuid})",
            "  MIG 1c.2g.10gb  Device 12: (UUID: MIG-1)",
            "GPU 2: lost",
        ],
    )
    status, out, _ = ran([Snapshot(no_driver(), sample(0))], "status", "--list-gpus")
    assert (status, out) == (3, "")


@pytest.mark.parametrize(
    ("arguments", "pids"),
    [
        (["--sort", "pid"], ["3", "7"]),
        (["--sort", "memory", "--top", "1"], ["3"]),
        (["--top", "1"], ["3"]),
        (["--processes"], ["7", "3"]),
    ],
)
def test_an_order_or_a_number_of_processes_shows_their_table(
    ran: Ran, arguments: list[str], pids: list[str]
) -> None:
    processes = (process(7, 0, memory_used_bytes=1 << 30), process(3, 0, memory_used_bytes=2 << 30))
    status, out, _ = ran([Snapshot(inventory(1), sample(1, processes))], "status", *arguments)
    assert status == 0
    assert [line.split()[1] for line in out.split("\n\n")[1].splitlines()] == ["PID", *pids]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--user", "ada,bob"], ["processes of ada, bob"]),
        (["--compute", "--pid", "7"], ["compute processes 7"]),
        ([], []),
    ],
)
def test_the_chosen_processes_are_named(ran: Ran, arguments: list[str], shown: list[str]) -> None:
    _, out, _ = ran([ONE], "status", *arguments)
    assert [part for part in out.splitlines()[0].split(" · ") if "processes" in part] == shown


def test_a_sampler_that_fails_is_said_in_one_inert_line(ran: Ran) -> None:
    error = StreamError(Problem("It stopped", "\x1b[31mred\nalert", "Try again"))
    status, _, err = ran([error], "status")
    assert (status, err) == (3, "gputop: error: It stopped: ␛[31mred␊alert. Try again\n")


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
        ("sm-active", (LATER,), 1, "–"),
    ],
)
def test_a_column_that_needs_two_readings_gets_them(
    ran: Ran, columns: str, found: Any, taken: int, shown: str
) -> None:
    prepared = Prepared(*found)
    status, out, _ = ran(prepared, "status", "--columns", columns)
    assert (status, prepared.taken) == (0, taken)
    assert prepared.asked == {"interval": 0.5, "gpm": columns == "sm-active"}
    assert out.splitlines()[-1].strip() == shown


def test_watching_into_a_pipe_appends(ran: Ran) -> None:
    """Until Ctrl+C, which is no fault; what breaks off is said beside it."""
    prepared = Prepared(ONE, STOPPED, ONE, KeyboardInterrupt())
    status, out, err = ran(prepared, "status", "--watch", "2.5")
    assert (status, prepared.asked) == (0, {"interval": 2.5, "gpm": False})
    first, second = out.split("\n\n")
    assert f"{first}\n" == second
    assert err.startswith("gputop: The sampler stopped: ␛[31mred␊alert. ")


def test_watching_as_json_is_a_document_on_each_line(ran: Ran) -> None:
    prepared = Prepared(ONE, ONE, KeyboardInterrupt())
    status, out, _ = ran(prepared, "status", "--watch", "--json")
    lines = out.splitlines()
    assert (status, len(lines), prepared.asked["interval"]) == (0, 2, 1.0)
    keys = {"inventory", "sample", "bound_by"}
    assert all(json.loads(line).keys() == keys for line in lines)


@pytest.mark.driver
@pytest.mark.parametrize("end", ["\x03", signal.SIGTERM, signal.SIGKILL])
def test_watching_in_place(end: str | signal.Signals, driver: FakeDriver) -> None:
    """Each page over the one before, without a blank between; the cursor is there at any end."""
    driver.write(FakeDevice(gpu_utilization_percent=11, memory_used_bytes=1 << 30))
    watch = [*GPUTOP, "status", "--watch", "0.25"]
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
        assert (b"^C\r\n" in terminal.raw) is isinstance(end, str)
        terminal.wait_until_gone()


def samplers(terminal: Terminal) -> set[int]:
    return {pid for pid, command in terminal.processes().items() if " stream " in command}


def test_several_hosts_have_a_page_each_and_their_problems_are_said(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Snapshot(no_driver(), sample(0))
    away = Problem("c is unreachable", "why", "Try again")
    found = AsyncMock(return_value={"a": ONE, "node07": broken, "c": away})
    monkeypatch.setattr("gputop.stream.machines.host_snapshots", found)
    hosts = ("--host", "a", "--host", "node07", "--host", "c")
    status, out, err = ran([], "status", *hosts)
    assert status == 3
    assert [page.split(" · ")[0] for page in out.split("\n\n")] == ["a (node07)", "node07"]
    assert err.splitlines() == [
        f"gputop: error: node07: {NO_DRIVER}",
        "gputop: error: c is unreachable: why. Try again",
    ]
    _, out, _ = ran([], "status", "--json", *hosts)
    assert [each["host"] for each in json.loads(out)] == ["a", "node07", "c"]
