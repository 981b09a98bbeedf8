"""Sick and healthy devices, simulated from the events of their workers and their readings."""

from __future__ import annotations

import argparse
import dataclasses
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.events import (
    Conditions,
    Done,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
    VerdictPart,
)
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.results.outcome import outcome_of
from gputop.bench.results.page import droop_text, figure_facts
from gputop.bench.results.verdict import judge, with_verdicts
from gputop.bench.run.device_run import DeviceRun
from gputop.commands import bench as command
from gputop.commands.arguments import Parser
from gputop.commands.bench_results import report, report_runs
from tests.bench.kept import BASE, CONDITIONS, COPY, faster, soak, table
from tests.runs import Clock
from tests.sessions import RESULT
from tests.streams import NOW, inventory, process, readings, sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gputop.agent.snapshot import Process
    from gputop.bench.events import VerdictPart

SECONDS, PEAK = 60, 989.0
OWN_PID = 4242
PLANNED = Planned(8192, 8192, 8192, "bfloat16", "float32", "row-major", "random normal", 1e-3, "mm")
GPUS = target_choice.targets(inventory(8), sample(8, []))[:8]


def simulated(
    number: int = 0,
    rate: Callable[[float], float] = lambda _: 900.0,
    reasons: Sequence[str] = (),
    others: Sequence[Process] = (),
    **changes: Any,
) -> DeviceRun:
    """A run of a minute on that GPU at that rate, with noise of 1 %, until its worker's end.

    It is at its power limit if that is a reason, and far below it otherwise.
    """
    watts = 690.0 if "sw_power_cap" in reasons else 450.0
    target, clock = GPUS[number], Clock()
    run = DeviceRun(Request(target, "bfloat16", None, float(SECONDS)), clock)
    run.add_event(inventory(8))
    draw, done, at = random.Random(number), 0.0, 0.0  # noqa: S311
    own = process(OWN_PID, number, sm_utilization_percent=99)

    run.add_event(Hello("3.11.7", "2.13.0", target.name, 2, OWN_PID))
    run.add_event(PLANNED)
    lengths = [0.1] * 20 + [0.2] * (5 * SECONDS - 10)
    for n, length in enumerate(lengths):
        now = rate(at) * (1 + 0.01 * draw.gauss(0, 1))
        at += length
        done += now * length
        clock.time = NOW + at
        run.add_event(Progress(at, length, 10 * n + 10, now, now))
        if n % 5 == 0:
            seen = readings(number, power_watts=watts, clock_event_reasons=tuple(reasons))
            around = sample(8, [own, *others], time=clock.time)
            run.add_event(dataclasses.replace(around, devices=(seen,)))
    result = dataclasses.replace(
        RESULT,
        device=target.name,
        device_uuid=target.uuid,
        dtype="bfloat16",
        m=8192,
        n=8192,
        k=8192,
        tflops_mean=done / at,
        tflops_peak=done / at * 1.02,
        seconds=at,
        started_at=NOW,
        **changes,
    )
    run.add_event(Done(result))
    return run


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser(exit_on_error=False)
    command.add_arguments(parser)
    return parser.parse_args(arguments)


def parts(result: Result | None) -> dict[str, VerdictPart]:
    assert result is not None
    assert result.verdict is not None
    return {part.name: part for part in result.verdict.parts}


def results(runs: Sequence[DeviceRun]) -> list[Result]:
    return [run.result for run in runs if run.result is not None]


def drooping(at: float) -> float:
    return 900.0 if at < 2 else 540.0 if at > 20 else 900 - 360 * (at - 2) / 18


SICK: dict[str, tuple[Callable[[], list[DeviceRun]], str, str]] = {
    "hot": (
        lambda: [simulated(reasons=["sw_thermal"])],
        "throttling",
        "software thermal slowdown for 59 s of 60 s",
    ),
    "slow": (
        lambda: [simulated(rate=lambda _: 0.05 * PEAK)],
        "datasheet",
        "5.0 % of the dense peak in its datasheet, under 50 %",
    ),
    "drooping": (
        lambda: [simulated(rate=drooping)],
        "droop",
        "below the burst, without a power cap or heat",
    ),
    "unlike": (
        lambda: [*map(simulated, range(7)), simulated(7, lambda _: 0.6 * 900)],
        "like devices",
        "under the median of 7 others like it, more than 10 %",
    ),
}


@pytest.mark.parametrize("sickness", SICK)
def test_a_sick_gpu_is_status_4_and_the_part_is_named(
    sickness: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made, part, why = SICK[sickness]
    runs = made()
    assert report_runs(runs, parsed()) == 4
    bad = [
        each for run in runs if run.result and run.result.verdict for each in run.result.verdict.bad
    ]
    assert [each.name for each in bad] == [part]
    assert why in bad[0].why
    assert capsys.readouterr().out.count(f" {part}: {bad[0].why}") == 1


def test_a_cluster_is_judged_as_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    made, part, why = SICK["unlike"]
    assert report(made(), (), parsed("--ray")) == 4
    said = capsys.readouterr().out
    assert f"{part}: " in said
    assert why in said


def test_healthy_gpus_are_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [simulated(number, reasons=["sw_power_cap"]) for number in range(8)]
    assert report_runs(runs, parsed()) == 0
    summary, *_ = capsys.readouterr().out.splitlines()
    assert summary == (
        "GPUs 0–7: No fault found. Computes correctly, 91 % of its datasheet, "
        "at its power limit of 700 W as usual, cool."
    )
    states = {name: part.state for name, part in parts(runs[0].result).items()}
    assert states.pop("earlier runs") == "not judged"
    assert set(states.values()) == {"ok"}


@pytest.mark.parametrize(
    "rate",
    [
        lambda at: 900.0 if at < 33 else 450.0,
        lambda at: 900.0 if at < 55 else 450.0,
        lambda at: 900.0 if at % 20 < 10 else 540.0,
        lambda at: 300.0 if 10 < at < 28 else 900.0,
    ],
)
def test_a_gpu_that_collapses_or_swings_is_degraded(rate: Callable[[float], float]) -> None:
    (found,) = with_verdicts(results([simulated(rate=rate)]))
    assert outcome_of(found).status == 4
    why = parts(found)["steadiness"].why
    assert why.startswith("its slowest 5 s are ")
    assert why.endswith("% under the median, without a power cap or heat")


def test_a_rate_that_varies_too_much_is_not_said_to_have_no_droop() -> None:
    (found,) = with_verdicts(results([simulated(rate=lambda at: 900.0 if at < 50 else 90.0)]))
    part = parts(found)["droop"]
    assert part.state == "not judged"
    assert droop_text(found) == "too uneven to tell a droop"
    assert "the rate varies too much to tell 10 %: its 95 % interval is -" in part.why


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
    ],
)
def test_a_power_cap_explains_a_droop_if_it_held_and_the_power_was_near_it(
    capped: float, late: float | None, watts: float | None, state: str
) -> None:
    known = dataclasses.replace(
        CONDITIONS,
        clock_event_seconds={"sw_power_cap": capped},
        late_power_cap_seconds=late,
        power_watts_mean=watts,
    )
    drooped: dict[str, Any] = {
        "droop_percent": 40.0,
        "droop_interval_percent": (39.0, 41.0),
        "dip_percent": 30.0,
    }
    (found,) = with_verdicts([soak(**drooped, conditions=known)])
    assert [parts(found)[name].state for name in ("droop", "steadiness")] == [state, state]


@pytest.mark.parametrize(
    ("errors", "seconds", "state"),
    [
        ({"remap_failed": (1.0, 1.0)}, 60.0, "faulty"),
        ({"remap_failed": (0.0, 1.0)}, 60.0, "faulty"),
        ({"remap_failed": (0.0, 0.0)}, 60.0, "ok"),
        ({"remap_pending": (1.0, 1.0)}, 60.0, "degraded"),
        ({"remapped_rows": (3.0, 3.0)}, 60.0, "ok"),
        ({"ecc_uncorrected": (12.0, 12.0)}, 60.0, "ok"),
        ({"ecc_corrected": (0.0, 1e6)}, 60.0, "degraded"),
        ({"ecc_corrected": (1e6, 1e6 + 3)}, 60.0, "ok"),
        ({"ecc_corrected": (0.0, 40.0)}, 3600.0, "ok"),
        ({"ecc_corrected": (0.0, 90.0)}, 3600.0, "degraded"),
    ],
)
def test_memory_is_bad_by_states_and_by_many_corrected_errors(
    errors: dict[str, tuple[float, float]], seconds: float, state: str
) -> None:
    known = dataclasses.replace(CONDITIONS, memory_errors=errors)
    (found,) = with_verdicts([soak(seconds=seconds, conditions=known)])
    assert parts(found)["memory"].state == state


def test_a_busy_machine_decides_nothing() -> None:
    load = [process(9, 7, sm_utilization_percent=60)]
    busy = simulated(7, others=load, rate=lambda _: 0.05 * PEAK)
    runs = [*map(simulated, range(7)), busy]
    assert report_runs(runs, parsed()) == 0
    found = parts(busy.result)
    assert found.pop("results").state == "ok"
    assert {part.state for part in found.values()} == {"not judged"}
    assert "9 (ada: python train.py --rank 7)" in found["droop"].why
    assert report_runs([simulated(wrong_elements=1, others=[process(9, 0)])], parsed()) == 1


@pytest.mark.parametrize("sickness", [{"reasons": ["sw_thermal"]}, {"stopped": "limit"}])
def test_heat_is_judged_also_on_a_busy_machine(sickness: dict[str, Any]) -> None:
    hot = simulated(others=[process(9, 0, sm_utilization_percent=60)], **sickness)
    (found,) = with_verdicts(results([hot]))
    assert [name for name, part in parts(found).items() if part.state == "degraded"] == [
        "throttling"
    ]


@pytest.mark.parametrize(
    "other",
    [
        process(9, 0),  # which does nothing, as a desktop
        process(9, 0, sm_utilization_percent=2),
        process(9, 1, sm_utilization_percent=60),
    ],
)
def test_who_does_not_compute_there_is_no_load(other: Process) -> None:
    run = simulated(others=[other])
    assert run.result is not None
    assert run.result.known_conditions.other_load == ()


def test_limits_are_options() -> None:
    runs = [simulated(0, lambda _: 820.0), simulated(1)]
    assert report_runs(runs, parsed()) == 0
    assert report_runs(runs, parsed("--tolerance", "5")) == 4
    assert report_runs(runs, parsed("--min-percent-of-peak", "85")) == 4
    for bad in ("101", "-1", "much", "nan"):
        with pytest.raises(argparse.ArgumentError, match="percentage"):
            parsed("--tolerance", bad)


@pytest.mark.parametrize(
    ("changes", "part", "why"),
    [
        ({"n": 1024}, "datasheet", "matrices under 2048"),
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
    (found,) = with_verdicts([dataclasses.replace(BASE, **changes)])
    assert parts(found)[part].state == "not judged"
    assert why in parts(found)[part].why
    assert outcome_of(found).status == 0


UNCAPPED = dataclasses.replace(CONDITIONS, power_watts_mean=450.0, clock_event_seconds={})
"""Conditions of a GPU that draws far less than its power limit."""
LIVE, AT_MOST = "formula at the live clock", "formula at the maximum clock"


@pytest.mark.parametrize(
    ("percent", "changes", "state", "why"),
    [
        (
            {AT_MOST: 5.0, LIVE: 5.2},
            {},
            "degraded",
            "5.0 % of the formula at the maximum clock, under",
        ),
        ({AT_MOST: 45.0}, {}, "ok", "45.0 % of the formula at the maximum clock"),
        ({AT_MOST: 5.0}, {"dtype": "float8_e4m3"}, "not judged", "no datasheet value"),
        ({"datasheet dense": 0.0}, {}, "degraded", "0.0 % of the dense peak in its datasheet"),
        ({"datasheet dense": 40.0}, {"tflops_device": 940.0}, "degraded", "40.0 % of the dense"),
        ({"datasheet dense": 49.5}, {"tflops_device": 796.0}, "degraded", "49.5 % of the dense"),
    ],
)
def test_a_gpu_without_a_datasheet_is_judged_by_the_formula(
    percent: dict[str, float], changes: dict[str, Any], state: str, why: str
) -> None:
    known = dataclasses.replace(UNCAPPED, percent_of_peak=percent)
    (found,) = with_verdicts([dataclasses.replace(BASE, conditions=known, **changes)])
    assert parts(found)["datasheet"].state == state
    assert parts(found)["datasheet"].why.startswith(why)


LOWERED: dict[str, Any] = {"power_limit_watts": 200.0}
LIVE_90 = "90.0 % of the formula at the live clock; its power limit of "
DATASHEET_38 = "38.0 % of the dense peak"


@pytest.mark.parametrize(
    ("live", "changes", "state", "why"),
    [
        (90.0, LOWERED, "ok", f"{LIVE_90}200 W, lowered from 700 W"),
        (20.0, LOWERED, "degraded", "20.0 % of the formula at the live clock"),
        (
            None,
            LOWERED,
            "not judged",
            "its power limit of 200 W, lowered from 700 W, holds it back",
        ),
        (None, {"clock_event_seconds": {"application_clocks": 59.0}}, "not judged", "application"),
        (90.0, {}, "ok", f"{LIVE_90}700 W holds"),
        (
            None,
            {"power_limit_watts": 690.0},
            "not judged",
            "its power limit of 690 W holds it back",
        ),
        (None, {"power_watts_mean": 450.0, "clock_event_seconds": {}}, "degraded", DATASHEET_38),
        (90.0, LOWERED | {"clock_event_seconds": {"sw_power_cap": 3.0}}, "degraded", DATASHEET_38),
    ],
)
def test_a_gpu_that_was_set_slower_is_not_judged_by_its_datasheet(
    live: float | None, changes: dict[str, Any], state: str, why: str
) -> None:
    percent = {"datasheet dense": 38.0} | ({} if live is None else {LIVE: live})
    known = dataclasses.replace(CONDITIONS, percent_of_peak=percent, **changes)
    (found,) = with_verdicts([soak(conditions=known)])
    assert parts(found)["datasheet"].state == state
    assert parts(found)["datasheet"].why.startswith(why)


def of_eight(number: int, rate: Callable[[int, int], float], **changes: Any) -> Result:
    """Copies of a GPU of eight; `rate` of a link is relative."""
    rows = [
        Point(f"GPU {number}: {way} GPU {peer}", 2.0**28, {"bytes_per_second": 4e11 * each})
        for peer in range(8)
        for way in ("write to", "read from", "both directions with")
        if peer != number and (each := rate(number, peer))
    ]
    return table("copy", (*COPY, *rows), device_uuid=f"GPU-{number}", **changes)


LINKS: dict[str, tuple[Callable[[int, int], float], dict[int, str]]] = {
    "all are alike": (lambda gpu, peer: 1 + 0.001 * (gpu + peer), {}),
    "one GPU is slow": (
        lambda gpu, peer: 0.1 if 7 in (gpu, peer) else 1.0,
        {7: "write to all other GPUs 90.0 %; read from all other GPUs"},
    ),
    "what one GPU copies is slow": (
        lambda gpu, _: 0.1 if gpu == 7 else 1.0,
        {7: "write to all other GPUs 90.0 %; read from all other GPUs"},
    ),
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
        assert parts(found[number])["links"].why.startswith(why)
    assert "links" not in parts(with_verdicts([table("copy", COPY)])[0])


@pytest.mark.parametrize(
    ("pinned", "link", "others", "state", "why"),
    [
        (0.8e9, 31.5e9, 0, "degraded", "pinned copies at 0.8 of 31.5 GB/s"),
        (24e9, 31.5e9, 0, "ok", "pinned copies at 24.0 of 31.5 GB/s"),
        (24e9, None, 0, "not judged", "the greatest speed of its link is not known"),
        (12e9, 31.5e9, 1, "not judged", "pinned copies at 12.0 of 31.5 GB/s, and other GPUs"),
    ],
)
def test_pinned_copies_are_judged_by_the_link(
    pinned: float, link: float | None, others: int, state: str, why: str
) -> None:
    known = dataclasses.replace(CONDITIONS, pcie_bytes_per_second=link)
    rows = (COPY[0], *faster(COPY[1:], pinned / 54e9))
    copied = [
        table("copy", rows, conditions=known, device_uuid=f"GPU-{n}") for n in range(1 + others)
    ]
    part = parts(with_verdicts(copied)[0])["PCIe"]
    assert part.state == state
    assert part.why.startswith(why)


def test_unlike_or_faulty_devices_are_no_measure() -> None:
    slow = soak(100.0, device_uuid="GPU-1")
    others = [
        soak(700.0, device="NVIDIA A100"),
        soak(700.0, dtype="float16"),
        soak(700.0, m=2048, n=2048, k=2048),
        soak(700.0, accumulate="float16"),
        soak(700.0, layout="A and B row-major"),
        soak(700.0, wrong_elements=1),
        soak(700.0, conditions=Conditions(other_load=("9 (ada: train)",))),
    ]
    assert parts(with_verdicts([slow, *others])[0])["like devices"].state == "not judged"


def test_names_and_notes_of_others_are_inert() -> None:
    odd = Conditions(
        other_load=("9 (\x1b[2J: \n)",), clock_event_seconds={"bit_\x1b": 60.0, "hw_thermal": 60.0}
    )
    noted: dict[str, Any] = {"kind": "memory", "wrong_elements": 1, "notes": ("\x1b[2Jword 7",)}
    (hot, wrong) = with_verdicts([soak(conditions=odd), soak(**noted)])
    assert all(part.why.isprintable() for part in parts(hot).values())
    assert hot.verdict is not None
    assert "\x1b" not in hot.verdict.summary
    assert parts(wrong)["results"].why.endswith("; ␛[2Jword 7")


def copies_at(**rates: float) -> Result:
    """A run of copies_at, in GB/s by series."""
    points = tuple(
        Point(name.replace("_", " "), 1 << 30, {"bytes_per_second": 1e9 * rate, "seconds": 1.0})
        for name, rate in rates.items()
    )
    return replace(BASE, kind="copy", points=points, tflops_mean=None, tflops_peak=None)


def part(result: Result, others: list[Result], name: str) -> VerdictPart:
    return next(each for each in judge(result, others).parts if each.name == name)


def test_copies_are_judged_by_direction_and_pageable_memory_is_not() -> None:
    fine = copies_at(device=4000, host_to_device_pinned=55, host_to_device_pageable=12)
    assert part(copies_at(device=4000, host_to_device_pinned=55, host_to_device_pageable=3),
                [fine, fine], "like devices").state == "ok"  # fmt: skip
    slow = part(copies_at(device=4000, host_to_device_pinned=27, host_to_device_pageable=12),
                [fine, fine], "like devices")  # fmt: skip
    assert slow.state == "degraded"
    assert slow.why.startswith("host to device pinned 50.9 % under")


COOL: dict[str, Any] = {"power_watts_mean": 450.0, "clock_event_seconds": {}}


def sweep(peaks: dict[str, float], conditions: dict[str, Any] = COOL, **rates: float) -> Result:
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
    fine = sweep(peaks, float32=50.0, bfloat16=780.0)
    slow = sweep(peaks, float32=30.0, bfloat16=780.0)
    found = part(slow, [fine, fine], "like devices")
    assert found.state == "degraded"
    assert found.why.startswith("float32 40.0 % under"), "though bfloat16 is faster than both"
    sheet = part(slow, [], "datasheet")
    assert sheet.state == "degraded"
    assert sheet.why.startswith("float32 90.0 %, bfloat16 30.0 % of the dense peak")
    assert [text for name, text in figure_facts(slow) if name == "of peak"] == [
        "float32: 90 % of 33.3 TFLOP/s (datasheet dense)",
        "bfloat16: 30 % of 2600 TFLOP/s (datasheet dense)",
    ]


def test_a_sweep_with_rows_at_the_power_limit_is_not_judged_by_its_mean_clock() -> None:
    of_datasheet = {"datasheet dense float32": 90.0, "datasheet dense float16": 36.0}
    at_live_clock = {"formula at the live clock float32": 95.0}
    capped: dict[str, Any] = {
        "power_watts_mean": 48.0,
        "power_limit_watts": 70.0,
        "clock_event_seconds": {"sw_power_cap": 9.0},
    }

    def judged(float16: float) -> VerdictPart:
        live = at_live_clock | {"formula at the live clock float16": float16}
        return part(sweep(of_datasheet | live, capped, float32=7.0, float16=24.0), [], "datasheet")

    assert judged(64.0).state == "ok"
    found = judged(45.0)
    assert found.state == "not judged"
    assert found.why.endswith("holds it back, and its clock differs from row to row: try soak")


def test_a_search_is_judged_with_the_scatter_of_the_others() -> None:
    def peak(rate: float, spread: float) -> Result:
        values = {"tflops": rate, "seconds": 1.0, "spread_percent": spread}
        points = (Point("B column-major, confirmed", 8192, values, (8192,) * 3),)
        return replace(BASE, kind="peak", points=points, tflops_peak=rate)

    fine = peak(780.0, 0.2)
    assert part(peak(690.0, 0.2), [fine, fine], "like devices").state == "degraded"
    assert part(peak(690.0, 4.0), [fine, fine], "like devices").state == "degraded"
    noisy = peak(780.0, 4.0)
    assert part(peak(690.0, 0.2), [noisy, noisy], "like devices").state == "ok"
    said = dict(figure_facts(fine))["best"]
    assert said == "780 TFLOP/s at 8192, ± 0.2 %"
