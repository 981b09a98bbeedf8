"""All scenarios, by kind of fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import devices, idle, terminals

if TYPE_CHECKING:
    from tests.faults.scenario import Scenario

TABLES: dict[str, tuple[Scenario, ...]] = {
    "device": devices.SCENARIOS,
    "terminal": terminals.SCENARIOS,
    "idle": idle.SCENARIOS,
}
