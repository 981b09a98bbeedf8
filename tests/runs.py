"""Runs of a stress test by their events, and the device meanwhile."""

import dataclasses
import math
from typing import Any

from gputop.agent.snapshot import Sample
from gputop.bench.events import Done, Event, Hello, Progress, Result
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.request import Request
from gputop.bench.run.device_run import DeviceRun
from tests.sessions import PLANNED, RESULT
from tests.streams import NOW, host, inventory, readings, sample

WINDOW = 0.25


class Clock:
    def __init__(self, time: float = NOW) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


def gpu_sample(time: float, **changes: Any) -> Sample:
    return dataclasses.replace(sample(1, [], time=time), devices=(readings(0, **changes),))


def gpu_result(seconds: float, **changes: Any) -> Result:
    made = dataclasses.replace(
        RESULT,
        device="NVIDIA H100 80GB HBM3",
        device_uuid=inventory(1).devices[0].uuid,
        dtype="bfloat16",
        tflops_mean=700.0,
        tflops_peak=790.0,
        seconds=seconds,
        stopped="time",
    )
    return dataclasses.replace(made, **changes)


def begin(
    target: request.Target, seconds: float, dtype: str = "float32"
) -> tuple[DeviceRun, Clock]:
    clock = Clock()
    run = DeviceRun(Request(target, dtype, None, seconds), clock)
    for event in (Hello("3.11.7", "2.13.0", target.name, 2, 4242), PLANNED):
        run.add_event(event)
    return run, clock


def ended(target: request.Target, *events: Event) -> DeviceRun:
    run = DeviceRun(Request(target, "float32", None, 10.0))
    for event in events:
        run.add_event(event)
    return run


def gpu_run(seconds: float, until: float, *, ended: bool = False) -> DeviceRun:
    """An H100 that warms up, and slows down for its power and then for its heat."""
    target = target_choice.targets(inventory(1), sample(1))[0]
    run, clock = begin(target, seconds, "bfloat16")
    joules = 1e6
    for n in range(1, int(until / WINDOW) + 1):
        at = n * WINDOW
        warm = 1 - math.exp(-at / (0.25 * seconds))
        hot, capped = at > 0.6 * seconds, at > 0.1 * seconds
        clock.time = NOW + at
        slow = 0.02 * math.sin(at) + (0.12 if hot else 0.06 if capped else 0.0)
        run.add_event(Progress(at, WINDOW, 10 * n, 790 * (1 - slow)))
        joules += 680 * WINDOW
        if at == int(at):
            reasons = (("sw_power_cap",) if capped else ()) + (("sw_thermal",) if hot else ())
            look(
                run,
                gpu_sample(
                    clock.time,
                    power_watts=698.0 if capped else 560.0 + 1400 * at / seconds,
                    sm_clock_mhz=round(1980 * (1 - slow)),
                    temperature_celsius=round(42 + 40 * warm),
                    clock_event_reasons=reasons,
                    energy_joules=joules,
                ),
            )
    if ended:
        run.add_event(Done(run.completed(gpu_result(until))))
    return run


def cpu_run(seconds: float, until: float, *, ended: bool = False) -> DeviceRun:
    """A CPU, whose clock sinks and which has no power to read."""
    run, clock = begin(request.cpu_target(), seconds)
    for n in range(1, int(until / WINDOW) + 1):
        at = n * WINDOW
        clock.time = NOW + at
        run.add_event(Progress(at, WINDOW, 10 * n, 0.31 - 0.02 * at / seconds))
        if at == int(at):
            around = dataclasses.replace(
                host(), cpu_clock_mhz=3700 - 500 * at / seconds, cpu_temperature_celsius=60 + at / 4
            )
            look(run, sample(0, [], time=clock.time, host=around))
    if ended:
        result = dataclasses.replace(RESULT, seconds=until)
        run.add_event(Done(run.completed(result)))
    return run


def look(run: DeviceRun, seen: Sample) -> None:
    run.add_event(inventory(1))
    run.add_event(seen)
