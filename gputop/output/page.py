"""One snapshot as a page of text: `gputop status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.output.absences import unseen
from gputop.telemetry.codec import to_json
from gputop.telemetry.snapshot import DeviceState, Source
from gputop.text import ABSENT, quantity, short_name, size, used_of, visible, watts_of

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Device, DeviceSample, Inventory, Process, Sample

STATES = {
    DeviceState.OK: "",
    DeviceState.NOT_RESPONDING: "NOT RESPONDING",
    DeviceState.LOST: "LOST",
    DeviceState.NEEDS_RESET: "NEEDS RESET",
}


def document(inventory: Inventory, sample: Sample) -> dict[str, Any]:
    """The snapshot as one JSON document, in the fields of the stream."""
    return {"inventory": to_json(inventory), "sample": to_json(sample)}


def page(inventory: Inventory, sample: Sample, width: int | None = None) -> str:
    """The snapshot as text: a heading, a line for each device, the processes under it.

    Lines are cut to `width` characters where it is given: a terminal would break them.
    """
    lines = [_heading(inventory, sample)]
    pairs = [
        (device, readings)
        for device in inventory.devices
        if (readings := sample.device(device.uuid)) is not None
    ]
    rows = [_row(device, readings) for device, readings in pairs]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))] if rows else []
    for (device, _), row in zip(pairs, rows, strict=True):
        lines.append("  ".join(_align(n, cell, widths) for n, cell in enumerate(row)).rstrip())
        lines += [_process(p) for p in sample.processes if p.device_uuid == device.uuid]
    if width is not None:
        lines = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
    return "\n".join(lines)


LEFT = (1, 8)
"""Columns of text among columns of numbers: name and state."""


def _align(n: int, cell: str, widths: list[int]) -> str:
    return cell.ljust(widths[n]) if n in LEFT else cell.rjust(widths[n])


def _heading(inventory: Inventory, sample: Sample) -> str:
    host = sample.host
    parts = [visible(inventory.hostname)]
    if inventory.source is Source.SIMULATED:
        parts.append("SIMULATED")
    if inventory.driver_version:
        parts.append(f"driver {visible(inventory.driver_version)}")
    if inventory.cuda_version:
        parts.append(f"CUDA {visible(inventory.cuda_version)}")
    parts.append(f"CPU {quantity(host.cpu_percent, ' %')}")
    total = host.memory_total_bytes
    of = "" if total is None else f" of {size(total)}"
    parts.append(f"memory {size(host.memory_used_bytes)}{of}")
    return " · ".join(parts)


def _row(device: Device, readings: DeviceSample) -> tuple[str, ...]:
    """label, name, busy, memory, temperature, power, clock, fan, state."""
    watts = watts_of(readings.power_watts, readings.power_limit_watts)
    return (
        f"[{device.label}]",
        short_name(visible(device.name)),
        f"busy {quantity(readings.gpu_utilization_percent, ' %')}",
        _memory(device, readings),
        quantity(readings.temperature_celsius, "°C"),
        watts if watts == ABSENT else f"{watts} W",
        quantity(readings.sm_clock_mhz, " MHz"),
        f"fan {quantity(readings.fan_percent, ' %')}",
        _state(readings),
    )


def _memory(device: Device, readings: DeviceSample) -> str:
    """What is used of its own; where the host's is its memory, what processes hold of that."""
    if not device.memory_is_shared:
        return used_of(readings.memory_used_bytes, readings.memory_total_bytes)
    held = readings.memory_attributed_bytes
    return "the host's" if held is None else f"{size(held)} of the host's"


def _state(readings: DeviceSample) -> str:
    if readings.state is DeviceState.OK and readings.age_seconds is None:
        return "no answer yet"
    return STATES[readings.state]


def _process(process: Process) -> str:
    user = visible(process.user or ABSENT)
    command = visible(process.command or f"({unseen(process)})", 200)
    return f"     {process.pid:>7}  {user:<8}  {size(process.memory_used_bytes):>9}  {command}"
