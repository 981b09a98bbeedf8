"""What is asked of Prometheus: a fixed number of queries, whatever the number of hosts.

A series of dcgm-exporter is 600 bytes of JSON, of which 500 are labels: these are asked of few
metrics, and seldom; of all others the GPU and its number alone. What exporters of both kinds say is
in one answer, told apart by how they write their label of the UUID.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gputop.output.prometheus.family import base_unit, dcgm_unit
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import BITS, SLOWDOWNS
from gputop.schema.device import READINGS, DeviceSample

DCGM, OWN = "DCGM_FI_", "gputop_"
SELDOM = 6
"""Refreshes between two questions for what changes seldom, or is looked at less."""
SHARDS = 4
"""Answers that the labels of all GPUs come in: a large one holds up every other thread."""
HELD_SECONDS = 300
"""Over which it has to be idle, and the mean is taken."""
STEP_SECONDS, GAP_SECONDS = 60, 75
"""From step to step in that window, and for how long a sample counts there."""
LATELY = "1h"
"""In which errors count as new."""
GONE = "[30m:2m]"
"""In which a GPU was there, and its age is known at least this well."""

UNTOLD = (
    "device,pci_bus_id,err_code,err_msg,endpoint,service,prometheus,prometheus_replica,replica,"
    "gpu_uuid,architecture,compute_capability,pci_device_id,receive,tenant_id"
)
"""Labels that neither name a GPU nor say where it is or who uses it, or are another's copy."""


class Query(NamedTuple):
    """A question: its name is that of the reading that it answers, where it is of one."""

    name: str
    text: str
    every: int = 1
    """How many refreshes there are between two of it."""
    phase: int = 0
    """In which of these it is asked: of the same phase are readings of the same moment."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which GPUs are asked for, and by what they are told apart."""

    match: str = ""
    twins: bool = False
    """Whether one UUID is on two hosts."""

    def of(self, metric: str, more: str = "", after: str = "") -> str:
        """A selector of that metric."""
        return f"{metric}{{{','.join(filter(None, (self.match, more)))}}}{after}"

    def by(self, metric: str, expression: str, more: str = "") -> str:
        """Of an expression over that metric, the greatest of each GPU."""
        if metric.startswith(DCGM):
            names = "UUID,GPU_I_ID,Hostname" if self.twins else "UUID,GPU_I_ID"
        else:
            names = "uuid,host" if self.twins else "uuid"
        return f"max by ({names}{more}) ({expression})"


NUMBERS: Mapping[str, str] = {
    field.name: kind
    for field in dataclasses.fields(DeviceSample)
    if field.name in READINGS
    and (kind := str(field.type).removesuffix(" | None")) in ("int", "float", "bool")
}
"""The readings that are one number, by its type."""
Limits = tuple[float, float]
"""The smallest and the largest number that is believed."""
ANY: Limits = (-sys.float_info.max, sys.float_info.max)
TIMES: Limits = (0, 1e11)
_LIMITS: Mapping[str, Limits] = {
    "percent": (0, 101),  # quotients of counters are over 100 at times
    "bytes": (0, 1 << 46),
    "bytes_per_second": (0, 1e14),
    "celsius": (-60, 250),
    "watts": (0, 20_000),
    "joules": (0, 1e13),
    "mhz": (0, 100_000),
}
_ANY_NUMBER: Limits = (0, 1 << 53)


def _limits(name: str) -> Limits:
    reading = CATALOGUE.get(name)
    if reading is None:
        return _ANY_NUMBER
    return reading.limits or _LIMITS.get(reading.unit, _ANY_NUMBER)


LIMITS: Mapping[str, Limits] = {
    **{name: _limits(name) for name in NUMBERS},
    "busy_mean": _LIMITS["percent"],
    "margin": _limits("temperature_margin_celsius"),
    "ecc_rise": _ANY_NUMBER,
    "beat": TIMES,
}
"""Plausible numbers of each reading, and of queries by their names; what is not is left out."""


class Metric(NamedTuple):
    """A metric as a reading."""

    name: str
    factor: float = 1
    """What its numbers are multiplied by to be the reading's."""


def _metrics() -> Iterator[tuple[str, list[Metric]]]:
    """Yield each reading that is a number with its metrics: DCGM's, another of DCGM, and ours."""
    probe = 1 << 20
    fallbacks = {reading.dcgm_fallback for reading in CATALOGUE.values()}
    for reading in (CATALOGUE[name] for name in NUMBERS if name in CATALOGUE):
        fields = [*({reading.dcgm[0]} - fallbacks), reading.dcgm_fallback]
        theirs = [
            Metric(f"{DCGM}{field}", probe / dcgm_unit(field, reading)(probe))
            for field in fields
            if field
        ]
        ours = Metric(f"{OWN}{reading.metric_name}", probe / base_unit(reading)(probe))
        yield reading.name, [*theirs, ours]


READ_AS: Mapping[str, list[Metric]] = dict(_metrics())
"""By reading, what it is called: the first that is there counts, of each of the exporters."""
READING_OF: Mapping[str, tuple[str, float]] = {
    metric.name: (reading, metric.factor)
    for reading, all_of in READ_AS.items()
    for metric in all_of
}

ALWAYS = (
    "gpu_utilization_percent",
    "memory_used_bytes",
    "temperature_celsius",
    "power_watts",
    "sm_clock_mhz",
)
"""Readings asked in each refresh: rules compare them, and so they have to be of one moment."""
FIRST = ("gpu_utilization_percent", "beat", "xid", "state", "down")
"""Queries that the first screen waits for: a value of each GPU, and the gravest faults."""
IN_TURN = (
    ("memory_total_bytes", "power_limit_watts"),
    ("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
    ("memory_temperature_celsius", "ecc_uncorrected"),
    ("remap_failed", "remap_pending"),
)
"""Readings asked seldom: those that are shown side by side in the same refresh."""
EVERY: Mapping[str, int] = {
    **dict.fromkeys((*ALWAYS, "mask"), 1),
    **{name: SELDOM for names in IN_TURN for name in names},
}
"""The readings of every GPU of the fleet, and in how many refreshes they are asked once."""
BEATS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL")
"""One of them is of every GPU; the time of its sample is that of the GPU."""
XID = "DCGM_FI_DEV_XID_ERRORS"
MASKS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
INFO = "gputop_device_info"
NOT_OK = 'state!="ok"'


def names_of(scope: Scope) -> list[Query]:
    """Who is where: all labels of those that are there, in several answers."""
    found = []
    some = f'__name__=~"{"|".join((*BEATS, XID))}"'
    for shard in range(SHARDS):
        dcgm = scope.of("", f"{some},{_shard('UUID', shard)}")
        ours = scope.of(INFO, _shard("uuid", shard))
        text = f"max without({UNTOLD}) ({dcgm}) or max without({UNTOLD}) ({ours})"
        found.append(Query(f"names_{shard}", text, SELDOM))
    return found


def gone_of(scope: Scope) -> Query:
    """The labels of those that are no longer there, and when they were last.

    It takes Prometheus seconds, and is asked once: later ones are remembered.
    """

    def last(metric: str) -> str:
        return f"max without({UNTOLD}) (max_over_time(timestamp({scope.of(metric)}){GONE}))"

    alive = " or ".join(scope.of(name) for name in BEATS)
    dcgm = f"{last(BEATS[0])} unless on (UUID,GPU_I_ID) ({alive})"
    return Query("gone", f"({dcgm}) or ({last(INFO)} unless on (uuid) {scope.of(INFO)})")


def _shard(label: str, number: int) -> str:
    """A part of all UUIDs, by their last digit; the last has all that are written otherwise."""
    digits = ("[0-3]", "[4-7]", "[89abAB]")
    if number < len(digits):
        return f'{label}=~".*{digits[number]}"'
    return f'{label}!~".*[0-9abAB]"'


CLOCK = Query("clock", "vector(time())")
"""The server's time: its answer has the time of the request, and that for which it was evaluated.

VictoriaMetrics evaluates for half a minute ago unless it is told otherwise; see `read.moment_of`.
"""


def values_of(scope: Scope) -> list[Query]:
    """Queries for the readings of all GPUs, those of each refresh first."""
    beat = [scope.by(name, f"timestamp({scope.of(name)})") for name in (*BEATS, INFO)]
    first, *rest = ALWAYS
    return [
        Query(first, _reading(scope, first)),
        Query("beat", " or ".join(beat)),
        Query("xid", " or ".join(_xid(scope))),
        Query("state", f"{scope.by(OWN, scope.of(f'{OWN}device_state', NOT_OK), ',state')} == 1"),
        Query("down", f"max by (job,instance) ({scope.of('up')}) == 0"),
        *(Query(name, _reading(scope, name)) for name in rest),
        Query("mask", " or ".join(_mask(scope))),
        *(
            Query(name, _reading(scope, name), SELDOM, phase)
            for phase, names in enumerate(IN_TURN)
            for name in names
        ),
        *_over_time(scope),
    ]


def all_of(scope: Scope, uuids: str, readings: Iterable[str] = ()) -> str:
    """Return the query for readings of some GPUs, each series under the name of its metric.

    `uuids` is the matcher of their label; without `readings` it is for all that are numbers.
    """
    names = [name for reading in readings or READ_AS for name in _names_of(reading)]
    ours = "|".join(name for name in names if name.startswith(OWN))
    others = "|".join(name for name in names if not name.startswith(OWN))
    dcgm = scope.of("", f'__name__=~"{others}",UUID{uuids}')
    # Of other metrics both labels are empty.
    words = f'reason=~"{"|".join(SLOWDOWNS)}|",state!="ok"'
    own = scope.of("", f'__name__=~"{ours}",uuid{uuids},{words}')
    return (
        f"max by (__name__,UUID,GPU_I_ID,Hostname) ({dcgm}) or "
        f"max by (__name__,uuid,host,reason,state) ({own})"
    )


def _names_of(reading: str) -> Iterable[str]:
    """Return the names of the metrics of a reading, or of what else is said of a GPU in words."""
    if reading in READ_AS:
        return [metric.name for metric in READ_AS[reading]]
    return {"xid": [XID], "mask": [*MASKS, f"{OWN}clock_event_active"]}.get(
        reading, [f"{OWN}device_state"]
    )


def _reading(scope: Scope, name: str) -> str:
    some = [_scaled(scope.by(m.name, scope.of(m.name)), m.factor) for m in READ_AS[name]]
    if name == "memory_total_bytes":
        # FB_TOTAL is not among the default counters.
        parts = [scope.by(DCGM, scope.of(f"{DCGM}DEV_FB_{part}")) for part in PARTS]
        used, free, reserved = parts
        some.append(f"{1 << 20} * ({used} + {free} + ({reserved} or 0 * {used}))")
    return " or ".join(some)


PARTS = ("USED", "FREE", "RESERVED")


def _scaled(expression: str, factor: float) -> str:
    return expression if factor == 1 else f"{factor:.12g} * {expression}"


def _xid(scope: Scope) -> Iterator[str]:
    """Ours say when, by code; DCGM's the last one for ever."""
    yield scope.by(XID, f"{scope.of(XID)} > 0")
    last = f"{OWN}xid_last_timestamp_seconds"
    yield f"{scope.by(last, scope.of(last), ',code')} > time() - 3600"


def _mask(scope: Scope) -> Iterator[str]:
    for name in MASKS:
        yield scope.by(name, scope.of(name))
    ours = f"{OWN}clock_event_active"
    each = []
    for reason, bit in BITS.items():
        selected = scope.of(ours, f'reason="{reason}"')
        each.append(f"{bit} * {scope.by(ours, selected, ',reason')}")
    names = "uuid,host" if scope.twins else "uuid"
    yield f"sum by ({names}) ({' or '.join(each)})"


def _over_time(scope: Scope) -> Iterator[Query]:
    """Queries over a window; mostly short answers."""
    window = f"[{HELD_SECONDS}s]"
    mean = []
    for m in READ_AS["gpu_utilization_percent"]:
        over = scope.by(m.name, f"avg_over_time({scope.of(m.name, after=window)})")
        mean.append(f"({_scaled(over, m.factor)} and {_covered(scope, m.name)})")
    yield Query("busy_mean", " or ".join(mean), SELDOM, 4)
    rise = [
        scope.by(m.name, f"increase({scope.of(m.name, after=f'[{LATELY}]')})")
        for m in READ_AS["ecc_uncorrected"]
    ]
    yield Query("ecc_rise", " or ".join(f"({each} > 0)" for each in rise), SELDOM, 5)
    before = scope.by(XID, scope.of(XID, after=f" offset {LATELY}"))
    yield Query("xid_before", f"{before} > 0", SELDOM, 5)
    heat, own = f"{DCGM}DEV_THERMAL_VIOLATION", f"{OWN}clock_event_seconds_total"
    thermal = 'reason=~".*thermal"'
    slowed = [
        f"{scope.by(heat, f'rate({scope.of(heat, after=window)})')} > 0",
        f"{scope.by(own, f'rate({scope.of(own, thermal, window)})')} > 0.01",
    ]
    yield Query("heat", " or ".join(f"({each})" for each in slowed), SELDOM, 5)
    margin = f"{OWN}temperature_margin_celsius"
    yield Query("margin", f"{scope.by(margin, scope.of(margin))} <= 3")
    made_up = scope.of(f"{OWN}info", 'source="simulated"')
    yield Query("simulated", f"max({made_up})", SELDOM, 4)


def _covered(scope: Scope, metric: str) -> str:
    """Return a query for those GPUs that were scraped all through the window of the mean.

    At each of its steps there has to be a sample that is no older than a scrape takes to come: a
    mean over what is left beside an outage proves nothing. It needs no knowledge of how often is
    scraped, and passes scrapes up to a minute apart.
    """
    recent = f"(time() - timestamp({scope.of(metric)}) < {GAP_SECONDS})"
    steps = HELD_SECONDS // STEP_SECONDS
    counted = f"count_over_time({recent}[{HELD_SECONDS}s:{STEP_SECONDS}s])"
    return scope.by(metric, f"{counted} >= {steps}")
