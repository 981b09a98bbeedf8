"""The benchmark tab: a form, the run live, and the results."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import Vertical
from textual.message import Message

from gputop.bench import devices, plan, watch
from gputop.bench.results import ResultsError, append, recent
from gputop.bench.session import Session
from gputop.text import visible
from gputop.ui.draw import Row, Span, cell
from gputop.ui.palette import ACCENT, DIM, FAULT, STRONG, TEXT, WARN
from gputop.ui.run import Run
from gputop.ui.screens.question import Question
from gputop.ui.widgets.chart import ThroughputChart
from gputop.ui.widgets.form import KINDS, Form
from gputop.ui.widgets.host import wrap
from gputop.ui.widgets.readout import ReadoutView, TitleView
from gputop.ui.widgets.results import ResultsView

if TYPE_CHECKING:
    from rich.style import Style
    from textual.app import ComposeResult

    from gputop.bench.plan import Request
    from gputop.bench.session import Result
    from gputop.telemetry.snapshot import Problem
    from gputop.ui.model import Telemetry

REDRAW_SECONDS = 0.25
"""The worker sends more windows than are worth their bytes over SSH."""
RESULTS_SHOWN = 200
LISTED = 8
"""Processes that the question names."""


class BenchmarkTab(Vertical):
    """Starts and stops runs, one at a time, and shows what they say."""

    class Changed(Message):
        """A run started or ended."""

    def __init__(self, telemetry: Telemetry, python: str | None) -> None:
        super().__init__(id="benchmark")
        self._telemetry = telemetry
        self._python = python
        self._session: Session | None = None
        self._run_now: Run | None = None
        self._form = Form()
        self._title = TitleView()
        self._chart = ThroughputChart()
        self._readout = ReadoutView(telemetry)
        self._results = ResultsView(telemetry)

    def compose(self) -> ComposeResult:
        yield self._form
        yield self._title
        yield self._chart
        yield self._readout
        yield self._results

    def on_mount(self) -> None:
        """Offers the CPU at once; devices come with the stream."""
        self._chart.hint = _hint
        self.show_targets()
        self.set_interval(REDRAW_SECONDS, self._redraw_while_running)
        self._load_results()

    @work(thread=True, group="results", exit_on_error=False)
    def _load_results(self) -> None:
        try:
            results, problem = recent(RESULTS_SHOWN), None
        except ResultsError as error:
            results, problem = [], str(error)
        self.app.call_from_thread(self._show_results, results, problem)

    def _show_results(self, results: list[Result], problem: str | None) -> None:
        self._results.results, self._results.problem = results, problem
        self._chart.results = results
        self._results.redraw()

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return self._session is not None

    def show_targets(self) -> None:
        """Offers the devices of the stream; simulated ones can do no work."""
        inventory = self._telemetry.inventory
        if inventory is None or self._telemetry.simulated:
            self._form.offer((plan.cpu_target(),))
        else:
            targets = devices.targets(inventory, self._telemetry.latest)
            self._form.offer(targets, devices.divided(inventory))

    def show_telemetry(self) -> None:
        """Draws what the device under test says."""
        self._readout.redraw()

    def start(self, uuid: str | None = None, *, default: bool = False) -> None:
        """Starts what the form says; with `default`, a soak of the device of that UUID."""
        if self.running:
            self.notify("A stress test is running: x stops it")
            return
        self.show_targets()
        try:
            if default:
                self._form.choose(uuid, "soak")
            request = self._form.request(self._python)
        except ValueError as error:
            self.notify(str(error), title="Not started", severity="error", markup=False)
            return
        telemetry = self._telemetry
        problem = devices.unusable(telemetry.latest, request.target)
        if problem is not None:
            self.notify(str(problem), title="Not started", severity="error", markup=False)
            return
        others = devices.holders(telemetry.latest, request.target)
        if others == []:
            self._begin(request)
            return
        if others is None:
            self._ask(request, ["The driver does not say who uses it."], "may be in use")
            return
        lines = [
            f"{p.pid:>8}  {visible(p.user or '–'):<10} {visible(p.command or '(not visible)', 160)}"
            for p in others[:LISTED]
        ]
        if len(others) > LISTED:
            lines.append(f"          and {len(others) - LISTED} more")
        self._ask(request, lines, "is in use. A stress test slows down")

    def _ask(self, request: Request, lines: list[str], why: str) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self._begin(request)

        title = f"{visible(request.target.label)} {why}:"
        self.app.push_screen(Question(title, lines, "Start all the same"), answered)

    def _begin(self, request: Request) -> None:
        self.screen.set_focus(None)  # the next key is not for a field: x stops
        self._run_now = Run(request)
        for view in (self._title, self._chart, self._readout):
            view.run = self._run_now
        self._chart.hint = lambda _: []
        self._session = Session(request)
        self._follow(self._run_now, self._session)
        self.post_message(self.Changed())
        self._redraw_run()

    @work(exclusive=True, group="bench", exit_on_error=False)
    async def _follow(self, run: Run, session: Session) -> None:
        """Takes in the events of the session until it ends."""
        try:
            received = watch.events(session, run.trace, partial(self._ended_by, run))
            async with contextlib.aclosing(received) as events:
                async for event in events:
                    run.take(event)
        finally:
            self._session = None
        if run.problem is not None and not run.measured:
            self._chart.hint = partial(_problem, run.problem, FAULT if run.faulty else WARN)
        if run.result is not None:
            self._results.results.insert(0, run.result)
            try:
                await asyncio.to_thread(append, run.result)  # the home may be far away
                self._results.problem = None
            except ResultsError as error:
                self._results.problem = f"Not kept: {error}"
            self._results.redraw()
        self._redraw_run()
        self.post_message(self.Changed())

    def _ended_by(self, run: Run, limit: watch.Limit) -> None:
        """Says which limit ends the run, whichever tab is shown."""
        run.limit = limit
        self.notify(limit.why, title=f"{limit.title}: the stress test ends", severity="warning")

    def action_move(self, step: int) -> None:
        """Shows results that are further down."""
        self._results.move(step)

    def action_page(self, step: int) -> None:
        """Shows results that are pages further down."""
        self._results.page(step)

    def to_field(self, step: int) -> None:
        """Goes on to another field of the form."""
        self._form.step(step)

    def stop(self) -> None:
        """Stops the run; what it measured so far is its result."""
        if self._session is None or self._run_now is None:
            self.notify("No stress test is running: b starts one")
            return
        self._run_now.stopping = True
        self._redraw_run()
        self._stop(self._session)

    @work(group="stop", exit_on_error=False)
    async def _stop(self, session: Session) -> None:
        await session.stop()

    @on(Form.Submitted)
    def _submitted(self) -> None:
        self.start()

    def _redraw_while_running(self) -> None:
        if self._session is not None:
            self._redraw_run()

    def _redraw_run(self) -> None:
        for view in (self._title, self._chart, self._readout):
            view.redraw()


def _hint(width: int) -> list[Row]:
    """How to start a run, and what there is to be run."""
    text = (
        "It verifies results while it runs, asks before it disturbs anybody, and stops within half "
        "a second of x."
    )
    kinds = ((cell(f" {kind}", 9, STRONG), Span(plan.KINDS[kind], DIM)) for kind in KINDS)
    return [
        [Span(" Press "), Span("b", ACCENT), Span(" to start what is chosen above.")],
        [],
        *map(list, kinds),
        [],
        *([Span(f" {line}", DIM)] for line in wrap(text, width - 2)),
    ]


def _problem(problem: Problem, style: Style, width: int) -> list[Row]:
    """What is wrong, why, and what to type, in the space of the chart."""
    rows: list[Row] = [[], [Span(f"  {visible(problem.what)}", style)], []]
    for text, style in ((problem.why, TEXT), (problem.remedy, STRONG)):
        for line in text.splitlines():
            rows += [[Span(f"  {each}", style)] for each in wrap(visible(line), width - 4)]
        rows.append([])
    return rows
