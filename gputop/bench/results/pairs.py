"""Results of `pairs`: a device's run alone, joined with its run together with others. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gputop.bench.events import Conditions, Point, Result
from gputop.bench.results.measures import ALONE, TOGETHER, rates_of_pair
from gputop.text import percentage


def join_results(
    alone: Result,
    together: Result,
    devices: int,
) -> Result:
    rows = (_row(ALONE, alone, 1), _row(TOGETHER, together, devices))
    compared = None
    if (
        alone.verified_products is not None
        and together.verified_products is not None
    ):
        compared = alone.verified_products + together.verified_products
    cost = rates_of_pair(rows)[2] or 0.0
    word, share = (
        "costs" if cost >= 0 else "gains",
        percentage(abs(cost), digits=1),
    )
    said = f"running together {word} {share} of {rows[0].values['tflops']:.4g} TFLOP/s"
    return replace(
        together,
        kind="pairs",
        points=rows,
        tflops_peak=max(row.values["tflops"] for row in rows),
        started_at=alone.started_at,
        seconds=alone.seconds + together.seconds,
        iterations=alone.iterations + together.iterations,
        checks=alone.checks + together.checks,
        wrong_elements=alone.wrong_elements + together.wrong_elements,
        verified_products=compared,
        conditions=_join_conditions(alone.conditions, together.conditions),
        mismatches=dict(
            Counter(alone.mismatches) + Counter(together.mismatches)
        ),
        method=f"alone, then {devices} devices at once; {together.method}",
        notes=(*together.notes, said),
    )


def _join_conditions(
    alone: Conditions | None, together: Conditions | None
) -> Conditions | None:
    """Return the conditions of the run together, with the errors, heat and load of both runs."""
    if alone is None or together is None:
        return together or alone
    before, after = alone.memory_errors, together.memory_errors
    errors = {}
    for name in {**before, **after}:
        first = before.get(name) or after[name]
        last = after.get(name) or before[name]
        errors[name] = (first[0], last[-1])
    celsius = (alone.temperature_celsius_max, together.temperature_celsius_max)
    known = [each for each in celsius if each is not None]
    held = Counter(alone.clock_event_seconds) + Counter(
        together.clock_event_seconds
    )
    return replace(
        together,
        temperature_celsius_max=max(known, default=None),
        clock_event_seconds=dict(held),
        clock_events_known=alone.clock_events_known
        or together.clock_events_known,
        memory_errors=errors,
        other_load=tuple(
            dict.fromkeys((*alone.other_load, *together.other_load))
        ),
    )


def only_alone(result: Result, why: str) -> Result:
    notes, rows = (
        (*result.notes, f"not run together: {why}"),
        (_row(ALONE, result, 1),),
    )
    return replace(
        result,
        kind="pairs",
        points=rows,
        notes=notes,
    )


def _row(
    series: str,
    result: Result,
    devices: int,
) -> Point:
    """Return a row. Its x is the number of devices that ran at the same time."""
    mean = result.tflops_mean or 0.0
    shape = (result.m, result.n, result.k)
    return Point(
        series, devices, {"tflops": mean, "seconds": result.seconds}, shape
    )
