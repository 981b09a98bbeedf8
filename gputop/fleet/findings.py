"""What is wrong in a fleet, worst first. Pure: rules over the GPUs and what is known besides."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

from gputop.fleet.model import Gpu, Health, Wrong
from gputop.health import thresholds as t
from gputop.health.alerts import PROGRAM_XIDS
from gputop.health.conditions import XIDS
from gputop.schema.clock_events import CLOCK_EVENTS, ClockEvent, gravest
from gputop.text import cut, duration, percentage, visible

if TYPE_CHECKING:
    from gputop.fleet.parse import Values

LONGEST = 59
"""Cells of a text."""
HOT, HOT_MEMORY = 85.0, 95.0
"""°C: from about 87 on data centre GPUs slow down, and from 95 on for their memory."""
FEWEST_PEERS = 3
"""Others that a GPU is compared with: of two, nobody can say which is wrong."""
DEVIATIONS = 5.0
"""Robust standard deviations that make a straggler, where peers differ by themselves."""
ROBUST = 1.4826
"""Standard deviations in a median absolute deviation, of what is normally distributed."""
GRAVE = {79: 100, 95: 95, 48: 92, 119: 90, 120: 90, 140: 90, 46: 88, 62: 88, 64: 86, 74: 80}
"""Xids by how bad they are, others being `OTHER`."""
OTHER = 60.0
_ORDER = {Health.FAULT: 0, Health.STALE: 1, Health.WARNING: 2, Health.OK: 3}
_JOBS = ("hpc_job", "slurm_job", "job_id", "job_name", "ray_job", "training_job", "exported_job")
"""Labels that name what runs; the name of a pod is that of its job and a number."""
_NUMBER = re.compile(r"[-_.](?:[0-9]+|[0-9a-z]{5})$")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of GPUs beside their readings, by key."""

    stale_after: float = 60.0
    """Seconds after which a reading is stale: a few scrapes."""
    targets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    down: Collection[tuple[str, str]] = ()
    """Job and instance of targets that cannot be scraped."""
    states: Mapping[str, str] = field(default_factory=dict)
    busy_mean: Values = field(default_factory=dict)
    """Over some minutes, of those that were there all the time."""
    ecc_rise: Values = field(default_factory=dict)
    xid_at: Values = field(default_factory=dict)
    """When the last Xid was, in Unix seconds, where that is said."""
    xid_before: Values = field(default_factory=dict)
    """The last Xid as it was an hour ago."""
    heat: Values = field(default_factory=dict)
    margin: Values = field(default_factory=dict)
    """°C until it slows down, of those that are close to that."""
    comparable: bool = True
    """True if load, clock and what holds the clock back were read for the same moment."""


def find(gpus: Iterable[Gpu], known: Known) -> tuple[Wrong, ...]:
    """All of it: worst first, and what is as bad in the order of the GPUs."""
    gpus = tuple(gpus)
    found: list[tuple[int, Wrong]] = []
    for place, gpu in enumerate(gpus):
        found += [(place, wrong) for wrong in _of(gpu, known)]
    places = {gpu.key: place for place, gpu in enumerate(gpus)}
    explained = {wrong.key for _, wrong in found if wrong.kind in ("thermal", "slowdown")}
    if known.comparable:
        found += [
            (places[wrong.key], wrong)
            for wrong in _stragglers(gpus, known)
            if wrong.key not in explained
        ]
    found = [*_once(found, gpus)]
    found.sort(key=lambda each: (_ORDER[each[1].severity], -each[1].rank, each[0], each[1].kind))
    return tuple(wrong for _, wrong in found)


_OF_DEVICE = frozenset(
    ("xid", "state", "ecc", "remap", "thermal", "slowdown", "hot", "straggler", "stale")
)
"""Kinds that are about a physical GPU: each of its MIG instances says the same."""


def _once(found: Iterable[tuple[int, Wrong]], gpus: Sequence[Gpu]) -> Iterator[tuple[int, Wrong]]:
    """Yield what is wrong with a physical GPU only for the first of its instances."""
    told: set[tuple[tuple[str, str], str, str]] = set()
    for place, wrong in found:
        if wrong.kind in _OF_DEVICE:
            mark = gpus[place].device, wrong.kind, wrong.text
            if mark in told:
                continue
            told.add(mark)
        yield place, wrong


def is_stale(gpu: Gpu, known: Known) -> bool:
    """Whether its readings are of another time."""
    return gpu.age_seconds is None or gpu.age_seconds > known.stale_after


def _of(gpu: Gpu, known: Known) -> Iterator[Wrong]:
    xid, state = _xid(gpu, known), _state(gpu, known)
    stale = is_stale(gpu, known)
    if stale and xid is None and state is None:  # else that is why
        yield _stale(gpu, known)
    rest = (_slowed(gpu, known), _idle(gpu, known)) if not stale else ()
    for wrong in (xid, state, _ecc(gpu, known), _remap(gpu), *rest):
        if wrong is not None:
            yield wrong


def _wrong(gpu: Gpu, kind: str, severity: Health, text: str, rank: float) -> Wrong:
    return Wrong(gpu.key, kind, severity, cut(text, LONGEST), rank)


def _xid(gpu: Gpu, known: Known) -> Wrong | None:
    """One of a program is told for an hour, as the GPU is well; others until the gauge says 0."""
    code = gpu.xid
    if not code:
        return None
    program = code in PROGRAM_XIDS
    if program and known.xid_before.get(gpu.key) == code:
        return None
    words = f"Xid {code}: {XIDS[code].what}" if code in XIDS else f"Xid {code}"
    severity = Health.WARNING if program else Health.FAULT
    return _wrong(gpu, "xid", severity, words, 5 if program else GRAVE.get(code, OTHER))


def _ecc(gpu: Gpu, known: Known) -> Wrong | None:
    new, all_of = known.ecc_rise.get(gpu.key, 0.0), gpu.ecc_uncorrected or 0.0
    if new > 0:
        number = max(1, round(new))
        text = f"{_counted(number, 'uncorrected memory error')} in the last hour"
        return _wrong(gpu, "ecc", Health.FAULT, text, 85 + min(number, 100) / 100)
    if all_of > 0:
        text = f"{_counted(int(all_of), 'uncorrected memory error')} since its start"
        return _wrong(gpu, "ecc", Health.WARNING, text, 25)
    return None


def _remap(gpu: Gpu) -> Wrong | None:
    if gpu.remap_failed:
        text = "Row remap failed: no spare row of memory is left"
        return _wrong(gpu, "remap", Health.FAULT, text, 70)
    if gpu.remap_pending:
        text = "Row remap pending: replaced at the next reset"
        return _wrong(gpu, "remap", Health.WARNING, text, 28)
    return None


_STATES = {
    "lost": ("LOST: it no longer answers on its bus", 99),
    "needs_reset": ("NEEDS RESET: the driver has given it up", 98),
    "not_responding": ("NOT RESPONDING: calls to its driver hang or fail", 90),
}


def _state(gpu: Gpu, known: Known) -> Wrong | None:
    """What only `gputop exporter` says."""
    state = known.states.get(gpu.key)
    if not state:
        return None
    text, rank = _STATES.get(state, (visible(state, 40), 50))
    return _wrong(gpu, "state", Health.FAULT, text, rank)


def _stale(gpu: Gpu, known: Known) -> Wrong:
    why = "its series are gone"
    if known.targets.get(gpu.key) in known.down:
        why = "its scrape fails"
    if gpu.age_seconds is None:
        return _wrong(gpu, "stale", Health.STALE, f"No readings: {why}", 1e9)
    text = f"No readings for {duration(gpu.age_seconds)}: {why}"
    return _wrong(gpu, "stale", Health.STALE, text, round(gpu.age_seconds))


def kind_of(event: ClockEvent) -> str:
    """Return the kind of finding that a clock event reason is."""
    return "thermal" if event.is_heat else "slowdown"


def _slowed(gpu: Gpu, known: Known) -> Wrong | None:
    slowdown = gravest(gpu.clock_event_reasons or ())
    if slowdown is not None:
        degrees = _degrees(gpu) if slowdown.is_heat else ""
        rank, text = 50 - CLOCK_EVENTS.index(slowdown), f"{slowdown.fault.capitalize()}{degrees}"
        return _wrong(gpu, kind_of(slowdown), Health.WARNING, text, rank)
    if gpu.key in known.heat:
        text = f"Throttled by heat in the last minutes{_degrees(gpu)}"
        return _wrong(gpu, "thermal", Health.WARNING, text, 40)
    hot = _hot(gpu, known)
    return None if hot is None else _wrong(gpu, "hot", Health.WARNING, hot, 20)


def _degrees(gpu: Gpu) -> str:
    return "" if gpu.temperature_celsius is None else f", {gpu.temperature_celsius:.0f}°C"


def _hot(gpu: Gpu, known: Known) -> str | None:
    degrees, memory = gpu.temperature_celsius, gpu.memory_temperature_celsius
    margin = known.margin.get(gpu.key)
    if degrees is not None and margin is not None:
        return f"{degrees:.0f}°C: {max(0, margin):.0f} below where it slows down"
    if degrees is not None and degrees >= HOT:
        return f"{degrees:.0f}°C: close to where it slows down"
    if memory is not None and memory >= HOT_MEMORY:
        return f"Its memory has {memory:.0f}°C: close to where it slows down"
    return None


def _idle(gpu: Gpu, known: Known) -> Wrong | None:
    mean, held = known.busy_mean.get(gpu.key), gpu.memory_used_bytes
    if mean is None or held is None or mean >= t.IDLE.begin or held < t.HELD.begin:
        return None
    if gpu.gpu_utilization_percent is not None and gpu.gpu_utilization_percent > t.IDLE.end:
        return None
    text = f"Idle for {t.IDLE_SECONDS / 60:.0f} minutes with {held / t.GIB:.0f} GiB held"
    return _wrong(gpu, "idle_held", Health.WARNING, text, 10 + held / (1 << 40))


POWER_CAP = "sw_power_cap"
"""The reason of a GPU that draws as much as it may: its clock is as it should be."""


def _stragglers(gpus: Iterable[Gpu], known: Known) -> Iterator[Wrong]:
    """Yield those that are behind the others of their job: others may do different things."""
    jobs: dict[tuple[str, str], list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        if not is_stale(gpu, known) and (job := _job(gpu)):
            jobs[gpu.name, job].append(gpu)
    for peers in jobs.values():
        if len(peers) > FEWEST_PEERS:
            yield from _slow(peers)
            yield from _less_busy(peers, known)


def _job(gpu: Gpu) -> str:
    """Return what works on the GPU together with others; "" where no label says."""
    labels = gpu.labels
    if not labels.keys().isdisjoint(_JOBS):
        label = next(each for each in _JOBS if each in labels)
        return f"{label}={labels[label]}"
    name = _job_of(labels.get("pod", ""))
    return f"{labels.get('cluster', '')}/{labels.get('namespace', '')}/{name}" if name else ""


@lru_cache(1 << 14)
def _job_of(pod: str) -> str | None:
    """What all its pods are called, before a number or five random letters."""
    job = _NUMBER.sub("", pod)
    return job if job != pod else None


def _slow(peers: list[Gpu]) -> Iterator[Wrong]:
    """Yield those with a lower clock at the same load, unless a power cap explains it."""
    working = [
        (gpu, gpu.sm_clock_mhz)
        for gpu in peers
        if gpu.sm_clock_mhz is not None
        and (gpu.gpu_utilization_percent or 0) >= t.STRAGGLER_LOAD.begin
    ]
    if len(working) <= FEWEST_PEERS:
        return
    middle, spread = _robust([clock for _, clock in working])
    limit = middle * (1 + t.STRAGGLER.begin / 100)
    for gpu, clock in working:
        capped = POWER_CAP in (gpu.clock_event_reasons or ())
        if clock <= limit and clock < middle - DEVIATIONS * spread and not capped:
            text = f"Straggler: SM clock {clock:.0f} MHz, of its job {middle:.0f}"
            yield _wrong(gpu, "straggler", Health.WARNING, text, 30 + (1 - clock / middle))


def _less_busy(peers: list[Gpu], known: Known) -> Iterator[Wrong]:
    """By its load over some minutes."""
    means = [(gpu, known.busy_mean[gpu.key]) for gpu in peers if gpu.key in known.busy_mean]
    if len(means) <= FEWEST_PEERS:
        return
    middle, spread = _robust([mean for _, mean in means])
    if middle < t.STRAGGLER_LOAD.begin:
        return
    for gpu, mean in means:
        if mean <= middle - t.LESS_BUSY.begin and mean < middle - DEVIATIONS * spread:
            text = f"Straggler: busy {percentage(mean)}, of its job {percentage(middle)}"
            yield _wrong(gpu, "less_busy", Health.WARNING, text, 15 + (middle - mean) / 100)


def _robust(values: list[float]) -> tuple[float, float]:
    """The median, and how far values are from it as a standard deviation."""
    middle = median(values)
    return middle, ROBUST * median(abs(value - middle) for value in values)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
