"""Results from files: many collected as far as they are comparable, and two with what differs.

`srun gputop bench --json > FILE` makes such files. Damaged files and results of another test are
named and left out.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gputop.bench.events import Result
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.results.compare import FEWEST_RUNS, as_long, last_and_first_runs
from gputop.bench.results.outliers import DeviceOutcome
from gputop.bench.results.statistics import robust_sigma
from gputop.bench.results.tables import LAYOUTS, aligned
from gputop.console import COULD_NOT_RUN, FAULT
from gputop.files import read_at_once
from gputop.schema.decode import from_plain
from gputop.schema.limits import DecodeError
from gputop.text import duration, moment, quantity, visible

MOST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file, or a result in it, that is not compared with the others."""

    file: str
    why: str

    def __str__(self) -> str:
        return f"{visible(self.file)} is left out: {visible(self.why)}"


def collect(files: Sequence[str]) -> tuple[list[DeviceOutcome], list[SkippedFile]]:
    """Return the devices in the files, and what was skipped.

    If their tests differ, those of the commonest one are kept.
    """
    found: list[tuple[str, DeviceOutcome]] = []
    left_out: list[SkippedFile] = []
    for file in dict.fromkeys(files):
        try:
            found += [(file, member) for member in read(file)]
        except ValueError as error:
            left_out.append(SkippedFile(file, str(error)))
    for why_not in (_twice, _unlike):
        reasons = why_not(found)
        both = [*zip(found, reasons, strict=True)]
        left_out += [SkippedFile(file, why) for (file, _), why in both if why]
        found = [each for each, why in both if not why]
    return [member for _, member in found], left_out


def read(file: str) -> list[DeviceOutcome]:
    """Return the devices in a file; raise `ValueError` with the reason if it is unusable."""
    path = Path(file)
    try:
        text = read_at_once(path, MOST_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(why[:1].lower() + why[1:]) from None
    if not text.strip():
        why = "it is empty, as after a run without a result"
        raise ValueError(f"{why}: see the run's standard error")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not a complete JSON document ({error})") from None
    return [_member(each, path.name) for each in _documents(document)]


def _documents(document: Any) -> list[Any]:
    if isinstance(document, dict) and isinstance(document.get("results"), list):
        document = document["results"]
    documents = document if isinstance(document, list) else [document]
    if not documents:
        raise ValueError("it contains no result")
    return documents


def _member(document: Any, name: str) -> DeviceOutcome:
    if not isinstance(document, dict) or "device" not in document:
        raise ValueError("it is not a result of `gputop bench --json`")
    host, place = (document.get(key) for key in ("host", "place"))
    place = place if isinstance(place, str) else name
    if "problem" in document:
        problem, remedy = document["problem"], document.get("remedy")
        if isinstance(problem, dict):
            remedy = problem.get("remedy")
            problem = f"{problem.get('what')}: {problem.get('why')}"
        status = FAULT if document.get("status") == FAULT else COULD_NOT_RUN
        device = (_text(document.get("device_uuid")), place, str(document["device"]))
        return DeviceOutcome(
            str(host or ""), *device, None, str(problem), status, _text(remedy)
        )
    try:
        result = from_plain(
            Result, {key: document[key] for key in document if key != "place"}
        )
    except (DecodeError, RecursionError) as error:
        raise ValueError(f"it is not a complete result ({error})") from None
    return DeviceOutcome(
        result.host or "", result.device_uuid, place, result.device, result
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


Found = Sequence[tuple[str, DeviceOutcome]]


def _twice(found: Found) -> list[str | None]:
    """Return which devices came before: tasks without a GPU of their own all take the same one."""
    first: dict[tuple[str, str], str] = {}
    reasons: list[str | None] = []
    for file, member in found:
        before = (
            file
            if not member.uuid
            else first.setdefault((member.host, member.uuid), file)
        )
        same = f"it is of the same GPU as {before}: give each task one of its own"
        reasons.append(None if before == file else same)
    return reasons


def _unlike(found: Found) -> list[str | None]:
    """Return which results are not of the commonest test."""
    results = [member.result for _, member in found]
    tests = Counter(settings(each) for each in results if each is not None)
    if not tests:
        return [None] * len(found)
    commonest = tests.most_common(1)[0][0]
    # Runs of one shape that took their time.
    lengths = [
        each.seconds
        for each in results
        if each
        and settings(each) == commonest
        and not each.points
        and each.stopped == "time"
    ]
    usual, seconds = dict(commonest), statistics.median(lengths) if lengths else None
    return [None if each is None else _other(each, usual, seconds) for each in results]


def settings(result: Result) -> tuple[tuple[str, str], ...]:
    """Return what has to be equal in results of one test, by name."""
    found = {
        "kind": result.kind,
        "data type": result.dtype,
        "accumulation": result.accumulate,
        "layout": result.layout if not kind_of(result.kind).finds_shape else None,
        "data": result.data,
        "threads": result.threads,
        "torch": result.torch_version,
        "CUDA": result.cuda_version,
        "driver": result.known_conditions.driver_version,
    }
    if not kind_of(result.kind).has_rows:
        found["size"] = f"{result.m} x {result.n} x {result.k}"
    return tuple(
        (name, str(value)) for name, value in found.items() if value is not None
    )


def _other(result: Result, usual: dict[str, str], seconds: float | None) -> str | None:
    own = dict(settings(result))
    names = [name for name in {**usual, **own} if own.get(name) != usual.get(name)]
    if names:
        differs = ", ".join(
            f"{name} {own.get(name, 'unknown')}, not {usual.get(name, 'unknown')}"
            for name in names
        )
        return f"it is of another test: {differs}"
    if result.stopped == "user":
        return f"it was stopped after {duration(result.seconds)}"
    timed = seconds and not result.points and result.stopped == "time"
    if seconds and timed and not as_long(result.seconds, seconds):
        return f"it took {duration(result.seconds)}, the others {duration(seconds)}"
    return None


MEDIAN_SPREADS = 1.8
"""Half of a 95 % interval of a row's median, in spreads of its blocks, which are four or more."""

RUN_PERCENT, RUN_SIGMAS = 1.0, 2.8
"""Standard deviation of a figure in equal runs, in percent, where fewer than four are known; and
half of the 95 % interval of the difference of two runs in such deviations."""
TEST = ("kind", "data type", "size", "accumulation", "layout", "data", "threads")
"""Settings that make another test."""
UNITS = {"tflops": ("TFLOP/s", 1.0), BANDWIDTH: ("GB/s", 1e9), "seconds": ("µs", 1e-6)}
"""Units of the values of rows, and what one of them is."""


class Figure(NamedTuple):
    """A figure, and half of its 95 % interval, where that is known."""

    value: float
    half: float | None = None
    in_percent: bool = False

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (
            "" if self.half is None else f" ± {self.half:.2g}"
        )


def differences(before: Result, after: Result, known: Sequence[Result] = ()) -> str:
    """Return the settings, figures and parts of the verdict that two results do not share.

    Equal runs scatter, too: by as much as those of the `known` results that are like these.
    """
    like = max(
        (last_and_first_runs(each, known)[0] for each in (before, after)), key=len
    )
    lines = [*_other_test(before, after), f"{_name(before)}, then {_name(after)}"]
    lines += [
        *_changed_settings(before, after),
        f"  scatter of equal runs: {_source(like)}",
        "",
    ]
    old, new, others = _figures(before), _figures(after), [*map(_figures, like)]
    rows = [["", "before", "then", "change", ""]]
    for name, one in old.items():
        if other := new.get(name):
            sigma = _run_sigma(
                one, [each[name].value for each in others if name in each]
            )
            rows.append([name, str(one), str(other), *_change(one, other, sigma)])
    lines += (
        aligned(rows, left=1) if len(rows) > 1 else ["  They have no figure in common."]
    )
    was = {
        part.name: part.state
        for part in (before.verdict.parts if before.verdict else ())
    }
    for part in after.verdict.parts if after.verdict else ():
        if was.get(part.name, part.state) != part.state:
            why = visible(part.why, 400)
            lines.append(
                f"  {part.name} was {was[part.name]} and is {part.state}: {why}"
            )
    return "\n".join(lines)


def _name(result: Result) -> str:
    where = f" on {visible(result.host, 60)}" if result.host else ""
    return f"{visible(result.device, 60)}{where}, {moment(result.started_at, '%d %b %Y %H:%M')}"


def _other_test(before: Result, after: Result) -> Iterator[str]:
    one, other = dict(settings(before)), dict(settings(after))
    unlike = [name for name in TEST if one.get(name) != other.get(name)]
    if unlike:
        yield f"These are different tests: they differ in {', '.join(unlike)}."


def _source(like: Sequence[Result]) -> str:
    if len(like) < FEWEST_RUNS:
        return f"{RUN_PERCENT:g} % is assumed, as fewer than {FEWEST_RUNS} like runs are known"
    return f"that of {len(like)} like runs in the history"


def _run_sigma(figure: Figure, values: Sequence[float]) -> float:
    """Return the standard deviation of a figure in equal runs, from those of the like runs."""
    if len(values) < FEWEST_RUNS:
        return RUN_PERCENT * (1.0 if figure.in_percent else abs(figure.value) / 100)
    return (1 + 36 / len(values) ** 2) * robust_sigma(values)  # few show it badly


def _changed_settings(before: Result, after: Result) -> Iterator[str]:
    one, other = (
        {
            **dict(settings(each)),
            "device": each.device_uuid or each.device,
            "power limit": quantity(each.known_conditions.power_limit_watts, " W"),
            "cuBLAS": each.cublas_version,
            "verified": each.verify,
            "seconds": f"{each.seconds:.0f}",
        }
        for each in (before, after)
    )
    for name in dict.fromkeys((*one, *other)):
        if (was := one.get(name)) != (now := other.get(name)):
            shown = (visible(each or "unknown", 80) for each in (was, now))
            yield f"  {name}: {', then '.join(shown)}"


def _figures(result: Result) -> dict[str, Figure]:
    known, kind = result.known_conditions, kind_of(result.kind)
    mean = result.tflops_mean if kind.over_time else None
    values = {
        "mean, TFLOP/s": (mean, result.tflops_mean_interval),
        "burst, TFLOP/s": (result.tflops_burst, None),
        "sustained, TFLOP/s": (result.tflops_sustained, None),
        "droop, %": (result.droop_percent, result.droop_interval_percent),
        "5th percentile, TFLOP/s": (result.tflops_p5, None),
        "power, W": (known.power_watts_mean, None),
        "SM clock, MHz": (known.sm_clock_mhz_mean, None),
        "temperature, °C": (known.temperature_celsius_max, None),
        "TFLOP/J": (known.tflop_per_joule, None),
    }
    found = {
        name: Figure(
            value, (bounds[1] - bounds[0]) / 2 if bounds else None, name.endswith("%")
        )
        for name, (value, bounds) in values.items()
        if value is not None
    }
    layout = LAYOUTS.get(result.kind)
    for point in result.points:
        name = kind.measures if kind.measures in point.values else "seconds"
        value, (unit, one) = point.values.get(name), UNITS[name]
        size = layout.size(point.x) if layout else " x ".join(map(str, point.shape))
        if value is not None:
            spread = point.values.get("spread_percent")
            half = (
                None if spread is None else MEDIAN_SPREADS * spread / 100 * value / one
            )
            found[f"{point.series}, {size}, {unit}"] = Figure(value / one, half)
    return found


def _change(old: Figure, new: Figure, sigma: float) -> tuple[str, str]:
    """Return the change in percent, from nothing as a difference, and whether it says something."""
    change = new.value - old.value
    factor, unit = (100 / abs(old.value), " %") if old.value else (1.0, "")
    said = f"{factor * change:+.2f}{unit}"
    if old.half is None or new.half is None:
        return said, ""
    half = math.hypot(old.half, new.half, RUN_SIGMAS * sigma)
    return f"{said} ± {factor * half:.2f}", "differs" if abs(
        change
    ) > half else "the same"
