"""What is asked of Prometheus: a fixed number of queries, whatever the number of hosts.

A series of dcgm-exporter is 600 bytes of JSON, of which 500 are labels: these are asked of few
metrics, and seldom; of all others the GPU and its number alone. What exporters of both kinds say is
in one answer, told apart by how they write their label of the UUID.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gputop.output.dcgm import FIELDS
from gputop.output.metric_table import METRICS
from gputop.telemetry.clock_events import BITS
from gputop.telemetry.snapshot import READINGS, DeviceSample

if TYPE_CHECKING:
    from gputop.output.family import Parts

DCGM, OWN = "DCGM_FI_", "gputop_"
OFTEN, SOMETIMES, SELDOM = 2, 3, 6
"""Refreshes from one to the next of what is mostly scraped no more often, of what is looked at
less, and of what changes seldom."""
SHARDS = 4
"""Answers that the labels of all GPUs come in: a large one holds up every other thread."""
HELD_SECONDS = 300
"""Over which it has to be idle, and the mean is taken."""
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


def _numbers() -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(DeviceSample):
        if field.name in READINGS and str(field.type) in (
            "int | None",
            "float | None",
            "bool | None",
        ):
            yield field.name, str(field.type).partition(" ")[0]


NUMBERS: Mapping[str, str] = dict(_numbers())
"""The readings that are one number, by its type."""


def _factor(parts: Parts) -> float:
    """By what a metric is multiplied to be the reading that it was made of."""
    probe = 1 << 20
    ((_, made),) = parts(probe)
    return probe / made


class Metric(NamedTuple):
    """A metric as a reading."""

    name: str
    factor: float = 1


_OTHERS = {
    "gpu_utilization_percent": Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100),
    "power_limit_watts": Metric("DCGM_FI_DEV_POWER_MGMT_LIMIT"),
    "remap_pending": Metric("DCGM_FI_DEV_ROW_REMAP_PENDING"),
    "memory_total_bytes": Metric("DCGM_FI_DEV_FB_TOTAL", 1 << 20),
    "remapped_rows": Metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
}
"""Fields of DCGM that say nearly the same, or that `gputop exporter` has not under that name."""


def _metrics() -> dict[str, list[Metric]]:
    found: dict[str, list[Metric]] = {name: [] for name in NUMBERS}
    for field in FIELDS:
        found[field.reading].append(Metric(f"{DCGM}{field.name}", _factor(field.parts)))
    for name, metric in _OTHERS.items():
        found[name].append(metric)
    for name in NUMBERS:
        if name in METRICS:
            found[name].append(Metric(f"{OWN}{METRICS[name].name}", _factor(METRICS[name].parts)))
    return {name: metrics for name, metrics in found.items() if metrics}


READ_AS: Mapping[str, list[Metric]] = _metrics()
"""By reading, what it is called: the first that is there counts, of each of the exporters."""
READING_OF: Mapping[str, tuple[str, float]] = {
    metric.name: (reading, metric.factor)
    for reading, all_of in READ_AS.items()
    for metric in all_of
}

EVERY: Mapping[str, int] = {
    "gpu_utilization_percent": 1,
    **dict.fromkeys(("memory_used_bytes", "temperature_celsius", "power_watts"), OFTEN),
    "sm_clock_mhz": SOMETIMES,
    "sm_active_percent": SELDOM,
    "tensor_active_percent": SELDOM,
    "dram_active_percent": SELDOM,
    "memory_temperature_celsius": SELDOM,
    "memory_total_bytes": SELDOM,
    "power_limit_watts": SELDOM,
    "ecc_uncorrected": SELDOM,
    "remap_failed": SELDOM,
    "remap_pending": SELDOM,
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


def values_of(scope: Scope) -> list[Query]:
    """What is read of all GPUs; those of each refresh first."""
    beat = [scope.by(name, f"timestamp({scope.of(name)})") for name in (*BEATS, INFO)]
    first, *rest = EVERY.items()
    return [
        Query(first[0], _reading(scope, first[0]), first[1]),
        Query("beat", " or ".join(beat)),
        Query("xid", " or ".join(_xid(scope))),
        Query("state", f"{scope.by(OWN, scope.of(f'{OWN}device_state', NOT_OK), ',state')} == 1"),
        Query("down", f"max by (job,instance) ({scope.of('up')}) == 0"),
        *(Query(name, _reading(scope, name), count) for name, count in rest),
        Query("mask", " or ".join(_mask(scope)), SOMETIMES),
        *_over_time(scope),
    ]


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
    """What takes a while to be seen; mostly short answers."""
    window, before = f"[{HELD_SECONDS}s]", f" offset {HELD_SECONDS - 60}s"
    mean = [
        f"{_scaled(scope.by(m.name, f'avg_over_time({scope.of(m.name, after=window)})'), m.factor)}"
        f" and {scope.by(m.name, scope.of(m.name, after=before))}"
        for m in READ_AS["gpu_utilization_percent"]
    ]
    yield Query("busy_mean", " or ".join(f"({each})" for each in mean), SELDOM)
    rise = [
        scope.by(m.name, f"increase({scope.of(m.name, after=f'[{LATELY}]')})")
        for m in READ_AS["ecc_uncorrected"]
    ]
    yield Query("ecc_rise", " or ".join(f"({each} > 0)" for each in rise), SELDOM)
    before = scope.by(XID, scope.of(XID, after=f" offset {LATELY}"))
    yield Query("xid_before", f"{before} > 0", SELDOM)
    heat, own = f"{DCGM}DEV_THERMAL_VIOLATION", f"{OWN}clock_event_seconds_total"
    thermal = 'reason=~".*thermal"'
    slowed = [
        f"{scope.by(heat, f'rate({scope.of(heat, after=window)})')} > 0",
        f"{scope.by(own, f'rate({scope.of(own, thermal, window)})')} > 0.01",
    ]
    yield Query("heat", " or ".join(f"({each})" for each in slowed), SELDOM)
    margin = f"{OWN}temperature_margin_celsius"
    yield Query("margin", f"{scope.by(margin, scope.of(margin))} <= 3", SELDOM)
    made_up = scope.of(f"{OWN}info", 'source="simulated"')
    yield Query("simulated", f"max({made_up})", SELDOM)
