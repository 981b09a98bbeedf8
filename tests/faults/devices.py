"""Faults of single devices: lost, hanging, slow, reset, cut up anew, back again; none, and many."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.driver import GPU_IS_LOST, RESET_REQUIRED, UNKNOWN, FakeDevice, FakeInstance
from tests.e2e.shipped import END, GIB, HOME, MARK
from tests.faults.scenario import KEYS, Key, Scenario, Seen, three

if TYPE_CHECKING:
    from tests.faults.stage import Stage

    Deed = Callable[[Stage], None]

NO_ZERO = (r"\b0 ?°C", r"\b0 W", r"\b0 MHz")
BACK = ("44 %", "48°C")
"""What the device 1 has."""
FAULTS = ("LOST", "NOT RESPONDING", "NEEDS RESET", "not answering", " old")


def change(*indices: int, **changes: object) -> Deed:
    """Lets these devices be so."""

    def deed(stage: Stage) -> None:
        for index in indices:
            stage.driver.change(index, **changes)

    return deed


def instance(number: int, gibibytes: int, profile: str) -> FakeInstance:
    return FakeInstance(
        uuid=f"MIG-{number:08x}-0000-5d7e-9a51-000000000000",
        name=f"NVIDIA Test MIG {profile}",
        gpu_instance=number,
        memory_total_bytes=gibibytes * GIB,
        memory_used_bytes=GIB,
    )


def with_instances(pid: int) -> tuple[FakeDevice, ...]:
    """The device 1 cut into two."""
    zero, one, two = three(pid)
    pair = (instance(1, 40, "3g.40gb"), instance(2, 30, "2g.30gb"))
    return zero, replace(one, mig_mode=1, mig_mode_pending=1, instances=pair), two


def cut_anew(stage: Stage) -> None:
    """One of the instances is gone, and in its room there are two others."""
    first, _ = stage.driver.devices[1].instances
    others = (first, instance(3, 11, "1g.11gb"), instance(4, 13, "1g.13gb"))
    stage.driver.change(1, instances=others)


def many(count: int) -> Callable[[int], tuple[FakeDevice, ...]]:
    """So many, each with a temperature of its own."""
    return lambda pid: tuple(
        replace(three(pid)[0], name=f"NVIDIA Test {n}", temperature_celsius=20 + n, processes=())
        for n in range(count)
    )


def selected(number: int) -> Seen:
    """That the device is on screen, and the one that keys act on."""
    marked = re.compile(rf"{MARK} *{number} Test {number} ")
    return lambda terminal: marked.search(terminal.text)


def crowd(count: int, columns: int, rows: int) -> Scenario:
    """Nothing is wrong but their number."""
    return Scenario(
        name=f"{count} devices on {columns} x {rows}",
        at_start=True,
        devices=many(count),
        fault=lambda _: None,
        says=("0 Test 0", f"{count} GPUs"),
        never=NO_ZERO,
        keys=(
            Key(END, selected(count - 1), "the last device"),
            Key(HOME, selected(0), "the first device"),
            *KEYS,
        ),
        columns=columns,
        rows=rows,
    )


SCENARIOS = (
    Scenario(
        name="device lost at start, and back",
        at_start=True,
        fault=change(1, code=GPU_IS_LOST),
        says=("0 Test 0", "1 unknown device", "LOST", "dmesg", "2 Test 2", "1 not answering"),
        silent=("44 %", "48°C", "1 Test 2"),
        never=NO_ZERO,
        mend=change(1, code=0),
        then=("1 Test 1", *BACK),
        then_silent=FAULTS,
    ),
    Scenario(
        name="device lost in mid-run, and back",
        fault=change(1, code=GPU_IS_LOST),
        says=("LOST", "1 not answering", "2 Test 2"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(1, code=0),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="one device hangs",
        fault=change(1, hang=True),
        says=("NOT RESPONDING", "a driver call hangs", "dmesg", "1 not answering"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(1, hang=False),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="all devices hang",
        alive=None,
        fault=change(0, 1, 2, hang=True),
        says=("NOT RESPONDING", "dmesg", "3 not answering"),
        silent=(*BACK, "31 %", "59 %", "held up"),
        never=NO_ZERO,
        mend=change(0, 1, 2, hang=False),
        then=(*BACK, "31 %", "59 %"),
        then_silent=FAULTS,
    ),
    Scenario(
        name="every call on one device fails",
        fault=change(1, code=UNKNOWN),
        says=("NOT RESPONDING: every call to its driver fails", "1 not answering", "2 Test 2"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(1, code=0),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="one device is slow",
        fault=change(1, delay_ms=500),
        says=(" s old", "1 slow", "dmesg"),
        never=(*NO_ZERO, "NOT RESPONDING", "LOST"),
        mend=change(1, delay_ms=0),
        then=BACK,
        then_silent=(*FAULTS, "slow"),
    ),
    Scenario(
        name="device needs a reset, and has it",
        fault=change(1, code=RESET_REQUIRED),
        says=("NEEDS RESET", "nvidia-smi --gpu-reset -i 1", "1 not answering"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(1, code=0),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="MIG instances are cut anew, and MIG is switched off",
        devices=with_instances,
        before=("0 Test 0", "1 Test 1", "3g.40gb", "2g.30gb", "2 Test 2"),
        fault=cut_anew,
        says=("0 Test 0", "1 Test 1", "3g.40gb", "1g.11gb", "1g.13gb", "11.0 GiB", "13.0 GiB"),
        silent=("2g.30gb", "30.0 GiB"),
        never=(*NO_ZERO, "NOT RESPONDING", "LOST"),
        mend=change(1, instances=(), mig_mode=0, mig_mode_pending=0),
        then=("1 Test 1", *BACK),
        then_silent=("MIG", "3g.40gb"),
    ),
    crowd(16, 80, 24),
    crowd(64, 200, 60),
)
