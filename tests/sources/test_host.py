"""The machine, against /proc and psutil."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest

from gputop.schema.device import Absence
from gputop.sources.linux import host as module
from gputop.sources.linux.host import HostReader
from gputop.sources.linux.procfs import cpu_name

if TYPE_CHECKING:
    from gputop.schema.snapshot import Host


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


def meminfo() -> dict[str, int]:
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows}


def absent_is_missing(host: Host) -> bool:
    """What is None has a reason, and nothing else has."""
    names = ("cpu_percent", "cpu_clock_mhz", "cpu_temperature_celsius", "memory_used_bytes")
    return {name for name in names if getattr(host, name) is None} == set(host.absent) - {
        "cpu_core_percent"
    }


def test_memory_and_load_are_those_of_proc(clock: Clock) -> None:
    host = HostReader().read()
    proc = meminfo()
    assert host.memory_total_bytes == proc["MemTotal"]
    assert host.memory_available_bytes == pytest.approx(proc["MemAvailable"], rel=0.1)
    assert host.memory_used_bytes == host.memory_total_bytes - (host.memory_available_bytes or 0)
    loads = [float(word) for word in Path("/proc/loadavg").read_text().split()[:3]]
    assert host.load_average == pytest.approx(loads, abs=2.0)


def test_shared_memory_is_in_use(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some versions of psutil leave it out of what they call used."""
    memory = SimpleNamespace(total=100, available=30, used=50)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert HostReader().read().memory_used_bytes == 70


def test_a_percentage_needs_some_time(clock: Clock) -> None:
    reader = HostReader()
    clock.now += module.WINDOW_SECONDS / 2
    early = reader.read()
    assert early.cpu_percent is None
    assert early.cpu_core_percent == ()
    assert early.absent["cpu_percent"] is Absence.NO_DATA_YET
    assert early.absent["cpu_core_percent"] is Absence.NO_DATA_YET
    assert absent_is_missing(early)
    clock.now += module.WINDOW_SECONDS
    later = reader.read()
    assert "cpu_percent" not in later.absent
    assert absent_is_missing(later)


def test_every_core_has_its_percentage(clock: Clock) -> None:
    reader = HostReader()
    clock.now += 1.0
    host = reader.read()
    assert len(host.cpu_core_percent) == psutil.cpu_count()
    assert all(0 <= core <= 100 for core in host.cpu_core_percent)
    assert host.cpu_percent == pytest.approx(statistics.fmean(host.cpu_core_percent))


def test_the_percentages_are_since_the_read_before(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([[0.0, 0.0], [20.0, 40.0], [60.0, 80.0]])
    monkeypatch.setattr(psutil, "cpu_percent", lambda **_: next(answers))
    reader = HostReader()
    clock.now += 1.0
    assert reader.read().cpu_percent == 30.0
    clock.now += module.WINDOW_SECONDS / 10
    again = reader.read()
    assert (again.cpu_percent, again.cpu_core_percent) == (30.0, (20.0, 40.0))
    clock.now += 1.0
    assert reader.read().cpu_core_percent == (60.0, 80.0)


def test_clock_and_temperature_are_read_in_a_slow_tier(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def frequency() -> SimpleNamespace:
        reads.append("clock")
        return SimpleNamespace(current=2600.0 + len(reads))

    def temperatures() -> dict[str, list[SimpleNamespace]]:
        cores = [SimpleNamespace(current=51.0), SimpleNamespace(current=58.0)]
        return {"nvme": [SimpleNamespace(current=80.0)], "coretemp": cores}

    monkeypatch.setattr(psutil, "cpu_freq", frequency)
    monkeypatch.setattr(psutil, "sensors_temperatures", temperatures)
    reader = HostReader()
    first = reader.read()
    assert (first.cpu_clock_mhz, first.cpu_temperature_celsius) == (2601.0, 58.0)
    assert not {"cpu_clock_mhz", "cpu_temperature_celsius"} & set(first.absent)
    clock.now += module.SLOW_SECONDS / 2
    assert reader.read().cpu_clock_mhz == 2601.0
    clock.now += module.SLOW_SECONDS
    assert reader.read().cpu_clock_mhz == 2602.0
    assert len(reads) == 2


@pytest.mark.parametrize("frequency", [None, SimpleNamespace(current=0.0)])
def test_what_this_machine_does_not_have(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, frequency: SimpleNamespace | None
) -> None:
    monkeypatch.setattr(psutil, "cpu_freq", lambda: frequency)
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"nvme": [object()]})
    host = HostReader().read()
    assert host.cpu_clock_mhz is None
    assert host.cpu_temperature_celsius is None
    assert host.absent["cpu_clock_mhz"] is Absence.NOT_SUPPORTED
    assert host.absent["cpu_temperature_celsius"] is Absence.NOT_SUPPORTED


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("can't find current frequency file"),
        FileNotFoundError(2, "scaling_max_freq"),
        ValueError("invalid literal for int(): '<unknown>'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_clock_that_psutil_fails_to_read(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(psutil, "cpu_freq", fail)
    host = HostReader().read()
    assert host.absent["cpu_clock_mhz"] is Absence.NOT_SUPPORTED
    assert host.memory_total_bytes


def test_a_proc_that_shows_processes_only(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sandbox hides of the machine is absent; nothing fails."""

    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    for owner, name in ((psutil, "cpu_percent"), (psutil, "virtual_memory"), (os, "getloadavg")):
        monkeypatch.setattr(owner, name, fail)
    reader = HostReader()
    clock.now += 1.0
    host = reader.read()
    assert (host.cpu_percent, host.cpu_core_percent, host.load_average) == (None, (), ())
    assert host.memory_used_bytes is host.memory_total_bytes is host.memory_available_bytes is None
    hidden = ["cpu_percent", "cpu_core_percent", "load_average"]
    hidden += [f"memory_{name}_bytes" for name in ("used", "total", "available")]
    assert {host.absent[name] for name in hidden} == {Absence.NOT_SUPPORTED}


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC 7763 \nflags: x\n", "AMD EPYC 7763"),
        ("processor : 0\nHardware : x\nModel\t: Raspberry Pi 5 : B\n", "Raspberry Pi 5 : B"),
        ("processor : 0\n", None),
        ("", None),
    ],
)
def test_cpu_name(monkeypatch: pytest.MonkeyPatch, cpuinfo: str, name: str | None) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: cpuinfo)
    assert cpu_name() == name


def test_no_cpuinfo(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fail)
    assert cpu_name() is None
