"""Numbers about a device that no reading of it is, but several make: of its processes, of the host.

They are kept over time as its readings are, under names of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.schema.clock_events import BITS

if TYPE_CHECKING:
    from gputop.schema.snapshot import Sample

PROCESS_COUNT = "process_count"
"""How many processes the driver lists on the device."""
PROCESS_CPU = "process_cpu_percent"
"""Of one core: the fullest of its processes, and of the child processes that these have."""
PROCESS_IO_WAIT = "process_io_wait"
"""1 where one of them waited for storage at that moment, else 0."""
HOST_CPU = "host_cpu_percent"
"""Of all cores of the host together."""
SLOWDOWN_BITS = "slowdown_bits"
"""Clock event reasons as a sum of `clock_events.BITS` and `OTHER_SLOWDOWN`."""
DERIVED = (PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT, HOST_CPU, SLOWDOWN_BITS)
"""Series of numbers that are no reading of a device as they are."""
OTHER_SLOWDOWN = 1 << 32
"""Stands for all reasons without a bit in nvml.h: a float has room for it beside the others."""


def derive(sample: Sample) -> dict[str, dict[str, float | None]]:
    """The numbers of `DERIVED` by device."""
    found: dict[str, dict[str, float | None]] = {}
    for readings in sample.devices:
        reasons = readings.clock_event_reasons
        bits = None
        if reasons is not None:
            bits = 0
            for reason in reasons:
                bits |= BITS.get(reason, OTHER_SLOWDOWN)
        listed = "processes" not in readings.absent
        found[readings.uuid] = {
            PROCESS_COUNT: 0 if listed else None,
            PROCESS_CPU: None,
            PROCESS_IO_WAIT: None,
            HOST_CPU: sample.host.cpu_percent,
            SLOWDOWN_BITS: bits,
        }
    for process in sample.processes:
        numbers = found.get(process.device_uuid)
        if numbers is None:
            continue
        count = numbers[PROCESS_COUNT]
        numbers[PROCESS_COUNT] = 1 if count is None else count + 1
        for name, values in (
            (PROCESS_CPU, (process.cpu_percent, process.children_cpu_most_percent)),
            (PROCESS_IO_WAIT, (process.io_wait,)),
        ):
            for value in values:
                before = numbers[name]
                if value is not None and (before is None or value > before):
                    numbers[name] = value
    return found
