"""Ranking of devices by how idle they are, for `gputop pick`, with reasons against others.

A device with a fault of its hardware is never picked. A busy one is, with a warning. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Inventory, Process, ProcessKind, Sample
from gputop.health.conditions import (
    NO_SPARE_ROWS,
    ROW_PENDING,
    STATES,
    ecc_text,
    recovery_text,
)
from gputop.health.findings import name_devices
from gputop.health.thresholds import FULL_MARK, WORKS
from gputop.schema.derived import label_of, model_of
from gputop.text import fold_list, percentage, size, visible

MOST_USERS = 3
"""Most processes named in a warning."""
NO_INDEX = "a MIG instance has no index for CUDA: leave out --index"
MPS_SERVER = "nvidia-cuda-mps-server"
_AMOUNT = re.compile(
    r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:(%)|([KMGT]?)(I?B)?)", re.IGNORECASE
)
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
    is_excluded: bool = False
    """True for a device that CUDA does not see, or not as a whole."""
    processes: Sequence[Process] = ()
    """Processes on it at the end."""

    @property
    def memory_percent(self) -> float | None:
        """Memory in use at most, of the usable, or None if unknown."""
        if self.memory_free_bytes is None or not self.memory_usable_bytes:
            return None
        return 100 - 100 * self.memory_free_bytes / self.memory_usable_bytes

    @property
    def taken_percent(self) -> int:
        """Larger of busy and memory in use, in whole percent; 100 if unknown.

        Smaller differences are noise, and then more free memory is better.
        """
        shares = self.busy_percent, self.memory_percent
        return round(max((each for each in shares if each is not None), default=100.0))

    @property
    def capacity_bytes(self) -> int | None:
        """Memory that it can have free at most, or None if unknown."""
        return (
            max(self.memory_usable_bytes or 0, self.device.memory_total_bytes or 0)
            or None
        )

    @property
    def warning(self) -> str | None:
        """Warning if it is busy or nearly full: how much, and by whom. None if it is idle."""
        busy, held = self.busy_percent, self.memory_percent
        if (busy or 0) < WORKS.begin and (held or 0) < 100 * FULL_MARK:
            return None
        load = "of unknown load" if busy is None else f"{percentage(busy)} busy"
        memory = "free memory unknown"
        if held is not None:
            free, usable = self.memory_free_bytes, self.memory_usable_bytes
            memory = f"{size(free)} of {size(usable)} free"
        by = "no process is listed"
        if self.processes:
            by = f"used by {fold_list([*map(_user, self.processes)], MOST_USERS)}"
        name = f"GPU {label_of(self.device)} ({model_of(self.device)})"
        return f"{name} is {load}, {memory}: {by}"


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
    found = [
        _candidate(each, inventory, samples, wanted, allowed)
        for each in inventory.devices
    ]
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
    busy = []
    free, usable = None, None
    for sample in samples:
        readings = sample.device(device.uuid)
        percent = _busy(readings)
        if percent is not None:
            busy.append(percent)
        memory = _memory(device, sample)
        if memory is not None and (free is None or memory[0] < free):
            free, usable = memory
    last = samples[-1]
    readings = last.device(device.uuid)
    excluded = _divided(device, inventory)
    if excluded is None and device.uuid not in allowed:
        excluded = "not in CUDA_VISIBLE_DEVICES"
    seen = Candidate(
        device,
        fmean(busy) if busy else None,
        free,
        usable,
        is_excluded=excluded is not None,
        processes=last.processes_by_device().get(device.uuid, ()),
    )
    unfit = (
        excluded
        or _silent(readings)
        or _faulty(readings)
        or _faulty(last.device(device.parent_uuid or ""))
        or _closed(device, inventory, last)
    )
    if not unfit and wanted.by_index and device.parent_uuid is not None:
        unfit = NO_INDEX
    if unfit:
        return replace(seen, reason=unfit)
    return replace(seen, reason=_full(seen, wanted) or _at_work(seen, wanted))


def _busy(readings: DeviceSample | None) -> float | None:
    """Return the load: of a MIG instance, which has no *busy*, SM active."""
    if readings is None:
        return None
    if readings.gpu_utilization_percent is None:
        return readings.sm_active_percent
    return readings.gpu_utilization_percent


def _memory(device: Device, sample: Sample) -> tuple[int, int] | None:
    """Return free and usable bytes: of the host if the device shares its memory."""
    if device.memory_is_shared:
        host = sample.host_of(device)
        free, total = host.memory_available_bytes, host.memory_total_bytes
        if free is None or total is None:
            return None
        return free, total
    readings = sample.device(device.uuid)
    if readings is None or readings.memory_free_bytes is None:
        return None
    free = readings.memory_free_bytes
    return free, free + (readings.memory_used_bytes or 0)


def _divided(device: Device, inventory: Inventory) -> str | None:
    if any(each.parent_uuid == device.uuid for each in inventory.devices):
        return "MIG is on: its instances are considered instead"
    if device.mig_mode == "enabled":
        return "MIG is on, and it has no instance"
    return None


def _silent(readings: DeviceSample | None) -> str | None:
    if readings is None or (
        readings.state is DeviceState.OK and readings.age_seconds is None
    ):
        return "it has not answered yet"
    return None


def _faulty(readings: DeviceSample | None) -> str | None:
    """Return what is wrong with its hardware; of a MIG instance, with that of its GPU."""
    if readings is None:
        return None
    if readings.state is not DeviceState.OK:
        return STATES[readings.state]
    if readings.recovery_action not in (None, "none"):
        return recovery_text(readings.recovery_action or "")
    if readings.ecc_uncorrected:
        return f"{ecc_text(readings.ecc_uncorrected)} since its driver was loaded"
    if readings.remap_failed:
        return NO_SPARE_ROWS
    if readings.remap_pending:
        return ROW_PENDING
    return None


def _user(process: Process) -> str:
    user = visible(process.user or "?", 32)
    program = visible((process.command or "?").split(" ", 1)[0].rpartition("/")[2], 40)
    return f"{user} ({program}, pid {process.pid})"


def _compute_mode(device: Device, inventory: Inventory) -> str:
    """Return the compute mode; a MIG instance has that of its GPU."""
    gpu = inventory.device(device.parent_uuid or "")
    if not device.compute_mode and gpu is not None:
        return gpu.compute_mode or ""
    return device.compute_mode or ""


def _closed(
    device: Device,
    inventory: Inventory,
    sample: Sample,
) -> str | None:
    """Return why the compute mode closes the device, or None if it does not."""
    mode = _compute_mode(device, inventory)
    if mode == "prohibited":
        return "its compute mode is prohibited"
    if not mode.startswith("exclusive"):
        return None
    readings = sample.device(device.uuid)
    if readings is None or "processes" in readings.absent:
        return "its compute mode is exclusive, and it is not known whether a process holds it"
    computing = []
    for process in sample.processes_by_device().get(device.uuid, ()):
        if _shares(process):
            return None
        if process.kind is not ProcessKind.GRAPHICS:
            computing.append(process)
    if not computing:
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
    if free >= needed:
        return None
    return f"{size(free)} of {size(usable)} free, {size(needed)} wanted"


def _at_work(seen: Candidate, wanted: Requirements) -> str | None:
    if wanted.max_busy_percent is None:
        return None
    if seen.busy_percent is None:
        return "its load is not known"
    if seen.busy_percent <= wanted.max_busy_percent:
        return None
    return (
        f"{seen.busy_percent:.3g} % busy, at most {wanted.max_busy_percent:g} % wanted"
    )


def explain(found: Iterable[Candidate]) -> str:
    """Return why devices are out, as sentences; devices with the same reason share one."""
    labels: dict[str, list[str]] = {}
    for each in found:
        labels.setdefault(each.reason or "fits", []).append(label_of(each.device))
    return " ".join(
        f"{name_devices(names)}: {reason}." for reason, names in labels.items()
    )


def too_small(
    found: Sequence[Candidate], wanted: Requirements, count: int
) -> str | None:
    """Return in words that too few devices have as much memory as wanted, even if all were free.

    None if enough have, or if it is not known.
    """
    if wanted.min_free is None or wanted.min_free.share is not None:
        return None
    needed = wanted.min_free.bytes
    known = []
    for each in found:
        if not each.is_excluded:
            if each.capacity_bytes is None:
                return None
            known.append(each.capacity_bytes)
    enough = sum(capacity >= needed for capacity in known)
    if not known or enough >= count:
        return None
    largest = f"the largest has {size(max(known))}"
    return f"{enough or 'none'} of {len(known)} devices have {size(needed)} of memory: {largest}"
