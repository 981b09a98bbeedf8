"""Benchmark tab: a form, the live run, and the results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Sample
from gputop.bench.events import Result
from gputop.bench.plan import request as plan
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request, Target
from gputop.bench.plan.target_choice import busy_question, usable_requests
from gputop.bench.results import store
from gputop.bench.results.columns import when
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.run import Run
from gputop.bench.run.simulation import SIMULATED, Simulation
from gputop.text import short_name, visible
from gputop.ui.benchmark.device_choice import ALL
from gputop.ui.benchmark.form import Form, field_of
from gputop.ui.benchmark.kept_checks import check_of, target_of, write_report
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.result_tables import check_rows
from gputop.ui.benchmark.results import MOST_RESULTS, ResultsView
from gputop.ui.benchmark.running import Running
from gputop.ui.benchmark.throughput_chart import (
    ThroughputChart,
    hint,
    problem_rows,
)
from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.live import LiveTab, space_of
from gputop.ui.drawing.palette import DIM, FAULT, WARN
from gputop.ui.telemetry import Telemetry, local_inventory

if TYPE_CHECKING:
    from gputop.bench.run.check import Check
    from gputop.bench.run.check_parts import CheckResult

REDRAW_SECONDS = 0.25
"""Seconds between redraws. The worker sends more windows than are worth the bytes over SSH."""
CHART_SECONDS = 1.0
"""Seconds between redraws of a chart with a line per device, which takes some milliseconds each."""
LEAST_RESULTS, SHARE_OF_RESULTS = 5, 0.25
"""Rows of the results, and their share of a high screen below a chart."""
AROUND, LEAST_CHART, CHART, HINT = 4, 6, 11, 12
"""Rows of form, title and margin; least and wanted rows of the chart; rows of the hint."""


class BenchmarkTab(LiveTab):
    """Starts, stops and shows runs, one per device."""

    class Changed(Message):
        """A run started or ended."""

    def __init__(
        self,
        telemetry: Telemetry,
        python: str | None,
        ask: Callable[..., None],
    ) -> None:
        """Set the stream's `ask`, which receives the load of simulated devices."""
        super().__init__(id="benchmark")
        self._telemetry = telemetry
        self._python = python
        self._simulation = Simulation(
            lambda uuid: telemetry.readings(uuid).temperature_celsius or 40.0,
            lambda loads: ask(loads=loads),
        )
        self._runs = Running(
            self._show_begin,
            self._show_end,
            self._simulation,
        )
        self._run: Run | None = None
        """Run that is shown."""
        self._curves: dict[float, str] = {}
        """Curves of simulated runs by their start time. They are not stored."""
        self._form = Form()
        self._title = TitleView(id="run-title")
        self._chart = ThroughputChart()
        self._readout = ReadoutView(telemetry, id="readout")
        self._results = ResultsView(telemetry)

    def compose(self) -> ComposeResult:
        yield self._form
        yield self._form.reason
        yield self._title
        yield self._chart
        yield self._readout
        yield self._results

    def on_mount(self) -> None:
        self._chart.hint = self._hint
        self.show_targets()
        self._redraws = [
            self.set_interval(
                REDRAW_SECONDS,
                self._redraw_while_running,
                pause=True,
            ),
            self.set_interval(
                CHART_SECONDS,
                self._redraw_chart_of_several,
                pause=True,
            ),
        ]
        self._load_results()

    def _hint(self, width: int, height: int) -> list[Row]:
        others = any(not device.is_here for device in self._telemetry.devices)
        return hint(
            self._form.kinds,
            width,
            height,
            others=others,
        )

    @work(group="results", exit_on_error=False)
    async def _load_results(self) -> None:
        problems: list[ProblemError] = []
        results: list[Result] = []
        try:
            results = await asyncio.to_thread(
                store.recent, MOST_RESULTS, problems
            )
        except ProblemError as error:
            problems.append(error)
        problem = str(problems[0]) if problems else None
        # Some runs may have ended since.
        new = self._results.results
        self._results.show(results, problem)
        self._show_results(new, problem)

    def _show_results(
        self,
        new: Sequence[Result],
        problem: str | None,
    ) -> None:
        self._results.add(new, problem)
        self._redraw_run()

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self._form, self._results)

    @property
    def running(self) -> bool:
        return self._runs.active

    def show_targets(self) -> None:
        """Offer the stream's devices on this machine. Recorded devices cannot run."""
        telemetry = self._telemetry
        inventory = local_inventory(telemetry.inventory)
        if inventory is None or telemetry.replayed:
            self._form.offer((plan.cpu_target(),))
        else:
            targets = target_choice.targets(inventory, telemetry.latest)
            if telemetry.simulated:
                targets = tuple(map(_simulated, targets[:-1]))
            self._form.offer(
                targets,
                target_choice.gpus_in_mig_mode(inventory),
            )
        if self._run is None:
            self._chart.redraw()

    def show_telemetry(self) -> None:
        self._arrange()
        self._readout.redraw()

    def add_sample(self, sample: Sample) -> None:
        """Pass a sample on to simulated runs."""
        if self._telemetry.inventory is not None:
            self._simulation.add_sample(self._telemetry.inventory, sample)

    def start(self, uuid: str | None = None, *, default: bool = False) -> None:
        """Start the run in the form. With `default`, start a soak of the device with that UUID."""
        if self.running:
            self.notify("A stress test is running: x stops it")
            return
        if not default:
            self._form.take_highlighted()
        self.show_targets()
        latest = self._telemetry.latest
        try:
            if default:
                self._form.choose(uuid, "soak")
            chosen = self._form.requests(self._python)
            of_all = self._form.choice.key(self._form.kind) == ALL
            requests, left_out = usable_requests(latest, chosen, of_all=of_all)
        except ValueError as error:
            field = self._form.find_wrong()[0] or field_of(str(error))
            self._form.refuse(field, str(error))
            return
        self._form.refuse("", "")
        if left_out:
            self.notify(
                left_out,
                title="Left out",
                severity="warning",
                markup=False,
            )
        asked = busy_question(latest, [request.target for request in requests])
        # This disturbs nobody.
        if asked is None or requests[0].target.simulated:
            self._begin(requests)
            return
        question = ConfirmScreen(*asked, "Start anyway")
        question.ask(self.app, lambda _: self._begin(requests))

    def _begin(self, requests: list[Request]) -> None:
        # The next key must not go to a field: x stops the run.
        self.screen.set_focus(None)
        self._form.running = True
        self._follow(requests)

    @work(group="bench", exit_on_error=False)
    async def _follow(self, requests: Sequence[Request]) -> None:
        check = None
        try:
            check = await self._runs.follow(requests)
        finally:
            # A ticking timer wakes the whole dashboard.
            for timer in self._redraws:
                timer.pause()
            self._form.running = False
            self.post_message(self.Changed())
        if check is not None:
            self._show_check(check)

    def _show_begin(self, run: Run, check: Check | None) -> None:
        """Show a run that begins, and draw it again and again."""
        self._show_run(run, check=check)
        for timer in self._redraws:
            timer.resume()
        self.post_message(self.Changed())
        self._redraw_run()

    def _show_end(self, run: Run, problems: Sequence[str]) -> None:
        """Show the end of a run, its results, and the reasons why some are not stored."""
        if not run.measured and (fault := run.problem) is not None:
            style = FAULT if run.faulty else WARN
            self._chart.hint = partial(problem_rows, fault, style)
        for device in run.devices.values():
            result = device.result
            if result is not None and device.request.target.simulated:
                self._curves[result.started_at] = device.kept_curves()
        problem = self._results.problem
        if problems:
            problem = f"Not kept: {problems[0]}"
        elif run.results and not run.request.target.simulated:
            problem = None
        self._show_results(run.results, problem)

    def _show_run(
        self,
        run: Run | None,
        when: str = "",
        check: Check | None = None,
    ) -> None:
        self._run, self._title.when, self._title.check = run, when, check
        for view in (self._title, self._chart, self._readout):
            view.run = run
        self._chart.hint = lambda *_: []

    def _show_check(self, check: CheckResult) -> None:
        self._show_run(None)
        self._chart.hint = partial(check_rows, check)
        self._redraw_run()

    @on(ResultsView.Chosen)
    def _chosen(self, event: ResultsView.Chosen) -> None:
        if self.running:
            self.notify("A stress test is running: x stops it")
        elif event.line.parts:
            self._show_check(check_of(event.line.parts))
        else:
            self._draw(event.line.result)

    @work(
        exclusive=True,
        group="curves",
        exit_on_error=False,
    )
    async def _draw(self, result: Result) -> None:
        here = self._telemetry.find_device(result.device_uuid)
        index = None if here is None else here.index
        simulated = result.python == SIMULATED
        target = replace(target_of(result), index=index, simulated=simulated)
        try:
            curves = await asyncio.to_thread(self._curves_of, result)
            run = Run.of(DeviceRun.of_result(result, target, curves))
        except (ProblemError, ValueError) as error:
            why = f"Not drawn: {visible(str(error))}"
            self.notify(why, severity="warning", markup=False)
            return
        if self.running:
            return
        self._show_run(run, when(result))
        if not run.measured:
            no_curve = Span(
                " There is no curve of this run to draw.",
                DIM,
            )
            self._chart.hint = lambda *_: [[no_curve]]
        self._redraw_run()

    def _curves_of(self, result: Result) -> str | None:
        return self._curves.get(result.started_at) or store.curves_of(result)

    @work(group="report", exit_on_error=False)
    async def action_report(self) -> None:
        """Write the report of the selected result into the working directory."""
        line = self._results.selected
        if line is None:
            self.notify("There is no result to report")
            return
        try:
            path = await asyncio.to_thread(
                write_report,
                line.result,
                line.parts,
                self._curves_of,
            )
        except (ProblemError, ValueError, OSError) as error:
            why = visible(str(error))
            self.notify(
                why,
                title="No report",
                severity="error",
                markup=False,
            )
            return
        self.notify(visible(str(path)), title="Report", markup=False)

    def stop(self) -> None:
        """Stop the runs of all devices. The measurements so far are the result."""
        if not self.running:
            self.notify("No stress test is running: b starts one")
            return
        self._runs.stop()
        self._redraw_run()

    async def finish(self) -> None:
        """Stop the current run, and wait until its results are stored."""
        if self.running:
            await self._runs.finish()

    @on(Form.Submitted)
    def _submitted(self) -> None:
        if self.running:
            self.stop()
        else:
            self.start()

    def _redraw_while_running(self) -> None:
        self._redraw_run(
            chart=self._run is not None and not self._run.is_several,
        )

    def _redraw_chart_of_several(self) -> None:
        if self._run is not None and self._run.is_several:
            self._chart.redraw()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Give the readout the rows that it needs, and divide the others."""
        _, height = space_of(self)
        wanted = self._readout.wanted(height - AROUND - LEAST_CHART)
        # There is more room without a chart.
        share = height - AROUND - HINT
        results = min(self._results.wanted, max(LEAST_RESULTS, share))
        # The chart keeps its height when results are added.
        if self._run is not None:
            most = max(LEAST_RESULTS, int(height * SHARE_OF_RESULTS))
            results = max(2, min(most, height - AROUND - wanted - CHART))
        left = height - AROUND - wanted - results
        self.set_class(wanted > 0 and left < LEAST_CHART, "crowded")
        self._readout.styles.height, self._results.styles.height = (
            wanted,
            results,
        )

    def _redraw_run(self, *, chart: bool = True) -> None:
        self._arrange()
        for view in (
            self._title,
            self._readout,
            *([self._chart] if chart else []),
        ):
            view.redraw()


def _simulated(gpu: Target) -> Target:
    """Return the target of a simulated GPU. No worker runs on it."""
    return replace(
        gpu,
        name=f"{SIMULATED} {short_name(gpu.name)}",
        simulated=True,
    )
