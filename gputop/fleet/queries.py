"""Queries to Prometheus. Their number does not depend on the number of hosts.

A series of dcgm-exporter is 600 bytes of JSON, 500 of them labels. So all labels are queried rarely
and for few metrics; other queries return only the GPU and the number. One answer has the series of
both kinds of exporters, which spell the label of the UUID differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gputop.agent.units import ANY_NUMBER, Limits
from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.health import thresholds as t
from gputop.schema.catalogue import CATALOGUE

DCGM, OWN = "DCGM_FI_", "gputop_"
SELDOM = 6
"""Refreshes between two queries for values that rarely change or matter less."""
STEP_SECONDS, GAP_SECONDS = 60, 75
"""Steps in the window in which a GPU must be idle, and the time for which a sample counts."""
LATELY = f"{t.XID_SECONDS / 3600:.0f}h"
"""Time in which errors count as new."""
GONE = "[30m:2m]"
"""Time in which a missing GPU must have been present, and the precision of its age."""

UNTOLD = (
    "device,pci_bus_id,err_code,err_msg,endpoint,service,prometheus,prometheus_replica,replica,"
    "gpu_uuid,architecture,compute_capability,pci_device_id,receive,tenant_id"
)
"""Labels to drop, because they copy another label or do not identify a GPU, its place or its user.
"""


class Query(NamedTuple):
    """A query. If it is for a reading, it has the reading's name."""

    name: str
    text: str
    every: int = 1
    """Refreshes between two runs of this query."""


ALWAYS = (
    "gpu_utilization_percent",
    "memory_used_bytes",
    "temperature_celsius",
    "power_watts",
    "sm_clock_mhz",
)
"""Readings in each refresh. Rules compare them, so they must be for the same moment."""
RARELY = (
    "memory_total_bytes",
    "power_limit_watts",
    "sm_active_percent",
    "tensor_active_percent",
    "dram_active_percent",
    "memory_temperature_celsius",
    "ecc_uncorrected",
    "remap_failed",
    "remap_pending",
)
"""Readings that are queried rarely, all in the same refresh."""
EVERY: Mapping[str, int] = {
    **dict.fromkeys((*ALWAYS, "clock_event_reasons"), 1),
    **dict.fromkeys(RARELY, SELDOM),
}
"""Readings of all GPUs of the fleet, with the refreshes between two queries."""
TIMES: Limits = (0, 1e11)
LIMITS: Mapping[str, Limits] = {
    **{name: CATALOGUE[name].limits for name in (*ALWAYS, *RARELY)},
    "busy_mean": CATALOGUE["gpu_utilization_percent"].limits,
    "clock_event_reasons": ANY_NUMBER,
    "xid": (1, 99_999),
    "xid_before": ANY_NUMBER,
    "simulated": ANY_NUMBER,
    "ecc_rise": ANY_NUMBER,
    "beat": TIMES,
    "gone": TIMES,
}
"""Plausible numbers of readings and other queries. Other numbers are ignored."""


class Metric(NamedTuple):
    """A metric as the source of a reading."""

    name: str
    factor: float = 1
    """Factor from its unit to the reading's unit."""


def _metrics(name: str) -> list[Metric]:
    """Return the metrics of a reading: DCGM's, DCGM's fallback, and gputop's."""
    probe = 1 << 20
    reading = CATALOGUE[name]
    fields = [reading.dcgm_fallback]
    # A fallback of another reading is not preferred.
    if all(
        reading.dcgm[0] != other.dcgm_fallback for other in CATALOGUE.values()
    ):
        fields.insert(0, reading.dcgm[0])
    found = []
    for field in filter(None, fields):
        found.append(
            Metric(f"{DCGM}{field}", probe / reading.dcgm_unit(field)(probe))
        )
    ours = probe / reading.base_unit(probe)
    return [*found, Metric(f"{OWN}{reading.metric_name}", ours)]


READ_AS: Mapping[str, list[Metric]] = {
    name: _metrics(name) for name in (*ALWAYS, *RARELY)
}
"""Metrics of each reading. The first that an exporter provides counts."""
BEATS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL")
"""Metrics that every GPU has. The time of their sample is the time of the GPU."""
XID = "DCGM_FI_DEV_XID_ERRORS"
MASKS = (
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
)
INFO = "gputop_device_info"


SELECTED = "{$match}"
"""Selector of the series of matching GPUs. `_query` inserts the user's matchers."""


def _query(name: str, match: str, text: str, every: int = 1) -> Query:
    # PromQL permits a comma after the last matcher.
    return Query(name, text.replace("$match", match), every)


def _max_by_gpu(expression: str, more: str = "") -> str:
    """Return the greatest value of the expression for each GPU."""
    names = "UUID,GPU_I_ID" if DCGM in expression else "uuid"
    return f"max by ({names}{more}) ({expression})"


def _first_of(expressions: Iterable[str]) -> str:
    return " or ".join(map(_max_by_gpu, expressions))


def names_of(match: str) -> Query:
    """Return the query for all labels of present GPUs."""
    dcgm = f'{{__name__=~"{"|".join((*BEATS, XID))}",$match}}'
    ours = f"{INFO}{SELECTED}"
    text = f"max without({UNTOLD}) ({dcgm}) or max without({UNTOLD}) ({ours})"
    return _query("names", match, text, SELDOM)


def gone_of(match: str) -> Query:
    """Return the query for labels and last times of GPUs that have disappeared.

    It takes Prometheus seconds, so it is sent only once. Later losses are remembered.
    """

    def last(metric: str) -> str:
        return f"max without({UNTOLD}) (max_over_time(timestamp({metric}{SELECTED}){GONE}))"

    alive = f"{SELECTED} or ".join(BEATS)
    dcgm = f"{last(BEATS[0])} unless on (UUID,GPU_I_ID) ({alive}{SELECTED})"
    ours = f"{last(INFO)} unless on (uuid) {INFO}{SELECTED}"
    return _query("gone", match, f"({dcgm}) or ({ours})")


CLOCK = Query("clock", "vector(time())")
"""Query for the server's time. Its answer also contains the evaluated time.

By default, VictoriaMetrics evaluates a time 30 s in the past; see `fleet.builder.moment_of`.
"""


def values_of(match: str) -> list[Query]:
    """Return the queries for the readings of all GPUs, the most urgent first."""
    times = [f"timestamp({name}{SELECTED})" for name in (*BEATS, INFO)]
    state = _max_by_gpu(f'{OWN}device_state{{state!="ok",$match}}', ",state")
    down = f"max by (job,instance) (up{SELECTED}) == 0"
    found = [
        _query("beat", match, _first_of(times)),
        _query("xid", match, _XIDS),
        _query("state", match, f"{state} == 1"),
        _query("down", match, down),
    ]
    for name in READ_AS:
        found.append(_query(name, match, _reading(name), EVERY[name]))
    found.append(_query("clock_event_reasons", match, _clock_event_mask()))
    for name, text in _over_time():
        found.append(_query(name, match, text, SELDOM))
    return found


_LAST_XID = _max_by_gpu(f"{OWN}xid_last_timestamp_seconds{SELECTED}", ",code")
_XIDS = (
    f"{_max_by_gpu(f'{XID}{SELECTED} > 0')} or "
    f"topk by (uuid) (1, {_LAST_XID} > time() - {t.XID_SECONDS:.0f})"
)
"""Xids. gputop's have the code in a label, and the time. DCGM's is the last Xid, without a time."""


def _reading(name: str) -> str:
    some = []
    for m in READ_AS[name]:
        expression = _max_by_gpu(f"{m.name}{SELECTED}")
        some.append(f"{m.factor:.12g} * {expression}")
    if name == "memory_total_bytes":
        # FB_TOTAL is not a default counter.
        used = _max_by_gpu(f"DCGM_FI_DEV_FB_USED{SELECTED}")
        free = _max_by_gpu(f"DCGM_FI_DEV_FB_FREE{SELECTED}")
        reserved = _max_by_gpu(f"DCGM_FI_DEV_FB_RESERVED{SELECTED}")
        some.append(
            f"{1 << 20} * ({used} + {free} + ({reserved} or 0 * {used}))"
        )
    return " or ".join(some)


def _clock_event_mask() -> str:
    each = []
    for reason, bit in CLOCK_EVENT_BITS.items():
        ours = f'{OWN}clock_event_active{{reason="{reason}",$match}}'
        each.append(f"{bit} * {_max_by_gpu(ours, ',reason')}")
    dcgm = _first_of(f"{name}{SELECTED}" for name in MASKS)
    return f"{dcgm} or sum by (uuid) ({' or '.join(each)})"


def _over_time() -> Iterator[tuple[str, str]]:
    """Yield queries over a window. Most answers are short."""
    window = f"{t.IDLE_SECONDS:.0f}s"
    means = []
    for m in READ_AS["gpu_utilization_percent"]:
        mean = _max_by_gpu(f"avg_over_time({m.name}{SELECTED}[{window}])")
        # A mean around an outage proves nothing, so each step must have a
        # recent sample. This works for scrape intervals up to a minute.
        recent = f"(time() - timestamp({m.name}{SELECTED}) < {GAP_SECONDS})"
        steps = f"count_over_time({recent}[{window}:{STEP_SECONDS}s])"
        least = int(t.IDLE_SECONDS // STEP_SECONDS)
        covered = _max_by_gpu(f"{steps} >= {least}")
        means.append(f"({m.factor:.12g} * {mean} and {covered})")
    yield "busy_mean", " or ".join(means)
    rises = []
    for m in READ_AS["ecc_uncorrected"]:
        rises.append(f"increase({m.name}{SELECTED}[{LATELY}]) > 0")
    yield "ecc_rise", _first_of(rises)
    before = f"{XID}{SELECTED} offset {LATELY}"
    yield "xid_before", f"{_max_by_gpu(before)} > 0"
    yield "simulated", f'max({OWN}info{{source="simulated",$match}})'
