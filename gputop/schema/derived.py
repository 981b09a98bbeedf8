"""Texts and numbers computed from records."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.agent.device import Device
from gputop.agent.snapshot import Inventory, Sample
from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.text import count, short_name, visible


def label_of(device: Device) -> str:
    """Return a device's label on screen: `0`, or `node7:0` if there are several machines."""
    if device.machine is None:
        return device.number
    return f"{visible(device.machine)}:{device.number}"


def model_of(device: Device) -> str:
    """Return a device's name without the brand, as visible characters."""
    return short_name(visible(device.name))


def gpus_text(inventory: Inventory) -> str:
    """Return the number of GPUs as text: `8 GPUs`, or `2 of 8 GPUs` if some are not shown."""
    shown = sum(device.parent_uuid is None for device in inventory.devices)
    total = shown + (inventory.devices_left_out or 0)
    if shown < total:
        return f"{shown} of {count(total, 'GPU')}"
    return count(total, "GPU")


PROCESS_COUNT = "process_count"
"""Number of processes that the driver lists on the device."""
PROCESS_CPU = "process_cpu_percent"
"""CPU use of the busiest process on the device, or of a child process; 100 is one core."""
PROCESS_IO_WAIT = "process_io_wait"
"""1 if a process on the device waits for storage, else 0."""
HOST_CPU = "host_cpu_percent"
"""CPU use of the host in percent of all cores."""
HOST_MEMORY = "host_memory_used_bytes"
"""Memory in use on the host."""
SLOWDOWN_BITS = "slowdown_bits"
"""Clock event reasons as a sum of `agent.words.CLOCK_EVENT_BITS` and `OTHER_SLOWDOWN`."""
DERIVED = (
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
    HOST_CPU,
    HOST_MEMORY,
    SLOWDOWN_BITS,
)
"""Numbers per device that are computed from a sample and kept in the history."""
OTHER_SLOWDOWN = 1 << 32
"""Bit for all reasons that nvml.h does not define. A float stores it exactly with the others."""


def derive(sample: Sample) -> dict[str, dict[str, float | None]]:
    """Return the numbers of `DERIVED` for each device UUID."""
    processes = sample.processes_by_device()
    hosts = {machine.name: machine.host for machine in sample.machines}
    found: dict[str, dict[str, float | None]] = {}
    for readings in sample.devices:
        # This reverses `qualified`.
        machine, _, _ = readings.uuid.partition("/")
        held = processes[readings.uuid]
        number: int | None = len(held)
        if not held and "processes" in readings.absent:
            number = None
        host = hosts.get(machine, sample.host)
        cpu: list[float | None] = []
        for process in held:
            cpu += [process.cpu_percent, process.children_cpu_most_percent]
        found[readings.uuid] = {
            PROCESS_COUNT: number,
            PROCESS_CPU: _most(cpu),
            PROCESS_IO_WAIT: _most(process.io_wait for process in held),
            HOST_CPU: host.cpu_percent,
            HOST_MEMORY: host.memory_used_bytes,
            SLOWDOWN_BITS: _bits_of(readings.clock_event_reasons),
        }
    return found


def _most(values: Iterable[float | None]) -> float | None:
    """Return the largest known value, or None."""
    known = [value for value in values if value is not None]
    return max(known, default=None)


def _bits_of(reasons: tuple[str, ...] | None) -> int | None:
    if reasons is None:
        return None
    bits = 0
    for reason in reasons:
        bits |= CLOCK_EVENT_BITS.get(reason, OTHER_SLOWDOWN)
    return bits
