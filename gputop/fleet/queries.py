"""Queries to Prometheus: their number does not depend on the number of hosts.

A series of dcgm-exporter is 600 bytes of JSON, of which 500 are labels. All labels are queried for
few metrics, and seldom; other queries return the GPU and its number alone. One answer has the
series of both kinds of exporters; these write the label of the UUID differently.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.units import ANY_NUMBER, Limits
from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.health import thresholds as t
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import HEAT_REASONS, SLOWDOWNS

DCGM, OWN = "DCGM_FI_", "gputop_"
SELDOM = 6
"""Refreshes between two queries for values that change seldom, or matter less."""
SHARDS = 4
"""Answers that share the labels of all GPUs: a large one blocks every other thread."""
STEP_SECONDS, GAP_SECONDS = 60, 75
"""Steps in the window in which a GPU has to be idle, and time for which a sample counts there."""
LATELY = f"{t.XID_SECONDS / 3600:.0f}h"
"""Time in which errors count as new."""
GONE = "[30m:2m]"
"""Time in which a lost GPU was there, and the precision of its age."""

UNTOLD = (
    "device,pci_bus_id,err_code,err_msg,endpoint,service,prometheus,prometheus_replica,replica,"
    "gpu_uuid,architecture,compute_capability,pci_device_id,receive,tenant_id"
)
"""Labels to drop: they neither identify a GPU nor its place or user, or copy another label."""


class Query(NamedTuple):
    """A query. Its name is that of its reading, if it has one."""

    name: str
    text: str
    every: int = 1
    """Refreshes from one such query to the next."""
    phase: int = 0
    """Refresh among these. Readings with the same phase are of the same moment."""


def _select(match: str, metric: str, more: str = "", after: str = "") -> str:
    """Return a selector of the metric of the GPUs that match."""
    return f"{metric}{{{','.join(filter(None, (match, more)))}}}{after}"


def _max_by_gpu(metric: str, expression: str, more: str = "") -> str:
    """Return the greatest value for each GPU of an expression over the metric."""
    names = "UUID,GPU_I_ID" if metric.startswith(DCGM) else "uuid"
    return f"max by ({names}{more}) ({expression})"


NUMBERS: Mapping[str, str] = {
    field.name: kind
    for field in dataclasses.fields(DeviceSample)
    if field.name in READINGS
    and (kind := str(field.type).removesuffix(" | None")) in ("int", "float", "bool")
}
"""Readings that are a single number, with its type."""
ANY: Limits = (-sys.float_info.max, sys.float_info.max)
TIMES: Limits = (0, 1e11)
LIMITS: Mapping[str, Limits] = {
    **dict.fromkeys((*NUMBERS, "ecc_rise", "mask"), ANY_NUMBER),
    **{name: reading.limits for name, reading in CATALOGUE.items() if name in NUMBERS},
    "busy_mean": CATALOGUE["gpu_utilization_percent"].limits,
    "margin": CATALOGUE["temperature_margin_celsius"].limits,
    "beat": TIMES,
}
"""Plausible numbers of readings and other queries. Other numbers are ignored."""


class Metric(NamedTuple):
    """A metric that is read as a reading."""

    name: str
    factor: float = 1
    """Factor that converts its numbers into the reading's."""


def _metrics() -> Iterator[tuple[str, list[Metric]]]:
    """Yield each reading that is a number with its metrics: DCGM's, another of DCGM, and ours."""
    probe = 1 << 20
    fallbacks = {reading.dcgm_fallback for reading in CATALOGUE.values()}
    for reading in (CATALOGUE[name] for name in NUMBERS if name in CATALOGUE):
        fields = [*({reading.dcgm[0]} - fallbacks), reading.dcgm_fallback]
        theirs = [
            Metric(f"{DCGM}{field}", probe / reading.dcgm_unit(field)(probe))
            for field in fields
            if field
        ]
        ours = Metric(f"{OWN}{reading.metric_name}", probe / reading.base_unit(probe))
        yield reading.name, [*theirs, ours]


READ_AS: Mapping[str, list[Metric]] = dict(_metrics())
"""Metrics of each reading. The first that an exporter has counts."""
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
"""Readings queried in each refresh: rules compare them, so they must be of the same moment."""
FIRST = ("gpu_utilization_percent", "beat", "xid", "state", "down")
"""Queries that the first screen waits for: a value of each GPU, and the gravest faults."""
IN_TURN = (
    ("memory_total_bytes", "power_limit_watts"),
    ("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
    ("memory_temperature_celsius", "ecc_uncorrected"),
    ("remap_failed", "remap_pending"),
)
"""Readings queried seldom. Those that are shown side by side are in the same refresh."""
EVERY: Mapping[str, int] = {
    **dict.fromkeys((*ALWAYS, "mask"), 1),
    **{name: SELDOM for names in IN_TURN for name in names},
}
"""Readings of all GPUs of the fleet, with the refreshes from one query to the next."""
BEATS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL")
"""Metrics of which every GPU has one. The time of its sample is that of the GPU."""
XID = "DCGM_FI_DEV_XID_ERRORS"
MASKS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
NAMES: Mapping[str, Sequence[str]] = {
    **{
        reading: [metric.name for metric in metrics]
        for reading, metrics in READ_AS.items()
    },
    "xid": [XID],
    "mask": [*MASKS, "gputop_clock_event_active"],
    "state": ["gputop_device_state"],
}
"""Names of the metrics of each reading, and of an Xid, a mask or a state."""
INFO = "gputop_device_info"


def names_of(match: str) -> list[Query]:
    """Return the queries for all labels of the GPUs that are there."""
    found = []
    some = f'__name__=~"{"|".join((*BEATS, XID))}"'
    for shard in range(SHARDS):
        dcgm = _select(match, "", f"{some},{_shard('UUID', shard)}")
        ours = _select(match, INFO, _shard("uuid", shard))
        text = f"max without({UNTOLD}) ({dcgm}) or max without({UNTOLD}) ({ours})"
        found.append(Query(f"names_{shard}", text, SELDOM))
    return found


def gone_of(match: str) -> Query:
    """Return the query for the labels of GPUs that are gone, and when they were last there.

    It takes Prometheus seconds, so it is sent only once; later losses are remembered.
    """

    def last(metric: str) -> str:
        return f"max without({UNTOLD}) (max_over_time(timestamp({_select(match, metric)}){GONE}))"

    alive = " or ".join(_select(match, name) for name in BEATS)
    dcgm = f"{last(BEATS[0])} unless on (UUID,GPU_I_ID) ({alive})"
    return Query(
        "gone", f"({dcgm}) or ({last(INFO)} unless on (uuid) {_select(match, INFO)})"
    )


def _shard(label: str, number: int) -> str:
    """Return the matcher of a part of all UUIDs, by last digit; the last part has the rest."""
    digits = ("[0-3]", "[4-7]", "[89abAB]")
    if number < len(digits):
        return f'{label}=~".*{digits[number]}"'
    return f'{label}!~".*[0-9abAB]"'


CLOCK = Query("clock", "vector(time())")
"""Query for the server's time. Its answer also has the time for which it was evaluated.

VictoriaMetrics evaluates for half a minute ago by default; see `fleet.parse.moment_of`.
"""


def values_of(match: str) -> list[Query]:
    """Return the queries for the readings of all GPUs, those of each refresh first."""
    beat = [
        _max_by_gpu(name, f"timestamp({_select(match, name)})")
        for name in (*BEATS, INFO)
    ]
    states = _select(match, f"{OWN}device_state", 'state!="ok"')
    first, *rest = ALWAYS
    return [
        Query(first, _reading(match, first)),
        Query("beat", " or ".join(beat)),
        Query("xid", " or ".join(_xid(match))),
        Query("state", f"{_max_by_gpu(OWN, states, ',state')} == 1"),
        Query("down", f"max by (job,instance) ({_select(match, 'up')}) == 0"),
        *(Query(name, _reading(match, name)) for name in rest),
        Query("mask", " or ".join(_mask(match))),
        *(
            Query(name, _reading(match, name), SELDOM, phase)
            for phase, names in enumerate(IN_TURN)
            for name in names
        ),
        *_over_time(match),
    ]


def all_of(match: str, uuids: str, readings: Iterable[str] = ()) -> str:
    """Return the query for readings of some GPUs, each series under the name of its metric.

    `uuids` is the matcher of their label. Without `readings` the query is for all numbers.
    """
    names = [name for reading in readings or READ_AS for name in NAMES[reading]]
    ours = "|".join(name for name in names if name.startswith(OWN))
    others = "|".join(name for name in names if not name.startswith(OWN))
    dcgm = _select(match, "", f'__name__=~"{others}",UUID{uuids}')
    # Both labels are empty for other metrics.
    words = f'reason=~"{"|".join(SLOWDOWNS)}|",state!="ok"'
    own = _select(match, "", f'__name__=~"{ours}",uuid{uuids},{words}')
    return (
        f"max by (__name__,UUID,GPU_I_ID,Hostname,hostname) ({dcgm}) or "
        f"max by (__name__,uuid,host,reason,state) ({own})"
    )


def _reading(match: str, name: str) -> str:
    some = [
        _scaled(_max_by_gpu(m.name, _select(match, m.name)), m.factor)
        for m in READ_AS[name]
    ]
    if name == "memory_total_bytes":
        # FB_TOTAL is not among the default counters.
        parts = (f"{DCGM}DEV_FB_{part}" for part in ("USED", "FREE", "RESERVED"))
        used, free, reserved = (
            _max_by_gpu(part, _select(match, part)) for part in parts
        )
        some.append(f"{1 << 20} * ({used} + {free} + ({reserved} or 0 * {used}))")
    return " or ".join(some)


def _scaled(expression: str, factor: float) -> str:
    return expression if factor == 1 else f"{factor:.12g} * {expression}"


def _xid(match: str) -> Iterator[str]:
    """Yield expressions for Xids: ours have a time and a code, DCGM's is the last one for ever."""
    yield _max_by_gpu(XID, f"{_select(match, XID)} > 0")
    last = f"{OWN}xid_last_timestamp_seconds"
    yield f"{_max_by_gpu(last, _select(match, last), ',code')} > time() - {t.XID_SECONDS:.0f}"


def _mask(match: str) -> Iterator[str]:
    for name in MASKS:
        yield _max_by_gpu(name, _select(match, name))
    ours = f"{OWN}clock_event_active"
    each = []
    for reason, bit in CLOCK_EVENT_BITS.items():
        selected = _select(match, ours, f'reason="{reason}"')
        each.append(f"{bit} * {_max_by_gpu(ours, selected, ',reason')}")
    yield f"sum by (uuid) ({' or '.join(each)})"


def _over_time(match: str) -> Iterator[Query]:
    """Yield queries over a window, mostly with short answers."""
    window = f"[{t.IDLE_SECONDS:.0f}s]"
    mean = []
    for m in READ_AS["gpu_utilization_percent"]:
        over = _max_by_gpu(
            m.name, f"avg_over_time({_select(match, m.name, after=window)})"
        )
        mean.append(f"({_scaled(over, m.factor)} and {_covered(match, m.name)})")
    yield Query("busy_mean", " or ".join(mean), SELDOM, 4)
    rise = [
        _max_by_gpu(m.name, f"increase({_select(match, m.name, after=f'[{LATELY}]')})")
        for m in READ_AS["ecc_uncorrected"]
    ]
    yield Query("ecc_rise", " or ".join(f"({each} > 0)" for each in rise), SELDOM, 5)
    before = _max_by_gpu(XID, _select(match, XID, after=f" offset {LATELY}"))
    yield Query("xid_before", f"{before} > 0", SELDOM, 5)
    heat, own = f"{DCGM}DEV_THERMAL_VIOLATION", f"{OWN}clock_event_seconds_total"
    thermal = f'reason=~"{"|".join(HEAT_REASONS)}"'
    slowed = [
        f"{_max_by_gpu(heat, f'rate({_select(match, heat, after=window)})')} > 0",
        f"{_max_by_gpu(own, f'rate({_select(match, own, thermal, window)})')} > 0.01",
    ]
    yield Query("heat", " or ".join(f"({each})" for each in slowed), SELDOM, 5)
    margin = f"{OWN}temperature_margin_celsius"
    yield Query(
        "margin", f"{_max_by_gpu(margin, _select(match, margin))} <= {t.FLEET_MARGIN}"
    )
    made_up = _select(match, f"{OWN}info", 'source="simulated"')
    yield Query("simulated", f"max({made_up})", SELDOM, 4)


def _covered(match: str, metric: str) -> str:
    """Return a query for GPUs that were scraped during the whole window of the mean.

    Each step must have a recent sample, because a mean over the rest of an outage proves nothing.
    This works for any scrape interval up to a minute.
    """
    recent = f"(time() - timestamp({_select(match, metric)}) < {GAP_SECONDS})"
    steps = int(t.IDLE_SECONDS // STEP_SECONDS)
    counted = f"count_over_time({recent}[{t.IDLE_SECONDS:.0f}s:{STEP_SECONDS}s])"
    return _max_by_gpu(metric, f"{counted} >= {steps}")
