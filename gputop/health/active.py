"""What rules find in a stream, for who asks now and then: what stands, and how often it began."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gputop.bounds import EVENTS
from gputop.health.judge import Judge
from gputop.schema.snapshot import DriverState, Event, Inventory, Sample
from gputop.stream.history import History

if TYPE_CHECKING:
    from gputop.health.findings import Finding
    from gputop.schema.snapshot import Record
    from gputop.stream.child import Interruption


@dataclass(frozen=True, slots=True)
class Standing:
    """At one moment; another thread can have it as it is."""

    findings: tuple[Finding, ...] = ()
    """Those that stand, the gravest first."""
    begun: Mapping[tuple[str | None, str], int] = field(default_factory=dict)
    """How many began, by device and rule."""


class Follower:
    """Judges a stream as it comes."""

    def __init__(self) -> None:
        self.standing = Standing()
        """Replaced as a whole."""
        self._history, self._judge = History(), Judge()
        self._inventory: Inventory | None = None
        self._starting = False
        """Whether the sampler knows nothing yet: what stood before it was started again does."""
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._begun: Counter[tuple[str | None, str]] = Counter()

    def take(self, record: Record | Interruption) -> None:
        """One record, in its turn."""
        if isinstance(record, Inventory):
            self._starting = record.driver_state is DriverState.STARTING
            if not self._starting:
                self._inventory = record
        elif isinstance(record, Sample) and self._inventory and not self._starting:
            self._judged(self._inventory, record)

    def _judged(self, inventory: Inventory, sample: Sample) -> None:
        self._history.add(sample)
        self._events.extend(sample.events)
        found = self._judge.judge(self._history, inventory, sample, self._events).findings
        stood = {(finding.device_uuid, finding.rule) for finding in self.standing.findings}
        self._begun.update({(finding.device_uuid, finding.rule) for finding in found} - stood)
        self.standing = Standing(found, dict(self._begun))
