"""Benchmark tab: a form, the live run, and the results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.message import Message

from gputop.agent.problem import ProblemError
from gputop.bench.events import Done, Event, Result, RunLimit
from gputop.bench.plan import request as plan
from gputop.bench.plan import target_choice
from gputop.bench.plan.kinds import CHECK
from gputop.bench.plan.request import Request, Target
from gputop.bench.plan.target_choice import busy_question, usable_requests
from gputop.bench.results.columns import device, speed, when
from gputop.bench.results.differences import differences
from gputop.bench.results.store import append, curves_of, forget, judged, recent
from gputop.bench.run.group import DeviceGroup, GroupState, Pairs, group_runner
from gputop.bench.run.run_state import RunState
from gputop.bench.run.simulation import SIMULATED, Simulation
from gputop.bench.run.suite import (
    DEFAULT_LEVEL,
    LEVELS,
    Suite,
    part_requests,
    part_result,
)
from gputop.text import short_name, visible
from gputop.ui.benchmark.device_choice import ALL, DevicesDialog, key_of, label
from gputop.ui.benchmark.form import Form, field_of
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView, suite_rows
from gputop.ui.benchmark.throughput_chart import ThroughputChart, hint, problem_rows
from gputop.ui.drawing.cells import Span
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog, ConfirmScreen
from gputop.ui.drawing.live import LiveTab, space_of
from gputop.ui.drawing.palette import DIM, FAULT, WARN
from gputop.ui.telemetry import Telemetry, local_inventory

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.agent.snapshot import Sample
    from gputop.bench.plan.kinds import DeviceKind

REDRAW_SECONDS = 0.25
"""Interval of redraws. The worker sends more windows than are worth their bytes over SSH."""
CHART_SECONDS = 1.0
"""Redraw interval of a chart with a line per device, which takes some milliseconds each."""
RESULTS_SHOWN = 200
LEAST_RESULTS, SHARE_OF_RESULTS = 5, 0.4
"""Rows of the results, and their largest share of a high screen below a chart."""
AROUND, LEAST_CHART, HINT = 4, 6, 12
"""Rows of form, title and margin, least rows of the chart, and rows of what is there before."""


class BenchmarkTab(LiveTab):
    """Starts and stops runs, one on each device, and shows them."""

    class Changed(Message):
        """A run started or ended."""

    def __init__(
        self, telemetry: Telemetry, python: str | None, ask: Callable[..., None]
    ) -> None:
        """Set the `ask` of the stream, which the load of simulated devices is passed to."""
        super().__init__(id="benchmark")
        self._telemetry = telemetry
        self._python = python
        self._simulation = Simulation(
            lambda uuid: telemetry.readings(uuid).temperature_celsius or 40.0,
            lambda loads: ask(loads=loads),
        )
        self._runs: DeviceGroup | Pairs | None = None
        self._curves: dict[float, str] = {}
        """Curves of simulated runs, which are not kept, by the time of their start."""
        self._group: GroupState | None = None
        self._suite: Suite | None = None
        """Suite that runs."""
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
        self._chart.hint = lambda *size: hint(
            self._form.kinds,
            *size,
            others=any(not d.is_here for d in self._telemetry.devices),
        )
        self.show_targets()
        self._redraws = [
            self.set_interval(REDRAW_SECONDS, self._redraw_while_running, pause=True),
            self.set_interval(CHART_SECONDS, self._redraw_chart_of_several, pause=True),
        ]
        self._load_results()

    @work(group="results", exit_on_error=False)
    async def _load_results(self) -> None:
        try:
            results, problem = await asyncio.to_thread(recent, RESULTS_SHOWN), None
        except ProblemError as error:
            results, problem = [], str(error)
        self._show_results(
            self._results.results, problem, results
        )  # some may be new meanwhile

    def _show_results(
        self, first: list[Result], problem: str | None, others: Sequence[Result] = ()
    ) -> None:
        """List the first, then the others; what is among both stays where the others have it."""
        new = {(each.started_at, each.device_uuid): each for each in first}
        rest = [new.pop((each.started_at, each.device_uuid), each) for each in others]
        self._results.show([*new.values(), *rest][:RESULTS_SHOWN], problem)
        self._redraw_run()

    @property
    def key_handlers(self) -> tuple[Widget, ...]:
        return (self, self._form, self._results)

    @property
    def running(self) -> bool:
        return self._runs is not None or self._suite is not None

    def show_targets(self) -> None:
        """Offer the stream's devices on this machine; recorded ones cannot run."""
        inventory, telemetry = (
            local_inventory(self._telemetry.inventory),
            self._telemetry,
        )
        if inventory is None or telemetry.replayed or telemetry.scraped:
            self._form.offer((plan.cpu_target(),))
        else:
            targets = target_choice.targets(inventory, self._telemetry.latest)
            if telemetry.simulated:
                targets = tuple(
                    replace(
                        gpu, name=f"{SIMULATED} {short_name(gpu.name)}", simulated=True
                    )
                    for gpu in targets[:-1]
                )
            self._form.offer(targets, target_choice.gpus_in_mig_mode(inventory))
        if self._group is None:
            self._chart.redraw()

    def show_telemetry(self) -> None:
        self._arrange()
        self._readout.redraw()

    def add_sample(self, sample: Sample) -> None:
        """Pass a sample on to simulated runs."""
        if self._telemetry.inventory is not None:
            self._simulation.add_sample(self._telemetry.inventory, sample)

    def start(self, uuid: str | None = None, *, default: bool = False) -> None:
        """Start the run in the form; with `default`, a soak of the device of that UUID."""
        if self.running:
            self.notify("A stress test is running: x stops it")
            return
        if not default and not self._form.take_highlighted():
            return
        self.show_targets()
        try:
            if default:
                self._form.choose(uuid, "soak")
            latest, chosen = self._telemetry.latest, self._form.requests(self._python)
            of_all = self._form.choice.key(self._form.kind) == ALL
            requests, left_out = usable_requests(latest, chosen, of_all=of_all)
        except ValueError as error:
            self._form.refuse(
                self._form.find_wrong()[0] or field_of(str(error)), str(error)
            )
            return
        self._form.refuse("", "")
        if left_out:
            self.notify(left_out, title="Left out", severity="warning", markup=False)
        asked = busy_question(
            self._telemetry.latest, [request.target for request in requests]
        )
        if asked is None or requests[0].target.simulated:  # that disturbs nobody
            self._begin(requests)
            return
        ConfirmScreen(*asked, "Start anyway").ask(
            self.app, lambda _: self._begin(requests)
        )

    def _begin(self, requests: list[Request]) -> None:
        self.screen.set_focus(None)  # the next key is not for a field: x stops
        if requests[0].kind == CHECK:
            devices = "; ".join(each.target.label for each in requests)
            parts = len(LEVELS[DEFAULT_LEVEL].parts)
            self._suite = Suite(DEFAULT_LEVEL, time.time(), {"devices": devices}, parts)
            self._follow_suite(requests)
        else:
            run = self._run(self._prepared(requests))
            self.run_worker(run, group="bench", exit_on_error=False)

    def _prepared(
        self, requests: list[Request], when: str = "", rest: float | None = None
    ) -> GroupState:
        group = GroupState(requests)
        self._show_group(group, when, rest)
        simulated = group.request.target.simulated
        self._runs = group_runner(
            group, self._simulation.session if simulated else None
        )
        for timer in self._redraws:
            timer.resume()
        self.post_message(self.Changed())
        self._redraw_run()
        return group

    def _show_group(
        self, group: GroupState | None, when: str = "", rest: float | None = None
    ) -> None:
        self._group, self._title.when, self._title.rest = group, when, rest
        for view in (self._title, self._chart, self._readout):
            view.group = group
        self._chart.hint = lambda *_: []

    @work(group="bench", exit_on_error=False)
    async def _follow_suite(self, requests: list[Request]) -> None:
        assert self._suite is not None
        suite, parts, seconds = (
            self._suite,
            LEVELS[DEFAULT_LEVEL].parts,
            requests[0].seconds,
        )
        try:
            for n, part in enumerate(parts, 1):
                asked, planned = part_requests(part, requests)
                runs: list[RunState] = []
                if asked:
                    rest = seconds * sum(each.share for each in parts[n:])
                    group = self._prepared(asked, f"Part {n} of {len(parts)}", rest)
                    await self._run(group)
                    runs = [*group.runs.values()]
                suite = suite.added(part_result(planned, runs))
                if self._group is not None and self._group.stopping:
                    break
        finally:
            self._suite = None
        self._show_group(None)
        self._chart.hint = partial(suite_rows, suite)
        self._redraw_run()
        self.post_message(self.Changed())

    async def _run(self, group: GroupState) -> None:
        runs = self._runs
        assert runs is not None
        try:
            await runs.follow(partial(self._take, group))
        finally:
            self._runs = None
            for timer in self._redraws:  # one that ticks wakes the whole dashboard
                timer.pause()
            # Begun even if the dashboard ends, as it may say "Done" by now: asyncio waits for it at
            # its own end. In a thread, as the home may be far away.
            problem = self._results.problem
            keeping = asyncio.get_running_loop().run_in_executor(
                None, self._keep, group, problem
            )
        if not group.measured and (fault := group.problem) is not None:
            self._chart.hint = partial(
                problem_rows, fault, FAULT if group.faulty else WARN
            )
        self._show_results(group.results, problem, self._results.results)
        self.post_message(self.Changed())
        problem = await asyncio.shield(keeping)
        self._show_results(group.results, problem, self._results.results)

    def _keep(self, group: GroupState, problem: str | None) -> str | None:
        """Judge and keep the results, and return the problem that is then with the kept ones."""
        done = [run for run in group.runs.values() if run.result is not None]
        for run, result in zip(done, judged(group.results), strict=True):
            run.end = Done(result)
        try:
            for run, result in reversed([*zip(done, group.results, strict=True)]):
                if run.request.target.simulated:
                    self._curves[result.started_at] = run.kept_curves()
                else:
                    append(result, run.kept_curves())
                    problem = None
        except ProblemError as error:
            return f"Not kept: {error}"
        return problem

    def _take(self, group: GroupState, target: Target, event: Event) -> None:
        group.add_event(target, event)
        if isinstance(event, RunLimit):
            self._say_limit(group, target, event)

    def _say_limit(self, group: GroupState, target: Target, limit: RunLimit) -> None:
        which = f" of {visible(target.label)}" if group.is_several else ""
        title = f"{limit.title}: the stress test{which} ends"
        self.notify(limit.why, title=title, severity="warning")

    def action_draw(self) -> None:
        if self.running:
            self.notify("A stress test is running: x stops it")
        elif (result := self._results.selected) is not None:
            self._draw(result)

    @work(exclusive=True, group="curves", exit_on_error=False)
    async def _draw(self, result: Result) -> None:
        uuid = result.device_uuid
        here = self._telemetry.find_device(uuid)
        index, simulated = (
            None if here is None else here.index,
            result.python == SIMULATED,
        )
        kind: DeviceKind = "cpu" if uuid is None else "cuda"
        target = Target(
            kind, uuid, index, result.device, None, None, simulated=simulated
        )
        try:
            kept = self._curves.get(result.started_at) or await asyncio.to_thread(
                curves_of, result
            )
            run = RunState.of_result(result, target, kept)
            measured = run.measured  # a newer gputop's kind is not known here
        except (ProblemError, ValueError, KeyError) as error:
            self.notify(
                f"Not drawn: {visible(str(error))}", severity="warning", markup=False
            )
            return
        if self.running:
            return
        group = GroupState([run.request])
        group.runs[run.request.target] = run
        self._show_group(group, when(result))
        if not measured:
            why = [[Span(" An older gputop kept no curve of this run.", DIM)]]
            self._chart.hint = lambda *_: why
        self._redraw_run()

    def action_compare(self) -> None:
        view, now = self._results, self._results.selected
        if now is None or view.marked in (None, now):
            view.marked = None if view.marked is now else now
        else:
            before, after = sorted(
                filter(None, (view.marked, now)), key=lambda one: one.started_at
            )
            found = differences(before, after, view.results)
            lines = [Choice(line, "", None) for line in found.splitlines()]
            window = ChoiceDialog("Comparison, 95 % intervals", lines, "Esc closes")
            window.add_class("comparison")
            self.app.push_screen(window)
            view.marked = None
        view.redraw()

    def action_forget(self) -> None:
        result = self._results.selected
        if result is None:
            return
        what = f"{when(result)}  {device(result)}  {result.kind}, {result.dtype}, {speed(result)}"
        lines = [
            visible(what),
            "This removes it and its curve from the stored results.",
        ]
        question = ConfirmScreen("Forget this result?", lines, "Forget")
        question.ask(self.app, lambda _: self._forget(result))

    @work(group="results", exit_on_error=False)
    async def _forget(self, result: Result) -> None:
        try:
            await asyncio.to_thread(forget, result)
        except ProblemError as error:
            self._show_results(self._results.results, f"Not forgotten: {error}")
        else:
            self._show_results(
                [one for one in self._results.results if one is not result], None
            )

    def stop(self) -> None:
        """Stop the runs of all devices. What they measured so far is their result."""
        if not self.running or self._group is None:
            self.notify("No stress test is running: b starts one")
            return
        self._group.stop()
        self._redraw_run()
        if self._runs is not None:  # None between two parts of a suite
            self.run_worker(self._runs.stop(), group="stop", exit_on_error=False)

    @on(Form.Several)
    def _choose_several(self) -> None:
        choice = self._form.choice
        offered = [(label(target), key_of(target)) for target in choice.offered]
        marked = [key_of(target) for target in choice.targets(self._form.kind)]
        DevicesDialog(offered, marked).ask(self.app, self._form.choose_several)

    @on(Form.Submitted)
    def _submitted(self) -> None:
        self.start()

    def _redraw_while_running(self) -> None:
        self._redraw_run(chart=self._chart.run is not None)

    def _redraw_chart_of_several(self) -> None:
        if self._chart.run is None:
            self._chart.redraw()

    def on_resize(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        """Give the readout the rows that it wants, and share the others out."""
        width, height = space_of(self)
        wanted = self._readout.wanted(width)
        share = height - AROUND - HINT  # without a chart there is more
        if self._group is not None:
            share = (
                int(height * SHARE_OF_RESULTS) if self.screen.has_class("tall") else 0
            )
        results = min(self._results.wanted, max(LEAST_RESULTS, share))
        left = height - AROUND - wanted - results
        self.set_class(wanted > 3 and left < LEAST_CHART, "crowded")
        self._readout.styles.height, self._results.styles.height = wanted, results

    def _redraw_run(self, *, chart: bool = True) -> None:
        self._arrange()
        for view in (self._title, self._readout, *([self._chart] if chart else [])):
            view.redraw()
