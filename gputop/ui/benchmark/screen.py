"""Benchmark tab: a form, the live run, and the results."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.containers import Vertical
from textual.message import Message

from gputop.bench.events import Done
from gputop.bench.plan import devices
from gputop.bench.plan import request as plan
from gputop.bench.plan.devices import busy_question, usable_requests
from gputop.bench.results.history import ResultsError, append, recent
from gputop.bench.run import supervision
from gputop.bench.run.group import group_runner
from gputop.bench.run.group_state import GroupState
from gputop.text import visible
from gputop.ui.benchmark.chart import ThroughputChart, hint, problem_rows
from gputop.ui.benchmark.device_choice import DevicesDialog, key_of, label
from gputop.ui.benchmark.form import Form
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.drawing.palette import FAULT, WARN
from gputop.ui.model import local_inventory
from gputop.ui.widgets.confirm import ConfirmScreen

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gputop.bench.events import Result
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.group import DeviceGroup, Pairs
    from gputop.ui.model import Telemetry

REDRAW_SECONDS = 0.25
"""Interval of redraws. The worker sends more windows than are worth their bytes over SSH."""
CHART_SECONDS = 1.0
"""Redraw interval of a chart with a line per device, which takes some milliseconds each."""
RESULTS_SHOWN = 200
LEAST_RESULTS, SHARE_OF_RESULTS = 5, 0.3
"""Rows of the results, and their share of a high screen, as in the style sheet."""
AROUND, LEAST_CHART = 4, 6
"""Rows of form, title and margin, and least rows of the chart."""


class BenchmarkTab(Vertical):
    """Starts and stops runs, one on each device, and shows them."""

    class Changed(Message):
        """A run started or ended."""

    def __init__(self, telemetry: Telemetry, python: str | None) -> None:
        super().__init__(id="benchmark")
        self._telemetry = telemetry
        self._python = python
        self._runs: DeviceGroup | Pairs | None = None
        """Runs under way."""
        self._group: GroupState | None = None
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
        """Offer the CPU at once; devices come with the stream."""
        self._chart.hint = lambda *size: hint(
            self._form.kinds, *size, others=any(not d.is_here for d in self._telemetry.devices)
        )
        self.show_targets()
        self._redraws = [
            self.set_interval(REDRAW_SECONDS, self._redraw_while_running, pause=True),
            self.set_interval(CHART_SECONDS, self._redraw_chart_of_several, pause=True),
        ]
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
        """True if a run is under way."""
        return self._runs is not None

    def show_targets(self) -> None:
        """Offer the stream's devices on this machine; simulated and recorded ones cannot run."""
        inventory, telemetry = local_inventory(self._telemetry.inventory), self._telemetry
        elsewhere = telemetry.simulated or telemetry.replayed or telemetry.scraped
        if inventory is None or elsewhere:
            self._form.offer((plan.cpu_target(),))
        else:
            targets = devices.targets(inventory, self._telemetry.latest)
            self._form.offer(targets, devices.gpus_in_mig_mode(inventory))
        if self._group is None:
            self._chart.redraw()

    def show_telemetry(self) -> None:
        """Redraw the readings of the devices under test."""
        self._readout.redraw()

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
            requests, left_out = usable_requests(
                self._telemetry.latest,
                self._form.requests(self._python),
                of_all=self._form.means_all,
            )
        except ValueError as error:
            self.notify(str(error), title="Not started", severity="error", markup=False)
            return
        if left_out:
            self.notify(left_out, title="Left out", severity="warning", markup=False)
        asked = busy_question(self._telemetry.latest, [request.target for request in requests])
        if asked is None:
            self._begin(requests)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._begin(requests)

        self.app.push_screen(ConfirmScreen(*asked, "Start anyway"), answered)

    def _begin(self, requests: list[Request]) -> None:
        self.screen.set_focus(None)  # the next key is not for a field: x stops
        group = self._group = GroupState(requests)
        for view in (self._title, self._chart, self._readout):
            view.group = group
        self._chart.hint = lambda *_: []
        self._runs = group_runner(group)
        for timer in self._redraws:
            timer.resume()
        self._follow(group, self._runs)
        self.post_message(self.Changed())
        self._redraw_run()

    @work(exclusive=True, group="bench", exit_on_error=False)
    async def _follow(self, group: GroupState, runs: DeviceGroup | Pairs) -> None:
        """Follow the events of all devices to the end, and keep the results."""
        try:
            with supervision.Supervisor() as together:
                received = runs.events(together, partial(self._ended_by, group))
                async with contextlib.aclosing(received) as events:
                    async for target, event in events:
                        group.add_event(target, event)
                        if isinstance(event, Done) and group.is_several:
                            await self._keep(event.result)
        finally:
            self._runs = None
            for timer in self._redraws:  # one that ticks wakes the whole dashboard
                timer.pause()
        if not group.measured and (problem := group.problem) is not None:
            self._chart.hint = partial(problem_rows, problem, FAULT if group.faulty else WARN)
        if not group.is_several and (result := group.first.result):
            await self._keep(result)
        self._redraw_run()
        self.post_message(self.Changed())

    async def _keep(self, result: Result) -> None:
        """List a result and store it."""
        listed = self._results.results
        listed.insert(0, result)
        del listed[RESULTS_SHOWN:]
        try:
            listed[0] = await asyncio.to_thread(append, result)  # the home may be far away
            self._results.problem = None
        except ResultsError as error:
            self._results.problem = f"Not kept: {error}"
        self._results.redraw()

    def _ended_by(self, group: GroupState, target: Target, limit: supervision.RunLimit) -> None:
        """Notify about the limit that ends a run, on any tab."""
        group.runs[target].limit = limit
        which = f" of {visible(target.label)}" if group.is_several else ""
        title = f"{limit.title}: the stress test{which} ends"
        self.notify(limit.why, title=title, severity="warning")

    def action_move(self, step: int) -> None:
        """Scroll the results by rows."""
        self._results.move(step)

    def action_page(self, step: int) -> None:
        """Scroll the results by pages."""
        self._results.page(step)

    def to_field(self, step: int) -> None:
        """Focus another field of the form."""
        self._form.step(step)

    def stop(self) -> None:
        """Stop the runs of all devices. What they measured so far is their result."""
        if self._runs is None or self._group is None:
            self.notify("No stress test is running: b starts one")
            return
        self._group.stop()
        self._redraw_run()
        self._stop(self._runs)

    @work(group="stop", exit_on_error=False)
    async def _stop(self, runs: DeviceGroup | Pairs) -> None:
        await runs.stop()

    @on(Form.Several)
    def _choose_several(self) -> None:
        def answered(keys: list[str] | None) -> None:
            if keys:
                self._form.choose_several(keys)

        choice = self._form.choice
        offered = [(label(target), key_of(target)) for target in choice.offered]
        marked = [key_of(target) for target in choice.targets(self._form.kind)]
        self.app.push_screen(DevicesDialog(offered, marked), answered)

    @on(Form.Submitted)
    def _submitted(self) -> None:
        self.start()

    def _redraw_while_running(self) -> None:
        self._redraw_run(chart=self._chart.run is not None)

    def _redraw_chart_of_several(self) -> None:
        if self._chart.run is None:
            self._chart.redraw()

    def on_resize(self) -> None:
        """Arrange the views anew."""
        self._arrange()

    def _arrange(self) -> None:
        """Give the readout the rows that it wants, at the expense of the results."""
        wanted = self._readout.wanted(self.size.width)
        results = max(LEAST_RESULTS, int(self.size.height * SHARE_OF_RESULTS))
        if not self.screen.has_class("tall"):
            results = LEAST_RESULTS
        others = AROUND + wanted + results
        self.set_class(wanted > 2 and self.size.height - others < LEAST_CHART, "crowded")
        self._readout.styles.height = wanted

    def _redraw_run(self, *, chart: bool = True) -> None:
        self._arrange()
        for view in (self._title, self._readout, *([self._chart] if chart else [])):
            view.redraw()
