"""Faults of single devices: lost, hanging, slow, reset, back again."""

from __future__ import annotations

from tests.driver import GPU_IS_LOST
from tests.faults.scenario import Scenario

SCENARIOS = (
    Scenario(
        name="device lost in mid-run, and back",
        fault=lambda stage: stage.driver.change(1, code=GPU_IS_LOST),
        says=("LOST", "1 not answering"),
        silent=("44 %", "48°C"),
        never=(r"\b0 ?°C", r"\b0 W"),
        mend=lambda stage: stage.driver.change(1, code=0),
        then=("44 %", "48°C"),
        then_silent=("LOST",),
    ),
    Scenario(
        name="one device hangs",
        fault=lambda stage: stage.driver.change(1, hang=True),
        says=("NOT RESPONDING", "1 not answering"),
        never=(r"\b0 ?°C", r"\b0 W"),
        mend=lambda stage: stage.driver.change(1, hang=False),
        then=("44 %", "48°C"),
        then_silent=("NOT RESPONDING",),
    ),
)
