"""State of the exporter between scrapes: the newest records of the stream, and counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock

from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, Inventory, Record, Sample
from gputop.agent.times import silence_limit
from gputop.health.judge import Judgement
from gputop.health.why import Observation
from gputop.stream.child import Interruption, Snapshot

FindingKey = tuple[str, str]
"""UUID of the device, and name of the rule."""
XidKey = tuple[str | None, int | None]
"""UUID of the device, and Xid number; each None if the driver does not report it."""


class ExporterState:
    """The newest records of a stream, its findings, and counts.

    A scrape runs in another thread, and holds the lock while it reads them.
    """

    def __init__(
        self,
        on_problem: Callable[[Problem], None] = lambda _: None,
        choose: Callable[[Sample], Sample] = lambda sample: sample,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass each new problem to `on_problem`. Scrapes see the processes that `choose` leaves."""
        self.lock = Lock()
        self.newest: Snapshot | None = None
        self.interruptions = 0
        self.xids: Counter[XidKey] = Counter()
        """Number of times that each Xid was reported."""
        self.xid_times: dict[XidKey, float] = {}
        """Unix time of the last Xid of each kind."""
        self.judgement = Judgement()
        """Active findings and bottlenecks. They survive a restart of the sampler."""
        self.begun: Counter[FindingKey] = Counter()
        """Number of times that each finding began, by device and rule."""
        self._on_problem, self._choose, self._clock = on_problem, choose, clock
        self._received = clock()
        self._inventory: Inventory | None = None
        self._reported: Problem | None = None
        self._seen = Observation()

    @property
    def waited(self) -> float:
        """Seconds since the newest sample arrived."""
        return self._clock() - self._received

    def current(self) -> Snapshot | None:
        """Return the newest records, or None if the stream has been silent for too long."""
        if self.newest is None:
            return None
        interval = self.newest.inventory.interval_seconds
        if self.waited > silence_limit(interval):
            return None
        return self.newest

    def add_record(self, record: Record | Interruption) -> None:
        """Add a record. A problem is reported once until the driver answers again."""
        with self.lock:
            if isinstance(record, Sample):
                self._add_sample(record)
            elif isinstance(record, Interruption):
                self.interruptions += 1
            else:
                # Scrapes see it together with its first sample.
                self._inventory = record
        if not isinstance(record, Sample):
            self._report(record)

    def _report(self, record: Inventory | Interruption) -> None:
        problem = record.problem
        if problem is not None and problem != self._reported:
            self._reported = problem
            self._on_problem(problem)
        elif (
            isinstance(record, Inventory)
            and record.driver_state is DriverState.OK
        ):
            self._reported = None

    def _add_sample(self, sample: Sample) -> None:
        inventory = self._inventory
        if inventory is None:
            return
        self.newest = Snapshot(inventory, self._choose(sample))
        self._received = self._clock()
        self._count_xids(sample.events)
        if inventory.driver_state is DriverState.STARTING:
            # A restarted sampler has no readings yet.
            return
        self._seen.add(inventory, sample)
        active = {
            (each.device_uuid, each.rule) for each in self.judgement.findings
        }
        self.judgement = self._seen.judge()
        for finding in self.judgement.findings:
            key = finding.device_uuid, finding.rule
            if key not in active:
                active.add(key)
                self.begun[key] += 1

    def _count_xids(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "xid":
                key = event.device_uuid, event.code
                last = self.xid_times.get(key, event.time)
                self.xids[key] += 1
                self.xid_times[key] = max(last, event.time)
