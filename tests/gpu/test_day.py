import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.workers import needs_torch
from tests.gpu.day import KINDS, STEPS

ROOT = Path(__file__).parents[2]


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
