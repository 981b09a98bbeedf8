import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Comparison, Point, Progress, Verdict, VerdictPart
from gputop.bench.results.html_report import html_page
from gputop.bench.results.page import Chart, Strip
from gputop.bench.results.svg_charts import SvgAxis, chart_figure, strip_figure, x_axis, y_axis
from gputop.bench.results.tables import table as table_of
from gputop.bench.run.series import RunCurves
from tests.bench.kept import BASE, COPY, SWEEP, table
from tests.bench.workers import RESULT

WINDOWS = tuple(Progress(0.2 * n, 0.2, 10 * n, 800.0 - n) for n in range(1, 100))
COURSE = RunCurves(
    WINDOWS,
    {"power_watts": [(float(n), 600.0 + n) for n in range(20)], "empty": []},
    {"sw_power_cap": [(2.0, 9.0), (11.0, 20.0)]},
)
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A page taken apart; an element that is not closed, or closed twice, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.elements if name == tag)


def test_a_soak_has_figures_charts_conditions_and_method() -> None:
    made = Page(html_page(BASE, COURSE))
    for part in (
        *("NVIDIA H200", "soak, bfloat16, 8192", "780 TFLOP/s", "812 TFLOP/s", "(datasheet dense)"),
        *("Power", "690 W on average", "Held back", "power cap 52.0 s", "by hand", "torch 2.13.0"),
        *("GPU-4f2a1b3c", "A row-major, B column-major"),
    ):
        assert part in made.text, part
    assert made.count("svg") == 3  # throughput, power, and the strip; nothing for what is empty
    assert made.count("polyline") == 2


def test_nothing_is_fetched_and_nothing_runs() -> None:
    made = Page(html_page(table("sweep", SWEEP), COURSE))
    names = {name for name, _ in made.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "a"}
    attributes = {key for _, found in made.elements for key in found}
    assert not any(key.startswith("on") or key in ("src", "href", "style") for key in attributes)
    assert not re.search(r"url\(|@import|https?:", html_page(BASE, COURSE))
    policy = [a["content"] for _, a in made.elements if a.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_text_of_others_is_no_markup() -> None:
    odd = "<script>alert(1)</script>\x1b[2J\"'&"
    changes: dict[str, Any] = dict.fromkeys(
        ("device", "dtype", "method", "torch_version", "cuda_version", "python", "kind"), odd
    )
    points = (Point(odd, 1.0, {odd: 1.0}), Point(odd, 2.0, {odd: 2.0}))
    named = replace(BASE, **changes, points=points, device_uuid=odd, layout=odd)
    course = RunCurves(WINDOWS, {odd: [(0.0, 1.0), (1.0, 2.0)]}, {odd: [(0.0, 1.0)]})
    text = html_page(replace(named, comparison=Comparison(7.0, odd)), course)
    made = Page(text)
    assert made.count("script") == 0
    assert made.text.count("<script>alert(1)</script>") > 10
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("state", "stopped", "level"),
    [
        ("faulty", "time", "fault"),
        ("degraded", "time", "warn"),
        ("not judged", "time", ""),
        ("ok", "time", "good"),
        ("ok", "limit", "warn"),
    ],
)
def test_the_verdict_comes_first(state: str, stopped: str, level: str) -> None:
    verdict = Verdict((VerdictPart("memory", state, "ECC"),), "Its memory is like this.")
    made = Page(html_page(replace(BASE, verdict=verdict, stopped=stopped), COURSE))
    classes = [a.get("class") or "" for _, a in made.elements]
    assert next(each for each in classes if "verdict" in each) == f"verdict {level}"
    before, _, after = made.text.partition("Its memory is like this.")
    assert "mean" not in before.lower()
    assert after.startswith("\nNVIDIA H200, soak, bfloat16, 8192\n")


def test_a_table_has_a_chart_and_the_rows_of_the_text() -> None:
    points = (*SWEEP, *(replace(point, series="int8") for point in SWEEP))
    made = Page(html_page(table("sweep", points, tflops_peak=1.1), RunCurves()))
    assert (made.count("svg"), made.count("polyline")) == (1, 2)
    for line in table_of("sweep", points).lines:
        assert "".join(line) in made.text
    copied = Page(html_page(table("copy", COPY), RunCurves()))
    assert copied.count("svg") == 0, "rows of one size are no line"
    assert "1.00 GiB390054.0" in copied.text


def test_a_cpu_has_a_clock_and_no_sm() -> None:
    clock = {"sm_clock_mhz": [(0.5, 2600.0), (1.0, 2600.0)]}
    course = RunCurves((Progress(1.0, 1.0, 9, 0.0312),), clock)
    text = Page(html_page(replace(RESULT, tflops_mean=0.0312), course)).text
    assert "31.2 GFLOP/s over 5.0 s" in text
    assert "SM clock" not in text
    assert "Clock over seconds" in text
    bare = Page(html_page(replace(RESULT, tflops_mean=None, tflops_peak=None), RunCurves()))
    assert bare.count("svg") == 0
    assert "Conditions" not in bare.text


def test_a_chart_and_a_strip_are_drawn_as_before() -> None:
    lines = {"float32": [(64.0, 0.5), (1024.0, 12.0), (4096.0, 40.0)], "int8": [(64.0, 90.0)]}
    strip = Strip({"sw_power_cap": [(2.0, 9.0), (59.99, 70.0)], "sw_thermal": []}, 60.0)
    dotless = {"power_watts": [(float(n), 600.0) for n in range(81)]}
    figures = [
        chart_figure(Chart("tflops", lines, "N")),
        strip_figure(strip),
        chart_figure(Chart("power_watts", dotless, "seconds", small=True)),
    ]
    drawn = re.sub("(?=<(?:path|rect|polyline|figure>))", "\n", "".join(figures)) + "\n"
    assert drawn == Path(__file__).with_name("charts.txt").read_text()


numbers = st.floats(0, 1e15, allow_nan=False)


@given(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30),
    st.sampled_from(["N", "seconds", "bytes"]),
)
def test_whatever_is_drawn_is_inside_and_well_formed(
    line: list[tuple[float, float]], axis: Any
) -> None:
    drawn = chart_figure(Chart("<y>", {"<a>": sorted(line), "b": []}, axis))
    ET.fromstring(drawn.replace("&#9644;", ""))  # noqa: S314 - it is of our own making
    for points in re.findall(r'points="([^"]*)"', drawn):
        for pair in points.split():
            across, _, down = pair.partition(",")
            assert 64 - 0.1 <= float(across) <= 744 + 0.1
            assert 0 <= float(down) <= 260


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (SvgAxis(1.0, 16.0, 2), [1.0, 2.0, 4.0, 8.0, 16.0]),
        (SvgAxis(1.0, 2.0**16, 2), [4.0**n for n in range(9)]),
        (SvgAxis(0.0, 6.0), [0, 1, 2, 3, 4, 5, 6]),
        (SvgAxis(0.0, 148.0), [0, 25, 50, 75, 100, 125]),
        (SvgAxis(0.0, 0.04), [0, 0.01, 0.02, 0.03, 0.04]),
        (SvgAxis(3.0, 3.0), [3.0]),
    ],
)
def test_ticks_are_at_most_nine_round_numbers_or_powers(axis: SvgAxis, ticks: list[float]) -> None:
    assert axis.ticks() == ticks


def test_an_axis_is_logarithmic_if_the_values_are_far_apart() -> None:
    assert SvgAxis(3.0, 3.0).at(3.0) == 0.5, "in the middle"
    assert x_axis([64, 1023], is_time=False) == SvgAxis(0, 1023)
    assert x_axis([64, 1024], is_time=False) == SvgAxis(64, 1024, 2)
    assert x_axis([1, 1024], is_time=True) == SvgAxis(0, 1024)
    assert y_axis([3, 500]) == SvgAxis(0, 530)
    assert y_axis([3, 899]).base is None
    assert y_axis([3, 900]) == SvgAxis(1, 1000, 10)
