"""Whatever a worker says, it is an event, or the end of the run; and the events can be drawn."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.agent.lines import to_plain
from gputop.bench.events import (
    EVENTS,
    Done,
    Failed,
    Hello,
    Planned,
    Point,
    Progress,
    Result,
    Verified,
)
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Request, Target
from gputop.bench.results import compare, exports, html_report, outliers, verdict
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.device_runner import DeviceRunner, _NoResultError
from gputop.bench.run.run import Run
from gputop.bench.run.worker_launch import Interpreter
from gputop.output.result_pages import result_list
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.bench.pages import devices_text, result_text
from tests.fuzz.strategies import REAL, SIZES, altered, value_of
from tests.fuzz.test_drawing import drawn

if TYPE_CHECKING:
    from gputop.bench.events import Event
    from gputop.bench.run.series import RunCurves

pytestmark = pytest.mark.slow  # a run of every night, as all of fuzzing

GPU = Target("cuda", streams.device(0).uuid, 0, "NVIDIA H100", "9.0", 80 << 30)
CPU = Target("cpu", None, None, "a CPU", None, 4 << 30)
PYTHON = Interpreter("/usr/bin/python3", "PATH", "2.9.0")
HELLO = Hello("3.11.0", "2.9.0", "NVIDIA H100", 8, 4242, "13.0")
SHAPE = (8192, 8192, 8192)
PLAN = Planned(*SHAPE, "float32", "float32", "any", "normal", 1e-6, "by hand")
WINDOW = Progress(1.0, 0.1, 100, 700.0, 710.0)
POINT = Point("float32", 1024.0, {"tflops": 700.0, "seconds": 1e-3}, (1024, 1024, 1024))
DONE: dict[str, Any] = {
    "tflops_mean": 700.0,
    "tflops_peak": 720.0,
    "tflops_sustained": 690.0,
    "droop_percent": 3.0,
    "tflops_device": 700.0,
    "seconds": 10.0,
    "iterations": 1000,
    "wrong_elements": 0,
    "checks": 3,
    "stopped": "time",
    "notes": ["one", "two"],
    "conditions": {"percent_of_peak": {"datasheet dense": 70.0}},
}
SERIES = st.sampled_from(
    (
        "float32",
        "bfloat16",
        "eager",
        "host to device, pinned",
        "within the device",
        "\x1b\udc80",
        "",
    )
)
NAMES = st.sampled_from(("tflops", "seconds", "bytes_per_second", "gflops", "\udc80", ""))
POINTS = st.builds(
    Point,
    SERIES,
    st.sampled_from((1.0, 2.0, 1024.0, 8192.0, *REAL)),
    st.dictionaries(NAMES, st.sampled_from((1.0, 700.0, *REAL)), max_size=3),
    st.lists(st.sampled_from((0, 1, 1024, -1, 1 << 62)), max_size=4).map(tuple),
)
SAID = st.one_of(
    st.tuples(st.just("plan"), altered(PLAN)),
    st.tuples(st.just("sample"), altered(WINDOW)),
    st.tuples(st.just("sample"), altered(WINDOW)),
    st.tuples(st.just("point"), altered(POINT)),
    st.tuples(st.just("point"), POINTS),
    st.tuples(st.just("verify"), altered(Verified(3, 0))),
)


@st.composite
def lines(draw: st.DrawFn) -> list[bytes]:
    """What a worker says, from its first word to its last."""
    said: list[Any] = [("hello", draw(altered(HELLO))), ("plan", draw(altered(PLAN)))]
    said += draw(st.lists(SAID, max_size=8))
    written = [{"event": name, **to_plain(event)} for name, event in said]
    end = draw(st.sampled_from(("done", "done", "error", "")))
    if end == "done":
        hints = get_type_hints(Result)
        names = draw(st.lists(st.sampled_from(sorted(DONE)), max_size=4, unique=True))
        changed = {name: draw(value_of(hints[name])) for name in names}
        conditions = changed.get("conditions")
        if conditions is not None:
            changed["conditions"] = to_plain(conditions)
        written.append({"event": "done", **DONE, **changed})
    elif end:
        written.append({"event": "error", "kind": "device", "what": "\x1b", "why": 7, "remedy": []})
    return [json.dumps(each).encode() for each in written]


class Heard(DeviceRunner):
    """One without a worker, and so without a clock."""

    def _await(self, seconds: float) -> None:
        assert seconds == seconds


def heard(run: DeviceRun, said: list[bytes]) -> None:
    """Add what a runner makes of these lines, up to the end of the run."""
    runner = Heard(run.request, run)
    for line in said:
        try:
            event: Event = runner._event(line, PYTHON.path)
        except _NoResultError as end:
            event = Failed(end.problem, end.status)
        run.add_event(event)
        if isinstance(event, Done | Failed):
            return
        runner._await_next(event)


many = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def views(run: DeviceRun) -> list[Any]:
    """What the benchmark tab shows of a run."""
    telemetry = Telemetry(lambda: 100.0)
    telemetry.receive(streams.inventory(1))
    telemetry.receive(streams.sample(1))
    title, readout, chart = TitleView(), ReadoutView(telemetry), ThroughputChart()
    table = ResultsView(telemetry)
    title.run = readout.run = chart.run = Run.of(run)
    if run.result is not None:
        table.results = [run.result, dataclasses.replace(run.result, m=1)]
    return [title, readout, chart, table]


@many
@given(lines(), SIZES, st.sampled_from(tuple(KINDS)), st.sampled_from([GPU, CPU]))
def test_what_a_worker_says_is_drawn(
    said: list[bytes], size: tuple[int, int], kind: str, target: Target
) -> None:
    run = DeviceRun(Request(target, "float32", None, 10.0, kind=kind))
    heard(run, said)
    for view in views(run):
        drawn(view, *size)


@many
@given(lines(), st.sampled_from(tuple(KINDS)))
def test_what_a_worker_says_is_written(said: list[bytes], kind: str) -> None:
    run = DeviceRun(Request(GPU, "float32", None, 10.0, kind=kind))
    heard(run, said)
    if run.result is None:
        return
    written(run.result, run.history())


def written(result: Result, course: RunCurves) -> None:
    """Writes it in every form that there is."""
    both = [result, dataclasses.replace(result, started_at=0.0)]
    several = devices_text(
        [outliers.DeviceOutcome("", None, "GPU 0", "GPU", each) for each in both]
    )
    for text in (result_text(result), several, result_list(both, 100)):
        assert all(line.isprintable() for line in text.split("\n")), text
    json.loads(exports.documents(both))
    for text in (exports.as_csv(both), exports.points_csv(result)):
        text.encode()
    html_report.html_page(result, course).encode()
    compare.regression(both[0], both[1:] * 4)
    (judged, _) = verdict.with_verdicts(both)
    assert judged.verdict is not None
    assert all(part.why.isprintable() for part in judged.verdict.parts)
    assert all(line.isprintable() for line in result_text(judged).split("\n"))


@many
@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["event", "kind", "m", "pid"]), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([*EVENTS, "done", "error"]),
)
def test_what_is_no_event_ends_the_run(line: bytes, name: str) -> None:
    for each in (line, line.replace(b"{", b'{"event":"' + name.encode() + b'",', 1)):
        run = DeviceRun(Request(GPU, "float32", None, 10.0))
        heard(run, [each])
        assert run.problem is not None or run.hello is not None or run.verified is not None
