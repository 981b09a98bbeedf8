"""Input of the rules: one device at one moment, with its history. Each mean is computed once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gputop.agent.snapshot import DriverState, Host, Inventory, Sample, Source
from gputop.health import thresholds as t
from gputop.health.findings import Evidence, unit_of
from gputop.schema.clock_events import mask_of
from gputop.schema.derived import (
    DERIVED,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
    SLOWDOWN_BITS,
)
from gputop.schema.labels import ROWS
from gputop.schema.values import absence_text

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence

    from gputop.agent.device import Absence, Device, DeviceSample
    from gputop.agent.snapshot import Event, Process
    from gputop.health.ranks import HeldUp, JobState
    from gputop.stream.history import History


Value = TypeVar("Value")
NO_HOST = Host()
NO_INVENTORY = Inventory(0.0, "", Source.NVML, DriverState.STARTING, 1.0)
NO_SAMPLE = Sample(0.0, NO_HOST)


class EvenSamples(NamedTuple):
    """Numbers in order of time, evenly spaced and without gaps."""

    numbers: Sequence[float]
    step: float
    """Seconds between them."""

    @property
    def mean(self) -> float:
        return sum(self.numbers) / len(self.numbers)

    @property
    def period(self) -> float | None:
        """Seconds between two rises, or None for fewer than three or irregular ones."""
        height = max(self.numbers) - min(self.numbers)
        if height < t.SAW_TOOTH:
            return None
        low = self.mean - t.NOISE * height
        high = self.mean + t.NOISE * height
        rises = []
        down = False
        for place, value in enumerate(self.numbers):
            if value <= low:
                down = True
            elif down and value >= high:
                rises.append(place)
                down = False
        if len(rises) < 3:
            return None
        between = (rises[-1] - rises[0]) / (len(rises) - 1)
        return between * self.step if between >= t.FEWEST_BETWEEN else None


_SOURCES = {SLOWDOWN_BITS: "clock_event_reasons"} | {
    name: "processes" for name in DERIVED if name.startswith("process_")
}
"""Field with the reason for a missing derived series."""
_PROCESS_FIELDS = {
    PROCESS_CPU: ("cpu_percent", "children_cpu_most_percent"),
    PROCESS_IO_WAIT: ("io_wait",),
}
"""Fields of a process that form a series."""


TOO_SHORT = "not watched for long enough yet"
LABELS = {name: row.label for row in ROWS for name in row.names[:1]} | {
    "state": "device",
    PROCESS_COUNT: "processes",
    PROCESS_CPU: "CPU of processes",
    PROCESS_IO_WAIT: "I/O wait of processes",
    SLOWDOWN_BITS: "held back by",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe lanes",
    "pcie_generation_max": "highest PCIe generation",
    "pcie_width_max": "most PCIe lanes",
    "sm_clock_max_mhz": "highest SM clock",
}
"""Names of missing readings."""


def lack_text(
    name: str, absence: Absence | None, device: Device, host: Host | None
) -> str:
    """Return which reading is missing and why: `no SM active (needs GPM: …)`.

    Without a reason, the device only has to be watched for longer.
    """
    if absence is None:
        return TOO_SHORT
    why = absence_text(name, absence, device, host)
    return f"no {LABELS.get(name, name)} ({why})"


class NoEvidence(Exception):  # noqa: N818 - not an error: it ends a rule without evidence
    """A reading that a rule needs is missing."""

    def __init__(self, reading: str) -> None:
        super().__init__(reading)
        self.reading = reading


def needed(value: Value | None, name: str) -> Value:
    """Return the value of that reading. Raises `NoEvidence` if there is none."""
    if value is None:
        raise NoEvidence(name)
    return value


class SampleWindow(NamedTuple):
    """The last samples."""

    samples: int
    span: float
    wanted: float
    """Intended span in seconds."""


MOMENT: Mapping[float, SampleWindow] = dict.fromkeys(
    t.WINDOWS, SampleWindow(1, 0.0, 0.0)
)
"""Windows of the newest sample alone: its numbers are the means of each."""


def find_windows(
    history: History, interval: float
) -> dict[float, SampleWindow]:
    """Return the samples of each time span, or of a longer one at a long interval."""
    windows = {}
    for seconds in t.WINDOWS:
        wanted = max(seconds, t.FEWEST_SAMPLES * interval)
        count = history.samples_within(wanted)
        windows[seconds] = SampleWindow(count, history.span(count), wanted)
    return windows


class Peers:
    """Devices of one model that work on the same job. Each mean is read once for all of them."""

    def __init__(self, views: Sequence[RuleView] = ()) -> None:
        self.views = views
        self._means: dict[tuple[str, bool], list[float]] = {}

    def means(self, name: str, *, at_work: bool = False) -> list[float]:
        """Return the known means of all devices."""
        key = name, at_work
        if key not in self._means:
            known = []
            for view in self.views:
                mean = view.mean_or_none(name, at_work=at_work)
                if mean is not None:
                    known.append(mean)
            self._means[key] = known
        return self._means[key]


@dataclass(
    eq=False,
    repr=False,
    slots=True,
)
class RuleView:
    """A device at one moment. A missing reading raises `NoEvidence`, except in `mean_or_none`."""

    history: History
    windows: Mapping[float, SampleWindow]
    """Samples of each time span."""
    device: Device
    sample: DeviceSample
    processes: Sequence[Process]
    events: Sequence[Event]
    now: float
    peers: Peers = field(default_factory=Peers)
    """Devices of the same job and model, with this one; empty if there is no other."""
    job: JobState | None = None
    """Verdict on the parallel job on the device, if a launcher has numbered its ranks."""
    rank: int | None = None
    """Rank of the device in the job."""
    host: Host = NO_HOST
    """Machine that the device is in."""
    held: bool = False
    """True if the current rule has an active finding."""
    waits_for_input: bool = False
    """True if the device waits for input. In that case, rules that compare its work find nothing.
    """
    _means: dict[tuple[str, float, bool, bool], float | None] = field(
        default_factory=dict, init=False
    )

    @property
    def held_up(self) -> HeldUp | None:
        """The rank that all others of the device's job wait for, if there is one."""
        return None if self.job is None else self.job.held_up

    @property
    def momentary(self) -> bool:
        """True if only the newest sample counts."""
        return self.windows is MOMENT

    def passes(self, limit: t.Limit, value: float) -> bool:
        """Return True if the value passes the limit, or keeps an active finding."""
        return limit.passed(value, held=self.held)

    def reading(self, name: str) -> float:
        """Return the newest number of that name, from the sample or else from the inventory."""
        return float(needed(self._newest(name), name))

    def _newest(self, name: str) -> Any:
        value = getattr(self.sample, name, None)
        return getattr(self.device, name, None) if value is None else value

    def absence(self, name: str) -> Absence | None:
        """Return why the newest reading of that name is missing, or None if it is available."""
        for process in self.processes:
            for each in _PROCESS_FIELDS.get(name, ()):
                if each in process.absent:
                    return process.absent[each]
        name = _SOURCES.get(name, name)
        return self.sample.absent.get(name) or self.device.absent.get(name)

    def values(
        self,
        name: str,
        seconds: float = t.WINDOW_SECONDS,
        enough: float = t.ENOUGH_OF_WINDOW,
    ) -> array[float]:
        """Return the numbers of the last seconds, oldest first; NaN if missing."""
        return needed(self._read(name, seconds, enough), name)

    def mean_or_none(
        self,
        name: str,
        seconds: float = t.WINDOW_SECONDS,
        *,
        at_work: bool = False,
    ) -> float | None:
        """Return the mean of the last seconds, or None if numbers are missing.

        With `at_work`, only the samples count in which the device worked. The clocks of an idle
        device mean nothing.
        """
        key = name, seconds, at_work, self.held
        if key in self._means:
            return self._means[key]
        numbers = self._read(name, seconds, t.ENOUGH_OF_WINDOW)
        known = finite(numbers or ())
        if numbers and at_work:
            known = self._at_work(numbers, seconds)
        mean = self._means[key] = sum(known) / len(known) if known else None
        return mean

    def _at_work(
        self, numbers: Sequence[float], seconds: float
    ) -> list[float]:
        loads = self._read(self.activity, seconds, t.ENOUGH_OF_WINDOW)
        known = []
        for number, load in zip(numbers, loads or (), strict=False):
            if load >= t.AT_WORK and math.isfinite(number):
                known.append(number)
        return known

    def mean(self, name: str) -> float:
        """Return the mean over the usual window."""
        return needed(self.mean_or_none(name), name)

    def _read(
        self, name: str, seconds: float, enough: float
    ) -> array[float] | None:
        """Return the numbers of the last seconds, or None if too many are missing."""
        count, span, wanted = self.windows[seconds]
        fewest = 1 if self.momentary else t.FEWEST_SAMPLES
        if self.held:
            enough /= 2
        if span < enough * wanted:
            return None
        numbers = self.history.last(self.device.uuid, name, count)
        present = len(finite(numbers))
        return None if present < max(fewest, enough * count) else numbers

    @property
    def activity(self) -> str:
        """The reading of activity: *busy*, or SM active on devices without it (MIG instances)."""
        busy, active = "gpu_utilization_percent", "sm_active_percent"
        if (
            self.mean_or_none(busy) is not None
            or self.mean_or_none(active) is None
        ):
            return busy
        return active

    def slowed_percent(self, *causes: str, without: str = "") -> float:
        """Return the % of the window in which a cause was active and `without` was not."""
        bits, no = mask_of(causes), mask_of((without,))
        return self._share(lambda mask: bool(mask & bits) and not mask & no)

    def unslowed_percent(self) -> float:
        """Return the % of the window without any clock event reason."""
        return self._share(lambda mask: not mask)

    def _share(self, holds: Callable[[int], bool]) -> float:
        masks = Counter(finite(self.values(SLOWDOWN_BITS)))
        held = sum(many for mask, many in masks.items() if holds(int(mask)))
        return 100 * held / masks.total()

    def newest(
        self,
        label: str,
        name: str,
        headline: str = "",
    ) -> list[Evidence]:
        """Return the newest number as evidence; empty if there is none."""
        value = self._newest(name)
        if value is None:
            return []
        return [
            Evidence(
                label,
                name,
                float(value),
                unit_of(name),
                headline=headline,
            )
        ]

    def means(
        self,
        *labelled: tuple[str, str],
        seconds: float = t.WINDOW_SECONDS,
        on_line: bool = False,
    ) -> list[Evidence]:
        """Return the known means as evidence; `on_line` puts them in the finding's line."""
        found = []
        for label, name in labelled:
            mean = self.mean_or_none(name, seconds)
            headline = f"{label} {{}}" if on_line else ""
            if mean is not None:
                found.append(
                    self.measured(
                        f"{label}, mean",
                        name,
                        mean,
                        seconds=seconds,
                        headline=headline,
                    )
                )
        return found

    def measured(
        self,
        label: str,
        name: str,
        value: float,
        unit: str = "",
        seconds: float = t.WINDOW_SECONDS,
        headline: str = "",
    ) -> Evidence:
        """Return a number of that time span as evidence, by default in the reading's unit."""
        span = self.windows[seconds].span
        return Evidence(
            label, name, value, unit or unit_of(name), span, headline
        )

    def driver_samples(self, name: str) -> EvenSamples | None:
        """Return the driver's own samples of a reading.

        None if there are none, if some are missing, or if they are not denser than the ticks.
        """
        step = self.sample.gpu_utilization_samples_seconds
        if name != "gpu_utilization_percent" or step is None:
            return None
        many, span, wanted = self.windows[t.WINDOW_SECONDS]
        if self.momentary or span < t.ENOUGH_OF_WINDOW * wanted:
            return None
        if step >= span / (many - 1):
            return None
        numbers = self.history.busy_samples(self.device.uuid, many)
        least, most = t.WHOLE
        if not least <= len(numbers) * step / span <= most:
            return None
        return EvenSamples(numbers, step)

    def samples(self, name: str) -> EvenSamples:
        """Return the newest numbers of that name without gaps. At least one is required."""
        many, span, _ = self.windows[t.WINDOW_SECONDS]
        numbers = finite(self.history.last(self.device.uuid, name, many))
        return EvenSamples(numbers, span / max(1, len(numbers) - 1))


def finite(numbers: Sequence[float]) -> Sequence[float]:
    """Return the numbers that are not missing."""
    # This check is fast, and usually true.
    if math.isfinite(sum(numbers)):
        return numbers
    return [number for number in numbers if math.isfinite(number)]
