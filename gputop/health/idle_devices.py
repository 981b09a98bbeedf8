"""Ranking of devices by idleness for `gputop pick`, with reasons for exclusion.

A device with a hardware fault is never picked. A busy device is picked with a warning. Pure
functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from statistics import fmean
from typing import NamedTuple

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Inventory, Process, ProcessKind, Sample
from gputop.health.conditions import STATES
from gputop.health.findings import name_devices
from gputop.health.judge import judge_snapshot
from gputop.health.thresholds import FULL_MARK, WORKS
from gputop.schema.derived import label_of, model_of
from gputop.text import fold_list, percentage, size, visible

NO_INDEX = "a MIG instance has no index for CUDA: leave out --index"
HARDWARE_RULES = ("recovery", "ecc", "remap")
"""Rules whose findings exclude a device."""
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
    """Parse an amount. Raises `ValueError` with the problem, the reason and the remedy.

    As in coreutils, `G` and `GiB` are 1024³ and `GB` is 1000³. A number without a unit is rejected,
    because it is ambiguous.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match:
        number, percent, prefix, unit = match.groups()
        if percent and float(number) <= 100:
            return Amount(share=float(number) / 100)
        if not percent and (prefix or (unit or "").upper() == "B"):
            base = 1000 if (unit or "").upper() == "B" else 1024
            return Amount(
                round(float(number) * base ** _POWERS[prefix.upper()])
            )
    raise ValueError(
        f"{text!r} is not an amount of memory: it is a number with a unit, or up to 100%. "
        "Give one such as 20GiB, 512MiB or 80%."
    )


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements for a device."""

    min_free: Amount | None = None
    """Free memory. A share is relative to used and free memory, without the reserved part."""
    max_busy_percent: float | None = None
    by_index: bool = False
    """True if the device is named by an index, which MIG instances do not have."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device over several samples, with the reason for its exclusion, or None."""

    device: Device
    busy_percent: float | None = None
    """Mean over the samples, because a single sample can fall into a gap of the work."""
    memory_free_bytes: int | None = None
    """Minimum over the samples: memory that was free throughout."""
    memory_usable_bytes: int | None = None
    reason: str | None = None
    is_excluded: bool = False
    """True for a device that CUDA cannot use, at least not as a whole."""
    processes: Sequence[Process] = ()
    """Processes on it at the end."""

    @property
    def memory_percent(self) -> float | None:
        """Highest share of the usable memory in use, or None if unknown."""
        if self.memory_free_bytes is None or not self.memory_usable_bytes:
            return None
        return 100 - 100 * self.memory_free_bytes / self.memory_usable_bytes

    @property
    def taken_percent(self) -> int:
        """Larger of busy and memory in use, in whole percent; 100 if unknown.

        Smaller differences are noise, so that free memory decides.
        """
        shares = self.busy_percent, self.memory_percent
        return round(
            max((each for each in shares if each is not None), default=100.0)
        )

    @property
    def capacity_bytes(self) -> int | None:
        """Largest possible free memory, or None if unknown."""
        known = self.memory_usable_bytes, self.device.memory_total_bytes
        return max(filter(None, known), default=None)

    @property
    def warning(self) -> str | None:
        """Warning with load and users if it is busy or nearly full. None if it is idle."""
        busy, held = self.busy_percent, self.memory_percent
        is_busy = busy is not None and busy >= WORKS.begin
        is_full = held is not None and held >= 100 * FULL_MARK
        if not is_busy and not is_full:
            return None
        load = (
            "of unknown load" if busy is None else f"{percentage(busy)} busy"
        )
        memory = "free memory unknown"
        if held is not None:
            free, usable = self.memory_free_bytes, self.memory_usable_bytes
            memory = f"{size(free)} of {size(usable)} free"
        by = "no process is listed"
        if self.processes:
            by = f"used by {fold_list([*map(_user, self.processes)])}"
        name = f"GPU {label_of(self.device)} ({model_of(self.device)})"
        return f"{name} is {load}, {memory}: {by}"


def candidates(
    inventory: Inventory,
    samples: Sequence[Sample],
    wanted: Requirements,
    visible_uuids: Iterable[str],
) -> list[Candidate]:
    """Return all devices: suitable ones first, the idlest first, then the others in order.

    `samples` span about a second, the newest last. Devices rank by use, then by free memory, then
    in order.
    """
    allowed = {*visible_uuids}
    last = samples[-1]
    faults = _faults(inventory, last)
    fitting, others = [], []
    for device in inventory.devices:
        excluded = _divided(device, inventory)
        if excluded is None and device.uuid not in allowed:
            excluded = "not in CUDA_VISIBLE_DEVICES"
        seen = _seen(device, samples)
        reason = (
            excluded
            or _silent(last.device(device.uuid))
            or faults.get(device.uuid)
            or faults.get(device.parent_uuid or "")
            or _closed(seen, inventory, last)
            or _unwanted(seen, wanted)
        )
        if reason is None:
            fitting.append(seen)
        else:
            others.append(
                replace(seen, reason=reason, is_excluded=bool(excluded))
            )
    fitting.sort(
        key=lambda each: (each.taken_percent, -(each.memory_free_bytes or 0))
    )
    return [*fitting, *others]


def _faults(inventory: Inventory, sample: Sample) -> Mapping[str, str]:
    """Return the faults of devices that do not answer or have broken hardware."""
    faults: dict[str, str] = {}
    for finding in judge_snapshot(inventory, sample).findings:
        # The gravest finding comes first.
        if finding.rule in HARDWARE_RULES:
            faults.setdefault(finding.device_uuid, finding.title)
    for readings in sample.devices:
        if readings.state is not DeviceState.OK:
            faults[readings.uuid] = STATES[readings.state]
    return faults


def _seen(device: Device, samples: Iterable[Sample]) -> Candidate:
    """Return the device with its load, memory and processes."""
    busy = []
    free, usable = None, None
    for sample in samples:
        readings = sample.device(device.uuid) or DeviceSample(device.uuid)
        percent: float | None = readings.gpu_utilization_percent
        # MIG instances have no *busy*.
        if percent is None:
            percent = readings.sm_active_percent
        if percent is not None:
            busy.append(percent)
        memory = _memory(device, sample)
        if memory is not None and (free is None or memory[0] < free):
            free, usable = memory
    mean = fmean(busy) if busy else None
    holders = sample.processes_by_device()[device.uuid]
    return Candidate(device, mean, free, usable, processes=holders)


def _memory(device: Device, sample: Sample) -> tuple[int, int] | None:
    """Return free and usable bytes, of the host if the device shares its memory."""
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


def _program(process: Process) -> str:
    """Return the program's name without its folder and arguments; "" if it is unknown."""
    program, _, _ = (process.command or "").partition(" ")
    return PurePosixPath(program).name


def _user(process: Process) -> str:
    user = visible(process.user or "?")
    program = visible(_program(process) or "?")
    return f"{user} ({program}, pid {process.pid})"


def _closed(
    seen: Candidate, inventory: Inventory, sample: Sample
) -> str | None:
    """Return why the compute mode closes the device, or None if it does not."""
    device = seen.device
    # An instance has the mode of its GPU.
    if device.parent_uuid is not None:
        device = inventory.device(device.parent_uuid) or device
    mode = device.compute_mode or ""
    if mode == "prohibited":
        return "its compute mode is prohibited"
    if not mode.startswith("exclusive"):
        return None
    readings = sample.device(seen.device.uuid)
    if readings is None or "processes" in readings.absent:
        return (
            "its compute mode is exclusive, and its processes are not visible"
        )
    holder = None
    for process in seen.processes:
        program = _program(process)
        if process.kind is ProcessKind.MPS or program == MPS_SERVER:
            # MPS holds the device for all of its clients.
            return None
        if process.kind is not ProcessKind.GRAPHICS:
            holder = holder or process
    if holder is None:
        return None
    user = f" of {visible(holder.user)}" if holder.user else ""
    return f"its compute mode is exclusive, and process {holder.pid}{user} holds it"


def _unwanted(seen: Candidate, wanted: Requirements) -> str | None:
    """Return which requirement the device does not meet, or None."""
    if wanted.by_index and seen.device.parent_uuid is not None:
        return NO_INDEX
    if wanted.min_free is not None:
        free, usable = seen.memory_free_bytes, seen.memory_usable_bytes
        if free is None or usable is None:
            return "its free memory is unknown"
        needed = wanted.min_free.bytes_of(usable)
        if free < needed:
            return (
                f"{size(free)} of {size(usable)} free, {size(needed)} wanted"
            )
    most, busy = wanted.max_busy_percent, seen.busy_percent
    if most is None:
        return None
    if busy is None:
        return "its load is unknown"
    if busy > most:
        return f"{busy:.3g} % busy, at most {most:g} % wanted"
    return None


def explain(found: Iterable[Candidate]) -> str:
    """Return as sentences why devices are excluded. Devices with the same reason share one."""
    labels: dict[str, list[str]] = {}
    for each in found:
        labels.setdefault(each.reason or "fits", []).append(
            label_of(each.device)
        )
    return " ".join(
        f"{name_devices(names)}: {reason}." for reason, names in labels.items()
    )


def too_small(
    found: Sequence[Candidate], wanted: Requirements, count: int
) -> str | None:
    """Return a message if too few devices have the wanted memory, even if all of it were free.

    None if enough devices have it, or if that is unknown.
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
