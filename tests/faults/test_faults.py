"""Every scenario of the tables: named, keys answered, nothing wrong shown, nothing left.

A few run every time, the others where the slow tests do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.stage import BUSY, Stage, driver_of
from tests.faults.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.faults.scenario import Scenario

pytestmark = pytest.mark.driver

SCENARIOS = [
    pytest.param(scenario, id=str(scenario)) for table in TABLES.values() for scenario in table
]


@pytest.mark.daily(4)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_named_and_mended(
    scenario: Scenario, build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    outcome = Stage(scenario, driver_of(scenario, tmp_path, build_driver), tmp_path).perform()
    assert outcome.core < BUSY


def test_no_two_have_the_same_name() -> None:
    names = [each.name for table in TABLES.values() for each in table]
    assert len(names) == len(set(names))
