"""What the rules cost: milliseconds of processor time a tick, for devices with a full history.

    python -m tests.perf.insight [DEVICES] [TICKS]

Prints the median, the 99th percentile and the longest, and the first, at which every device is
judged: from then on they take turns. The process of each device has a launcher, so that all are
peers of each other.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Any

from gputop.stream.history import CAPACITY
from tests.health.histories import IDLE, WORKING, Machine, device, noise, saw, trainer
from tests.streams import GIB

KINDS: Mapping[str, Mapping[str, Any]] = {
    "healthy": {},
    "idle": IDLE,
    "no GPM": {name: None for name in WORKING if name.endswith("_active_percent")},
    "starved": {"gpu_utilization_percent": saw(95, 2, 7, 3)},
    "everything at once": {
        "gpu_utilization_percent": saw(95, 2, 7, 3),
        "clock_event_reasons": ("sw_thermal", "sw_power_cap", "hw_slowdown"),
        "sm_clock_mhz": noise(1100, 30),
        "memory_used_bytes": lambda tick: 70 * GIB + tick * GIB // 500,
        "memory_free_bytes": lambda tick: 10 * GIB - tick * GIB // 500,
        "memory_unattributed_bytes": 4 * GIB,
        "pcie_generation": 1,
        "ecc_corrected": lambda tick: tick,
    },
}


def measure(changes: Mapping[str, Any], devices: int, ticks: int) -> list[float]:
    """Seconds of each tick."""
    machine = Machine(
        devices=tuple(device(n) for n in range(devices)),
        readings=tuple({**WORKING, **changes} for _ in range(devices)),
        processes=tuple(trainer(n, slurm_job="7") for n in range(devices)),
    )
    machine.run(CAPACITY, judged=False)
    inventory = dataclasses.replace(machine.inventory, devices=tuple(machine.devices))
    took = []
    for _ in range(ticks):
        sample = machine.sample()
        machine.history.add(sample)
        machine.ticks += 1
        began = time.process_time()
        machine.judge.judge(machine.history, inventory, sample)
        took.append(time.process_time() - began)
    return took


def main() -> None:
    devices, ticks, *_ = [*map(int, sys.argv[1:3]), *(8, 200)[len(sys.argv) - 1 :]]
    print(f"{devices} devices, {ticks} ticks, ms a tick: median, 99th percentile, longest; first")
    for name, changes in KINDS.items():
        first, *rest = (1000 * seconds for seconds in measure(changes, devices, ticks + 1))
        took = sorted(rest)
        high = took[int(0.99 * (len(took) - 1))]
        print(f"{name:20} {statistics.median(took):6.2f} {high:6.2f} {took[-1]:6.2f} {first:6.2f}")


if __name__ == "__main__":
    main()
