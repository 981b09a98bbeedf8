"""Which devices are the idlest, and why others are none: `gputop pick`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from gputop.schema.snapshot import DeviceState, ProcessKind
from gputop.text import size, visible

if TYPE_CHECKING:
    from gputop.schema.snapshot import Device, DeviceSample, Inventory, Process, Sample

MPS_SERVER = "nvidia-cuda-mps-server"
_AMOUNT = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(?:(%)|([KMGT]?)(I?B)?)", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Amount(NamedTuple):
    """Bytes, or a share of all there is."""

    bytes: int = 0
    share: float | None = None

    def of(self, total: int) -> int:
        """Bytes, where there are so many in all."""
        return self.bytes if self.share is None else round(self.share * total)

    def __str__(self) -> str:
        if self.share is None:
            return size(self.bytes)
        return f"{100 * self.share:.6f}".rstrip("0").rstrip(".") + " %"  # as it was typed


def parse_amount(text: str) -> Amount:
    """An amount; raises `ValueError` with what, why and the remedy.

    As in coreutils, `G` and `GiB` are 1024³ and `GB` is 1000³. A number alone is refused: nobody
    knows whether it means GiB.
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
class Wanted:
    """What a device has to have."""

    min_free: Amount | None = None
    """A share is of what can be had: of used and free, without what driver and firmware keep."""
    max_busy_percent: float | None = None
    by_index: bool = False
    """Whether it is to be named by a number, which a MIG instance has not."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device as it was over the samples, and why it is not to be had; None where it is."""

    device: Device
    busy_percent: float | None = None
    """The mean: work with gaps in it is not idle because the last look fell into one."""
    memory_free_bytes: int | None = None
    """The least: what was free throughout."""
    memory_usable_bytes: int | None = None
    reason: str | None = None

    @property
    def taken_percent(self) -> int:
        """How much of it is taken: the larger of busy and memory in use; 100 if unknown.

        In whole percent: what is less is noise, and a device with more free memory is better.
        """
        shares = [self.busy_percent] if self.busy_percent is not None else []
        if self.memory_free_bytes is not None and self.memory_usable_bytes:
            shares.append(100 - 100 * self.memory_free_bytes / self.memory_usable_bytes)
        return round(max(shares, default=100.0))


def candidates(
    inventory: Inventory, samples: Sequence[Sample], wanted: Wanted, visible_uuids: Iterable[str]
) -> list[Candidate]:
    """Every device: first those that fit, the idlest first, then the others in their order.

    `samples` are those of about a second, the newest last. The least taken is the idlest, then the
    one with the most free memory, then the first.
    """
    allowed = {*visible_uuids}
    found = [
        _candidate(device, inventory, samples, wanted, allowed) for device in inventory.devices
    ]
    fitting = [each for each in found if each.reason is None]
    fitting.sort(key=lambda each: (each.taken_percent, -(each.memory_free_bytes or 0)))
    return [*fitting, *(each for each in found if each.reason is not None)]


def _candidate(
    device: Device,
    inventory: Inventory,
    samples: Sequence[Sample],
    wanted: Wanted,
    allowed: set[str],
) -> Candidate:
    looks = [look for sample in samples if (look := sample.device(device.uuid)) is not None]
    busy = [percent for look in looks if (percent := _busy(look)) is not None]
    memory = [known for sample in samples if (known := _memory(device, sample)) is not None]
    free, usable = min(memory, default=(None, None))
    seen = Candidate(device, fmean(busy) if busy else None, free, usable)
    reason = (
        _divided(device, inventory)
        or (None if device.uuid in allowed else "not in CUDA_VISIBLE_DEVICES")
        or _silent(samples[-1].device(device.uuid))
        or _closed(device, inventory, samples[-1])
        or _index(device, wanted)
        or _full(seen, wanted)
        or _at_work(seen, wanted)
    )
    return Candidate(device, seen.busy_percent, free, usable, reason)


def _busy(look: DeviceSample) -> float | None:
    """Of a MIG instance, whose GPU alone is counted as busy, what GPM says."""
    if look.gpu_utilization_percent is not None:
        return look.gpu_utilization_percent
    return look.sm_active_percent


def _memory(device: Device, sample: Sample) -> tuple[int, int] | None:
    """Bytes that are free, and that can be had at all; the host's where it has none of its own."""
    if device.memory_is_shared:
        free, total = sample.host.memory_available_bytes, sample.host.memory_total_bytes
        return None if free is None or total is None else (free, total)
    look = sample.device(device.uuid)
    if look is None or look.memory_free_bytes is None:
        return None
    used = look.memory_used_bytes
    return look.memory_free_bytes, look.memory_free_bytes + (used or 0)


def _divided(device: Device, inventory: Inventory) -> str | None:
    if any(each.parent_uuid == device.uuid for each in inventory.devices):
        return "MIG is on: its instances are looked at instead"
    if device.mig_mode == "enabled":
        return "MIG is on, and it has no instance"
    return None


def _silent(look: DeviceSample | None) -> str | None:
    if look is None or (look.state is DeviceState.OK and look.age_seconds is None):
        return "it has not answered yet"
    words = {
        DeviceState.LOST: "it is lost",
        DeviceState.NEEDS_RESET: "it needs a reset",
        DeviceState.NOT_RESPONDING: "it is not responding",
    }
    return words.get(look.state)


def _closed(device: Device, inventory: Inventory, sample: Sample) -> str | None:
    """By its compute mode, which a MIG instance has from its GPU."""
    owner = device if device.compute_mode else inventory.device(device.parent_uuid or "")
    mode = (owner.compute_mode if owner else None) or ""
    if mode == "prohibited":
        return "its compute mode is prohibited"
    if not mode.startswith("exclusive"):
        return None
    look = sample.device(device.uuid)
    if look is None or "processes" in look.absent:
        return "its compute mode is exclusive, and whether somebody holds it is not known"
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
    """Whether it lets others in: MPS holds a device for all of its clients."""
    program = (process.command or "").split(" ", 1)[0]
    return process.kind is ProcessKind.MPS or program.rpartition("/")[2] == MPS_SERVER


def _index(device: Device, wanted: Wanted) -> str | None:
    if wanted.by_index and device.parent_uuid is not None:
        return "a MIG instance has no index for CUDA: leave out --index"
    return None


def _full(seen: Candidate, wanted: Wanted) -> str | None:
    if wanted.min_free is None:
        return None
    free, usable = seen.memory_free_bytes, seen.memory_usable_bytes
    if free is None or usable is None:
        return "how much memory is free is not known"
    if free >= wanted.min_free.of(usable):
        return None
    return f"{size(free)} of {size(usable)} free, {wanted.min_free} wanted"


def _at_work(seen: Candidate, wanted: Wanted) -> str | None:
    if wanted.max_busy_percent is None:
        return None
    if seen.busy_percent is None:
        return "how busy it is is not known"
    if seen.busy_percent <= wanted.max_busy_percent:
        return None
    return f"{seen.busy_percent:.3g} % busy, at most {wanted.max_busy_percent:g} % wanted"
