import asyncio
import contextlib
import doctest
import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import gputop
from gputop import api
from gputop.agent.snapshot import DriverState
from tests.driver import FakeDevice, FakeDriver
from tests.reference import LIBRARY
from tests.waiting import until

BOUND = 60.0
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", LIBRARY.read_text(), re.MULTILINE | re.DOTALL)


def samplers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # one that has just ended
            if "stream" in each.cmdline():
                found.append(each)
    return found


def test_the_page_says_the_truth() -> None:
    found = doctest.testfile(str(LIBRARY), module_relative=False)
    assert found.failed == 0
    assert found.attempted >= 8


def test_all_that_is_public_is_there_and_nothing_else() -> None:
    stub = re.findall(
        r"import (\w+) as \1$",
        (LIBRARY.parents[1] / "gputop/__init__.pyi").read_text(),
        re.MULTILINE,
    )
    public = vars(gputop)["__all__"]
    assert sorted(stub) == sorted(public)
    for name in public:
        assert getattr(gputop, name).__doc__
    assert dir(gputop) == sorted([*public, "__version__"])
    with pytest.raises(AttributeError, match="no attribute 'Pick'"):
        gputop.Pick  # type: ignore[attr-defined]  # noqa: B018


def test_the_import_loads_nothing_and_the_library_no_terminal() -> None:
    program = """if True:
        import sys
        before = set(sys.modules)
        import gputop
        assert set(sys.modules) - before == {"gputop", "gputop.agent"}, set(sys.modules) - before
        gputop.snapshot
        for name in ("textual", "rich", "pynvml", "torch"):
            assert name not in sys.modules, name
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=BOUND)


@pytest.mark.driver
def test_a_snapshot(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice(power_milliwatts=99_500, temperature_celsius=None))

    async def cell() -> gputop.Snapshot:  # of a notebook, where a loop runs already
        return gputop.snapshot()

    inventory, sample = asyncio.run(cell())
    assert [each.index for each in inventory.devices] == [0, 1]
    assert sample.devices[1].power_watts == 99.5
    assert sample.devices[1].temperature_celsius is None
    assert samplers() == []


def test_without_a_driver_it_is_said_in_one_line() -> None:
    inventory, _ = gputop.snapshot()
    assert inventory.driver_state is DriverState.UNAVAILABLE
    with pytest.raises(gputop.ProblemError, match=r"^No NVIDIA driver: .+[^.]$"):
        gputop.pick()


@pytest.mark.driver
def test_a_device_that_hangs_holds_up_nothing(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice())
    with gputop.snapshots(0.25) as stream:
        next(stream)
        nvml.change(1, hang=True)
        for each in stream:
            if each.sample.devices[1].state is gputop.DeviceState.NOT_RESPONDING:
                break
    assert each.sample.devices[0].state is gputop.DeviceState.OK


def test_an_asynchronous_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_SECONDS", 1e6)  # it is not waited for

    async def follow() -> list[float]:
        with gputop.snapshots(0.25, demo=True) as stream:
            times = []
            async for each in stream:
                times.append(each.sample.time)
                if len(times) == 3:
                    stream.close()
        return times

    times = asyncio.run(follow())
    assert times == sorted(set(times))
    assert len(times) == 3


def test_a_stream_that_nobody_refers_to_ends() -> None:
    for _ in gputop.snapshots(0.25, demo=True):
        assert len(samplers()) == 1
        break
    gc.collect()
    until(lambda: not samplers())


def test_it_ends_with_its_process() -> None:
    program = """if True:
        import gputop, psutil
        stream = gputop.snapshots(0.25, demo=True)
        next(stream)
        (child,) = psutil.Process().children()
        print(child.pid)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=BOUND
    )
    assert (done.returncode, done.stderr) == (0, b"")
    pid = int(done.stdout)
    until(lambda: not psutil.pid_exists(pid))


def test_a_sampler_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(api, "ANSWER_SECONDS", 1e6)  # it is not waited for
    with gputop.snapshots() as stream, pytest.raises(gputop.ProblemError, match="sampler"):
        next(stream)


@pytest.mark.parametrize("interval", [0.24, 60.1, "1"])
def test_an_interval_that_cannot_be_is_refused(interval: Any) -> None:
    with pytest.raises(ValueError, match=r"Give seconds from 0\.25 to 60$"):
        gputop.snapshots(interval)


@pytest.mark.parametrize("count", [0, 1.0, "1"])
def test_a_count_that_cannot_be_is_refused(count: Any) -> None:
    with pytest.raises(ValueError, match=r"Give a whole number from 1$"):
        gputop.pick(count)


def test_free_memory_as_a_number_of_bytes() -> None:
    assert len(gputop.pick(min_free=1 << 30, demo=True)) == 1
    assert gputop.pick(min_free=1 << 40, demo=True) == []


def test_a_variable_that_hides_every_device_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-nothing")
    with pytest.warns(UserWarning, match="CUDA_VISIBLE_DEVICES") as warned:
        assert gputop.pick(demo=True) == []
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="is not an amount of memory"):
        gputop.pick(min_free="20", demo=True)


def example(word: str) -> dict[str, Any]:
    (source,) = (each for each in EXAMPLES if word in each)
    names: dict[str, Any] = {}
    exec(compile(source, word, "exec"), names)  # noqa: S102
    return names


def test_the_example_of_a_training_loop() -> None:
    logged: list[dict[str, Any]] = []

    def steps() -> Any:
        while not logged:
            yield lambda: 0.5

    example("def train")["train"](steps(), lambda **values: logged.append(values), demo=True)
    assert logged[0]["loss"] == 0.5
    assert logged[0]["watts"] > 100


@pytest.mark.driver
def test_the_example_of_a_fixture(nvml: FakeDriver, tmp_path: Path) -> None:
    (source,) = (each for each in EXAMPLES if "def gpu" in each)
    test = "import os\ndef test_it(gpu):\n    assert os.environ['CUDA_VISIBLE_DEVICES'] == gpu\n"
    (tmp_path / "test_it.py").write_text(f"{source}\n{test}")

    def run() -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, check=True, text=True, timeout=BOUND
        )
        return done.stdout

    nvml.write(FakeDevice(gpu_utilization_percent=100))
    assert "1 skipped" in run()
    nvml.write(FakeDevice(gpu_utilization_percent=0))
    assert "1 passed" in run()
