"""What differs between two results: settings, figures with intervals, and the verdict."""

from __future__ import annotations

import ctypes
import json
import random
import shutil
import subprocess
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.events import Point, Result, Verdict, VerdictPart
from gputop.bench.results import store
from gputop.bench.results.differences import comparison_page
from gputop.bench.results.statistics import mean_interval
from gputop.bench.worker.environment import cublas_version
from gputop.cli import main
from gputop.output.result_pages import page_text
from tests.bench.kept import BASE, CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SLOWER = replace(
    BASE,
    tflops_mean=741.0,
    tflops_mean_interval=(740.0, 742.0),
    torch_version="2.14.0",
    cublas_version="13.1.0",
    conditions=replace(CONDITIONS, power_limit_watts=650.0, sm_clock_mhz_mean=1444.0),
    verdict=Verdict((VerdictPart("throttling", "degraded", "too hot for 40 s of 60 s"),)),
)
BEFORE = replace(
    BASE,
    tflops_mean_interval=(779.0, 781.0),
    verdict=Verdict((VerdictPart("throttling", "ok", "no slowdown"),)),
)


def differences_text(before: Result, after: Result, known: Sequence[Result] = ()) -> str:
    return page_text(comparison_page(before, after, known))


def lines(before: Result, after: Result, known: Sequence[Result] = ()) -> dict[str, list[str]]:
    """The cells of each line by its first one."""
    found = differences_text(before, after, known).splitlines()
    said = [line.strip() for line in found if line.strip()]
    split = [[cell for cell in line.split("  ") if cell] for line in said]
    return {first: [cell.strip() for cell in rest] for first, *rest in split}


def test_what_differs_is_said_in_numbers_with_intervals() -> None:
    found = lines(BEFORE, SLOWER)
    assert found["mean, TFLOP/s"] == ["780", "741", "-5.00 % ± 2.81", "differs"]
    assert found["SM clock, MHz"] == ["1515", "1444", "-4.69 %"]
    assert "torch: 2.13.0, then 2.14.0" in found
    assert "power limit: 700 W, then 650 W" in found
    assert "cuBLAS: unknown, then 13.1.0" in found
    assert "throttling was ok and is degraded: too hot for 40 s of 60 s" in found
    assert not any(line.startswith(("driver", "size", "data type")) for line in found)
    assert not any(line.startswith("These are different tests") for line in found)


def on_gpu(index: int, mean: float, clock: float, celsius: float = 84.0, **fields: Any) -> Result:
    known = replace(CONDITIONS, sm_clock_mhz_mean=clock, temperature_celsius_max=celsius)
    identity: dict[str, Any] = {
        "device_index": index,
        "device_uuid": f"GPU-{index}",
        "conditions": known,
    }
    return replace(BASE, tflops_mean=mean, **(identity | fields))


COOL_AND_FAST = on_gpu(0, 800.0, 1456.0)
ANSWERS = [
    (
        COOL_AND_FAST,
        on_gpu(5, 772.0, 1411.0),
        "GPU 5 is 4 % slower than GPU 0: lower clock (1411 and 1456 MHz), both at 84°C.",
    ),
    (
        on_gpu(5, 700.0, 1300.0, 87.0),
        COOL_AND_FAST,
        "GPU 5 is 12 % slower than GPU 0: lower clock (1300 and 1456 MHz), hotter (87 and 84°C).",
    ),
    (COOL_AND_FAST, on_gpu(5, 798.0, 1450.0), "The same within 1 %."),
    (COOL_AND_FAST, on_gpu(5, 784.5, 1450.0), "The same within 2 %."),
    (
        BEFORE,
        SLOWER,
        (
            "The second run is 5 % slower than the first: lower clock (1444 and 1515 MHz), lower "
            "power limit (650 and 700 W), both at 67°C, another torch (2.14.0 and 2.13.0)."
        ),
    ),
    (
        BASE,
        replace(BASE, conditions=None, tflops_mean=900.0),
        "The first run is 13 % slower than the second: another driver (580.65 and –).",
    ),
    (
        replace(BASE, conditions=None, host="a"),
        replace(BASE, conditions=None, tflops_mean=900.0, host="b", device_uuid="GPU-b"),
        "NVIDIA H200 on a is 13 % slower than NVIDIA H200 on b: no reason is known.",
    ),
]


@pytest.mark.parametrize(("before", "after", "said"), ANSWERS, ids=[each[2] for each in ANSWERS])
def test_the_answer_comes_first(before: Result, after: Result, said: str) -> None:
    first, gap, *_ = differences_text(before, after).splitlines()
    assert (first, gap) == (said, "")


def test_another_test_is_said_first() -> None:
    copy = replace(BEFORE, kind="copy", dtype="", m=0, n=0, k=0)
    first, *_ = differences_text(BEFORE, copy).splitlines()
    assert first == "These are different tests: they differ in kind, data type, size."


def test_a_change_from_nothing_is_a_difference() -> None:
    def drooped(percent: float) -> Result:
        bounds = (percent - 1, percent + 1)
        return replace(BASE, droop_percent=percent, droop_interval_percent=bounds)

    assert lines(drooped(0.0), drooped(40.0))["droop, %"][-2:] == ["+40.00 ± 3.14", "differs"]
    assert lines(drooped(0.0), drooped(0.5))["droop, %"][-1] == "the same"


def test_rows_are_compared_one_by_one() -> None:
    def result(rate: float, spread: float) -> Result:
        values = {"bytes_per_second": rate, "seconds": 1.0, "spread_percent": spread}
        points = (Point("host to device, pinned", 1 << 30, values),)
        return replace(BASE, kind="copy", points=points, tflops_mean=None, tflops_peak=None)

    name = "host to device, pinned, 1.00 GiB, GB/s"
    assert lines(result(54e9, 0.5), result(54.1e9, 0.5))[name][-1] == "the same"
    cells = lines(result(54e9, 0.5), result(27e9, 0.5))[name]
    assert cells == ["54.0", "27.0", "-50.00 % ± 2.98", "differs"]


@pytest.mark.parametrize(
    ("sigma", "runs", "found"), [(0.0, 10, 97.0), (0.01, 0, 95.0), (0.01, 10, 93.5)]
)
def test_runs_of_the_same_device_seldom_differ_and_a_slower_one_does(
    sigma: float, runs: int, found: float
) -> None:
    """Windows have a scatter of 3 % in a run, and `sigma` from run to run."""
    source = random.Random(1)  # noqa: S311 - a simulation
    started = iter(range(10_000))

    def run(expected: float, *, bounds: bool = True) -> Result:
        mean = source.gauss(expected, sigma * expected)
        windows = [(0.2, source.gauss(mean, 0.03 * mean)) for _ in range(100)]
        middle = sum(rate for _, rate in windows) / len(windows)
        return replace(
            BASE,
            tflops_mean=middle,
            tflops_mean_interval=mean_interval(windows) if bounds else None,
            started_at=float(next(started)),
        )

    def said(other: float) -> list[str]:
        found = []
        for _ in range(60):
            known = [run(100.0, bounds=False) for _ in range(runs)]
            found += lines(run(100.0), run(other), known)["mean, TFLOP/s"][-1:]
        return found

    assert said(100.0).count("differs") <= 3  # of 60, which is 5 %
    assert said(found).count("differs") >= 50


def test_files_and_numbers_of_the_history_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (BEFORE, replace(SLOWER, started_at=BEFORE.started_at + 60)):
        store.append(each)
    assert main(["bench", "--compare", "2", "1"]) == 0
    by_number = capsys.readouterr().out
    files = []
    for name, each in (("a.json", BEFORE), ("b.json", SLOWER)):
        (tmp_path / name).write_text(json.dumps(asdict(each)))
        files.append(str(tmp_path / name))
    assert main(["bench", "--compare", *files]) == 0
    by_file = capsys.readouterr().out
    assert by_file.splitlines()[3:] == by_number.splitlines()[3:]
    assert "-5.00 % ± 2.81  differs" in by_file
    assert "scatter of equal runs: 1 % is assumed, as fewer than 4 like runs" in by_file


C_LIBRARY = """
void cublasGetProperty(int part, int *value) { int is[3] = {12, 9, 1}; *value = is[part]; }
"""


def test_the_version_of_cublas_is_that_of_the_loaded_one(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    assert cublas_version() is None
    (tmp_path / "a.c").write_text(C_LIBRARY)
    library = tmp_path / "libcublas.so.12"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "a.c")]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library))
    assert cublas_version() == "12.9.1"
