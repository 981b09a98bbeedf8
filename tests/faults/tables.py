"""All scenarios, by kind of fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import devices, drivers, files, processes, readings, terminals, texts

if TYPE_CHECKING:
    from tests.faults.scenario import Scenario

TABLES: dict[str, tuple[Scenario, ...]] = {
    "driver": drivers.SCENARIOS,
    "device": devices.SCENARIOS,
    "readings": readings.SCENARIOS,
    "texts": texts.SCENARIOS,
    "files": files.SCENARIOS,
    "processes": processes.SCENARIOS,
    "terminal": terminals.SCENARIOS,
}
