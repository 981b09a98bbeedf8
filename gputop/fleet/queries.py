"""Queries to Prometheus. Their number does not depend on the number of hosts.

A series of dcgm-exporter is 600 bytes of JSON, 500 of them labels. So all labels are queried rarely
and for few metrics; other queries return only the GPU and the number. One answer has the series of
both kinds of exporters, which spell the label of the UUID differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def _select(
    match: str,
    metric: str,
    more: str = "",
    after: str = "",
) -> str:
    """Return a selector of the metric for matching GPUs."""
    return f"{metric}{{{','.join(filter(None, (match, more)))}}}{after}"


def _max_by_gpu(
    metric: str,
    expression: str,
    more: str = "",
) -> str:
    """Return the greatest value of the expression for each GPU."""
    names = "UUID,GPU_I_ID" if metric.startswith(DCGM) else "uuid"
    return f"max by ({names}{more}) ({expression})"


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
    "xid_before": ANY_NUMBER,
    "simulated": ANY_NUMBER,
    "ecc_rise": ANY_NUMBER,
    "beat": TIMES,
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


def names_of(match: str) -> Query:
    """Return the query for all labels of present GPUs."""
    dcgm = _select(match, "", f'__name__=~"{"|".join((*BEATS, XID))}"')
    ours = _select(match, INFO)
    text = f"max without({UNTOLD}) ({dcgm}) or max without({UNTOLD}) ({ours})"
    return Query("names", text, SELDOM)


def gone_of(match: str) -> Query:
    """Return the query for labels and last times of GPUs that have disappeared.

    It takes Prometheus seconds, so it is sent only once. Later losses are remembered.
    """

    def last(metric: str) -> str:
        return f"max without({UNTOLD}) (max_over_time(timestamp({_select(match, metric)}){GONE}))"

    alive = " or ".join(_select(match, name) for name in BEATS)
    dcgm = f"{last(BEATS[0])} unless on (UUID,GPU_I_ID) ({alive})"
    return Query(
        "gone",
        f"({dcgm}) or ({last(INFO)} unless on (uuid) {_select(match, INFO)})",
    )


CLOCK = Query("clock", "vector(time())")
"""Query for the server's time. Its answer also contains the evaluated time.

By default, VictoriaMetrics evaluates a time 30 s in the past; see `fleet.builder.moment_of`.
"""


def values_of(match: str) -> list[Query]:
    """Return the queries for the readings of all GPUs, the most urgent first."""
    beat = []
    for name in (*BEATS, INFO):
        beat.append(_max_by_gpu(name, f"timestamp({_select(match, name)})"))
    states = _select(match, f"{OWN}device_state", 'state!="ok"')
    found = [
        Query("beat", " or ".join(beat)),
        Query("xid", " or ".join(_xid(match))),
        Query("state", f"{_max_by_gpu(OWN, states, ',state')} == 1"),
        Query("down", f"max by (job,instance) ({_select(match, 'up')}) == 0"),
    ]
    for name in READ_AS:
        found.append(Query(name, _reading(match, name), EVERY[name]))
    found.append(Query("clock_event_reasons", " or ".join(_mask(match))))
    return [*found, *_over_time(match)]


def _reading(match: str, name: str) -> str:
    some = []
    for m in READ_AS[name]:
        expression = _max_by_gpu(m.name, _select(match, m.name))
        some.append(f"{m.factor:.12g} * {expression}")
    if name == "memory_total_bytes":
        # FB_TOTAL is not a default counter.
        parts = []
        for part in ("USED", "FREE", "RESERVED"):
            metric = f"{DCGM}DEV_FB_{part}"
            parts.append(_max_by_gpu(metric, _select(match, metric)))
        used, free, reserved = parts
        some.append(
            f"{1 << 20} * ({used} + {free} + ({reserved} or 0 * {used}))"
        )
    return " or ".join(some)


def _xid(match: str) -> Iterator[str]:
    """Yield expressions for Xids. gputop's have time and code. DCGM's is the last Xid, without a
    time."""
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
    """Yield queries over a window. Most answers are short."""
    window = f"[{t.IDLE_SECONDS:.0f}s]"
    mean = []
    for m in READ_AS["gpu_utilization_percent"]:
        over = _max_by_gpu(
            m.name, f"avg_over_time({_select(match, m.name, after=window)})"
        )
        mean.append(
            f"({m.factor:.12g} * {over} and {_covered(match, m.name)})"
        )
    yield Query("busy_mean", " or ".join(mean), SELDOM)
    rise = []
    for m in READ_AS["ecc_uncorrected"]:
        over = f"increase({_select(match, m.name, after=f'[{LATELY}]')})"
        rise.append(f"({_max_by_gpu(m.name, over)} > 0)")
    yield Query("ecc_rise", " or ".join(rise), SELDOM)
    before = _max_by_gpu(XID, _select(match, XID, after=f" offset {LATELY}"))
    yield Query("xid_before", f"{before} > 0", SELDOM)
    made_up = _select(match, f"{OWN}info", 'source="simulated"')
    yield Query("simulated", f"max({made_up})", SELDOM)


def _covered(match: str, metric: str) -> str:
    """Return a query for GPUs that were scraped during the whole window of the mean.

    Each step must have a recent sample, because a mean around an outage proves nothing. This works
    for scrape intervals up to a minute.
    """
    recent = f"(time() - timestamp({_select(match, metric)}) < {GAP_SECONDS})"
    steps = int(t.IDLE_SECONDS // STEP_SECONDS)
    counted = (
        f"count_over_time({recent}[{t.IDLE_SECONDS:.0f}s:{STEP_SECONDS}s])"
    )
    return _max_by_gpu(metric, f"{counted} >= {steps}")
