"""Benchmark tab: a form, the live run, and the results."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.message import Message
from textual.widget import Widget

from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Sample
from gputop.bench.events import Result
from gputop.bench.plan import request as plan
from gputop.bench.plan import target_choice
from gputop.bench.plan.kinds import CHECK
from gputop.bench.plan.request import Request, Target
from gputop.bench.results import store
from gputop.bench.results.check_report import check_page
from gputop.bench.results.columns import when
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL, CheckResult
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.keep import keep
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner
from gputop.bench.run.simulation import SIMULATED, Simulation
from gputop.text import short_name, visible
from gputop.ui.benchmark.form import Form, field_of
from gputop.ui.benchmark.kept_checks import check_of, run_of, write_report
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import MOST_RESULTS, ResultsView
from gputop.ui.benchmark.throughput_chart import (
    ThroughputChart,
    hint,
    page_rows,
    problem_rows,
)
from gputop.ui.drawing.cells import Row, Span
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.drawing.live import LiveTab, space_of
from gputop.ui.drawing.palette import DIM, FAULT, WARN
from gputop.ui.telemetry import Telemetry, local_inventory

REDRAW_SECONDS = 0.5
"""Seconds between redraws. The worker sends more windows than are worth the bytes over SSH."""
FINISH_SECONDS = 3.0
"""Longest wait, when the dashboard ends, for a run to stop and its results to be stored."""
LEAST_RESULTS = 5
"""Rows for results in a low terminal without a run."""
AROUND, LEAST_CHART, CHART, HINT = 4, 6, 11, 12
"""Rows of form, title and margin; least and wanted rows of the chart; rows of the hint."""
RUNNING = "A stress test is running: x stops it"


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
        self._run: Run | None = None
        """Run that is shown."""
        self._check: Check | None = None
        """The current check."""
        self._runner: Runner | None = None
        """Runner of the current run. It is None between two parts of a check."""
        self._idle = asyncio.Event()
        self._idle.set()
        """Set while nothing runs and all results are stored."""
        self._curves: dict[float, str] = {}
        """Curves of simulated runs by their start time. They are not stored."""
        self._form = Form()
        self._title = TitleView(id="run-title")
        self._chart = ThroughputChart()
        self._readout = ReadoutView(id="readout")
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
        self._load_results()

    def _hint(self, width: int) -> list[Row]:
        others = any(not device.is_here for device in self._telemetry.devices)
        return hint(self._form.kinds, width, others=others)

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
        problem = "; ".join(map(str, problems)) or None
        # Some runs may have ended since.
        new = self._results.results
        self._results.show(results, problem)
        self._results.add(new, problem)
        self._arrange()

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self._form, self._results)

    @property
    def running(self) -> bool:
        """True until the results of the run, or of all parts of the check, are stored."""
        return not self._idle.is_set()

    def show_targets(self) -> None:
        """Offer the stream's devices on this machine. Recorded devices cannot run."""
        telemetry = self._telemetry
        inventory = local_inventory(telemetry.inventory)
        if inventory is None or telemetry.replayed:
            self._form.offer((plan.cpu_target(),), {})
        else:
            targets = target_choice.targets(inventory, telemetry.latest)
            if telemetry.simulated:
                targets = tuple(
                    _simulated(each) for each in targets if each.uuid
                )
            refused = target_choice.gpus_in_mig_mode(inventory)
            self._form.offer(targets, refused)
        self._chart.redraw()

    def show_telemetry(self) -> None:
        """Draw nothing: a run has its own samples, and its own pace."""

    def add_sample(self, sample: Sample) -> None:
        """Pass a sample on to simulated runs."""
        if self._telemetry.inventory is not None:
            self._simulation.add_sample(self._telemetry.inventory, sample)

    def start(
        self,
        uuid: str | None = None,
        *,
        default: bool = False,
    ) -> None:
        """Start the run in the form. With `default`, start a soak of the device with that UUID."""
        if self.running:
            self.notify(RUNNING)
            return
        if not default:
            self._form.take_highlighted()
        self.show_targets()
        latest = self._telemetry.latest
        try:
            if default:
                self._form.choose(uuid, "soak")
            chosen = self._form.requests(self._python)
            requests, left_out = target_choice.usable_requests(
                latest, chosen, of_all=len(chosen) > 1
            )
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
        targets = [request.target for request in requests]
        asked = target_choice.busy_question(latest, targets)
        # This disturbs nobody.
        if asked is None or targets[0].simulated:
            self._begin(requests)
            return
        question = ConfirmScreen(*asked, "Start anyway")
        question.ask(self.app, lambda _: self._begin(requests))

    def _begin(self, requests: list[Request]) -> None:
        # The next key must not go to a field: x stops the run.
        self.screen.set_focus(None)
        self._idle.clear()
        self._form.show_running(running=True)
        self._follow(requests)

    @work(group="bench", exit_on_error=False)
    async def _follow(self, requests: Sequence[Request]) -> None:
        """Run these requests until the results are stored."""
        # It ends with the run, because a ticking timer wakes the whole dashboard.
        redraws = self.set_interval(REDRAW_SECONDS, self._redraw_run)
        try:
            if requests[0].kind == CHECK:
                await self._follow_check(requests)
            else:
                await self._follow_run(requests)
        finally:
            redraws.stop()
            self._check = None
            self._idle.set()
            self._form.show_running(running=False)
            self.post_message(self.Changed())

    async def _follow_check(self, requests: Sequence[Request]) -> None:
        check = self._check = Check(DEFAULT_LEVEL)

        async def run_part() -> tuple[list[DeviceRun], tuple[()]]:
            run = await self._follow_run(check.requests(requests))
            return [*run.devices.values()], ()

        async for _ in check.follow(run_part):
            pass
        self._show_check(check.result)

    async def _follow_run(self, requests: Sequence[Request]) -> Run:
        """Run these requests, and show the run from its begin until its results are stored."""
        run = Run(requests)
        make = None
        if run.request.target.simulated:
            make = self._simulation.runner
        self._runner = Runner(run, make)
        began_at = None
        if self._check is not None:
            began_at = self._check.result.started_at
        self._show_run(run, check=self._check)
        self.post_message(self.Changed())
        try:
            await self._runner.follow()
        finally:
            self._runner = None
            # Start the task even if the dashboard ends, because the screen may
            # say "Done" by now. asyncio waits for it at its end. It uses a
            # thread, because the home may be on a network.
            keeping = asyncio.get_running_loop().run_in_executor(
                None,
                partial(
                    keep,
                    [*run.devices.values()],
                    check_started_at=began_at,
                ),
            )
        self._show_end(run, await asyncio.shield(keeping))
        return run

    def _show_end(
        self,
        run: Run,
        problems: Sequence[str],
    ) -> None:
        """Show the end of a run, its results, and the reasons why some are not stored."""
        if not run.measured and run.problem is not None:
            style = FAULT if run.faulty else WARN
            self._chart.hint = partial(problem_rows, run.problem, style)
        for device in run.devices.values():
            result = device.result
            if result is not None and device.request.target.simulated:
                self._curves[result.started_at] = device.kept_curves()
        problem = f"Not kept: {'; '.join(problems)}" if problems else None
        self._results.add(run.results, problem)
        self._redraw_run()

    def _show_run(
        self,
        run: Run | None,
        when: str = "",
        check: Check | None = None,
        otherwise: Callable[[int], list[Row]] = lambda _: [],
    ) -> None:
        """Show a run, or what `otherwise` draws for a width if nothing is measured."""
        self._run, self._title.when, self._title.check = run, when, check
        for view in (self._title, self._chart, self._readout):
            view.run = run
        self._chart.hint = otherwise
        self._redraw_run()

    def _show_check(self, check: CheckResult) -> None:
        self._show_run(
            None,
            otherwise=partial(page_rows, check_page(check)),
        )

    @on(ResultsView.Chosen)
    def _chosen(self, event: ResultsView.Chosen) -> None:
        if self.running:
            self.notify(RUNNING)
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
        try:
            device = await asyncio.to_thread(run_of, result, self._curves_of)
        except (ProblemError, ValueError) as error:
            why = f"Not drawn: {visible(str(error))}"
            self.notify(why, severity="warning", markup=False)
            return
        if self.running:
            return
        none = [Span(" There is no curve of this run to draw.", DIM)]
        self._show_run(
            Run.of(device),
            f"{when(result)} ",
            otherwise=lambda _: [none],
        )

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
        self._stop()

    @work(group="stop", exit_on_error=False)
    async def _stop(self) -> None:
        """Stop the runs of all devices, and begin no further part."""
        if self._check is not None:
            self._check.stopping = True
        if self._runner is not None:
            self._runner.state.stop()
            self._redraw_run()
            await self._runner.stop()

    async def finish(self) -> None:
        """Stop the current run, and wait until its results are stored."""
        self._stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._idle.wait()

    @on(Form.Submitted)
    def _submitted(self) -> None:
        if self.running:
            self.stop()
        else:
            self.start()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Give the readout the rows that it needs, and divide the others."""
        _, height = space_of(self)
        room = height - AROUND
        wanted = self._readout.wanted(room - LEAST_CHART)
        most = max(LEAST_RESULTS, room - HINT)
        results = min(self._results.wanted, most)
        # The chart keeps its height when results are added.
        if self._run is not None:
            results = max(2, min(height // 4, room - CHART - wanted))
        self.set_class(room - wanted - results < LEAST_CHART, "crowded")
        self._readout.styles.height = wanted
        self._results.styles.height = results

    def _redraw_run(self) -> None:
        self._arrange()
        for view in (self._title, self._readout, self._chart):
            view.redraw()


def _simulated(gpu: Target) -> Target:
    """Return the target of a simulated GPU. No worker runs on it."""
    return replace(
        gpu,
        name=f"{SIMULATED} {short_name(gpu.name)}",
        simulated=True,
    )
