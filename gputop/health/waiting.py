"""Conditions of `gputop wait`: an idle GPU, free memory, a fault, or the end of a process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.device import DeviceState
from gputop.health.findings import Severity
from gputop.health.idle_devices import Amount, parse_amount
from gputop.health.thresholds import WORKS
from gputop.health.why import Observation
from gputop.schema.derived import label_of
from gputop.text import percentage, size

if TYPE_CHECKING:
    from gputop.agent.device import Device, DeviceSample
    from gputop.stream.child import Snapshot

NOTHING = Amount()
EXAMPLES = "idle, free:20GiB, exit:4242 or fault"


class Kind(StrEnum):
    """Kinds of conditions."""

    IDLE = "idle"
    FREE = "free"
    EXIT = "exit"
    FAULT = "fault"


@dataclass(frozen=True)
class Condition:
    """A condition of a device, or of a process of this machine."""

    kind: Kind
    memory: Amount = NOTHING
    pid: int = 0


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises `ValueError` with the remedy."""
    name, _, value = text.partition(":")
    if text in (Kind.IDLE, Kind.FAULT):
        return Condition(Kind(text))
    if name == Kind.FREE and value:
        return Condition(Kind.FREE, memory=parse_amount(value))
    if name == Kind.EXIT and re.fullmatch("[1-9][0-9]{0,9}", value):
        return Condition(Kind.EXIT, pid=int(value))
    raise ValueError(f"{text!r} is not a condition. Give {EXAMPLES}.")


class ProcessEnd:
    """The awaited end of a process of this machine. A reused pid is a different process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._start = self._start_time()

    @property
    def sentence(self) -> str | None:
        """A sentence if the process has ended or did not exist at first."""
        if self._start is None:
            return f"Process {self.pid} is not running"
        if self._start_time() != self._start:
            return f"Process {self.pid} has ended"
        return None

    def _start_time(self) -> bytes | None:
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return None
        # The name is in parentheses and may contain spaces.
        fields = status.rpartition(b")")[2].split()
        if fields[0] in (b"Z", b"X"):
            return None
        return fields[19]


@dataclass
class DeviceWait:
    """Waits until one device meets a condition, or until all of them do."""

    condition: Condition
    seconds: float
    """Time for which *idle* and *free* must last."""
    all_of_them: bool = False
    _since: dict[str, float] = field(default_factory=dict)
    """Time from which each device has met the condition."""
    _seen: Observation = field(default_factory=Observation)

    def add(self, snapshot: Snapshot) -> str | None:
        """Add a snapshot. Return a sentence if the condition is met now."""
        inventory, sample = snapshot
        if self.condition.kind is Kind.FAULT:
            return self._fault(snapshot)
        met = []
        for device in inventory.devices:
            readings = sample.device(device.uuid)
            if readings is None or not self._meets(device, readings):
                self._since.pop(device.uuid, None)
                continue
            since = self._since.setdefault(device.uuid, sample.time)
            if sample.time - since >= self.seconds:
                met.append((device, readings))
        wanted = len(inventory.devices) if self.all_of_them else 1
        if not met or len(met) < wanted:
            return None
        if not self.all_of_them:
            met = met[:1]
        return "; ".join(self._sentence(*each) for each in met)

    def _meets(self, device: Device, readings: DeviceSample) -> bool:
        if readings.state is not DeviceState.OK:
            return False
        if self.condition.kind is Kind.IDLE:
            busy = _busy(readings)
            return busy is not None and busy <= WORKS.end
        free, total = readings.memory_free_bytes, device.memory_total_bytes
        if free is None:
            return False
        return free >= self.condition.memory.bytes_of(total or free)

    def _sentence(self, device: Device, readings: DeviceSample) -> str:
        name = f"GPU {label_of(device)}"
        if self.condition.kind is Kind.IDLE:
            return f"{name} is idle: {percentage(_busy(readings))} busy"
        return f"{name} has {size(readings.memory_free_bytes)} of free memory"

    def _fault(self, snapshot: Snapshot) -> str | None:
        self._seen.add(*snapshot)
        for entry in self._seen.report().entries:
            if entry.severity is Severity.FAULT and entry.devices:
                return entry.title
        return None


def _busy(readings: DeviceSample) -> float | None:
    """Return the load. A MIG instance has no *busy*, so SM active is its load."""
    if readings.gpu_utilization_percent is None:
        return readings.sm_active_percent
    return readings.gpu_utilization_percent
