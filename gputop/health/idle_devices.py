"""Ranking of devices by how idle they are, for `gputop pick`, with reasons against others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from gputop.frozen import dataclass, replace
from gputop.health.conditions import STATES
from gputop.schema.device import Device, DeviceSample, DeviceState
from gputop.schema.snapshot import Inventory, Process, ProcessKind, Sample
from gputop.text import size, visible

NO_INDEX = "a MIG instance has no index for CUDA: leave out --index"
MPS_SERVER = "nvidia-cuda-mps-server"
_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:(%)|([KMGT]?)(I?B)?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Amount(NamedTuple):
    """Amount of memory: bytes, or a share of the total."""

    bytes: int = 0
    share: float | None = None

    def bytes_of(self, total: int) -> int:
        """Return the amount in bytes, given the total."""
        return self.bytes if self.share is None else round(self.share * total)


def parse_amount(text: str) -> Amount:
    """Parse an amount; raises `ValueError` with what, why and the remedy.

    As in coreutils, `G` and `GiB` are 1024³ and `GB` is 1000³. A number without a unit is
    ambiguous, and refused.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match:
        number, percent, prefix, unit = match.groups()
        if percent and float(number) <= 100:
            return Amount(share=float(number) / 100)
        if not percent and (prefix or (unit or "").upper() == "B"):
            base = 1000 if (unit or "").upper() == "B" else 1024
            return Amount(round(float(number) * base ** _POWERS[prefix.upper()]))
    raise ValueError(
        f"{text!r} is not an amount of memory: it is a number with a unit, or up to 100%. "
        "Give one such as 20GiB, 512MiB or 80%."
    )


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of a device."""

    min_free: Amount | None = None
    """A share counts of used and free memory, without what driver and firmware reserve."""
    max_busy_percent: float | None = None
    by_index: bool = False
    """True if it is to be named by an index, which MIG instances do not have."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device over the samples, with the reason against it, or None if it fits."""

    device: Device
    busy_percent: float | None = None
    """Mean, as work with gaps must not look idle in one of them."""
    memory_free_bytes: int | None = None
    """Minimum: free throughout."""
    memory_usable_bytes: int | None = None
    reason: str | None = None

    @property
    def taken_percent(self) -> int:
        """Larger of busy and memory in use, in whole percent; 100 if unknown.

        Smaller differences are noise, and then more free memory is better.
        """
        shares = [self.busy_percent] if self.busy_percent is not None else []
        if self.memory_free_bytes is not None and self.memory_usable_bytes:
            shares.append(100 - 100 * self.memory_free_bytes / self.memory_usable_bytes)
        return round(max(shares, default=100.0))


def candidates(
    inventory: Inventory,
    samples: Sequence[Sample],
    wanted: Requirements,
    visible_uuids: Iterable[str],
) -> list[Candidate]:
    """Return every device: first those that fit, the idlest first, then the others in order.

    `samples` span about a second, the newest last. The device with the least taken is the idlest,
    then the one with the most free memory, then the first.
    """
    allowed = {*visible_uuids}
    found = [_candidate(each, inventory, samples, wanted, allowed) for each in inventory.devices]
    fitting = [each for each in found if each.reason is None]
    fitting.sort(key=lambda each: (each.taken_percent, -(each.memory_free_bytes or 0)))
    return [*fitting, *(each for each in found if each.reason is not None)]


def _candidate(
    device: Device,
    inventory: Inventory,
    samples: Sequence[Sample],
    wanted: Requirements,
    allowed: set[str],
) -> Candidate:
    readings = [each for sample in samples if (each := sample.device(device.uuid)) is not None]
    busy = [percent for each in readings if (percent := _busy(each)) is not None]
    memory = [known for sample in samples if (known := _memory(device, sample)) is not None]
    free, usable = min(memory, default=(None, None))
    seen = Candidate(device, fmean(busy) if busy else None, free, usable)
    reason = (
        _divided(device, inventory)
        or (device.uuid not in allowed and "not in CUDA_VISIBLE_DEVICES")
        or _silent(samples[-1].device(device.uuid))
        or _closed(device, inventory, samples[-1])
        or (wanted.by_index and device.parent_uuid is not None and NO_INDEX)
        or _full(seen, wanted)
        or _at_work(seen, wanted)
    )
    return replace(seen, reason=reason or None)


def _busy(readings: DeviceSample) -> float | None:
    """Return the load: of a MIG instance, which has no *busy*, SM active."""
    busy = readings.gpu_utilization_percent
    return readings.sm_active_percent if busy is None else busy


def _memory(device: Device, sample: Sample) -> tuple[int, int] | None:
    """Return free and usable bytes: of the host if the device shares its memory."""
    if device.memory_is_shared:
        host = sample.host_of(device)
        free, total = host.memory_available_bytes, host.memory_total_bytes
        return None if free is None or total is None else (free, total)
    readings = sample.device(device.uuid)
    if readings is None or readings.memory_free_bytes is None:
        return None
    free = readings.memory_free_bytes
    return free, free + (readings.memory_used_bytes or 0)


def _divided(device: Device, inventory: Inventory) -> str | None:
    if any(each.parent_uuid == device.uuid for each in inventory.devices):
        return "MIG is on: its instances are considered instead"
    return "MIG is on, and it has no instance" if device.mig_mode == "enabled" else None


def _silent(readings: DeviceSample | None) -> str | None:
    if readings is None or (readings.state is DeviceState.OK and readings.age_seconds is None):
        return "it has not answered yet"
    return None if readings.state is DeviceState.OK else STATES[readings.state]


def _closed(device: Device, inventory: Inventory, sample: Sample) -> str | None:
    """Return why the compute mode closes it, which a MIG instance has from its GPU."""
    owner = device if device.compute_mode else inventory.device(device.parent_uuid or "")
    mode = (owner.compute_mode if owner else None) or ""
    if mode == "prohibited":
        return "its compute mode is prohibited"
    if not mode.startswith("exclusive"):
        return None
    readings = sample.device(device.uuid)
    if readings is None or "processes" in readings.absent:
        return "its compute mode is exclusive, and it is not known whether a process holds it"
    computing = [
        process
        for process in sample.processes
        if process.device_uuid == device.uuid and process.kind is not ProcessKind.GRAPHICS
    ]
    if not computing or any(map(_shares, computing)):
        return None
    holder = computing[0]
    user = f" of {visible(holder.user, 32)}" if holder.user else ""
    return f"its compute mode is exclusive, and process {holder.pid}{user} holds it"


def _shares(process: Process) -> bool:
    """Return True for MPS, which holds a device for all its clients."""
    program = (process.command or "").split(" ", 1)[0]
    return process.kind is ProcessKind.MPS or program.rpartition("/")[2] == MPS_SERVER


def _full(seen: Candidate, wanted: Requirements) -> str | None:
    if wanted.min_free is None:
        return None
    free, usable = seen.memory_free_bytes, seen.memory_usable_bytes
    if free is None or usable is None:
        return "its free memory is not known"
    needed = wanted.min_free.bytes_of(usable)
    enough = free >= needed
    return None if enough else f"{size(free)} of {size(usable)} free, {size(needed)} wanted"


def _at_work(seen: Candidate, wanted: Requirements) -> str | None:
    if wanted.max_busy_percent is None:
        return None
    if seen.busy_percent is None:
        return "its load is not known"
    if seen.busy_percent <= wanted.max_busy_percent:
        return None
    return f"{seen.busy_percent:.3g} % busy, at most {wanted.max_busy_percent:g} % wanted"
