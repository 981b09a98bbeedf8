import ctypes
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.events import Point, Result, Verdict, VerdictPart
from gputop.bench.results import store
from gputop.bench.results.differences import comparison_page
from gputop.bench.worker.environment import cublas_version
from gputop.cli import main
from gputop.output.result_pages import page_text
from tests.bench.kept import BASE, CONDITIONS, COPY, faster, soak, table

SLOWER = replace(
    BASE,
    tflops_mean=741.0,
    torch_version="2.14.0",
    cublas_version="13.1.0",
    conditions=replace(CONDITIONS, power_limit_watts=650.0, sm_clock_mhz_mean=1444.0),
    verdict=Verdict((VerdictPart("throttling", "degraded", "too hot for 40 s of 60 s"),)),
)
BEFORE = replace(BASE, verdict=Verdict((VerdictPart("throttling", "ok", "no slowdown"),)))


def differences_text(before: Result, after: Result, known: Sequence[Result] = ()) -> str:
    return page_text(comparison_page(before, after, known))


def table_of(said: str) -> list[list[str]]:
    """Return the cells of the table on a page."""
    *_, lines = said.split("\n\n")
    return [re.split(r"  +", line.strip()) for line in lines.splitlines()]


def test_all_that_differs_is_in_a_table() -> None:
    said = differences_text(BEFORE, SLOWER)
    assert said.split("\n\n")[1].count("NVIDIA H200") == 2
    assert table_of(said) == [
        ["before", "then"],
        ["TFLOP/s", "780", "741"],
        ["CLOCK", "1515 MHz", "1444 MHz"],
        ["TORCH", "2.13.0", "2.14.0"],
        ["VERDICT", "ok", "DEGRADED"],
        ["POWER LIMIT", "700 W", "650 W"],
    ]
    assert len(differences_text(BEFORE, BEFORE).split("\n\n")) == 2, "there is no table"


def test_rows_are_compared_one_by_one() -> None:
    copied = table("copy", COPY)
    rows = table_of(differences_text(copied, replace(copied, points=faster(COPY[1:], 0.5))))
    assert ["host to device, pinned, 1.00 GiB", "54.0 GB/s", "27.0 GB/s"] in rows
    assert ["device to device, 1.00 GiB", "3900 GB/s", "–"] in rows


def on_gpu(index: int, mean: float, clock: float, celsius: float = 84.0) -> Result:
    known = replace(CONDITIONS, sm_clock_mhz_mean=clock, temperature_celsius_max=celsius)
    names: dict[str, Any] = {"device_index": index, "device_uuid": f"GPU-{index}"}
    return soak(mean, conditions=known, **names)


FAST = on_gpu(0, 800.0, 1456.0)
BARE = replace(BASE, conditions=None)
ELSEWHERE = replace(BARE, tflops_mean=900.0, host="b", device_uuid="GPU-b")
USED = replace(BASE, tflops_mean=700.0, conditions=replace(CONDITIONS, other_load=("9 (ada: a)",)))
SHAPES = (Point("confirmed", 8192.0, {"tflops": 800.0}, (8192,) * 3),)
SEARCH = table("peak", SHAPES, tflops_peak=800.0)
SLOWER_BY = (
    "lower clock (1444 and 1515 MHz), lower power limit (650 and 700 W), both at 67°C, "
    "another torch (2.14.0 and 2.13.0)"
)
ANSWERS = [
    (
        FAST,
        on_gpu(5, 772.0, 1411.0),
        "GPU 5 is 4 % slower than GPU 0: lower clock (1411 and 1456 MHz), both at 84°C.",
    ),
    (
        on_gpu(5, 700.0, 1300.0, 87.0),
        FAST,
        "GPU 5 is 12 % slower than GPU 0: lower clock (1300 and 1456 MHz), hotter (87 and 84°C).",
    ),
    (
        on_gpu(5, 700.0, 1450.0, 81.0),
        FAST,
        "GPU 5 is 12 % slower than GPU 0: cooler (81 and 84°C).",
    ),
    (FAST, on_gpu(5, 798.0, 1450.0), "The same within 1 %."),
    (FAST, on_gpu(5, 776.0, 1450.0), "The same within 3 %."),
    (BEFORE, SLOWER, f"The second run is 5 % slower than the first: {SLOWER_BY}."),
    (
        BASE,
        replace(BARE, tflops_mean=900.0),
        "The first run is 13 % slower than the second: another driver (580.65 and –).",
    ),
    (
        replace(BARE, host="a"),
        ELSEWHERE,
        "NVIDIA H200 on a is 13 % slower than NVIDIA H200 on b: no reason is known.",
    ),
    (BASE, USED, "The second run is 10 % slower than the first: both at 67°C, used by 9 (ada: a)."),
    (BASE, table("copy", ()), "These are different tests: they differ in kind, size."),
    (
        BASE,
        replace(BASE, dtype="", m=0),
        "These are different tests: they differ in data type, size.",
    ),
    (SEARCH, replace(SEARCH, m=4096, layout="both row-major"), "The same within 1 %."),
    (BASE, replace(BASE, tflops_mean=None), "They have no speed to compare."),
]


@pytest.mark.parametrize(("before", "after", "said"), ANSWERS, ids=[each[2] for each in ANSWERS])
def test_the_answer_comes_first(before: Result, after: Result, said: str) -> None:
    first, gap, *_ = differences_text(before, after).splitlines()
    assert (first, gap) == (said, "")


@pytest.mark.parametrize(
    ("count", "scatter", "said"),
    [(4, 0.0, "slower"), (4, 9.0, "The same within 3 %."), (3, 0.0, "The same within 3 %.")],
)
def test_runs_of_the_history_show_the_scatter(count: int, scatter: float, said: str) -> None:
    like = [soak(780.0 + scatter * n, ago=60.0 + n) for n in range(count)]
    assert said in differences_text(BASE, soak(763.0, ago=-60.0), like)


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
    assert "The second run is 5 % slower than the first" in by_file


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
