"""Faults of the driver: missing, not loaded, refusing, slow to start, replaced, crashing, old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.driver import DRIVER_NOT_LOADED, NO_PERMISSION, VERSION_MISMATCH
from tests.faults.scenario import Scenario

if TYPE_CHECKING:
    from tests.faults.stage import Stage

WELL = ("0 Test 0", "1 Test 1", "2 Test 2", "44 %")
GONE = ("LOST", "No NVIDIA", "Waiting", "crash", "not loaded")
"""What is on no screen any more where all is well."""
NO_NUMBER = (r"\b0 ?°C", r"\b0 W", r"\b0 MHz")


def machine(**changes: object) -> object:
    """Lets the whole machine be so."""

    def deed(stage: Stage) -> None:
        stage.driver.change_machine(**changes)

    return deed


def refused(code: int, name: str, *says: str) -> Scenario:
    """A driver that cannot be initialized, and then can."""
    return Scenario(
        name=name,
        at_start=True,
        alive=None,
        fault=machine(init_code=code),  # type: ignore[arg-type]
        says=says,
        never=("Test 0", *NO_NUMBER),
        mend=machine(init_code=0),  # type: ignore[arg-type]
        then=WELL,
        then_silent=says[:1],
    )


SCENARIOS = (
    refused(DRIVER_NOT_LOADED, "driver not loaded", "NVIDIA driver not loaded", "modprobe nvidia"),
    refused(VERSION_MISMATCH, "driver half upgraded", "NVIDIA driver half upgraded", "eboot"),
    refused(NO_PERMISSION, "no permission for the driver", "No permission for the GPUs", "sk for"),
)
