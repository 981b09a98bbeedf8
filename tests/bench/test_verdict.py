from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.bench.events import Comparison, Conditions, Done, Point, Result, VerdictPart
from gputop.bench.plan import target_choice
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.page import droop_text, figure_facts
from gputop.bench.results.statistics import with_statistics
from gputop.bench.results.verdict import judge, with_verdicts
from gputop.bench.run.device_run import DeviceRun
from gputop.commands.bench_results import report_runs
from tests.bench.commands import parsed
from tests.bench.kept import BASE, CONDITIONS, COPY, faster, soak, table
from tests.runs import ended
from tests.streams import inventory, sample

GPUS = target_choice.targets(inventory(8), sample(8, []))[:8]
HOT: dict[str, Any] = {"clock_event_seconds": {"sw_thermal": 59.0}}
SHARED: dict[str, Any] = {"other_load": ("9 (ada: python train.py)",)}
UNCAPPED: dict[str, Any] = {"power_watts_mean": 450.0, "clock_event_seconds": {}}
"""Conditions of a GPU that draws far less than its power limit."""


def ran(*means: float, conditions: dict[str, Any] | None = None) -> list[DeviceRun]:
    """Runs of like GPUs in turn with these means."""
    runs = []
    for number, mean in enumerate(means):
        target = GPUS[number]
        known = replace(CONDITIONS, clock_events_known=True, **(conditions or UNCAPPED))
        result = soak(
            mean,
            device=target.name,
            device_uuid=target.uuid,
            conditions=known,
            checks=200,
            dip_percent=1.0,
            droop_percent=0.0,
            droop_interval_percent=(-1.0, 1.0),
        )
        runs.append(ended(target, Done(result)))
    return runs


def parts(result: Result | None, *others: Result) -> dict[str, VerdictPart]:
    assert result is not None
    return {part.name: part for part in judge(result, others).parts}


def test_healthy_gpus_are_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    runs = ran(*[900.0] * 8, conditions={"late_power_watts_mean": 690.0})
    assert report_runs(runs, parsed()) == 0
    summary, *_ = capsys.readouterr().out.splitlines()
    assert summary == (
        "GPUs 0–7: No fault found. Computes correctly, 78 % of its datasheet, "
        "at its power limit of 700 W as usual, cool."
    )


def test_every_part_of_a_healthy_gpu_has_its_numbers() -> None:
    known = replace(CONDITIONS, **UNCAPPED, clock_events_known=True)
    fields: dict[str, Any] = {"droop_percent": 4.2, "droop_interval_percent": (3.0, 5.0)}
    fields |= {
        "comparison": Comparison(-0.44, None, 10),
        "verified_products": 16,
        "dip_percent": 1.0,
    }
    healthy = soak(771.1, conditions=known, checks=9, iterations=500, **fields)
    assert {name: part.why for name, part in parts(healthy, soak(770.0)).items()} == {
        "results": "no wrong element in 16 of 500 products (3.2 %)",
        "throttling": "no slowdown by heat or hardware",
        "like devices": "0.1 % above the median of 1 other like it",
        "earlier runs": "0.4 % above the median of its last 10 like runs",
        "datasheet": "78.1 % of the dense peak in its datasheet",
        "droop": "4.2 % below the burst",
        "steadiness": "its slowest 5 s are 1.0 % under the median",
    }


def test_limits_are_options() -> None:
    runs = ran(820.0, 900.0)
    assert report_runs(runs, parsed()) == 0
    assert report_runs(runs, parsed("--tolerance", "5")) == 4
    assert report_runs(runs, parsed("--min-percent-of-peak", "85")) == 4


def test_on_a_busy_machine_only_results_and_heat_are_judged() -> None:
    busy = soak(100.0, conditions=replace(CONDITIONS, **UNCAPPED, **SHARED), checks=6)
    found = parts(busy, soak(900.0))
    assert found.pop("results").state == "ok"
    assert {part.state for part in found.values()} == {"not judged"}
    assert "9 (ada: python train.py)" in found["droop"].why
    hot = replace(busy, conditions=replace(CONDITIONS, **HOT, **SHARED))
    for sick in (hot, replace(busy, stopped="limit")):
        bad = [name for name, part in parts(sick).items() if part.state == "degraded"]
        assert bad == ["throttling"]
    wrong = replace(busy, wrong_elements=1)
    assert outcome_of(with_verdicts([wrong])[0]).status == 1


RATES: list[tuple[Callable[[float], float], str]] = [
    (lambda at: 540.0 if at > 20 else 900.0 if at < 2 else 940 - 20 * at, "droop"),
    (lambda at: 900.0 if at < 33 else 450.0, "steadiness"),
    (lambda at: 900.0 if at % 20 < 10 else 540.0, "steadiness"),
    (lambda at: 300.0 if 10 < at < 28 else 900.0, "steadiness"),
]


def over_time(rate: Callable[[float], float]) -> Result:
    """A minute of a GPU at that rate."""
    lengths = [0.1] * 20 + [0.2] * 290
    windows = [(length, rate(sum(lengths[:n]))) for n, length in enumerate(lengths)]
    known = replace(CONDITIONS, **UNCAPPED, clock_events_known=True)
    return with_statistics(soak(700.0, conditions=known), windows)


@pytest.mark.parametrize(("rate", "part"), RATES)
def test_a_gpu_that_slows_down_collapses_or_swings_is_degraded(
    rate: Callable[[float], float], part: str
) -> None:
    found = parts(over_time(rate))
    assert [name for name, each in found.items() if each.state == "degraded"] == [part]
    said = {"droop": " below the burst", "steadiness": "its slowest 5 s are "}
    assert said[part] in found[part].why
    assert found[part].why.endswith(", without a power cap or heat")


def test_a_rate_that_varies_too_much_is_not_said_to_have_no_droop() -> None:
    result = over_time(lambda at: 900.0 if at < 50 else 90.0)
    found = parts(result)["droop"]
    assert found.state == "not judged"
    assert droop_text(result) == "too uneven to tell a droop"
    assert "the rate varies too much to tell 10 %: its 95 % interval is -" in found.why


@pytest.mark.parametrize(
    ("capped", "late", "watts", "state"),
    [
        (3.2, 3.2, 690.0, "degraded"),
        (30.0, 29.0, 300.0, "degraded"),
        (30.0, 29.0, 690.0, "ok"),
        (16.0, 16.0, 690.0, "ok"),
        (40.0, 14.0, 690.0, "degraded"),
        (40.0, None, None, "ok"),
        (29.0, None, 690.0, "degraded"),
        (20.0, 20.0, 631.0, "ok"),
        (20.0, 20.0, 629.0, "degraded"),
    ],
)
def test_a_power_cap_explains_a_droop_if_it_held_and_the_power_was_near_it(
    capped: float, late: float | None, watts: float | None, state: str
) -> None:
    known = replace(
        CONDITIONS,
        clock_event_seconds={"sw_power_cap": capped},
        late_power_cap_seconds=late,
        power_watts_mean=watts,
    )
    drooped: dict[str, Any] = {"droop_percent": 40.0, "droop_interval_percent": (39.0, 41.0)}
    found = parts(soak(**drooped, dip_percent=30.0, conditions=known))
    assert [found[name].state for name in ("droop", "steadiness")] == [state, state]


def test_a_droop_is_explained_by_the_power_alone() -> None:
    known = replace(CONDITIONS, clock_event_seconds={}, late_power_watts_mean=679.0)
    drooped: dict[str, Any] = {"droop_percent": 20.0, "droop_interval_percent": (19.0, 21.0)}
    why = parts(soak(**drooped, conditions=known))["droop"].why
    assert why == "20.0 % below the burst, by its power limit, at 679 of 700 W"


@pytest.mark.parametrize(
    ("part", "seconds", "state"),
    [
        ("sw_thermal", 3.1, "degraded"),
        ("sw_thermal", 2.9, "ok"),
        ("hw_power_brake", 3.1, "degraded"),
        ("sync_boost", 59.0, "ok"),
    ],
)
def test_heat_and_hardware_count_from_a_twentieth_of_the_time_on(
    part: str, seconds: float, state: str
) -> None:
    known = replace(CONDITIONS, clock_event_seconds={part: seconds})
    assert parts(soak(conditions=known))["throttling"].state == state


@pytest.mark.parametrize(
    ("fields", "part", "state"),
    [
        ({"dip_percent": 15.0}, "steadiness", "ok"),
        ({"dip_percent": 15.1}, "steadiness", "degraded"),
        ({"droop_percent": 11.0, "droop_interval_percent": (10.1, 12.0)}, "droop", "degraded"),
        ({"droop_percent": 11.0, "droop_interval_percent": (10.0, 12.0)}, "droop", "ok"),
        ({"droop_percent": 9.0, "droop_interval_percent": (5.0, 15.1)}, "droop", "not judged"),
        ({"droop_percent": 9.0, "droop_interval_percent": (5.0, 15.0)}, "droop", "ok"),
    ],
)
def test_limits_of_droops_and_dips(fields: dict[str, Any], part: str, state: str) -> None:
    known = replace(CONDITIONS, **UNCAPPED, clock_events_known=True)
    assert parts(soak(conditions=known, **fields))[part].state == state


@pytest.mark.parametrize(
    ("errors", "seconds", "state"),
    [
        ({"remap_failed": (1.0, 1.0)}, 60.0, "faulty"),
        ({"remap_failed": (0.0, 1.0)}, 60.0, "faulty"),
        ({"remap_pending": (1.0, 1.0)}, 60.0, "degraded"),
        ({"remapped_rows": (3.0, 3.0)}, 60.0, "ok"),
        ({"ecc_uncorrected": (12.0, 12.0)}, 60.0, "ok"),
        ({"ecc_uncorrected": (0.0, 1.0), "remapped_rows": (0.0, 1.0)}, 60.0, "faulty"),
        ({"ecc_corrected": (0.0, 10.0)}, 60.0, "degraded"),
        ({"ecc_corrected": (1e6, 1e6 + 9)}, 60.0, "ok"),
        ({"ecc_corrected": (0.0, 59.0)}, 3600.0, "ok"),
        ({"ecc_corrected": (0.0, 60.0)}, 3600.0, "degraded"),
    ],
)
def test_memory_is_bad_by_states_and_by_many_corrected_errors(
    errors: dict[str, tuple[float, float]], seconds: float, state: str
) -> None:
    known = replace(CONDITIONS, memory_errors=errors)
    assert parts(soak(seconds=seconds, conditions=known))["memory"].state == state


@pytest.mark.parametrize(
    ("changes", "part", "why"),
    [
        ({"n": 2047}, "datasheet", "matrices under 2048"),
        ({"kind": "step"}, "datasheet", "attention, norms and the optimizer are not products"),
        ({"conditions": None}, "datasheet", "no datasheet value"),
        ({"conditions": None}, "throttling", "does not say why"),
        ({}, "like devices", "no other device like it"),
        ({}, "earlier runs", "0 runs like it before, 4 are needed"),
        ({}, "droop", "too short"),
        ({"kind": "sweep"}, "droop", "one shape"),
        ({"kind": "of later"}, "droop", "one shape"),
        ({"kind": "pulse", "dip_percent": 90.0}, "steadiness", "the load was pulsed"),
        ({"checks": 0}, "results", "nothing was checked"),
    ],
)
def test_what_has_no_evidence_is_not_judged(changes: dict[str, Any], part: str, why: str) -> None:
    (found,) = with_verdicts([replace(BASE, **changes)])
    assert parts(found)[part].state == "not judged"
    assert why in parts(found)[part].why
    assert outcome_of(found).status == 0


LIVE, AT_MOST, SHEET = (
    "formula at the live clock",
    "formula at the maximum clock",
    "datasheet dense",
)
LOWERED: dict[str, Any] = {"power_limit_watts": 200.0}
SET: dict[str, Any] = {"clock_event_seconds": {"application_clocks": 30.1}}
SELDOM: dict[str, Any] = {"clock_event_seconds": {"application_clocks": 30.0}}
HELD = "its power limit of 690 W holds it back"
CUT = "its power limit of 200 W, lowered from 700 W, holds it back"
OF_SHEET = "38.0 % of the dense peak in its datasheet, under 50 %"
OF_LIVE = "90.0 % of the formula at the live clock; its power limit of "


@pytest.mark.parametrize(
    ("percent", "conditions", "fields", "state", "why"),
    [
        ({AT_MOST: 5.0, LIVE: 5.2}, UNCAPPED, {}, "degraded", f"5.0 % of the {AT_MOST}, under"),
        ({AT_MOST: 45.0}, UNCAPPED, {}, "ok", f"45.0 % of the {AT_MOST}"),
        ({AT_MOST: 5.0}, UNCAPPED, {"dtype": "float8_e4m3"}, "not judged", "no datasheet value"),
        ({SHEET: 0.0}, UNCAPPED, {}, "degraded", "0.0 % of the dense peak"),
        ({SHEET: 50.0}, UNCAPPED, {}, "ok", "50.0 % of the dense peak"),
        ({SHEET: 49.5}, UNCAPPED, {"tflops_device": 796.0}, "degraded", "49.5 % of the dense"),
        ({SHEET: 38.0, LIVE: 90.0}, LOWERED, {}, "ok", f"{OF_LIVE}200 W, lowered from 700 W"),
        ({SHEET: 38.0, LIVE: 20.0}, LOWERED, {}, "degraded", f"20.0 % of the {LIVE}"),
        ({SHEET: 38.0}, LOWERED, {}, "not judged", CUT),
        ({SHEET: 38.0}, SET, {}, "not judged", "application clocks are set"),
        ({SHEET: 38.0}, SELDOM, {}, "degraded", OF_SHEET),
        ({SHEET: 38.0, LIVE: 90.0}, {"power_limit_watts": 629.0}, {}, "ok", f"{OF_LIVE}629 W, low"),
        ({SHEET: 38.0, LIVE: 90.0}, {"power_limit_watts": 631.0}, {}, "ok", f"{OF_LIVE}631 W hold"),
        ({SHEET: 46.0}, UNCAPPED, {"tflops_device": 867.0}, "not judged", "the host kept it wait"),
        ({SHEET: 46.0}, UNCAPPED, {"tflops_device": 866.0}, "degraded", "46.0 % of the dense peak"),
        ({SHEET: 38.0, LIVE: 90.0}, {}, {}, "ok", f"{OF_LIVE}700 W holds"),
        ({SHEET: 38.0}, {"power_limit_watts": 690.0}, {}, "not judged", HELD),
        ({SHEET: 38.0}, UNCAPPED, {}, "degraded", OF_SHEET),
        (
            {SHEET: 38.0, LIVE: 90.0},
            LOWERED | {"clock_event_seconds": {"sw_power_cap": 3.0}},
            {},
            "degraded",
            OF_SHEET,
        ),
    ],
)
def test_by_its_datasheet_or_the_formula_or_not_at_all_if_it_was_set_slower(
    percent: dict[str, float],
    conditions: dict[str, Any],
    fields: dict[str, Any],
    state: str,
    why: str,
) -> None:
    known = replace(CONDITIONS, percent_of_peak=percent, **conditions)
    found = parts(soak(conditions=known, **fields))["datasheet"]
    assert found.state == state
    assert found.why.startswith(why)


def of_eight(number: int, rate: Callable[[int, int], float]) -> Result:
    """Copies of a GPU of eight; `rate` of a link is relative."""
    rows = [
        Point(f"GPU {number}: {way} GPU {peer}", 2.0**28, {"bytes_per_second": 4e11 * each})
        for peer in range(8)
        for way in ("write to", "read from", "both directions with")
        if peer != number and (each := rate(number, peer))
    ]
    return table("copy", (*COPY, *rows), device_uuid=f"GPU-{number}")


TO_ALL = "write to all other GPUs 90.0 %; read from all other GPUs"
LINKS: dict[str, tuple[Callable[[int, int], float], dict[int, str]]] = {
    "all are alike": (lambda gpu, peer: 1 + 0.001 * (gpu + peer), {}),
    "one GPU is slow": (lambda gpu, peer: 0.1 if 7 in (gpu, peer) else 1.0, {7: TO_ALL}),
    "what one GPU copies is slow": (lambda gpu, _: 0.1 if gpu == 7 else 1.0, {7: TO_ALL}),
    "one link is slow": (
        lambda gpu, peer: 0.5 if (gpu, peer) == (2, 3) else 1.0,
        {2: "write to GPU 3 50.0 %"},
    ),
    "pairs have bridges": (lambda gpu, peer: 1.0 if gpu // 2 == peer // 2 else 0.1, {}),
}


@pytest.mark.parametrize("case", LINKS)
def test_links_are_compared_by_direction(case: str) -> None:
    rate, slow = LINKS[case]
    found = with_verdicts([of_eight(number, rate) for number in range(8)])
    assert [number for number, each in enumerate(found) if outcome_of(each).status] == [*slow]
    for number, why in slow.items():
        others = [each for each in found if each is not found[number]]
        assert parts(found[number], *others)["links"].why.startswith(why)
    assert "links" not in parts(table("copy", COPY))


@pytest.mark.parametrize(
    ("pinned", "link", "others", "state", "why"),
    [
        (0.8e9, 31.5e9, 0, "degraded", "pinned copies at 0.8 of 31.5 GB/s"),
        (24e9, 31.5e9, 0, "ok", "pinned copies at 24.0 of 31.5 GB/s"),
        (16e9, 32e9, 0, "ok", "pinned copies at 16.0 of 32.0 GB/s"),
        (24e9, None, 0, "not judged", "the greatest speed of its link is not known"),
        (12e9, 31.5e9, 1, "not judged", "pinned copies at 12.0 of 31.5 GB/s, and other GPUs"),
    ],
)
def test_pinned_copies_are_judged_by_the_link(
    pinned: float, link: float | None, others: int, state: str, why: str
) -> None:
    known = replace(CONDITIONS, pcie_bytes_per_second=link)
    rows = (COPY[0], *faster(COPY[1:], pinned / 54e9))
    copied = [table("copy", rows, conditions=known) for _ in range(1 + others)]
    part = parts(*copied)["PCIe"]
    assert part.state == state
    assert part.why.startswith(why)


def test_unlike_or_faulty_devices_are_no_measure() -> None:
    others = [
        soak(700.0, device="NVIDIA A100"),
        soak(700.0, dtype="float16"),
        soak(700.0, m=2048, n=2048, k=2048),
        soak(700.0, accumulate="float16"),
        soak(700.0, layout="A and B row-major"),
        soak(700.0, wrong_elements=1),
        soak(700.0, conditions=Conditions(**SHARED)),
    ]
    slow = soak(100.0, device_uuid="GPU-1")
    assert parts(slow, *others)["like devices"].state == "not judged"


def test_names_and_notes_of_others_are_inert() -> None:
    odd = Conditions(
        other_load=("9 (\x1b[2J: \n)",), clock_event_seconds={"bit_\x1b": 60.0, "hw_thermal": 60.0}
    )
    hot = soak(conditions=odd)
    wrong = soak(kind="memory", wrong_elements=1, notes=("\x1b[2Jword 7",))
    assert all(part.why.isprintable() for part in parts(hot).values())
    assert "\x1b" not in judge(hot, ()).summary
    assert parts(wrong)["results"].why.endswith("; ␛[2Jword 7")


def copies_at(pinned: float, pageable: float) -> Result:
    """A run of copies at rates in GB/s."""
    rates = {"device": 4000, "host to device pinned": pinned, "host to device pageable": pageable}
    points = [Point(name, 1 << 30, {"bytes_per_second": 1e9 * rates[name]}) for name in rates]
    return table("copy", tuple(points))


def test_copies_are_judged_by_direction_and_pageable_memory_is_not() -> None:
    fine = copies_at(55, 12)
    assert parts(copies_at(55, 3), fine, fine)["like devices"].state == "ok"
    slow = parts(copies_at(27, 12), fine, fine)["like devices"]
    assert slow.state == "degraded"
    assert slow.why.startswith("host to device pinned 50.9 % under")


def sweep(peaks: dict[str, float], conditions: dict[str, Any], **rates: float) -> Result:
    """A sweep of two types, each with a small and a large size."""
    points = tuple(
        Point(name, n, {"tflops": rate * n / 8192, "seconds": 1.0}, (n, n, n))
        for name, rate in rates.items()
        for n in (1024, 8192)
    )
    known = replace(CONDITIONS, percent_of_peak=peaks, **conditions)
    return replace(BASE, kind="sweep", dtype=",".join(rates), points=points, conditions=known)


def test_a_sweep_is_judged_by_data_type() -> None:
    peaks = {"datasheet dense float32": 90.0, "datasheet dense bfloat16": 30.0}
    fine = sweep(peaks, UNCAPPED, float32=50.0, bfloat16=780.0)
    slow = sweep(peaks, UNCAPPED, float32=30.0, bfloat16=780.0)
    found = parts(slow, fine, fine)
    assert found["like devices"].state == found["datasheet"].state == "degraded"
    assert found["like devices"].why.startswith("float32 40.0 % under"), "bfloat16 is faster"
    assert found["datasheet"].why.startswith("float32 90.0 %, bfloat16 30.0 % of the dense peak")
    assert [text for name, text in figure_facts(slow) if name == "of peak"] == [
        "float32: 90 % of 33.3 TFLOP/s (datasheet dense)",
        "bfloat16: 30 % of 2600 TFLOP/s (datasheet dense)",
    ]


@pytest.mark.parametrize(("float16", "state"), [(64.0, "ok"), (45.0, "not judged")])
def test_a_sweep_with_rows_at_the_power_limit_is_not_judged_by_its_mean_clock(
    float16: float, state: str
) -> None:
    peaks = {"datasheet dense float32": 90.0, "datasheet dense float16": 36.0}
    peaks |= {f"{LIVE} float32": 95.0, f"{LIVE} float16": float16}
    capped: dict[str, Any] = {
        "power_watts_mean": 48.0,
        "power_limit_watts": 70.0,
        "clock_event_seconds": {"sw_power_cap": 9.0},
    }
    found = parts(sweep(peaks, capped, float32=7.0, float16=24.0))["datasheet"]
    assert found.state == state
    ends = "holds it back, and its clock differs from row to row: try soak"
    assert found.why.endswith(ends) == (state == "not judged")


def test_a_search_is_judged_with_the_scatter_of_the_others() -> None:
    def peak(rate: float, spread: float) -> Result:
        values = {"tflops": rate, "seconds": 1.0, "spread_percent": spread}
        points = (Point("B column-major, confirmed", 8192, values, (8192,) * 3),)
        return replace(BASE, kind="peak", points=points, tflops_peak=rate)

    def state(spread: float, of_others: float) -> str:
        others = [peak(780.0, of_others)] * 2
        return parts(peak(690.0, spread), *others)["like devices"].state

    assert [state(0.2, 0.2), state(4.0, 0.2), state(0.2, 4.0)] == ["degraded", "degraded", "ok"]
    said = dict(figure_facts(peak(780.0, 0.2)))["best"]
    assert said == "780 TFLOP/s at 8192, ± 0.2 %"
