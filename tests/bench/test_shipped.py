"""The shipped command on several devices: those of the fake driver, and the worker on a CPU."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from gputop.stream.launch import module_command
from tests.bench.workers import broken_worker, fake_interpreter, needs_torch
from tests.driver import FakeDevice, FakeDriver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.driver, needs_torch]

ON_A_CPU = "main.open_cuda = lambda torch, halt, free_bytes: main.Cpu(torch, halt)"


def bench(
    driver: FakeDriver, folder: Path, *arguments: str, fault: str = ""
) -> subprocess.Popen[str]:
    """It has been started; every GPU of the driver computes on a thread."""
    python = fake_interpreter(folder, broken_worker(f"{ON_A_CPU}\n{fault}"))
    asked = ["--dtype", "float32", "--size", "256", "--python", python, *arguments]
    return subprocess.Popen(
        [*module_command("gputop"), "bench", *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **driver.environment(), "OMP_NUM_THREADS": "1"},
        text=True,
    )


def only(index: int, fault: str) -> str:
    """That fault, a line, on that device alone: the fake driver's UUIDs end in its index."""
    return f"import os\nif os.environ['CUDA_VISIBLE_DEVICES'][-1] == '{index}': {fault}\n"


def wait_for(process: subprocess.Popen[str], there: Callable[[], bool]) -> None:
    """Until that is so, as long as the process runs."""
    pause = threading.Event()
    while not there():
        assert process.poll() is None
        pause.wait(0.05)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if any(word.endswith("fake_worker.py") for word in child.cmdline()):
                found.append(child)
    return found


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    with process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def results_of(process: subprocess.Popen[str]) -> tuple[int, list[dict[str, Any]], str]:
    status, out, err = ended(process)
    return status, json.loads(out), err


BEGUN = """
launch, begun = main.Cpu.launch, []
def launched(self, product, products, *, check):
    launch(self, product, products, check=check)
    if not begun:
        begun.append(open(f"{mark}-{{os.getpid()}}", "w"))
main.Cpu.launch = launched
"""


def rows(out: str) -> list[str]:
    """Return the line of each GPU in the table."""
    return [line for line in out.splitlines() if line.startswith("  GPU ")]


@pytest.mark.slow
def test_one_that_gets_too_hot_does_not_end_the_other(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice(), FakeDevice())
    fault = f"import os\n{BEGUN.format(mark=tmp_path / 'begun')}"
    process = bench(driver, tmp_path, "--device", "0,1", "--seconds", "5", fault=fault)
    wait_for(process, lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    driver.change(1, temperature_celsius=88)
    status, out, err = ended(process)
    assert status == 4
    (line,) = err.splitlines()
    assert line.startswith("gputop: GPU 1, ")
    assert "too hot" in line
    first, second = rows(out)
    assert first.split()[-1] == "ok"
    assert second.endswith("too hot")
    assert "GPU 1: Computes correctly. Too hot: the test was ended at 88°C after " in out


@pytest.mark.slow
def test_a_wrong_device_among_right_ones_is_a_fault(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice(), FakeDevice())
    fault = only(1, "loads.measure = wrongly(loads.measure)")
    process = bench(driver, tmp_path, "--device", "0,1", "--seconds", "1", fault=WRONGLY + fault)
    status, out, err = ended(process)
    assert status == 1, err
    assert "GPU 1, NVIDIA H100 80GB HBM3 computed wrong results" in err
    assert "GPU 0" not in err
    assert "GPU 1: Faulty: wrong results (" in out
    assert len(rows(out)) == 2


WRONGLY = """
def wrongly(measure):
    def measured(*arguments):
        main.Cpu.check = lambda self, product: (3, 0.0)
        measure(*arguments)
    return measured
"""


def test_an_interruption_reaches_all_workers(driver: FakeDriver, tmp_path: Path) -> None:
    driver.write(FakeDevice(), FakeDevice())
    process = bench(driver, tmp_path, "--device", "all", "--seconds", "60", "--json")
    wait_for(process, lambda: len(workers_of(process)) == 2)
    workers = workers_of(process)
    process.send_signal(signal.SIGINT)
    status, results, _ = results_of(process)
    assert status == 130
    assert len(results) == 2
    assert psutil.wait_procs(workers, timeout=30)[1] == []
