"""Every scenario: named, keys answered, nothing wrong shown, nothing left. A few run every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults import machines, terminals, texts
from tests.faults.stage import BUSY, Stage

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver
    from tests.faults.scenario import Scenario

pytestmark = pytest.mark.driver

TABLES = {
    "machine": machines.SCENARIOS,
    "texts": texts.SCENARIOS,
    "terminal": terminals.SCENARIOS,
}
SCENARIOS = [
    pytest.param(scenario, id=str(scenario)) for table in TABLES.values() for scenario in table
]


@pytest.mark.daily(4)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_named_and_mended(scenario: Scenario, driver: FakeDriver, tmp_path: Path) -> None:
    assert Stage(scenario, driver, tmp_path).perform().core < BUSY
