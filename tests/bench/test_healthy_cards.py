"""Published speeds of healthy cards are no reason for a verdict, and a stuck clock is one."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest

from gputop.agent.device import Device
from gputop.bench.events import Result
from gputop.bench.plan.peaks import PEAKS
from gputop.bench.plan.request import Request, Target
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.verdict import judge, with_verdicts
from gputop.bench.run.device_run import DeviceRun
from tests.bench.chips import CHIPS, Chip
from tests.runs import Clock, gpu_result, gpu_sample
from tests.sessions import PLANNED
from tests.streams import NOW, inventory

SECONDS = 60
COUNTED_EVERY = 5
"""Seconds between two readings of the counters of clock event reasons."""
CAP = "sw_power_cap"


class Card(NamedTuple):
    """A card in a run: its speed in TFLOP/s, mean clock, power, and what shows a power cap."""

    name: str
    dtype: str
    tflops: float
    clock_mhz: float
    watts: float
    limit: float
    shown_by: str = "reason and counter"
    """What says that the power limit holds it back: `reason`, `counter`, both, or `power` alone."""


CARDS = [
    # Published speeds under the power limit of the card, and the clocks that it has there.
    Card("T4", "float16", 24, 915, 69.6, 70),
    Card("T4", "float16", 24, 915, 69.6, 70, "reason"),
    Card("T4", "float16", 24, 915, 69.6, 70, "counter"),
    Card("T4", "float16", 24, 915, 69.6, 70, "power"),
    Card("T4", "float32", 4.05, 840, 69.8, 70),
    Card("L4", "bfloat16", 53, 960, 71.7, 72),
    Card("L4", "bfloat16", 91, 1700, 71.9, 72),
    Card("L4", "float32", 10.6, 900, 71.8, 72),
    Card("L40S", "float32", 44, 1600, 345, 350, "counter"),
    Card("L40S", "float32", 46.7, 1700, 345, 350, "counter"),
    Card("TITAN RTX", "float16", 44.4, 1350, 279, 280),
    Card("H100 PCIe", "fp8", 726, 1120, 348, 350),
    Card("H100 PCIe", "bfloat16", 491, 1300, 345, 350),
    # Not at their power limits.
    Card("P100 PCIe 16 GB", "float16", 6.4, 1303, 170, 250),
    Card("P100 SXM2", "float16", 9.5, 1480, 210, 300),
    Card("RTX 3090", "float32", 20, 1700, 300, 350),
    Card("RTX 4090", "float32", 57, 2600, 420, 450),
    Card("RTX 5090", "float32", 68, 2400, 520, 575),
    # With margin at their power limits.
    Card("V100 PCIe", "float16", 85, 1200, 247, 250),
    Card("A10G", "bfloat16", 46, 1300, 298, 300),
    Card("A100 PCIe 40 GB", "bfloat16", 193, 1000, 249, 250),
    Card("A100 SXM4 80 GB", "bfloat16", 271, 1300, 396, 400),
    Card("RTX 3090", "bfloat16", 78, 1800, 347, 350),
    Card("RTX 6000 Ada", "bfloat16", 278, 2100, 297, 300),
    Card("L40", "bfloat16", 170, 2300, 297, 300),
    Card("H100 SXM", "bfloat16", 730, 1500, 695, 700),
    Card("H100 SXM", "fp8", 1403, 1500, 695, 700),
    Card("H200 SXM", "bfloat16", 780, 1515, 695, 700),
    Card("GH200 96 GB", "bfloat16", 829, 1700, 700, 900),
    Card("B200", "bfloat16", 1745, 1600, 990, 1000),
    Card("GB200", "bfloat16", 1822, 1700, 1190, 1200),
]
TITAN_RTX = Chip("NVIDIA TITAN RTX", "7.5", 72, 2100)
"""It is not in the table of datasheets. The clock is NVML's maximum."""


def device(card: Card) -> Device:
    chip = TITAN_RTX if card.name == "TITAN RTX" else CHIPS[card.name]
    ids = {peak.name: peak.pci_device_ids.split()[0] for peak in PEAKS}
    return dataclasses.replace(
        inventory(1).devices[0],
        name=chip.name,
        pci_device_id=ids.get(card.name, "1e02"),
        compute_capability=chip.capability,
        sm_count=chip.sms,
        sm_clock_max_mhz=chip.boost,
    )


def ran(card: Card, *, capped: bool, **changes: Any) -> Result:
    """The result of a minute on that card, with the readings that its driver delivers."""
    gpu = device(card)
    target = Target("cuda", gpu.uuid, 0, gpu.name, gpu.compute_capability, None)
    clock = Clock()
    run = DeviceRun(Request(target, card.dtype, None, float(SECONDS)), clock)
    machine = dataclasses.replace(inventory(1), devices=(gpu,))
    run.add_event(machine)
    run.add_event(PLANNED)
    for second in range(1, SECONDS + 1):
        counted = second // COUNTED_EVERY * COUNTED_EVERY
        is_counted = capped and "counter" in card.shown_by
        has_reason = capped and "reason" in card.shown_by
        seen = gpu_sample(
            NOW + second,
            power_watts=card.watts,
            power_limit_watts=card.limit,
            sm_clock_mhz=round(card.clock_mhz),
            clock_event_reasons=(CAP,) if has_reason else (),
            clock_event_seconds={CAP: 200.0 + counted * is_counted},
        )
        run.add_event(seen)
    rates = {"tflops_mean": card.tflops, "tflops_peak": 1.02 * card.tflops}
    shape = dict.fromkeys("mnk", 8192)
    result = gpu_result(
        float(SECONDS), device=gpu.name, dtype=card.dtype, **shape, **rates, **changes
    )
    return run.completed(result)


def stuck(card: Card) -> Card:
    """The same card at a fifth of its clock, far below its power limit."""
    clock = device(card).sm_clock_max_mhz
    assert clock is not None
    low = 0.2 * clock
    tflops = card.tflops * low / card.clock_mhz
    return card._replace(tflops=tflops, clock_mhz=low, watts=0.4 * card.limit)


def datasheet(result: Result) -> tuple[str, str]:
    (found,) = (part for part in judge(result, ()).parts if part.name == "datasheet")
    return found.state, found.why


cards = pytest.mark.parametrize("card", CARDS, ids=lambda c: f"{c.name} {c.dtype} {c.tflops:g}")


@cards
def test_a_healthy_card_is_not_degraded(card: Card) -> None:
    near_limit = card.watts > 0.9 * card.limit
    (found,) = with_verdicts([ran(card, capped=near_limit)])
    assert datasheet(found)[0] == "ok", datasheet(found)[1]
    assert outcome_of(found).status == 0
    assert found.verdict is not None
    assert found.verdict.summary.startswith("No fault found. Computes correctly, ")


@cards
def test_the_same_card_stuck_at_a_low_clock_is_degraded(card: Card) -> None:
    (found,) = with_verdicts([ran(stuck(card), capped=False)])
    assert datasheet(found)[0] == "degraded"
    assert outcome_of(found).status == 4
    assert found.verdict is not None
    assert "Too slow: its clock stays at " in found.verdict.summary


def test_a_card_at_its_power_limit_that_is_slow_for_its_clock_is_degraded() -> None:
    slow = Card("T4", "float16", 12, 915, 69.6, 70)
    state, why = datasheet(ran(slow, capped=True))
    assert state == "degraded"
    assert why == (
        "32.0 % of the formula at the live clock, under 50 %; its power limit of 70 W holds it back"
    )


@pytest.mark.parametrize("shown_by", ["reason", "counter", "power"])
def test_a_droop_is_explained_by_whatever_shows_the_power_cap(shown_by: str) -> None:
    card = Card("L40S", "float32", 46.7, 1700, 341, 350, shown_by)
    drooped: dict[str, Any] = {"droop_percent": 20.0, "droop_interval_percent": (19.0, 21.0)}
    (found,) = (p for p in judge(ran(card, capped=True, **drooped), ()).parts if p.name == "droop")
    assert found.state == "ok"
    said = {
        "reason": "by power cap for 60 s of 60 s",
        "counter": "by power cap for 60 s of 60 s",
        "power": "by its power limit, at 341 of 350 W",
    }
    assert found.why == f"20.0 % below the burst, {said[shown_by]}"
    cool = card._replace(watts=330.0, shown_by="power")
    (found,) = (p for p in judge(ran(cool, capped=True, **drooped), ()).parts if p.name == "droop")
    assert found.state == "degraded", "at 94 % of its limit"


@pytest.mark.parametrize("name", ["B200", "GB200", "RTX 5090"])
def test_int8_is_not_judged_where_torch_has_only_older_kernels(name: str) -> None:
    card = Card(name, "int8", 90, 1900, 300, 1000)
    assert datasheet(ran(card, capped=False)) == (
        "not judged",
        "torch uses int8 kernels of older GPUs on this one",
    )
    assert datasheet(ran(card._replace(name="H100 SXM"), capped=False))[0] == "degraded"
