from pathlib import Path

import pytest

from gputop.agent.device import Absence
from gputop.agent.linux import host as module
from gputop.agent.linux.host import HostReader
from tests.agent.fakes import Time
from tests.agent.test_machine import INTEL, cpuinfo, stat
from tests.fake_root import fake_root


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (root / name.lstrip("/")).write_text(content)


def test_the_percentages_are_since_the_read_before(clock: Time, tmp_path: Path) -> None:
    root = fake_root(tmp_path, INTEL | stat("cpu0 0 0 0 100", "cpu1 0 0 0 100"))
    reader = HostReader(root)
    clock.now += 0.05
    early = reader.read()
    assert (early.cpu_percent, early.cpu_core_percent) == (None, ())
    names = ("cpu_percent", "cpu_core_percent")
    assert {early.absent[name] for name in names} == {Absence.NO_DATA_YET}
    write(root, stat("cpu0 20 0 0 180", "cpu1 40 0 0 160"))
    clock.now += 1.0
    host = reader.read()
    assert (host.cpu_percent, host.cpu_core_percent, host.absent) == (30.0, (20.0, 40.0), {})
    assert (host.cpu_clock_mhz, host.cpu_temperature_celsius) == (3000.25, 58.0)
    write(root, cpuinfo("1000.0004"))
    write(root, stat("cpu0 80 0 0 220", "cpu1 120 0 0 180"))
    clock.now += 0.09
    host = reader.read()
    assert (host.cpu_core_percent, host.cpu_clock_mhz) == ((20.0, 40.0), 3000.25)
    clock.now += 1.0
    host = reader.read()
    assert (host.cpu_core_percent, host.cpu_clock_mhz) == ((60.0, 80.0), 1000.0)


def test_what_happened_between_two_reads_is_there(clock: Time, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "files",
    [{}, stat("cpu0 0 0 0 0 0 0 0 0 0 0")],
    ids=["a sandbox that shows processes only", "CPUs whose time is not counted"],
)
def test_what_a_sandbox_hides_is_absent(clock: Time, tmp_path: Path, files: dict[str, str]) -> None:
    reader = HostReader(fake_root(tmp_path, files))
    clock.now += 1.0
    host = reader.read()
    assert (host.cpu_percent, host.cpu_core_percent, host.load_average) == (None, (), ())
    assert host.memory_used_bytes is host.memory_total_bytes is host.memory_available_bytes is None
    hidden = ["cpu_percent", "cpu_core_percent", "load_average"]
    hidden += [f"memory_{name}_bytes" for name in ("used", "total", "available")]
    assert {host.absent[name] for name in hidden} == {Absence.NOT_SUPPORTED}
