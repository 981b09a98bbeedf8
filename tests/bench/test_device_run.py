import dataclasses
import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.agent.device import Device
from gputop.agent.snapshot import Sample
from gputop.bench.events import Conditions, Hello, Point, Progress, Verified
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.peaks import AT_LIVE_CLOCK, AT_MAXIMUM_CLOCK, BANDWIDTH, DATASHEET
from gputop.bench.plan.request import Request, cpu_target
from gputop.bench.results.measures import score
from gputop.bench.run.conditions import WITHIN
from gputop.bench.run.device_run import RATE, DeviceRun
from gputop.bench.run.series import (
    READINGS,
    Moment,
    RunCurves,
    merge_moments,
    merge_windows,
    thinned,
)
from tests.runs import Clock, gpu_result, gpu_run, gpu_sample
from tests.sessions import PLANNED
from tests.streams import NOW, host, inventory, process, sample

GPU = target_choice.targets(inventory(1), sample(1))[0]


def sampled(*samples: Sample) -> DeviceRun:
    clock = Clock()
    run = run_on(GPU, clock)
    events: list[tuple[float, Any]] = [(NOW, PLANNED)]
    events += [(NOW + n, Progress(float(n), 1.0, n, 700.0)) for n in range(1, 11)]
    events += [(seen.time, seen) for seen in samples]
    for clock.time, event in sorted(events, key=lambda each: each[0]):
        if isinstance(event, Sample):
            run.add_event(inventory(1))
        run.add_event(event)
    return run


def run_on(target: request.Target, clock: Clock | None = None) -> DeviceRun:
    return DeviceRun(request.Request(target, "bfloat16", None, 10.0), clock or Clock())


def conditions(run: DeviceRun, seconds: float = 10.0, **changes: Any) -> Conditions:
    found = run.completed(gpu_result(seconds, **changes)).conditions
    assert found is not None
    return found


def test_the_conditions_of_a_run() -> None:
    run = sampled(
        gpu_sample(NOW - 1, power_watts=90.0, sm_clock_mhz=345, temperature_celsius=99),
        gpu_sample(NOW + 2, power_watts=500.0, sm_clock_mhz=1980, temperature_celsius=60),
        gpu_sample(NOW + 6, power_watts=700.0, sm_clock_mhz=1500, temperature_celsius=70),
        gpu_sample(NOW + 10, power_watts=700.0, sm_clock_mhz=1500, temperature_celsius=69),
    )
    found = conditions(run)
    late = sampled(gpu_sample(NOW + 1), gpu_sample(NOW + 9)).readings.moments
    assert [each.window_seconds for each in late] == [1.0, 5.0], "a longer time is a gap"
    assert found.power_watts_mean == pytest.approx((2 * 500 + 8 * 700) / 10)
    assert found.sm_clock_mhz_mean == pytest.approx((2 * 1980 + 8 * 1500) / 10)
    assert found.late_power_watts_mean == 700.0
    assert found.temperature_celsius_max == 70, "what was before the run does not count"
    assert (found.power_limit_watts, found.sm_clock_max_mhz) == (700.0, 1980)
    assert (found.driver_version, found.pci_device_id) == ("580.65.06", "2330")
    assert found.percent_of_peak == pytest.approx({DATASHEET: 100 * 700 / 989})


def test_a_power_cap_of_the_second_half_is_counted_and_what_is_not_reported_is_not_known() -> None:
    def capped(*reasons: tuple[str, ...] | None) -> float | None:
        samples = (
            gpu_sample(NOW + n, clock_event_reasons=each) for n, each in enumerate(reasons, 1)
        )
        return conditions(sampled(*samples)).late_power_cap_seconds

    held: tuple[str, ...] = ("sw_power_cap",)
    assert capped(*[held] * 10) == pytest.approx(5)
    assert capped(*[held] * 5, *[()] * 5) == 0
    assert capped(*[()] * 7, *[held] * 3) == pytest.approx(3)
    assert capped(*[None] * 10) is None


@pytest.mark.parametrize(
    ("counter", "joules"),
    [
        pytest.param([5e6 + 650.0 * n for n in range(10)], 6500.0, id="steady"),
        pytest.param([None] * 10, None, id="absent"),
        pytest.param([5e6, 6e6, 7e6, 10.0, 600.0, 1200.0, 1800.0, 2e6], None, id="backwards"),
        pytest.param([1.0, 2.0, 3.0] + [None] * 7, None, id="too little of the run"),
    ],
)
def test_energy_is_what_the_counter_says_if_it_does(
    counter: list[float | None], joules: float | None
) -> None:
    samples = [gpu_sample(NOW + 1 + n, energy_joules=read) for n, read in enumerate(counter)]
    found = conditions(sampled(*samples))
    assert found.energy_joules == pytest.approx(joules)
    assert found.tflop_per_joule == pytest.approx(joules and 700.0 * 10 / joules)


@pytest.mark.parametrize(
    ("percent", "seconds", "found"),
    [
        (5, 10, ("77 (ada: python train.py --rank 0)",)),
        (4, 10, ()),
        (90, 1, ("77 (ada: python train.py --rank 0)",)),
        (None, 10, ()),
    ],
)
def test_the_load_of_others_counts_if_it_is_some(
    percent: int | None, seconds: int, found: tuple[str, ...]
) -> None:
    run = run_on(GPU, clock := Clock())
    run.add_event(Hello("3.11", "2.13", "a GPU", 1, 1))
    run.add_event(PLANNED)
    for n in range(1, 11):
        clock.time = NOW + n
        other = process(77, 0, sm_utilization_percent=percent if n <= seconds else 0)
        elsewhere = process(78, 1, sm_utilization_percent=99)
        processes = (process(1, 0, sm_utilization_percent=99), other, elsewhere)
        run.add_event(dataclasses.replace(gpu_sample(clock.time), processes=processes))
    assert bool(run.readings.others) is bool(found and seconds == 10)
    assert conditions(run).other_load == found
    run.add_event(dataclasses.replace(gpu_sample(NOW + 11), processes=(other,)))
    assert run.readings.others == (), "in a container the worker's pid may be another"


def test_a_worker_is_silent_once_a_window_is_overdue() -> None:
    run = run_on(GPU, clock := Clock())
    for window, due in ((0.2, 2.0), (1.0, 3.0)):
        run.add_event(Progress(1.0, window, 1, 700.0))
        clock.time += due
        assert (run.silent_seconds, run.rate_now) == (None, 700.0)
        clock.time += 0.1
        assert run.silent_seconds == pytest.approx(due + 0.1)
        assert run.rate_now is None


def test_reasons_are_counted_by_the_device_or_else_by_the_samples() -> None:
    def at(n: int, capped: float, *reasons: str) -> Sample:
        counts = {"sw_power_cap": capped, "sync_boost": 3.0, "hw_power_brake": capped / 10}
        return gpu_sample(NOW + n, clock_event_reasons=reasons, clock_event_seconds=counts)

    run = sampled(
        at(-1, 100.0),
        at(0, 100.2),
        at(2, 101.5, "sw_power_cap"),
        at(6, 104.0, "sw_power_cap", "sw_thermal"),
        at(8, 104.0),
        at(10, 104.0, "hw_slowdown"),
    )
    assert conditions(run).clock_event_seconds == pytest.approx(
        {"sw_power_cap": 6.0, "sw_thermal": 4.0, "hw_slowdown": 2.0, "hw_power_brake": 0.38}
    )
    assert run.readings.intervals() == {
        "sw_power_cap": [(0.0, 6.0)],
        "sw_thermal": [(2.0, 6.0)],
        "hw_slowdown": [(8.0, 10.0)],
    }


def test_the_time_axis_is_that_of_the_throughput_also_where_checks_are_not_timed() -> None:
    """A CPU's checks take a second after every two here: 1.5 seconds of the clock are one."""
    clock = Clock()
    run = run_on(request.cpu_target(), clock)
    run.add_event(PLANNED)
    for n in range(1, 21):
        clock.time = NOW + 1.5 * n
        run.add_event(Progress(float(n), 1.0, n, 0.3))
        run.add_event(inventory())
        run.add_event(sample(0, time=clock.time + 0.1))
    assert [m.seconds for m in run.readings.moments] == pytest.approx(
        [n + 0.1 for n in range(1, 21)]
    )
    assert conditions(run, 20.0).sm_clock_mhz_mean == host().cpu_clock_mhz


def test_an_instance_has_the_readings_of_its_gpu_and_no_energy_of_its_own() -> None:
    gpu = inventory(1).devices[0]
    run = run_of(Device(0, "MIG-1", "NVIDIA H100 MIG 1g.10gb", gpu.uuid, 1), gpu)
    found = conditions(run, 3.0)
    assert found.sm_clock_mhz_mean == pytest.approx(1500.0)
    assert found.pci_device_id == "2330"
    assert run.readings.gpu == gpu
    assert found.energy_joules is None
    assert found.tflop_per_joule is None


def test_of_a_device_that_nothing_was_heard_of_nothing_is_said() -> None:
    assert run_on(GPU).completed(gpu_result(10.0)).conditions is None
    run = run_on(request.cpu_target())
    run.add_event(PLANNED)
    assert run.completed(gpu_result(10.0)).conditions is None


def run_of(device: Device, *others: Device) -> DeviceRun:
    """A run on such a device of the machine, at 1500 MHz."""
    target = dataclasses.replace(GPU, uuid=device.uuid, parent_uuid=device.parent_uuid)
    run = run_on(target, Clock())
    run.add_event(PLANNED)
    machine = dataclasses.replace(inventory(1), devices=(device, *others))
    for n in range(1, 4):
        run.add_event(machine)
        run.add_event(gpu_sample(NOW + n, sm_clock_mhz=1500, energy_joules=650.0 * n))
    return run


KNOWN = dataclasses.replace(inventory(1).devices[0], sm_count=132)


def test_the_peak_by_formula_is_at_the_mean_of_the_clock() -> None:
    found = conditions(run_of(KNOWN)).percent_of_peak
    assert list(found) == [DATASHEET, AT_MAXIMUM_CLOCK, AT_LIVE_CLOCK]
    assert found[AT_LIVE_CLOCK] == pytest.approx(100 * 700 / (132 * 4096 * 1500 / 1e6))
    assert found[AT_LIVE_CLOCK] / found[AT_MAXIMUM_CLOCK] == pytest.approx(1980 / 1500)


def test_a_step_has_its_part_of_the_peak() -> None:
    rows = (Point("7B", 4096, {"tflops": 350.0}),)
    made = run_of(KNOWN).completed(gpu_result(10.0, kind="step", tflops_peak=700.0, points=rows))
    assert made.points[0].values["percent_of_peak"] == pytest.approx(100 * 350 / 989)


def test_copies_are_compared_with_the_bandwidth_by_the_largest_of_them() -> None:
    def copy(series: str, size: int, rate: float) -> Point:
        return Point(series, size, {"bytes_per_second": rate, "seconds": 1.0})

    rows = (
        copy(WITHIN, 1 << 20, 9e12),
        copy(WITHIN, 1 << 30, 3.015e12),
        copy("host to device, pinned", 1 << 31, 5e10),
    )
    none: dict[str, Any] = {"kind": "copy", "tflops_mean": None, "tflops_peak": None}
    found = conditions(run_of(KNOWN), points=rows, **none)
    assert found.percent_of_peak == pytest.approx({BANDWIDTH: 90.0})
    assert conditions(run_of(KNOWN), points=rows[2:], **none).percent_of_peak == {}


readings_at = st.fixed_dictionaries(
    {
        "power_watts": st.none() | st.floats(0, 1500),
        "sm_clock_mhz": st.none() | st.integers(0, 3000),
        "temperature_celsius": st.none() | st.integers(0, 120),
        "energy_joules": st.none() | st.floats(0, 1e12),
        "age_seconds": st.none() | st.floats(0, 5),
        "clock_event_reasons": st.none() | st.lists(st.text(max_size=3), max_size=3).map(tuple),
        "clock_event_seconds": st.none()
        | st.dictionaries(st.text(max_size=3), st.floats(0, 1e9), max_size=3),
    }
)
happening = (
    st.tuples(st.just("look"), readings_at)
    | st.tuples(st.just("progress"), st.floats(0, 2))
    | st.tuples(st.just("planned"), st.none())
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.floats(-1, 30), happening), max_size=40), st.floats(0.01, 100))
def test_whatever_comes_the_axis_is_in_order_and_figures_are_finite(
    steps: list[tuple[float, tuple[str, Any]]], seconds: float
) -> None:
    clock, elapsed = Clock(), 0.0
    run = run_on(GPU, clock)
    for step, (what, value) in steps:
        clock.time += step
        if what == "look":
            run.add_event(inventory(1))
            run.add_event(gpu_sample(clock.time, **value))
        elif what == "planned":
            run.add_event(PLANNED)
        else:
            elapsed += value
            run.add_event(Progress(elapsed, value, 1, 1.0))
    for one, other in itertools.pairwise([Moment(0.0, 0.0), *run.readings.moments]):
        assert one.seconds <= other.since <= other.seconds
    for spans in run.readings.intervals().values():
        assert all(since <= until for since, until in spans)
    found = run.completed(gpu_result(seconds)).conditions
    if found is not None:
        numbers = [v for v in dataclasses.asdict(found).values() if isinstance(v, float)]
        assert all(math.isfinite(number) and number >= 0 for number in numbers)
        assert all(held >= 0 for held in found.clock_event_seconds.values())


def started() -> DeviceRun:
    return DeviceRun(Request(cpu_target(), "float32", 128, 1e6))


def test_a_run_of_hours_joins_windows_and_knows_its_peak() -> None:
    run, windows = started(), 30_000
    for n in range(1, windows + 1):
        run.add_event(Progress(0.2 * n, 0.2, n, 9.0 if n == 7 else float(n % 2)))
    assert len(run.windows) < 5000
    times = [seconds for seconds, _ in run.series(RATE)]
    apart = [after - before for before, after in itertools.pairwise(times)]
    assert max(apart) <= times[-1] / 1000
    assert times[-1] == pytest.approx(0.2 * windows)
    assert max(rate for _, rate in run.series(RATE)[4000:]) < 0.75, "means of neighbours"
    assert run.rate_peak == 9.0
    kept = json.loads(run.kept_curves())["windows"]
    assert 128 < len(kept) <= 256
    assert sum(each["window_seconds"] for each in kept) == pytest.approx(0.2 * windows)
    assert kept[-1]["iterations"] == windows


def test_the_first_wrong_element_says_when_and_the_last_check_how_many() -> None:
    run = started()
    run.add_event(Progress(4.0, 0.2, 20, 1.0))
    run.add_event(Verified(1, 0))
    assert (run.wrong_at, run.wrong_elements) == (None, 0)
    run.add_event(Progress(5.0, 0.2, 25, 1.0))
    run.add_event(Verified(2, 3))
    run.add_event(Progress(6.0, 0.2, 30, 1.0))
    run.add_event(Verified(3, 4))
    assert run.faulty
    assert (run.wrong_at, run.wrong_elements) == (5.0, 4)


WINDOWS = [Progress(0.2 * n, 0.2, 10 * n, 100.0 + n % 7, 101.0) for n in range(1, 401)]


@pytest.mark.parametrize(("count", "most"), [(1, 2), (9, 8), (400, 8), (400, 50)])
def test_thinned_windows_keep_the_work_and_the_end(count: int, most: int) -> None:
    made = WINDOWS[:count]
    kept = thinned(made, most, merge_windows)
    assert len(kept) <= most
    assert kept[-1].elapsed_seconds == made[-1].elapsed_seconds
    assert kept[-1].iterations == made[-1].iterations
    assert sum(w.window_seconds for w in kept) == pytest.approx(0.2 * len(made))
    work = sum(w.tflops * w.window_seconds for w in made)
    assert sum(w.tflops * w.window_seconds for w in kept) == pytest.approx(work)
    assert [w.elapsed_seconds for w in kept] == sorted(w.elapsed_seconds for w in kept)


def test_readings_are_curves_of_what_is_known() -> None:
    run = started()
    for moment in (
        Moment(0.0, 0.5, None, 1500.0, reasons=("idle",)),
        Moment(0.5, 1.5, 600.0, 1480.0),
        Moment(1.5, 2.5, 0.0),
    ):
        run.readings.moments.append(moment)
    curves = {
        "power_watts": [(1.5, 600.0), (2.5, 0.0)],
        "sm_clock_mhz": [(0.5, 1500.0), (1.5, 1480.0)],
    }
    course = run.history()
    assert course == RunCurves((), curves, {"idle": [(0.0, 0.5)]})
    assert list(course.readings) == list(curves)


def test_neighbouring_moments_are_joined_as_means_with_every_reason() -> None:
    capped = Moment(0.0, 1.0, 600.0, 1500.0, 60.0, ("sw_power_cap",), {"sw_power_cap": 1.0})
    hot = Moment(1.0, 4.0, 200.0, None, 80.0, ("sw_thermal",), {"sw_thermal": 3.0})
    reported = {"sw_power_cap": 1.0, "sw_thermal": 3.0}
    reasons = ("sw_power_cap", "sw_thermal")
    assert merge_moments([capped, hot]) == Moment(0.0, 4.0, 300.0, 1500.0, 75.0, reasons, reported)
    assert merge_moments([Moment(0.0, 1.0), Moment(1.0, 2.0)]) == Moment(0.0, 2.0)


def test_a_run_is_the_same_after_it_was_kept_also_one_of_a_former_kind() -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    after = DeviceRun.of_result(before.result, before.request.target, before.kept_curves())
    for reading in (RATE, *READINGS):
        assert after.series(reading) == before.series(reading)
    assert after.readings.intervals() == before.readings.intervals()
    assert after.result == before.result
    assert (after.state, after.elapsed_seconds) == ("done", 45.0)
    assert None not in (after.hello, after.planned)
    points = (Point("alone", 1, {"tflops": 700.0}), Point("together", 2, {"tflops": 630.0}))
    pairs = replace(before.result, kind="pairs", points=points)
    former = DeviceRun.of_result(pairs, before.request.target, before.kept_curves())
    assert former.series(RATE) == before.series(RATE)
    assert former.measured
    assert score(pairs) == before.result.tflops_mean


@pytest.mark.parametrize("broken", ["", "[1]", '{"windows": 3}', '{"moments": [{}]}', "nul"])
def test_broken_curves_are_a_value_error(broken: str) -> None:
    before = gpu_run(60.0, 45.0, ended=True)
    assert before.result is not None
    with pytest.raises(ValueError):  # noqa: PT011 - of several sorts
        DeviceRun.of_result(before.result, before.request.target, broken)
