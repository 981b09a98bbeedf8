from typing import NamedTuple

import pytest

from gputop.agent.device import Device
from gputop.bench.events import Conditions, Result
from gputop.bench.plan.peaks import PEAKS, denominators, percent_of_peak
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.verdict import with_verdicts
from tests.bench.chips import CHIPS, Chip
from tests.runs import gpu_result


class Card(NamedTuple):
    """A card in a run: its speed in TFLOP/s, mean clock, power and power limit."""

    name: str
    dtype: str
    tflops: float
    clock_mhz: float
    watts: float
    limit: float


CARDS = [
    # Published speeds under the power limit of the card, and the clocks that it has there.
    Card("T4", "float16", 24, 915, 69.6, 70),
    Card("T4", "float32", 4.05, 840, 69.8, 70),
    Card("L4", "bfloat16", 91, 1700, 71.9, 72),
    Card("TITAN RTX", "float16", 44.4, 1350, 279, 280),
    Card("H100 PCIe", "fp8", 726, 1120, 348, 350),
    Card("H100 PCIe", "bfloat16", 491, 1300, 345, 350),
    # Not at their power limits.
    Card("P100 PCIe 16 GB", "float16", 6.4, 1303, 170, 250),
    Card("RTX 4090", "float32", 57, 2600, 420, 450),
    # With margin at their power limits.
    Card("V100 PCIe", "float16", 85, 1200, 247, 250),
    Card("A100 SXM4 80 GB", "bfloat16", 271, 1300, 396, 400),
    Card("H100 SXM", "bfloat16", 730, 1500, 695, 700),
    Card("B200", "bfloat16", 1745, 1600, 990, 1000),
]
KNOWN = CHIPS | {"TITAN RTX": Chip("NVIDIA TITAN RTX", "7.5", 72, 2100)}
"""Also one that is not in the table of datasheets."""


def judged(card: Card, *, has_reason: bool = True) -> tuple[Result, str, str]:
    """Return the result of a minute on that card, and what its datasheet says of it."""
    chip = KNOWN[card.name]
    ids = {peak.name: peak.pci_device_ids.split()[0] for peak in PEAKS}
    gpu = Device(
        index=0,
        uuid="GPU-0",
        name=chip.name,
        pci_device_id=ids.get(card.name, "1e02"),
        compute_capability=chip.capability,
        sm_count=chip.sms,
        sm_clock_max_mhz=chip.boost,
    )
    is_capped = has_reason and card.watts > 0.9 * card.limit
    known = Conditions(
        power_watts_mean=card.watts,
        late_power_watts_mean=card.watts,
        power_limit_watts=card.limit,
        sm_clock_mhz_mean=card.clock_mhz,
        sm_clock_max_mhz=chip.boost,
        pci_device_id=gpu.pci_device_id,
        compute_capability=chip.capability,
        clock_events_known=True,
        clock_event_seconds={"sw_power_cap": 60.0} if is_capped else {},
        late_power_cap_seconds=30.0 * is_capped,
        temperature_celsius_max=60.0,
        percent_of_peak=percent_of_peak(card.tflops, denominators(gpu, card.dtype, card.clock_mhz)),
    )
    rates = {"tflops_mean": card.tflops, "tflops_peak": 1.02 * card.tflops}
    names = {"device": chip.name, "dtype": card.dtype}
    shape = dict.fromkeys("mnk", 8192)
    (result,) = with_verdicts([gpu_result(60.0, **names, **rates, **shape, conditions=known)])
    assert result.verdict is not None
    (part,) = (part for part in result.verdict.parts if part.name == "datasheet")
    return result, part.state, part.why


cards = pytest.mark.parametrize("card", CARDS, ids=lambda c: f"{c.name} {c.dtype} {c.tflops:g}")


@cards
def test_a_healthy_card_is_not_degraded(card: Card) -> None:
    result, state, why = judged(card)
    assert state == "ok", why
    assert outcome_of(result).status == 0
    assert result.verdict is not None
    assert result.verdict.summary.startswith("No fault found. Computes correctly, ")


@cards
def test_the_same_card_stuck_at_a_fifth_of_its_clock_is_degraded(card: Card) -> None:
    low = 0.2 * KNOWN[card.name].boost
    tflops = card.tflops * low / card.clock_mhz
    stuck = card._replace(tflops=tflops, clock_mhz=low, watts=0.4 * card.limit)
    result, state, _ = judged(stuck)
    assert state == "degraded"
    assert outcome_of(result).status == 4
    assert result.verdict is not None
    assert "Too slow: its clock stays at " in result.verdict.summary


def test_the_power_alone_shows_that_the_limit_holds_a_card_back() -> None:
    card = Card("T4", "float16", 24, 915, 69.6, 70)
    assert judged(card, has_reason=False)[1] == "ok"
    assert judged(card._replace(watts=67.0), has_reason=False)[1] == "degraded", "at 96 %"
    why = (
        "32.0 % of the formula at the live clock, under 50 %; its power limit of 70 W holds it back"
    )
    assert judged(card._replace(tflops=12))[1:] == ("degraded", why)


@pytest.mark.parametrize("name", ["B200", "GB200", "RTX 5090"])
def test_int8_is_not_judged_where_torch_has_only_older_kernels(name: str) -> None:
    card = Card(name, "int8", 90, 1900, 300, 1000)
    why = "torch uses int8 kernels of older GPUs on this one"
    assert judged(card)[1:] == ("not judged", why)
    assert judged(card._replace(name="H100 SXM"))[1] == "degraded"
