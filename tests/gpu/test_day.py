from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bench.forked import load_torch
from tests.bench.workers import needs_torch
from tests.gpu.day import Day, run_steps

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


def works(day: Day) -> None:
    day.add("a question", "an answer", ok=True, status=0, seconds=1.25)


def takes_too_long(day: Day) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with (day.out / "pid").open("w") as output:
        subprocess.run([sys.executable, "-c", program], stdout=output, check=False)


def fails(day: Day) -> None:
    raise ValueError("no such thing")


def test_a_step_that_takes_too_long_or_fails_is_doubtful_and_the_next_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_steps(Day(tmp_path), {takes_too_long: 2.0, fails: 5.0, works: 5.0}) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    table = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert [line.split()[0] for line in table] == ["step", "takes_too_long", "fails", "works", "3"]
    assert "doubtful  ended after 2 s" in table[1]
    assert "doubtful  ValueError: no such thing" in table[2]
    assert table[3].split()[-5:] == ["0", "1.2", "ok", "an", "answer"]
    assert table[-1].startswith("3 rows, 2 doubtful, ")
    rows = json.loads((tmp_path / "day.json").read_text())["rows"]
    assert [row["state"] for row in rows] == ["doubtful", "doubtful", "ok"]


@pytest.mark.slow
@needs_torch
def test_the_rehearsal_has_a_row_for_everything(
    tmp_path: Path, build_driver: Callable[..., Path]
) -> None:
    build_driver()  # skips where there is no compiler
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.day", "--dry", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=500,
        check=False,
    )
    load_torch()  # without its warnings
    from tests.gpu.steps import KINDS, STEPS

    assert sum(STEPS.values()) <= 480
    rows = json.loads((tmp_path / "day.json").read_text())["rows"]
    assert done.returncode == 0, done.stdout
    assert list(dict.fromkeys(row["step"] for row in rows)) == [step.__name__ for step in STEPS]
    asked = [row["asked"].rpartition(", ")[0] for row in rows if row["step"] == "kinds"]
    assert asked == list(KINDS)
    assert [row["exit"] for row in rows if row["step"] == "stops"] == ["130", "130", "130"]
    assert (tmp_path / "recording.jsonl.gz").stat().st_size
    assert done.stdout.splitlines()[-1].startswith(f"{len(rows)} rows, 0 doubtful, ")
