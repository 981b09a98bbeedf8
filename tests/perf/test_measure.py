"""The instruments of the comparison: what they say of programs whose figures are known."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.perf.calls import by_class
from tests.perf.first_second import command
from tests.perf.instructions import HOOK, counted
from tests.perf.measure import Recorder, processor_seconds, pss
from tests.terminal import Terminal


def test_the_time_of_a_text_is_that_of_its_output_however_late_it_is_looked_at() -> None:
    with Recorder(["sh", "-c", "printf one; read _; printf two; read _"]) as terminal:
        one = terminal.when(lambda t: "one" in t.text)
        sent = terminal.elapsed
        terminal.send("\r")
        two = terminal.when(lambda t: "two" in t.text, first=0.5)
        looked = terminal.elapsed
    assert one is not None
    assert two is not None
    assert one < sent < two
    assert looked - sent > 0.5
    assert looked - two > 0.1


def test_what_does_not_come_is_none_at_once_where_the_program_has_ended() -> None:
    with Recorder(["true"]) as terminal:
        assert terminal.when(lambda t: "one" in t.text, timeout=60.0) is None
        assert terminal.elapsed < 30


def test_nothing_is_seen_of_a_screen_that_nobody_looked_at() -> None:
    with Recorder(["sh", "-c", "printf one; read _"]) as terminal:
        while not terminal.pieces:
            terminal.collect(0.05)
        assert terminal.text.strip() == ""
        terminal.look()
        assert terminal.text.strip() == "one"


def test_processor_time_is_that_of_a_process_and_of_its_children_that_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    with Terminal(["sh", "-c", f"python3 -c '{busy}'; printf done; read _"]) as terminal:
        terminal.wait_for("done", timeout=60)
        used = processor_seconds(terminal.processes())
        assert 0.25 < used < 3.0
        terminal.collect(0.3)
        assert processor_seconds(terminal.processes()) - used < 0.1  # it sleeps


def test_processor_time_and_memory_of_who_is_gone_are_nothing() -> None:
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitpid(pid, 0)
    assert processor_seconds({pid: "true"}) == 0.0
    assert pss(pid) == 0


def test_memory_is_this_process_s() -> None:
    before = pss(os.getpid())
    more = bytearray(os.urandom(1 << 20)) * 64
    grown = pss(os.getpid()) - before
    assert 60 << 20 < grown < 70 << 20, len(more)


def test_the_processor_s_clock_is_finer_than_a_tick() -> None:
    clocks = {processor_seconds({os.getpid(): ""}) for _ in range(100)}
    assert len(clocks) > 10, time.get_clock_info("process_time")


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("nvmlDeviceGetMPSComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetProcessUtilization", "processes"),
        ("nvmlDeviceGetUtilizationRates", "utilization"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power and energy"),
        ("nvmlDeviceGetPowerState", "modes, ECC, P-state"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "clocks"),
        ("nvmlDeviceGetPcieThroughput", "PCIe throughput"),
        ("nvmlDeviceGetCurrPcieLinkWidth", "PCIe link"),
        ("nvmlDeviceGetComputeMode", "modes, ECC, P-state"),
        ("nvmlInit_v2", "who it is, start and end"),
    ],
)
def test_calls_are_of_one_class(function: str, kind: str) -> None:
    assert {name for name, n in by_class({function: 2.5}).items() if n} == {kind}


@pytest.mark.parametrize("entry", ["__main__", "cli"])
def test_what_is_compared_is_the_package_in_the_other_folder(entry: str, tmp_path: Path) -> None:
    package = tmp_path / "gputop"
    package.mkdir()
    for name in ("__init__", "__main__", "cli"):
        (package / f"{name}.py").touch()
    (package / f"{entry}.py").write_text("def main():\n    print(__file__)\n")
    here = Path(__file__).parents[2]  # has a package of that name, too
    done = subprocess.run(command(tmp_path), cwd=here, capture_output=True, text=True, check=True)
    assert done.stdout == f"{package / entry}.py\n"


def test_instructions_are_counted_in_all_threads(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    program = (
        "import threading\n"
        "def loop(times):\n    for _ in range(times): pass\n"
        "for times in (1000, 2000, 4000):\n"
        "    thread = threading.Thread(target=loop, args=(times,))\n"
        "    thread.start(); thread.join(); print('after', times, flush=True); input()\n"
    )
    paths = {"PYTHONPATH": str(tmp_path), "COUNTS": str(tmp_path)}
    found = []
    with Terminal([sys.executable, "-c", program], paths) as terminal:
        for times in (1000, 2000, 4000):
            terminal.wait_for(f"after {times}")
            found += counted([terminal.pid], tmp_path)
            terminal.send("\r")
    first, second = found[1] - found[0], found[2] - found[1]
    assert 1.5 < second / first < 2.1
    assert first > 2000
