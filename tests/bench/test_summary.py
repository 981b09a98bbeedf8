"""The sentence for the owner of a device, for each kind of verdict."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from gputop.bench.events import Comparison, Conditions, Point, Result
from gputop.bench.results.verdict import judge, status
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE
from tests.bench.kept import BASE, CONDITIONS, COPY, faster, table
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from collections.abc import Sequence

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


CASES: dict[int, dict[str, tuple[Result | Among, str]]] = {
    FINE: {
        "healthy": (gpu(), "No fault found. Computes correctly, 78 % of its datasheet, cool."),
        "healthy and warm": (
            gpu({"temperature_celsius_max": 82.0}),
            (
                "No fault found. Computes correctly, 78 % of its datasheet, not slowed by "
                "heat (82°C)."
            ),
        ),
        "at its power limit": (
            gpu(
                {
                    "power_limit_watts": 70.0,
                    "late_power_watts_mean": 69.6,
                    "percent_of_peak": {"datasheet dense": 36.0, "formula at the live clock": 64.0},
                }
            ),
            (
                "No fault found. Computes correctly, 36 % of its datasheet, at its power "
                "limit of 70 W as usual, cool."
            ),
        ),
        "several types": (
            table(
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
            "No fault found. Computes correctly, 66 to 81 % of its datasheet.",
        ),
        "by formula": (
            gpu({"percent_of_peak": {"formula at the maximum clock": 62.0}}),
            "No fault found. Computes correctly, 62 % of its computed peak, cool.",
        ),
        "no reference": (
            gpu({"percent_of_peak": {}}),
            "Computes correctly. Speed was not judged: no reference for this GPU.",
        ),
        "no reference, but earlier runs": (
            gpu({"percent_of_peak": {}}, comparison=Comparison(0.4, None, 10)),
            "No fault found. Computes correctly, as fast as in earlier runs, cool.",
        ),
        "no reference, but others like it": (
            Among(gpu({"percent_of_peak": {}}), (gpu(device_index=1),)),
            "No fault found. Computes correctly, as fast as the others, cool.",
        ),
        "CPU": (CPU, "Computes correctly. Speed was not judged: no reference for this CPU."),
        "small matrices": (
            gpu(m=1024, n=1024, k=1024),
            (
                "Computes correctly. Speed was not judged: matrices under 2048 do not reach "
                "the peak."
            ),
        ),
        "others used it": (
            gpu({"other_load": ("4711 (ada: python train.py)",)}),
            (
                "Computes correctly. Speed was not judged: others used the device (4711 "
                "(ada: python train.py)). Run the test again when it is free."
            ),
        ),
        "the host was slow": (
            gpu({"percent_of_peak": {"datasheet dense": 40.0}}, tflops_device=1200.0),
            (
                "Computes correctly. Speed was not judged: the host kept it waiting for 35 % "
                "of the time. Free the CPU, and run the test again."
            ),
        ),
        "memory without a fault": (
            memory(ecc_corrected=(0, 0)),
            "No fault found. Memory keeps its data, cool.",
        ),
        "burn": (gpu(kind="burn"), "No fault found. Computes correctly, cool."),
        "copies": (
            copies(),
            ("No fault found. Copies data correctly, 92 % of its datasheet's bandwidth, cool."),
        ),
        "nothing verified": (
            gpu(checks=0),
            "Not judged: no result was verified. Run the test for longer.",
        ),
        "stopped early": (
            gpu(stopped="user", seconds=9.2),
            "Stopped after 9 s. No fault found until then.",
        ),
    },
    COULD_NOT_RUN: {
        "unwatched": (
            gpu(stopped="unwatched"),
            (
                "Not judged: gputop failed to watch the device, so it ended the test. Run "
                "the test again."
            ),
        ),
    },
    FAULT: {
        "wrong products": (
            gpu(wrong_elements=9, mismatches={"wrong": 1, "unexplained": 1, "other bits": 7}),
            "Faulty: wrong results in 2 of 25,811 products. Have GPU 0 replaced.",
        ),
        "wrong elements": (
            gpu(wrong_elements=3, checks=6, device_index=None),
            "Faulty: wrong results (3 elements wrong in 6 checks). Have the GPU replaced.",
        ),
        "wrong, and unwatched": (
            gpu(wrong_elements=1, stopped="unwatched"),
            "Faulty: wrong results (1 element wrong in 200 checks). Have GPU 0 replaced.",
        ),
        "wrong and hot": (
            gpu({"clock_event_seconds": {"hw_thermal": 40.0}}, wrong_elements=2),
            "Faulty: wrong results (2 elements wrong in 200 checks). Have GPU 0 replaced.",
        ),
        "wrong on a CPU": (
            replace(CPU, wrong_elements=1),
            (
                "Faulty: wrong results (1 element wrong in 6 checks). Undo overclocking, and "
                "test the memory of this computer."
            ),
        ),
        "wrong words in memory": (
            gpu(kind="memory", wrong_elements=3),
            "Faulty: its memory changed data (3 elements wrong). Have GPU 0 replaced.",
        ),
        "wrong copies": (
            copies(wrong_elements=1200),
            "Faulty: copies changed data (1,200 elements wrong). Have GPU 2 replaced.",
        ),
        "wrong collectives": (
            gpu(kind="collective", wrong_elements=1),
            (
                "Faulty: wrong results from collectives (1 element wrong). Test each device "
                "alone with `gputop bench check`; if all are right, a link between them is "
                "bad."
            ),
        ),
        "uncorrectable errors": (
            memory(ecc_uncorrected=(0, 2)),
            (
                "Faulty: its memory lost data during the test (uncorrectable errors). End "
                "the programs that use GPU 0, then reset it with `sudo nvidia-smi "
                "--gpu-reset -i 0`. Have it replaced if this happens again."
            ),
        ),
        "no spare cells": (
            memory(remap_failed=(1, 1)),
            "Faulty: its memory has no spare cells left. Have GPU 0 replaced.",
        ),
    },
    DEGRADED: {
        "a row waits for a reset": (
            memory(remap_pending=(1, 1)),
            (
                "Memory keeps its data. Bad memory cells wait to be replaced by spare ones. "
                "End the programs that use GPU 0, then reset it with `sudo nvidia-smi "
                "--gpu-reset -i 0`."
            ),
        ),
        "corrected errors": (
            memory(ecc_corrected=(5, 1205)),
            (
                "Memory keeps its data. Its memory corrected 1,200 errors during the test. "
                "Run `gputop bench memory --device 0`; have GPU 0 replaced if it happens "
                "again."
            ),
        ),
        "remapped rows": (
            memory(remapped_rows=(0, 1)),
            (
                "Memory keeps its data. Its memory replaced bad cells by spare ones during "
                "the test. Run `gputop bench memory --device 0`; have GPU 0 replaced if it "
                "happens again."
            ),
        ),
        "hot and slower": (
            gpu({"clock_event_seconds": {"sw_thermal": 42.0}}, **LATE, time_to_steady_seconds=15.0),
            (
                "Computes correctly. Too hot: 17 % slower after 15 s. Improve airflow, or "
                "limit power with `sudo nvidia-smi -i 0 -pl 600`."
            ),
        ),
        "hot without a droop": (
            gpu({"clock_event_seconds": {"sw_thermal": 42.0}, "power_limit_watts": None}),
            "Computes correctly. Too hot: slowed down for 42 of 60 s. Improve airflow.",
        ),
        "a hot MIG instance": (
            gpu(
                {"clock_event_seconds": {"hw_thermal": 42.0}},
                device_uuid="MIG-1",
                device_index=None,
            ),
            "Computes correctly. Too hot: slowed down for 42 of 60 s. Improve airflow.",
        ),
        "ended by heat": (
            gpu({"temperature_celsius_max": 84.0}, stopped="limit", seconds=15.0),
            (
                "Computes correctly. Too hot: the test was ended at 84°C after 15 s. Improve "
                "airflow, or limit power with `sudo nvidia-smi -i 0 -pl 600`."
            ),
        ),
        "braked": (
            gpu({"clock_event_seconds": {"hw_power_brake": 30.0}}),
            (
                "Computes correctly. Slowed down by its hardware: external power brake for "
                "30 s of 60 s. Check the power cables, power supply and cooling of GPU 0."
            ),
        ),
        "silent": (
            gpu(stopped="silent", seconds=30.0),
            (
                "Computes correctly. The driver did not answer for too long, so the test was "
                "ended. Look for Xid errors of GPU 0 with `sudo dmesg`, and run the test "
                "again."
            ),
        ),
        "slow PCIe": (
            copies(COPY[0], *faster(COPY[1:], 0.2)),
            (
                "Copies data correctly. Slow PCIe link: pinned copies at 10.8 of 63.0 GB/s. "
                "Check that the slot of GPU 2 has all its lanes, and reseat the card."
            ),
        ),
        "slower than others": (
            Among(
                gpu(tflops_mean=600.0),
                tuple(gpu(device_index=n, device_uuid=f"GPU-{n}") for n in range(1, 6)),
            ),
            (
                "Computes correctly. Slower than the others: 23.1 % under the median of 5 "
                "others like it, more than 10 %. Compare power limit, clock and temperature "
                "of GPU 0 with theirs."
            ),
        ),
        "slower than before": (
            gpu(comparison=Comparison(12.3, "700 TFLOP/s is 12.3 % under …", 10)),
            (
                "Computes correctly. 12 % slower than in its last 10 runs. Compare cooling, "
                "power limit and driver of GPU 0 with then."
            ),
        ),
        "below its datasheet": (
            gpu({"percent_of_peak": {"datasheet dense": 31.0}}),
            (
                "Computes correctly. Too slow: 31.0 % of the dense peak in its datasheet, "
                "under 50 %. Run `gputop why` while GPU 0 is busy to see what holds it back."
            ),
        ),
        "a stuck clock": (
            gpu(
                {
                    "percent_of_peak": {"datasheet dense": 17.0},
                    "sm_clock_mhz_mean": 345.0,
                    "sm_clock_max_mhz": 1980.0,
                }
            ),
            (
                "Computes correctly. Too slow: its clock stays at 345 of 1980 MHz. Undo a "
                "limit of the clock with `sudo nvidia-smi -i 0 -rgc`, and restart the "
                "computer if that changes nothing."
            ),
        ),
        "a droop without a reason": (
            gpu(**LATE, time_to_steady_seconds=20.0),
            (
                "Computes correctly. It got 17 % slower after 20 s, not by heat or its power "
                "limit. Run `gputop why` while GPU 0 is busy to see what holds it back."
            ),
        ),
        "uneven": (
            gpu(dip_percent=30.1),
            (
                "Computes correctly. Its speed is uneven: its slowest 5 s are 30.1 % under "
                "the median, without a power cap or heat. Run `gputop why` while GPU 0 is "
                "busy to see what holds it back."
            ),
        ),
    },
}
"""Results and their sentences, by the exit status."""
EVERY = [(status, name) for status, cases in CASES.items() for name in cases]


@pytest.mark.parametrize(("expected", "name"), EVERY)
def test_the_sentence_and_the_exit_status(expected: int, name: str) -> None:
    given, sentence = CASES[expected][name]
    result, others = given if isinstance(given, Among) else (given, ())
    verdict = judge(result, others)
    assert verdict.summary == sentence
    assert status(replace(result, verdict=verdict)) == expected
    assert verdict.summary.startswith("Faulty: ") == (expected == FAULT)
    assert not (verdict.summary.startswith("No fault found") and expected)
    for command in re.findall(r"`sudo (nvidia-smi[^`]*)`", sentence):
        assert re.search(r" -i \d+", command)


def test_a_gpu_without_an_index_is_named_by_its_uuid() -> None:
    hot = gpu({"clock_event_seconds": {"sw_thermal": 42.0}}, device_index=None)
    assert "`sudo nvidia-smi -i GPU-4f2a1b3c -pl 600`" in judge(hot, ()).summary


def test_names_of_others_are_data() -> None:
    found = judge(gpu({"other_load": ("4711 (\x1b[2J: x)",)}), ())
    assert "\x1b" not in found.summary
