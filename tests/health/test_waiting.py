import subprocess
from typing import Any

import pytest

from gputop.health.waiting import Condition, DeviceWait, Kind, ProcessEnd, parse_condition
from gputop.stream.child import Snapshot
from tests.health.histories import watched
from tests.streams import GIB


def met(wait: DeviceWait, snapshots: list[Snapshot]) -> tuple[int, str | None]:
    for number, snapshot in enumerate(snapshots):
        text = wait.add(snapshot)
        if text is not None:
            return number, text
    return len(snapshots), None


BUSY = {"gpu_utilization_percent": 90}
IDLE = {"gpu_utilization_percent": 2}
NEARLY = {"gpu_utilization_percent": lambda tick: 90 if tick == 5 else 0}


@pytest.mark.parametrize(
    ("first", "second", "all_of_them", "expected"),
    [
        (BUSY, IDLE, False, (10, "GPU 1 is idle: 2 % busy")),
        (IDLE, IDLE, True, (10, "GPU 0 is idle: 2 % busy; GPU 1 is idle: 2 % busy")),
        (BUSY, IDLE, True, (30, None)),
        (BUSY, BUSY, False, (30, None)),
        ({"gpu_utilization_percent": None}, BUSY, False, (30, None)),
        (NEARLY, BUSY, False, (16, "GPU 0 is idle: 0 % busy")),
    ],
)
def test_idle_must_last(
    first: dict[str, Any], second: dict[str, Any], all_of_them: bool, expected: tuple[int, str]
) -> None:
    wait = DeviceWait(Condition(Kind.IDLE), 10, all_of_them)
    assert met(wait, watched(first, second)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("free:10GiB", (2, "GPU 1 has 20.0 GiB of free memory")),
        ("free:30GiB", (30, None)),
        ("free:25%", (2, "GPU 1 has 20.0 GiB of free memory")),
        ("free:90%", (30, None)),
    ],
)
def test_memory_must_be_free(wanted: str, expected: tuple[int, str | None]) -> None:
    wait = DeviceWait(parse_condition(wanted), 2)
    used = {"memory_used_bytes": 75 * GIB, "memory_free_bytes": 5 * GIB}
    free = {"memory_used_bytes": 60 * GIB, "memory_free_bytes": 20 * GIB}
    assert met(wait, watched(used, free)) == expected


def test_a_fault_is_told_by_its_finding() -> None:
    wait = DeviceWait(Condition(Kind.FAULT), 10)
    assert met(wait, watched(BUSY, BUSY)) == (30, None)
    wait = DeviceWait(Condition(Kind.FAULT), 10)
    number, text = met(wait, watched(BUSY, {"ecc_uncorrected": 3}))
    assert number == 0
    assert text is not None
    assert text.startswith("GPU 1")


def test_a_process_is_waited_for_by_its_start_time() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        end = ProcessEnd(process.pid)
        assert not end.sentence
        process.kill()
        process.wait()
        assert end.sentence == f"Process {process.pid} has ended"
    assert ProcessEnd(2**22 + 1).sentence == f"Process {2**22 + 1} is not running"


@pytest.mark.parametrize(
    "text", ["", "busy", "free", "free:", "exit:", "exit:x", "exit:0", "idle:3"]
)
def test_a_wrong_condition_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="idle, free:20GiB, exit:4242 or fault"):
        parse_condition(text)
