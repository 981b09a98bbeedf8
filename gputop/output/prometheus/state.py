"""State of the exporter between scrapes: the newest records of a stream, and counts."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gputop.agent.problem import Problem
from gputop.agent.snapshot import EVENTS, DriverState, Event, Inventory, Record, Sample
from gputop.agent.times import silence_limit
from gputop.health.findings import Finding
from gputop.health.judge import Judge
from gputop.stream.child import Interruption, Snapshot, StreamChild
from gputop.stream.history import History

XidKey = tuple[str | None, int | None]
"""Device and number; each None where the driver does not say which."""


class XidCount(NamedTuple):
    """Number of times that a device reported an Xid, and the last time, in Unix seconds."""

    times: int
    last: float


@dataclass(frozen=True, slots=True)
class ExporterState:
    """State of a stream at one moment. Immutable, so another thread can have it."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    received: float = 0.0
    """Monotonic time of the sample."""
    xids: Mapping[XidKey, XidCount] = field(default_factory=dict)
    interruptions: int = 0
    findings: tuple[Finding, ...] = ()
    """Active findings, the gravest first. Those from before a restart of the sampler stay so."""
    begun: Mapping[tuple[str, str], int] | None = None
    """Count of findings that began, by device and rule; None if the rules are not asked."""

    def current(self, now: float) -> Snapshot | None:
        """Return the newest records, unless the sample is older than a stream may be silent."""
        if self.inventory is None or self.sample is None:
            return None
        fresh = now - self.received <= silence_limit(self.inventory.interval_seconds)
        return Snapshot(self.inventory, self.sample) if fresh else None


class StreamFollower:
    """Follows the stream of a child, and judges it, for readers that ask now and then."""

    def __init__(
        self,
        on_problem: Callable[[Problem], None] = lambda _: None,
        *,
        judges: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass each new problem to `on_problem`; ask the rules if it `judges`."""
        self.state = ExporterState(begun={} if judges else None)
        """Replaced as a whole."""
        self._on_problem, self._clock = on_problem, clock
        self._inventory: Inventory | None = None
        self._reported: Problem | None = None
        self._history, self._judge = History(), Judge()
        self._events: deque[Event] = deque(maxlen=EVENTS)

    async def follow(self, child: StreamChild) -> None:
        """Follow it forever. A problem is reported once, until the driver has answered again."""
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                self.add_record(record)

    def add_record(self, record: Record | Interruption) -> None:
        """Update the state with a record, and report a new problem."""
        if isinstance(record, Sample):
            self._add_sample(record)
            return
        if isinstance(record, Interruption):
            self.state = replace(self.state, interruptions=self.state.interruptions + 1)
        else:
            self._inventory = (
                record  # a part of the state with the sample that it announces
            )
        if record.problem is not None and record.problem != self._reported:
            self._reported = record.problem
            self._on_problem(record.problem)
        elif isinstance(record, Inventory) and record.driver_state is DriverState.OK:
            self._reported = None

    def _add_sample(self, sample: Sample) -> None:
        state, known, xids = self.state, self._inventory, dict(self.state.xids)
        for event in sample.events:
            if event.kind == "xid":
                key = event.device_uuid, event.code
                before = xids.get(key, XidCount(0, event.time))
                xids[key] = XidCount(before.times + 1, max(before.last, event.time))
        state = replace(
            state, inventory=known, sample=sample, received=self._clock(), xids=xids
        )
        # A restarted sampler knows nothing yet.
        if (
            state.begun is not None
            and known
            and known.driver_state is not DriverState.STARTING
        ):
            self._history.add(sample)
            self._events.extend(sample.events)
            findings = self._judge.judge(
                self._history, known, sample, self._events
            ).findings
            active = {(each.device_uuid, each.rule) for each in state.findings}
            begun = Counter(state.begun)
            begun.update({(each.device_uuid, each.rule) for each in findings} - active)
            state = replace(state, findings=findings, begun=begun)
        self.state = state
