import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gputop.bench.events import Comparison, Conditions, Point, Result
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.verdict import judge
from tests.bench.kept import BASE, CONDITIONS, COPY, faster, table
from tests.bench.workers import RESULT

GPU = replace(
    BASE,
    device_index=0,
    checks=200,
    verified_products=25_811,
    iterations=25_811,
    droop_percent=0.0,
    droop_interval_percent=(-1.0, 1.0),
    dip_percent=1.0,
    conditions=replace(CONDITIONS, clock_event_seconds={}, clock_events_known=True),
)
CPU = replace(RESULT, checks=6, conditions=None)
LATE: dict[str, Any] = {"droop_percent": 17.2, "droop_interval_percent": (16.0, 18.4)}


def gpu(conditions: dict[str, Any] | None = None, **changes: Any) -> Result:
    """Return the result of a healthy GPU with these changes."""
    assert GPU.conditions is not None
    return replace(GPU, conditions=replace(GPU.conditions, **(conditions or {})), **changes)


def copies(*points: Point, **changes: Any) -> Result:
    known = Conditions(
        percent_of_peak={"datasheet memory bandwidth": 92.0},
        pcie_bytes_per_second=63e9,
        clock_events_known=True,
        temperature_celsius_max=51.0,
    )
    fields: dict[str, Any] = {"device_index": 2, "dtype": "", "checks": 12, "conditions": known}
    return table("copy", points or COPY, **(fields | changes))


def memory(**errors: tuple[float, float]) -> Result:
    return gpu({"memory_errors": errors}, kind="memory")


class Among(NamedTuple):
    """A result beside those of other devices."""

    result: Result
    others: Sequence[Result]


CASES: dict[str, Result | Among] = {
    "healthy": gpu(),
    "healthy and warm": gpu({"temperature_celsius_max": 75.0}),
    "at its power limit": gpu(
        {
            "power_limit_watts": 70.0,
            "late_power_watts_mean": 69.6,
            "percent_of_peak": {"datasheet dense": 36.0, "formula at the live clock": 64.0},
        }
    ),
    "several types": table(
        "sweep",
        tuple(
            Point(name, 8192.0, {"tflops": 50.0, "seconds": 1e-3}, (8192,) * 3)
            for name in ("float32", "tf32")
        ),
        dtype="float32,tf32",
        checks=4,
        conditions=Conditions(
            percent_of_peak={"datasheet dense float32": 66.0, "datasheet dense tf32": 81.4}
        ),
    ),
    "by formula": gpu({"percent_of_peak": {"formula at the maximum clock": 62.0}}),
    "no reference": gpu({"percent_of_peak": {}}),
    "no reference, but earlier runs": gpu(
        {"percent_of_peak": {}}, comparison=Comparison(0.4, None, 10)
    ),
    "no reference, but others like it": Among(gpu({"percent_of_peak": {}}), (gpu(device_index=1),)),
    "CPU": CPU,
    "small matrices": gpu(m=1024, n=1024, k=1024),
    "others used it": gpu({"other_load": ("4711 (ada: python train.py)",)}),
    "the host was slow": gpu({"percent_of_peak": {"datasheet dense": 40.0}}, tflops_device=1200.0),
    "memory without a fault": memory(ecc_corrected=(0, 0)),
    "burn": gpu(kind="burn"),
    "copies": copies(),
    "nothing verified": gpu(checks=0),
    "stopped early": gpu(stopped="user", seconds=9.2),
    "unwatched": gpu(stopped="unwatched"),
    "wrong products": gpu(
        wrong_elements=9, mismatches={"wrong": 1, "unexplained": 1, "other bits": 7}
    ),
    "wrong elements": gpu(wrong_elements=3, checks=6, device_index=None),
    "wrong and hot": gpu({"clock_event_seconds": {"hw_thermal": 40.0}}, wrong_elements=2),
    "wrong on a CPU": replace(CPU, wrong_elements=1),
    "wrong words in memory": gpu(kind="memory", wrong_elements=3),
    "wrong copies": copies(wrong_elements=1200),
    "wrong collectives": gpu(kind="collective", wrong_elements=1),
    "uncorrectable errors": memory(ecc_uncorrected=(0, 2)),
    "no spare cells": memory(remap_failed=(1, 1)),
    "a row waits for a reset": memory(remap_pending=(1, 1)),
    "corrected errors": memory(ecc_corrected=(5, 1205)),
    "remapped rows": memory(remapped_rows=(0, 1)),
    "hot and slower": gpu(
        {"clock_event_seconds": {"sw_thermal": 42.0}}, **LATE, time_to_steady_seconds=15.0
    ),
    "hot without an index": gpu({"clock_event_seconds": {"sw_thermal": 42.0}}, device_index=None),
    "hot without a droop": gpu(
        {"clock_event_seconds": {"sw_thermal": 42.0}, "power_limit_watts": None}
    ),
    "a hot MIG instance": gpu(
        {"clock_event_seconds": {"hw_thermal": 42.0}},
        device_uuid="MIG-1",
        device_index=None,
    ),
    "ended by heat": gpu({"temperature_celsius_max": 84.0}, stopped="limit", seconds=15.0),
    "braked": gpu({"clock_event_seconds": {"hw_power_brake": 30.0}}),
    "silent": gpu(stopped="silent", seconds=30.0),
    "slow PCIe": copies(COPY[0], *faster(COPY[1:], 0.2)),
    "slower than others": Among(
        gpu(tflops_mean=600.0),
        tuple(gpu(device_index=n, device_uuid=f"GPU-{n}") for n in range(1, 6)),
    ),
    "slower than before": gpu(comparison=Comparison(12.3, "700 TFLOP/s is 12.3 % under …", 10)),
    "below its datasheet": gpu(
        {"percent_of_peak": {"datasheet dense": 31.0}, "sm_clock_max_mhz": 3780.0}
    ),
    "a stuck clock": gpu(
        {
            "percent_of_peak": {"datasheet dense": 17.0},
            "sm_clock_mhz_mean": 790.0,
            "sm_clock_max_mhz": 1980.0,
        }
    ),
    "a droop without a reason": gpu(**LATE, time_to_steady_seconds=20.0),
    "uneven": gpu(dip_percent=30.1),
}
SENTENCES = re.findall(
    r"^(\d+) (.+?): (.*)$", Path(__file__).with_name("summaries.txt").read_text(), re.MULTILINE
)
"""The exit status, name and sentence of each case."""
assert [name for _, name, _ in SENTENCES] == list(CASES)


@pytest.mark.parametrize(("expected", "name", "sentence"), SENTENCES)
def test_the_sentence_and_the_exit_status(expected: str, name: str, sentence: str) -> None:
    given = CASES[name]
    result, others = given if isinstance(given, Among) else (given, ())
    verdict = judge(result, others)
    assert verdict.summary == sentence
    assert outcome_of(replace(result, verdict=verdict)).status == int(expected)
