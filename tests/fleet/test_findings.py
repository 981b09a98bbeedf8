import dataclasses
from typing import Any

import pytest

from gputop.fleet.findings import Known, find
from gputop.fleet.model import Gpu, totals

GIB = 1 << 30


def gpu(number: int = 0, **changes: Any) -> Gpu:
    made = Gpu(
        key=f"g{number}",
        uuid=f"g{number}",
        host=f"node{number // 8}",
        index=str(number % 8),
        name="H100",
        labels={"pod": f"train-{number}", "namespace": "ml"},
        age_seconds=5.0,
        gpu_utilization_percent=95.0,
        memory_used_bytes=60.0 * GIB,
        temperature_celsius=60.0,
        sm_clock_mhz=1900.0,
        clock_event_reasons=(),
        ecc_uncorrected=0.0,
        remap_failed=False,
    )
    return dataclasses.replace(made, **changes)


def said(one: Gpu, **known: Any) -> list[tuple[str, str, str]]:
    return [(w.rule, w.severity.word, w.title) for w in find([one], Known(**known))]


@pytest.mark.parametrize(
    ("changes", "known", "kind", "severity", "text"),
    [
        ({"xid": 31}, {}, "xid", "warning", "Xid 31: a program touched memory that is not its own"),
        ({"xid": 4711}, {}, "xid", "fault", "Xid 4711"),
        ({"xid": 79}, {"xid_before": {"g0": 79.0}}, "xid", "fault", "Xid 79: the GPU has"),
        ({}, {"ecc_rise": {"g0": 2.02}}, "ecc", "fault", "2 uncorrected ECC errors in the last"),
        ({}, {"ecc_rise": {"g0": 0.3}}, "ecc", "fault", "1 uncorrected ECC error in the last"),
        ({"ecc_uncorrected": 3.0}, {}, "ecc", "warning", "3 uncorrected ECC errors since"),
        ({"remap_failed": True}, {}, "remap", "fault", "No spare memory rows left"),
        ({"remap_pending": True}, {}, "remap", "warning", "A memory row to remap"),
        ({"clock_event_reasons": ("hw_slowdown", "hw_thermal")}, {}, "thermal", "warning",
         "Throttled by heat (hardware), 60°C"),
        ({"clock_event_reasons": ("sw_thermal",)}, {}, "thermal", "warning", "Throttled by heat,"),
        ({"clock_event_reasons": ("hw_power_brake", "hw_slowdown")}, {}, "slowdown", "warning",
         "Braked by its power supply"),
        ({"clock_event_reasons": ("hw_slowdown",)}, {}, "slowdown", "warning", "Slowed down by ha"),
        ({"temperature_celsius": 86.0}, {}, "hot", "warning", "86°C: close to its slowdown"),
        ({"memory_temperature_celsius": 97.0}, {}, "hot", "warning", "Its memory is at 97°C"),
        ({"gpu_utilization_percent": 0.0}, {"busy_mean": {"g0": 0.1}}, "held_idle", "information",
         "Idle for 5 minutes with 60 GiB held"),
        ({"age_seconds": 61.0}, {}, "stale", "stale", "No readings for 1:01: its series are gone"),
        ({"age_seconds": 200.0, "labels": {"job": "j", "instance": "i"}}, {"down": {("j", "i")}},
         "stale", "stale", "No readings for 3:20: its scrape fails"),
        ({"age_seconds": 361.0}, {"present": {"g0"}}, "stale", "stale", "No readings for 6:01"),
        ({"age_seconds": None}, {}, "stale", "stale", "No readings: its series are gone"),
        ({}, {"state": {"g0": "lost"}}, "state", "fault", "LOST: it no longer answers"),
        ({}, {"state": {"g0": "\x1b[1m"}}, "state", "fault", "␛[1m"),
    ],
)  # fmt: skip
def test_what_is_wrong(
    changes: dict[str, Any], known: dict[str, Any], kind: str, severity: str, text: str
) -> None:
    ((found, how, words),) = said(gpu(**changes), **known)
    assert (found, how) == (kind, severity)
    assert words.startswith(text)
    assert len(words) <= 59


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({"xid": 0}, {}),
        ({"xid": 31}, {"xid_before": {"g0": 31.0}}),  # of a program, an hour ago
        ({"clock_event_reasons": ("idle", "sw_power_cap")}, {}),
        ({"temperature_celsius": 84.0}, {}),
        ({"age_seconds": 44.0}, {}),
        ({"age_seconds": 359.0}, {"present": {"g0"}}),  # Prometheus scrapes it seldom
        ({"gpu_utilization_percent": 0.0}, {}),  # nobody knows for how long
        ({"gpu_utilization_percent": 90.0}, {"busy_mean": {"g0": 0.1}}),  # it has just begun
        ({"memory_used_bytes": 0.5 * GIB}, {"busy_mean": {"g0": 0.0}}),
        ({"memory_used_bytes": None}, {"busy_mean": {"g0": 0.0}}),
    ],
)
def test_what_is_not_wrong(changes: dict[str, Any], known: dict[str, Any]) -> None:
    assert said(gpu(**changes), **known) == []


def test_the_worst_is_first_and_the_order_stays() -> None:
    xids = [79, 95, 48, 119, 120, 140, 46, 62, 64, 74, 4711, 31, 13]
    gpus = [gpu(n, xid=xid) for n, xid in enumerate(xids)]
    found = find(gpus[::-1], Known())
    assert [gpus[int(each.device_uuid[1:])].xid for each in found] == [
        *(79, 95, 48, 140, 120, 119, 62, 46, 64, 74, 4711, 13, 31)
    ]
    states = {"g0": "x", "g1": "not_responding", "g2": "needs_reset", "g3": "lost"}
    gpus = [
        *map(gpu, range(4)),
        gpu(4, remap_failed=True),
        gpu(5, remap_pending=True),
        gpu(6, temperature_celsius=90.0),
        gpu(7, clock_event_reasons=("hw_thermal",)),
        gpu(8, ecc_uncorrected=1.0),
        gpu(9, age_seconds=100.0),
        gpu(10, age_seconds=300.0),
        gpu(11, xid=79),
    ]
    found = find(gpus, Known(state=states, ecc_rise={"g8": 1.0}))
    order = [11, 3, 2, 1, 8, 4, 0, 10, 9, 7, 5, 6]
    assert [int(each.device_uuid[1:]) for each in found] == order


def slow(clock: float, **changes: Any) -> list[Gpu]:
    return [gpu(n, **changes) for n in range(7)] + [gpu(7, sm_clock_mhz=clock, **changes)]


SLOW_TEXT = "Straggler: SM clock 1100 MHz, median of its job 1900"


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        (slow(1100.0), SLOW_TEXT),
        (slow(1100.0, labels={}), None),  # of one host, and of nobody knows which jobs
        (slow(1100.0, labels={"pod": "notebook"}), None),
        (slow(1100.0, clock_event_reasons=("sw_power_cap",)), None),
        (slow(1749.0), None),
        (slow(1100.0, gpu_utilization_percent=20.0), None),
        (slow(1100.0)[5:], None),  # of three nobody knows
        (slow(1100.0)[4:], SLOW_TEXT),
        (slow(1748.0), "Straggler: SM clock 1748 MHz, median of its job 1900"),
        ([*slow(1900.0)[:7], gpu(7, sm_clock_mhz=1100.0, name="A100")], None),
        ([*slow(1900.0)[:7], gpu(7, sm_clock_mhz=1100.0, labels={"pod": "other-7"})], None),
        ([gpu(n, sm_clock_mhz=1900.0 - 100 * n) for n in range(8)], None),  # all differ
        ([*slow(1900.0)[:7], gpu(7, sm_clock_mhz=1100.0, age_seconds=500.0)], None),
    ],
)
def test_stragglers_by_their_clock(gpus: list[Gpu], text: str | None) -> None:
    found = [wrong.title for wrong in find(gpus, Known()) if wrong.rule == "straggler"]
    assert found == ([] if text is None else [text])


def test_a_clock_that_something_explains_is_no_straggler() -> None:
    gpus = slow(1100.0)
    assert find(gpus, Known(comparable=False)) == ()  # the load is of another moment
    gpus[7] = dataclasses.replace(gpus[7], clock_event_reasons=("hw_thermal",))
    assert [wrong.rule for wrong in find(gpus, Known())] == ["thermal"]


def test_what_is_wrong_with_a_gpu_is_told_once_whatever_instances_it_has() -> None:
    hot = {"uuid": "g", "host": "a", "temperature_celsius": 88.0, "power_watts": 300.0}
    parts = [
        gpu(n, index=f"{n % 2}:{n}", memory_total_bytes=80.0 * GIB if n % 2 == 0 else None, **hot)
        for n in range(7)
    ]
    said = [(w.device_uuid, w.rule) for w in find(parts, Known())]
    assert said == [("g0", "hot"), ("g1", "hot")]
    both = totals(parts, ())
    assert (both.gpus, both.instances, both.power_watts) == (2, 7, 600.0)
    whole = gpu(9, uuid="g", host="a", index="0", memory_total_bytes=80.0 * GIB)
    assert totals([whole, *parts], ()).memory_used_bytes == whole.memory_used_bytes
    means = {part.key: 0.0 for part in parts}
    held = [  # each of them by itself
        dataclasses.replace(part, gpu_utilization_percent=0.0, temperature_celsius=40.0)
        for part in parts
    ]
    assert [w.rule for w in find(held, Known(busy_mean=means))] == ["held_idle"] * 7


def test_stragglers_by_their_load() -> None:
    gpus = [gpu(n) for n in range(8)]
    means = {each.key: 95.0 for each in gpus}
    assert find(gpus, Known(busy_mean=means)) == ()
    (wrong,) = find(gpus, Known(busy_mean=means | {"g3": 40.0}))
    assert (wrong.device_uuid, wrong.rule) == ("g3", "less_busy")
    assert wrong.title == "Straggler: busy 40 %, median of its job 95 %"
    alone = [dataclasses.replace(each, labels={}) for each in gpus]
    assert find(alone, Known(busy_mean=means | {"g3": 40.0})) == ()
