"""The machine as it is sent: windows of time, and reasons for what is missing."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from gputop.agent.device import Absence
from gputop.agent.linux import host as module
from gputop.agent.linux.host import HostReader
from gputop.agent.snapshot import Host
from tests.agent import machines
from tests.agent.machines import cpuinfo, stat
from tests.fake_root import fake_root


class Clock:
    """Stands in for the module's `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def absent_is_missing(host: Host) -> bool:
    """What is None has a reason, and nothing else has."""
    names = ("cpu_percent", "cpu_clock_mhz", "cpu_temperature_celsius", "memory_used_bytes")
    return {name for name in names if getattr(host, name) is None} == set(host.absent) - {
        "cpu_core_percent"
    }


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name.lstrip("/")).write_text(content)


def test_memory_and_load_are_those_of_proc(clock: Clock) -> None:
    host = HostReader().read()
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    proc = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}
    assert host.memory_total_bytes == proc["MemTotal"]
    assert host.memory_available_bytes == pytest.approx(proc["MemAvailable"], rel=0.1)
    assert host.memory_used_bytes == host.memory_total_bytes - (host.memory_available_bytes or 0)
    loads = [float(word) for word in Path("/proc/loadavg").read_text().split()[:3]]
    assert host.load_average == pytest.approx(loads, abs=2.0)


def test_a_percentage_needs_some_time(clock: Clock) -> None:
    reader = HostReader()
    clock.now += module.WINDOW_SECONDS / 2
    early = reader.read()
    assert early.cpu_percent is None
    assert early.cpu_core_percent == ()
    assert early.absent["cpu_percent"] is Absence.NO_DATA_YET
    assert early.absent["cpu_core_percent"] is Absence.NO_DATA_YET
    assert absent_is_missing(early)


def test_every_core_has_its_percentage(clock: Clock, tmp_path: Path) -> None:
    root = fake_root(tmp_path, machines.INTEL)
    reader = HostReader(root)
    write(root, stat("cpu0 30 0 5 80 5 0 0 0 0 0", "cpu1 11 0 5 83 5 0 0 0 0 0"))
    clock.now += 1.0
    host = reader.read()
    assert host.cpu_core_percent == (100.0, 25.0)
    assert host.cpu_percent == statistics.fmean(host.cpu_core_percent)
    assert host.absent == {}
    assert absent_is_missing(host)


def test_the_percentages_are_since_the_read_before(clock: Clock, tmp_path: Path) -> None:
    root = fake_root(tmp_path, stat("cpu0 0 0 0 100", "cpu1 0 0 0 100"))
    reader = HostReader(root)
    write(root, stat("cpu0 20 0 0 180", "cpu1 40 0 0 160"))
    clock.now += 1.0
    assert reader.read().cpu_percent == 30.0
    write(root, stat("cpu0 80 0 0 220", "cpu1 120 0 0 180"))
    clock.now += module.WINDOW_SECONDS / 10
    again = reader.read()
    assert (again.cpu_percent, again.cpu_core_percent) == (30.0, (20.0, 40.0))
    clock.now += 1.0
    assert reader.read().cpu_core_percent == (60.0, 80.0)


def test_what_happened_between_two_reads_is_there(clock: Clock, tmp_path: Path) -> None:
    """A second of load in ten is 10 % on average, and all of a core for that second."""
    root = fake_root(tmp_path, stat("cpu0 0 0 0 100", "cpu1 0 0 0 100"))
    reader = HostReader(root)
    for ticks in ("cpu0 0 0 0 200", "cpu0 100 0 0 200"):
        write(root, stat(ticks, f"cpu1 0 0 0 {sum(map(int, ticks.split()[1:]))}"))
        reader.note_cpu()
    write(root, stat("cpu0 150 0 0 250", "cpu1 0 0 0 400"))
    clock.now += 3.0
    host = reader.read()
    assert host.cpu_core_percent == (50.0, 0.0)
    assert host.cpu_samples_percent == (0.0, 50.0, 25.0)
    assert host.cpu_core_max_samples_percent == (0.0, 100.0, 50.0)
    write(root, stat("cpu0 250 0 0 250", "cpu1 0 0 0 500"))
    clock.now += 1.0
    host = reader.read()
    assert host.cpu_percent == 50.0
    assert host.cpu_samples_percent == host.cpu_core_max_samples_percent == ()


def test_clock_and_temperature_are_read_less_often(clock: Clock, tmp_path: Path) -> None:
    root = fake_root(tmp_path, machines.INTEL)
    reader = HostReader(root)
    first = reader.read()
    assert (first.cpu_clock_mhz, first.cpu_temperature_celsius) == (3000.25, 58.0)
    assert not {"cpu_clock_mhz", "cpu_temperature_celsius"} & set(first.absent)
    write(root, cpuinfo("1000.0004"))
    write(root, {"/sys/class/hwmon/hwmon1/temp2_input": "60001\n"})
    clock.now += module.SLOW_SECONDS / 2
    assert reader.read().cpu_clock_mhz == 3000.25
    clock.now += module.SLOW_SECONDS / 2
    later = reader.read()
    assert (later.cpu_clock_mhz, later.cpu_temperature_celsius) == (1000.0, 60.001)


@pytest.mark.parametrize(
    "files",
    [{}, stat("cpu0 0 0 0 0 0 0 0 0 0 0")],
    ids=["a sandbox that shows processes only", "CPUs whose time is not counted"],
)
def test_what_a_sandbox_hides_is_absent(
    clock: Clock, tmp_path: Path, files: dict[str, str]
) -> None:
    reader = HostReader(fake_root(tmp_path, files))
    clock.now += 1.0
    host = reader.read()
    assert (host.cpu_percent, host.cpu_core_percent, host.load_average) == (None, (), ())
    assert host.memory_used_bytes is host.memory_total_bytes is host.memory_available_bytes is None
    hidden = ["cpu_percent", "cpu_core_percent", "load_average"]
    hidden += [f"memory_{name}_bytes" for name in ("used", "total", "available")]
    assert {host.absent[name] for name in hidden} == {Absence.NOT_SUPPORTED}
