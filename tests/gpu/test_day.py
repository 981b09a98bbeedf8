import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.workers import needs_torch
from tests.gpu.day import KINDS, STEPS, Day

ROOT = Path(__file__).parents[2]


def test_a_command_that_takes_too_long_is_ended_and_doubtful(tmp_path: Path) -> None:
    day = Day(tmp_path, step="kinds")
    assert day.run("a rest", [sys.executable, "-c", "import time; time.sleep(60)"], 0.5) is None
    assert day.run("a word", [sys.executable, "-c", "print('yes')"], 20.0) == (0, "yes\n", "")
    head, row, last = day.table().splitlines()
    assert head.split() == ["step", "asked", "exit", "seconds", "state", "found"]
    assert row.split("  ")[:2] == ["kinds", "a rest"]
    assert row.endswith("doubtful  it was ended: its time was up")
    assert last.startswith("1 rows, 1 doubtful, ")
    assert "yes" in (tmp_path / "1.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
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
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in (tmp_path / "day.txt").read_text().splitlines()[1:-1]]
    assert list(dict.fromkeys(step for step, *_ in rows)) == list(STEPS)
    ran = {kind for step, kind, *_ in rows if step == "kinds"}
    assert ran == {asked.split()[0] for asked in KINDS}
    assert (tmp_path / "recording.jsonl.gz").stat().st_size
