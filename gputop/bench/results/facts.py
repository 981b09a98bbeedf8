"""The facts of a result as people read them, for the page of text and the HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gputop.bench.plan.peaks import in_words
from gputop.bench.results.columns import of_best, under_percent
from gputop.bench.results.compare import score
from gputop.schema.values import CAUSES, span_text, value_text
from gputop.text import ABSENT, duration, percentage, quantity, size, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.events import Conditions, Result

Fact = tuple[str, str]
"""A label and a text."""

ENDED = {
    "time": "time was up",
    "limit": "ended by the temperature limit",
    "silent": "ended: the device could not be watched",
}


def figures(result: Result) -> Iterator[Fact]:
    """What was measured, how it was verified, and what memory it took."""
    if result.kind == "soak":
        yield from _throughput(result)
    elif result.tflops_peak is not None:
        shape = f"{result.m} x {result.n} x {result.k}"
        yield "best", f"{result.tflops_peak:.4g} TFLOP/s at {shape}"
    for line in _of_peak(result):
        yield "of peak", line
    ended = ENDED.get(result.stopped, "stopped by the user")
    what = "copies" if result.kind == "copy" else "products"
    verified = f"{result.checks} checks"
    if result.verified_products is not None and result.kind == "soak":
        verified = f"{result.verified_products} of {result.iterations} {what}"
    done = f"{len(result.points)} rows" if result.points else ended
    yield what, f"{result.iterations}, {done if result.stopped == 'time' else ended}"
    yield "verified", f"{verified}, {result.wrong_elements or 'no'} wrong elements"
    if result.tensor_bytes is not None or result.context_bytes is not None:
        parts = (
            f"tensors {size(result.tensor_bytes)}",
            f"torch's cache {size(result.cache_bytes)}",
            f"CUDA context {size(result.context_bytes)}",
        )
        yield "memory", ", ".join(parts)


def _throughput(result: Result) -> Iterator[Fact]:
    yield "mean", f"{_rate(result.tflops_mean)} TFLOP/s over {result.seconds:.2f} s"
    yield "peak", f"{_rate(result.tflops_peak)} TFLOP/s in the best window"
    if result.tflops_sustained is not None and result.droop_percent is not None:
        below = f"{percentage(result.droop_percent, digits=1)} below the peak"
        yield "sustained", f"{result.tflops_sustained:.4g} TFLOP/s, {below}"
        steady = result.time_to_steady_seconds
        yield "steady", "not within this run" if steady is None else f"after {steady:.1f} s"
    if result.tflops_device is not None:
        yield "on device", f"{result.tflops_device:.4g} TFLOP/s by device events"


def _rate(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4g}"


def _of_peak(result: Result) -> Iterable[str]:
    """A line for each denominator; of a GPU that has none it is said."""
    if result.device_uuid is None:
        return ()
    known = result.conditions.percent_of_peak if result.conditions else {}
    if result.kind == "copy":
        return [f"{percentage(percent)} of {name}" for name, percent in known.items()]
    return in_words(score(result), known, result.dtype)


def conditions(known: Conditions | None) -> Iterator[Fact]:
    """What the device was like meanwhile, as far as it is known."""
    if known is None:
        return
    if known.power_watts_mean is not None:
        limit = known.power_limit_watts
        of = "" if limit is None else f", limit {limit:.0f} W"
        yield "power", f"{known.power_watts_mean:.0f} W in the mean{of}"
    if known.energy_joules is not None:
        efficiency = known.tflop_per_joule
        per = "" if efficiency is None else f", {tflops(efficiency)} TFLOP/J"
        energy = value_text("energy_joules", known.energy_joules)
        yield "energy", f"{energy} by the device's counter{per}"
    if known.sm_clock_mhz_mean is not None:
        most = known.sm_clock_max_mhz
        of = "" if most is None else f", at most {most:.0f} MHz"
        yield "clock", f"{known.sm_clock_mhz_mean:.0f} MHz in the mean{of}"
    if known.temperature_celsius_max is not None:
        yield "heat", f"up to {quantity(known.temperature_celsius_max, '°C')}"
    if known.heat_limit is not None:
        yield "heat limit", visible(known.heat_limit, 120)
    if known.clock_event_seconds:
        yield "held back", ", ".join(_held(known))
    if known.driver_version is not None:
        yield "driver", visible(known.driver_version, 40)


def _held(known: Conditions) -> Iterator[str]:
    """Clock event reasons, the longest first."""
    spent = sorted(known.clock_event_seconds.items(), key=lambda each: -each[1])
    for reason, seconds in spent:
        yield f"{CAUSES.get(reason, visible(reason, 40))} {span_text(seconds)}"


def method(result: Result) -> Iterator[Fact]:
    """How it was done, and with what."""
    for note in result.notes:
        yield "note", note
    yield "method", result.method
    yield "software", f"torch {result.torch_version} in {result.python}"


def details(result: Result) -> Iterator[Fact]:
    """What else a reader far away needs, beside `figures`, `conditions` and `method`."""
    under = under_percent(result)
    if under is not None:
        above = f", {-under:.1f} % above the best run before" if under < 0 else ""
        yield "of the best run before", f"{of_best(result)}{above}"
    yield "time", duration(result.seconds)
    known = result.conditions
    named = {
        "accumulate": result.accumulate,
        "layout": result.layout,
        "data": result.data,
        "threads": result.threads,
        "CUDA": result.cuda_version,
        "device": result.device_uuid,
        "PCI device id": known.pci_device_id if known else None,
    }
    yield from ((label, str(value)) for label, value in named.items() if value is not None)
