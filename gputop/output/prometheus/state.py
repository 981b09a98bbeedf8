"""State of the exporter between scrapes: the newest records of the stream, and counts."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.problem import Problem
from gputop.agent.snapshot import (
    EVENTS,
    DriverState,
    Event,
    Inventory,
    Record,
    Sample,
)
from gputop.agent.times import silence_limit
from gputop.health.findings import Finding
from gputop.health.judge import Judge
from gputop.stream.child import Interruption, Snapshot, StreamChild
from gputop.stream.history import History

if TYPE_CHECKING:
    from gputop.health.findings import BoundBy

FindingKey = tuple[str, str]
"""UUID of the device, and name of the rule."""
XidKey = tuple[str | None, int | None]
"""UUID of the device, and Xid number; each None if the driver does not report it."""


class XidCount(NamedTuple):
    """Number of times that a device reported an Xid, and the time of the last one (Unix time)."""

    times: int
    last: float


@dataclass(frozen=True, slots=True)
class ExporterState:
    """State of a stream at one moment. It is immutable, so other threads can read it."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    received: float = 0.0
    """Monotonic time at which the sample arrived."""
    xids: Mapping[XidKey, XidCount] = field(default_factory=dict)
    interruptions: int = 0
    findings: tuple[Finding, ...] = ()
    """Active findings, the gravest first. They survive a restart of the sampler."""
    begun: Mapping[FindingKey, int] = field(default_factory=dict)
    """Number of times that each finding began, by device and rule."""
    bound_by: Mapping[str, BoundBy] = field(default_factory=dict)
    """Bottleneck of each device, by UUID."""

    def current(self, now: float) -> Snapshot | None:
        """Return the newest records, or None if the stream has been silent for too long."""
        if self.inventory is None or self.sample is None:
            return None
        if now - self.received > silence_limit(
            self.inventory.interval_seconds
        ):
            return None
        return Snapshot(self.inventory, self.sample)


class StreamFollower:
    """Follows the stream of a child and keeps its newest state for scrapes."""

    def __init__(
        self,
        on_problem: Callable[[Problem], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass each new problem to `on_problem`."""
        self.state = ExporterState()
        """Always replaced as a whole, never changed in place."""
        self._on_problem, self._clock = on_problem, clock
        self._inventory: Inventory | None = None
        self._reported: Problem | None = None
        self._history, self._judge = History(), Judge()
        self._events: deque[Event] = deque(maxlen=EVENTS)

    async def follow(self, child: StreamChild) -> None:
        """Follow the stream forever. A problem is reported once until the driver answers again."""
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                self.add_record(record)

    def add_record(self, record: Record | Interruption) -> None:
        """Update the state with a record, and report a new problem."""
        if isinstance(record, Sample):
            self._add_sample(record)
            return
        if isinstance(record, Interruption):
            self.state = replace(
                self.state, interruptions=self.state.interruptions + 1
            )
        else:
            # It becomes part of the state together with its first sample.
            self._inventory = record
        if record.problem is not None and record.problem != self._reported:
            self._reported = record.problem
            self._on_problem(record.problem)
        elif (
            isinstance(record, Inventory)
            and record.driver_state is DriverState.OK
        ):
            self._reported = None

    def _add_sample(self, sample: Sample) -> None:
        xids = dict(self.state.xids)
        for event in sample.events:
            if event.kind == "xid":
                key = event.device_uuid, event.code
                before = xids.get(key, XidCount(0, event.time))
                xids[key] = XidCount(
                    before.times + 1, max(before.last, event.time)
                )
        state = replace(
            self.state,
            inventory=self._inventory,
            sample=sample,
            received=self._clock(),
            xids=xids,
        )
        if self._inventory is not None:
            state = self._judged(state, self._inventory, sample)
        self.state = state

    def _judged(
        self, state: ExporterState, inventory: Inventory, sample: Sample
    ) -> ExporterState:
        """Return the state with the current findings, and counts of new ones."""
        if inventory.driver_state is DriverState.STARTING:
            # A restarted sampler has no readings yet.
            return state
        self._history.add(sample)
        self._events.extend(sample.events)
        judgement = self._judge.judge(
            self._history, inventory, sample, self._events
        )
        active = {(each.device_uuid, each.rule) for each in state.findings}
        counts = Counter(state.begun)
        for finding in judgement.findings:
            key = finding.device_uuid, finding.rule
            if key not in active:
                active.add(key)
                counts[key] += 1
        return replace(
            state,
            findings=judgement.findings,
            begun=counts,
            bound_by=judgement.bound_by,
        )
