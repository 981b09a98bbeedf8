"""Results as text: one run, several devices side by side, and outliers among many."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gputop.bench.results.compare import points_by_series, rates_of_pair, score, score_unit
from gputop.bench.results.facts import (
    best_row_text,
    condition_facts,
    ending,
    figure_facts,
    method_facts,
    percent_of_peak,
)
from gputop.bench.results.outliers import distributions, outliers
from gputop.text import ABSENT, brief, count, duration, percentage, quantity, size, tflops, visible
from gputop.text import cells as room_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gputop.bench.events import Point, Result
    from gputop.bench.plan.request import Target
    from gputop.bench.results.compare import DeviceSpread
    from gputop.bench.results.outliers import DeviceOutcome, Outlier, RateDistribution


NAME_WIDTH = 10
LAUNCH = "launch alone"
"""Series of a latency run that is not a running time: the work goes on."""
FASTEST = 10
"""Most shapes of a search that are listed."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Lines of cells. The first line and the first column are headings."""

    lines: list[list[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    """Line and column of the best cells."""

    def transposed(self) -> TextTable:
        """Return the table with its lines as columns."""
        lines = [list(line) for line in zip(*self.lines, strict=True)]
        return TextTable(lines, frozenset((column, line) for line, column in self.best))


def result_page(result: Result) -> str:
    """Return everything about a result as lines of text."""
    device = visible(result.device)
    head = f"{device}, {result.kind}" if result.points else device
    if result.kind != "copy":
        head += f", {result.dtype}"
    if result.kind == "soak":
        head += f", {result.m} x {result.n} x {result.k}"
    facts = (*figure_facts(result), *condition_facts(result.conditions), *method_facts(result))
    rows = (f"  {name:<{NAME_WIDTH}} {visible(text)}" for name, text in facts)
    return "\n".join([visible(head), *_tables(result), *rows])


def _tables(result: Result) -> list[str]:
    if not result.points:
        return []
    return ["", *aligned(table(result.kind, result.points).lines), ""]


def table(kind: str, points: Sequence[Point], most: int = FASTEST) -> TextTable:
    """Return the rows of a run of that kind; of a search at most `most` shapes."""
    if kind == "sweep":
        shown = {
            "tflops": ("{}, TFLOP/s", lambda rate: f"{rate:.3g}"),
            "seconds": ("{}, time", brief),
        }
        return _by_size(points, "N", lambda x: f"{x:.0f}", shown)
    if kind == "copy":
        shown = {"bytes_per_second": ("{}", lambda rate: f"{rate / 1e9:.4g}")}
        return _by_size(points, "GB/s", size, shown)
    return _ways(points) if kind == "latency" else _fastest(points, most)


def comparison_table(results: Sequence[tuple[Target, Result]]) -> str:
    """Return a line for each device of the same work, and how it was measured."""
    pairs = any(result.kind == "pairs" for _, result in results)
    rates = ("alone", "together", "cost") if pairs else ("TFLOP/s", "peak")
    state = ("of peak", "power", "heat", "products", "wrong", "ended")
    lines = [["", "type", "N", *rates, *state]]
    for target, result in results:
        cells = _pair(result) if result.kind == "pairs" else _rates(result)
        lines.append([target.label, result.dtype, str(result.n or ABSENT), *cells, *_state(result)])
    methods = [
        visible(f"  {target.label}: {line}")
        for target, result in results
        if result.kind in ("soak", "pairs")  # the others have pages of their own
        for line in (
            *result.notes,
            f"{result.method}; torch {result.torch_version}",
            *_heat(result),
        )
    ]
    return "\n".join([*aligned(lines), *([""] if methods else []), *methods])


def _heat(result: Result) -> list[str]:
    limit = result.conditions.heat_limit if result.conditions else None
    return [] if limit is None else [f"heat limit: {limit}"]


def _rates(result: Result) -> list[str]:
    if result.tflops_peak is None:
        return [best_row_text(result), ABSENT]
    return [tflops(score(result)), tflops(result.tflops_peak)]


def _pair(result: Result) -> list[str]:
    alone, together, cost = rates_of_pair(result)
    return [tflops(alone), tflops(together), percentage(cost, digits=1)]


def _state(result: Result) -> list[str]:
    known = result.conditions
    return [
        percent_of_peak(result),
        quantity(known.power_watts_mean if known else None, " W"),
        quantity(known.temperature_celsius_max if known else None, "°C"),
        str(result.iterations),
        str(result.wrong_elements or "no"),
        ending(result).word,
    ]


def spread_lines(spreads: Iterable[DeviceSpread]) -> Iterator[str]:
    """Yield how far devices are apart, and who is behind."""
    for spread in spreads:
        apart = f"in {spread.dtype} they are {percentage(spread.percent, digits=1)} apart"
        if not spread.behind:
            yield f"  {apart}, none is clearly behind the best, {spread.best}"
            continue
        named = "; ".join(
            f"{label} {percentage(by, digits=1)}" for label, by in spread.behind.items()
        )
        yield f"  {apart}; behind the best, {spread.best}: {named}"


def _by_size(
    points: Sequence[Point],
    head: str,
    label: Callable[[float], str],
    values: Mapping[str, tuple[str, Callable[[float], str]]],
) -> TextTable:
    """Return a line for each size, and for each series a column of each of the `values`.

    These are a title and a formatter by the name of the value. The first one is marked where it is
    highest.
    """
    series, cells = _by_series(points)
    sizes = sorted({point.x for point in points})
    titles = [title.format(name) for name in series for title, _ in values.values()]
    lines = [[head, *titles]]
    for x in sizes:
        known = [(cells.get((name, x), {}).get(v), v) for name in series for v in values]
        lines.append([label(x), *(ABSENT if n is None else values[v][1](n) for n, v in known)])
    first = next(iter(values))
    best = (
        (sizes.index(_most(points, name, first)) + 1, n * len(values) + 1)
        for n, name in enumerate(series)
    )
    return TextTable(lines, frozenset(best))


def _ways(points: Sequence[Point]) -> TextTable:
    """Return a line for each way to run the same products, and a column for each size."""
    series, cells = _by_series(points)
    sizes = sorted({point.x for point in points})
    head = ["time per product", *(f"{x:.0f} x {x:.0f}" for x in sizes)]
    times = [[cells.get((name, x), {}).get("seconds") for x in sizes] for name in series]
    lines = [head, *([name, *map(brief, line)] for name, line in zip(series, times, strict=True))]
    best = set()
    for column in range(len(sizes)):
        known = [
            (seconds, n)
            for n, line in enumerate(times)
            if (seconds := line[column]) is not None and series[n] != LAUNCH
        ]
        if len(known) > 1:  # one alone is not the best of any
            best.add((min(known)[1] + 1, column + 1))
    return TextTable(lines, frozenset(best))


def _most(points: Sequence[Point], series: str, name: str) -> float:
    """Return the x at which a series is fastest."""
    own = points_by_series(points)[series]
    return max(own, key=lambda point: point.values.get(name, 0.0)).x


def _fastest(points: Sequence[Point], most: int) -> TextTable:
    """Return the best shapes, best first."""
    lines = [["TFLOP/s", "m", "n", "k", "time", "layout"]]
    for point in ranked_shapes(points)[:most]:
        values = point.values
        rate, seconds = tflops(values.get("tflops")), brief(values.get("seconds"))
        lines.append([rate, *sides(point), seconds, point.series])
    best = ((1, column) for column in range(len(lines[0])) if points)
    return TextTable(lines, frozenset(best))


def sides(point: Point) -> list[str]:
    """Return m, n and k of a product, absent if a row does not have them."""
    said = [str(side) for side in point.shape[:3]]
    return said + [ABSENT] * (3 - len(said))


def ranked_shapes(points: Sequence[Point]) -> list[Point]:
    """Return the shapes of a search, best first, confirmed ones before the others."""
    return sorted(
        points,
        key=lambda point: ("confirmed" in point.series, point.values.get("tflops", 0.0)),
        reverse=True,
    )


def _by_series(
    points: Sequence[Point],
) -> tuple[list[str], dict[tuple[str, float], Mapping[str, float]]]:
    """Return the series in order, and the values by series and x."""
    return list(points_by_series(points)), {
        (point.series, point.x): point.values for point in points
    }


def aligned(lines: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Align cells: the first `left` columns to the left, the others to the right."""
    shown = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(room_of, column)) for column in zip(*shown, strict=True)]
    found = []
    for line in shown:
        blanks = (" " * (width - room_of(cell)) for cell, width in zip(line, widths, strict=True))
        both = enumerate(zip(line, blanks, strict=True))
        cells = (cell + blank if at < left else blank + cell for at, (cell, blank) in both)
        found.append(f"  {'  '.join(cells)}".rstrip())
    return found


MOST_ROWS = 32
"""Most devices listed one by one. With more only outliers are listed."""


def outliers_page(members: Sequence[DeviceOutcome]) -> str:
    """Return the distribution, the devices if they are few, and the outliers."""
    results = [member.result for member in members if member.result is not None]
    found, known = outliers(members), distributions(members)
    lines = [_head(members, results), *_heat_limit_line(results)]
    if known:
        lines += ["", *_distributions(list(known.values()), results[0])]
    if results and len(members) <= MOST_ROWS:
        lines += ["", *_member_rows(members, {id(each.member) for each in found})]
    lines += ["", *_outliers(found, len(members))]
    return "\n".join(lines)


def outliers_document(members: Sequence[DeviceOutcome]) -> dict[str, Any]:
    """Return the same for programs, with the results as they are kept."""
    return {
        "distributions": [asdict(each) for each in distributions(members).values()],
        "outliers": [
            {
                "host": each.member.host,
                "device_uuid": each.member.uuid,
                "place": each.member.place,
                "device": each.member.device,
                "score": each.member.score,
                "reasons": list(each.reasons),
                "status": each.status,
            }
            for each in outliers(members)
        ],
        "results": [_result(member) for member in members],
    }


def _result(member: DeviceOutcome) -> dict[str, Any]:
    if member.result is not None:
        return {**asdict(member.result), "place": member.place}
    return {
        "host": member.host,
        "device": member.device,
        "device_uuid": member.uuid,
        "place": member.place,
        "problem": member.problem,
        "remedy": member.remedy,
        "status": member.status,
    }


def _head(members: Sequence[DeviceOutcome], results: Sequence[Result]) -> str:
    hosts = len({member.host for member in members})
    where = f"{count(len(members), 'device')} on {count(hosts, 'host')}"
    if not results:
        return f"{where}: none has a result"
    first = results[0]
    what = first.kind if first.kind == "copy" else f"{first.kind} in {visible(first.dtype)}"
    shapes = {(result.m, result.n, result.k) for result in results}
    same = first.kind == "soak" and len(shapes) == 1
    shape = f", {first.m} x {first.n} x {first.k}" if same else ""
    longest = max(result.seconds for result in results)
    return f"{what}{shape}, {duration(longest)}: {where}"


def _heat_limit_line(results: Sequence[Result]) -> list[str]:
    """Return a line with the limits that held, each once."""
    limits = [result.conditions.heat_limit for result in results if result.conditions]
    named = "; ".join(visible(limit, 120) for limit in dict.fromkeys(limits) if limit)
    return [f"heat limit: {named}"] if named else []


def _distributions(known: Sequence[RateDistribution], like: Result) -> Iterator[str]:
    unit, shown = score_unit(like)
    lines = [["", "count", unit, "p5", "p95", "min", "max"]]
    lines += [
        [
            visible(each.device) + (f", {visible(each.dtype)}" if len(known) > 1 else ""),
            str(each.count),
            f"median {shown(each.median)}",
            *(shown(value) for value in (each.p5, each.p95, each.least, each.most)),
        ]
        for each in known
    ]
    yield from aligned(lines, left=1)


def _member_rows(members: Sequence[DeviceOutcome], odd: set[int]) -> Iterator[str]:
    known = distributions(members)
    like = next((member.result for member in members if member.result is not None), None)
    assert like is not None
    unit, shown = score_unit(like)
    lines = [["host", "", unit, "of median", ""]]
    for member in members:
        value, among = member.score, known.get(member.group)
        share = ABSENT
        if value is not None and among is not None and among.median:
            share = f"{100 * value / among.median:.1f} %"
        figure = ABSENT if value is None else shown(value)
        word = "see below" if id(member) in odd else _ended(member.result)
        lines.append([visible(member.host), member.place, figure, share, word])
    yield from aligned(lines, left=2)


def _ended(result: Result | None) -> str:
    return "stopped" if result is None else ending(result).word


def _outliers(found: Sequence[Outlier], total: int) -> Iterator[str]:
    if not found:
        yield f"No outliers among {count(total, 'device')}."
        return
    yield f"{count(len(found), 'outlier')} of {count(total, 'device')}, gravest first:"
    for each in found:
        yield f"  {name(each.member)}"
        for reason in each.reasons:
            yield f"    {visible(reason)}"
        if each.member.remedy:
            yield f"    {visible(each.member.remedy)}"


def name(member: DeviceOutcome) -> str:
    """Return host, place and UUID of a device."""
    parts = (member.host, member.place, member.uuid)
    return ", ".join(visible(part) for part in parts if part)
