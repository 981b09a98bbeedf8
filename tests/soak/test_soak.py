import dataclasses
from pathlib import Path

import pytest

from tests.driver import FakeDriver
from tests.soak.soak import Row, Soak, verdict

SECONDS, EVERY, WARM = 30.0, 4.0, 0.15


@pytest.mark.slow
@pytest.mark.driver
def test_half_a_minute(driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, files and processes; memory says something only of what goes on for longer."""
    monkeypatch.chdir(tmp_path)  # recordings are written there
    soak = Soak(driver, tmp_path, seed=2)
    rows = list(soak.run(SECONDS, EVERY))
    assert soak.faults == []
    same = []
    for row in rows:
        feet = (dataclasses.replace(each, bytes=1) for each in (row.dashboard, row.sampler))
        same.append(Row(row.minutes, *feet))
    _, grown = verdict(same, WARM, few=2)
    assert grown == []
