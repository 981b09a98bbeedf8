"""A result as a page of sentences, tables, charts and facts, for both text and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gputop.bench.events import (
    DEGRADED,
    FAULTY,
    NOT_JUDGED,
    OK,
    Conditions,
    Point,
    Result,
)
from gputop.bench.plan.kinds import BANDWIDTH, kind_of
from gputop.bench.plan.peaks import percent_lines
from gputop.bench.results.columns import shape, share_of_usual
from gputop.bench.results.measures import (
    measured,
    memory_errors_text,
    mismatch_text,
    points_by_series,
    ranked_shapes,
    score,
    verified_text,
)
from gputop.bench.results.outcome import ending, outcome_of
from gputop.bench.results.statistics import LARGE_DROOP
from gputop.bench.results.tables import BETWEEN, TextTable, layout_of, table
from gputop.schema.values import CAUSES, span_text, value_text
from gputop.text import (
    ABSENT,
    age,
    count,
    percentage,
    quantity,
    tflops,
    throughput,
)

if TYPE_CHECKING:
    from gputop.bench.run.series import Curve, RunCurves

Level = Literal["", "good", "warn", "fault"]
"""Severity of a sentence, which determines its colour."""
Fact = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A paragraph of a page."""

    text: str
    level: Level = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """The device or part that the next blocks are about."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and texts of facts. Short text leaves out facts with `details`."""

    title: str
    rows: Sequence[Fact]
    details: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over a common axis: a value of rows over their size, or a reading over time."""

    value: str
    """Name of the value or reading, which determines the title and the format."""
    lines: Mapping[str, Curve]
    axis: Literal["N", "bytes", "seconds"]
    small: bool = False
    """True for a reading below the throughput."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Intervals of run time in which each clock event reason held."""

    intervals: Mapping[str, Curve]
    seconds: float


Block = Sentence | Heading | Facts | TextTable | Chart | Strip
Page = Sequence[Block]


def level_of(state: str) -> Level:
    """Return the severity of a verdict's state."""
    levels: dict[str, Level] = {FAULTY: "fault", DEGRADED: "warn", OK: "good"}
    return levels.get(state, "")


def result_page(
    result: Result, course: RunCurves | None = None
) -> list[Block]:
    """Return everything about a result, the verdict first, with the run over time if given."""
    page: list[Block] = [*headline(result), Heading(title_of(result))]
    if result.points:
        page.append(table(result.kind, result.points))
    page.append(Facts("", figure_facts(result)))
    if course is not None:
        page += charts(result, course)
    page.append(Facts("Conditions", condition_facts(result.known_conditions)))
    if result.verdict is not None:
        page += verdict_blocks(result)
    page.append(Facts("Method", method_facts(result), details=True))
    page.append(Facts("Details", detail_facts(result), details=True))
    return [
        block for block in page if not isinstance(block, Facts) or block.rows
    ]


def title_of(result: Result) -> str:
    """Return the title of a result: `NVIDIA H200, soak, bfloat16, 8192`."""
    kind = kind_of(result.kind)
    title = f"{result.device}, {result.kind}"
    if kind.has_dtype:
        title += f", {result.dtype}"
    if not kind.has_rows:
        title += f", {shape(result)}"
    return title


def headline(result: Result) -> Iterator[Sentence]:
    """Yield the summary of the verdict, if there is a verdict."""
    if result.verdict is None:
        return
    yield Sentence(result.verdict.summary, outcome_of(result).level)


def verdict_blocks(result: Result) -> Iterator[Block]:
    """Yield the verdict in lines, and all of its parts."""
    verdict = result.verdict
    if verdict is None:
        return
    for line in verdict_lines(result):
        yield Sentence(line, level_of(verdict.state))
    parts = [
        (part.name, f"{part.state}: {part.why}") for part in verdict.parts
    ]
    yield Facts("Verdict", parts, details=True)


def verdict_lines(result: Result) -> Iterator[str]:
    """Yield a line for each bad part, or one line if there is none."""
    if result.verdict is None:
        return
    bad = result.verdict.bad
    for part in bad:
        yield f"Verdict: {part.state}, {part.name}: {part.why}"
    if bad:
        return
    left = [
        part.name for part in result.verdict.parts if part.state == NOT_JUDGED
    ]
    judged = count(len(result.verdict.parts) - len(left), "part")
    if left:
        judged += f"; not judged: {', '.join(left)}"
    yield f"Verdict: {result.verdict.state} ({judged})"


def present(facts: Iterable[tuple[str, object]]) -> list[Fact]:
    """Return the known facts. The text of an unknown fact is empty or starts with `ABSENT`."""
    return [(name, str(text)) for name, text in facts if _is_known(text)]


def _is_known(text: object) -> bool:
    return text is not None and not f"{text or ABSENT}".startswith(ABSENT)


def figure_facts(result: Result) -> list[Fact]:
    """Return the measured figures, and their verification."""
    kind = kind_of(result.kind)
    done = ending(result).sentence
    if result.stopped == "time" and result.points:
        done = count(len(result.points), "row")
    wrong = f"{result.wrong_elements or 'no'} wrong elements{mismatch_text(result)}"
    facts = [] if kind.has_rows else _throughput(result)
    if kind.has_rows and result.points:
        facts.append(("best", _best(result)))
    facts += [("of peak", line) for line in of_peak(result)]
    facts.append((kind.counts, f"{result.iterations:,}, {done}"))
    facts.append(("verified", f"{verified_text(result)}, {wrong}"))
    facts += [("note", note) for note in result.notes]
    return present(facts)


def _best(result: Result) -> str:
    best = ranked_shapes(result.points)[0]
    where = shape(result) if result.n else best.series
    said = f"{throughput(result.tflops_peak)} at {where}"
    if "spread_percent" in best.values:
        said += f", ± {percentage(best.values['spread_percent'], digits=1)}"
    return said


def _throughput(result: Result) -> list[tuple[str, str]]:
    mean = f"{throughput(result.tflops_mean)} over {age(result.seconds)}"
    if result.tflops_mean and result.tflops_mean_interval:
        low, high = result.tflops_mean_interval
        half = 50 * (high - low) / result.tflops_mean
        mean += f", ± {percentage(half, digits=1)}"
    peak = f"{throughput(result.tflops_peak)} in the best window"
    sustained, steady = (
        f"{throughput(result.tflops_sustained)}, {droop_text(result)}",
        "",
    )
    if result.time_to_steady_seconds is not None:
        steady = f"after {age(result.time_to_steady_seconds)}"
    elif result.tflops_sustained is not None:
        steady = "not within this run"
    burst = f"{throughput(result.tflops_burst)} from the first product on"
    facts = {
        "mean": mean,
        "peak": peak,
        "burst": burst,
        "sustained": sustained,
    }
    return [*facts.items(), ("steady", steady)]


def droop_text(result: Result) -> str:
    """Return `15.2 % below the burst, 95 % interval 14.1 to 16.3`, or that there is no droop."""
    percent, interval = result.droop_percent, result.droop_interval_percent
    below = f"{percentage(percent, digits=1)} below the"
    if interval is None:  # a result of an older version, without a burst
        return f"{below} peak"
    if percent:
        return f"{below} burst, 95 % interval {interval[0]:.1f} to {interval[1]:.1f}"
    if interval[1] - interval[0] > LARGE_DROOP:
        return "too uneven to tell a droop"
    return "no droop beyond the noise"


def of_peak(result: Result) -> Iterator[str]:
    """Yield the percentages of a GPU's known peaks, with a line for each data type."""
    known = result.known_conditions.percent_of_peak
    if result.device_uuid is None:
        return
    if kind_of(result.kind).moves_bytes:
        for name, percent in known.items():
            yield f"{percentage(percent)} of {name}"
        return
    if "," not in result.dtype:
        yield from percent_lines(score(result), known, result.dtype)
        return
    for dtype, rate in measured(result).items():
        own = {}
        for name, percent in known.items():
            if name.endswith(f" {dtype}"):
                own[name.removesuffix(f" {dtype}")] = percent
        for line in percent_lines(rate, own, dtype):
            yield f"{dtype}: {line}"


def condition_facts(known: Conditions) -> list[Fact]:
    """Return the known state of the device during the run."""
    watts, limit = known.power_watts_mean, known.power_limit_watts
    power = f"{quantity(watts, ' W')} on average"
    if watts is not None and limit:
        share = percentage(100 * watts / limit)
        power += f", {share} of the limit of {limit:.0f} W"
    clock = f"{quantity(known.sm_clock_mhz_mean, ' MHz')} on average"
    if known.sm_clock_max_mhz is not None:
        clock += f", maximum {known.sm_clock_max_mhz:.0f} MHz"
    energy, heat = "", ""
    if known.energy_joules is not None:
        counted = value_text("energy_joules", known.energy_joules)
        energy = f"{counted} by the device's counter"
    if known.energy_joules is not None and known.tflop_per_joule is not None:
        energy += f", {tflops(known.tflop_per_joule)} TFLOP/J"
    if known.temperature_celsius_max is not None:
        heat = f"up to {quantity(known.temperature_celsius_max, '°C')}"
    held = sorted(known.clock_event_seconds.items(), key=lambda each: -each[1])
    facts = {
        "power": power,
        "energy": energy,
        "clock": clock,
        "heat": heat,
        "heat limit": known.heat_limit,
        "held back": ", ".join(
            f"{CAUSES.get(n, n)} {span_text(s)}" for n, s in held
        ),
        "memory errors": memory_errors_text(known.memory_errors),
        "used by": "; ".join(known.other_load),
        "driver": known.driver_version,
    }
    return present(facts.items())


def method_facts(result: Result) -> list[Fact]:
    """Return the method and the software of the measurement."""
    unset, software = "", f"torch {result.torch_version}"
    if result.unset:
        unset = f"{'; '.join(result.unset)}, as that changes what is measured"
    if result.cublas_version:
        software += f", cuBLAS {result.cublas_version}"
    facts = {
        "method": result.method,
        "bound to": result.bound_to,
        "unset": unset,
        "software": f"{software} in {result.python}",
    }
    return present(facts.items())


def detail_facts(result: Result) -> list[Fact]:
    """Return further facts for a reader who has no access to the machine."""
    facts = {
        "of usual": share_of_usual(result),
        "time": age(result.seconds),
        "accumulate": result.accumulate,
        "layout": result.layout,
        "data": result.data,
        "threads": result.threads,
        "CUDA": result.cuda_version,
        "device": result.device_uuid,
        "PCI device id": result.known_conditions.pci_device_id,
    }
    return present(facts.items())


def charts(result: Result, course: RunCurves) -> Iterator[Block]:
    """Yield charts of the rows over their size, and of the run and its device over time."""
    kind = kind_of(result.kind)
    value = next(iter(layout_of(result.kind).values))
    lines: dict[str, list[tuple[float, float]]] = {}
    drawn = [row for row in result.points if BETWEEN not in row.series]
    for series, points in points_by_series(drawn).items():
        rates = [
            (row.x, row.values[value]) for row in points if value in row.values
        ]
        if rates:
            lines[series] = sorted(rates)
    # A line needs at least two sizes.
    if len({x for line in lines.values() for x, _ in line}) > 1:
        yield Chart(value, lines, "bytes" if kind.moves_bytes else "N")
    value = BANDWIDTH if kind.moves_bytes else "tflops"
    unit = 1e9 if kind.moves_bytes else 1.0
    rates = [
        (each.elapsed_seconds, unit * each.rate) for each in course.progress
    ]
    if rates:
        yield Chart(value, {value: rates}, "seconds")
    for reading, curve in course.readings.items():
        of_cpu = (
            {"sm_clock_mhz": "clock_mhz"} if result.device_uuid is None else {}
        )
        name = of_cpu.get(reading, reading)
        if len(curve) > 1:
            yield Chart(
                name,
                {name: curve},
                "seconds",
                small=True,
            )
    if course.reasons:
        yield Strip(course.reasons, result.seconds)


def rows_page(
    device: str,
    kind: str,
    points: Sequence[Point],
) -> list[Block]:
    """Return the rows of a table that ended with an error."""
    rows = count(len(points), "row")
    return [
        Heading(f"{device}, {kind}: {rows} before the error"),
        table(kind, points),
    ]


def device_blocks(place: str, result: Result) -> list[Block]:
    """Return the rows, notes and method of one of several devices."""
    page: list[Block] = [
        Facts(f"Method of {place}", method_facts(result), details=True)
    ]
    if result.notes:
        page.insert(0, Facts("", [(place, note) for note in result.notes]))
    if result.points and not kind_of(result.kind).over_time:
        page = [Heading(place), table(result.kind, result.points), *page]
    return page
