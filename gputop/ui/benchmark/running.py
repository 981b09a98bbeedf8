"""The run or check of the benchmark tab, from its begin until its results are stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from gputop.bench.events import Event, RunLimit
from gputop.bench.plan.kinds import CHECK
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL, CheckResult
from gputop.bench.run.keep import keep
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.check import Ends
    from gputop.bench.run.simulation import Simulation

FINISH_SECONDS = 3.0
"""Longest wait, when the dashboard ends, for a run to stop and its results to be stored."""


class RunViews(Protocol):
    """Views that are told what happens to a run."""

    def show_begin(self, run: Run, check: Check | None) -> None:
        """Show a run from now on. It may be the current part of a check."""

    def show_limit(self, run: Run, target: Target, limit: RunLimit) -> None:
        """Show that a limit ends the run of a device."""

    def show_end(self, run: Run) -> None:
        """Show the end of a run, before its results are judged and stored."""

    def show_kept(self, run: Run, problems: Sequence[str]) -> None:
        """Show stored results, and the reasons why others are not stored."""

    def show_idle(self, check: CheckResult | None) -> None:
        """Show that nothing runs any more; `check` has ended, if there was one."""


class Running:
    """Runs one run or check at a time, and stores its results."""

    def __init__(self, views: RunViews, simulation: Simulation) -> None:
        self._views, self._simulation = views, simulation
        self.check: Check | None = None
        """The current check."""
        self._run: Run | None = None
        """The current run."""
        self._runner: Runner | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        """Set while nothing runs and all results are stored."""
        self._stopping: asyncio.Task[None] | None = None
        """A task needs a reference, or it may be collected."""

    @property
    def active(self) -> bool:
        """True while a run goes on, or a check has further parts."""
        return self._runner is not None or self.check is not None

    async def follow(self, requests: Sequence[Request]) -> None:
        """Run these requests together, or as a check, until the results are stored."""
        self._idle.clear()
        check = None
        try:
            if requests[0].kind == CHECK:
                check = self.check = Check(DEFAULT_LEVEL)
                await self._follow_check(check, requests)
            else:
                await self._follow_run(requests)
        finally:
            self.check = None
            self._idle.set()
            self._views.show_idle(check.result if check else None)

    async def _follow_check(
        self,
        check: Check,
        requests: Sequence[Request],
    ) -> None:
        async def run_part() -> Ends:
            run = await self._follow_run(check.requests(requests))
            return [*run.devices.values()], ()

        async for _ in check.follow(run_part):
            pass

    async def _follow_run(self, requests: Sequence[Request]) -> Run:
        run = self._run = Run(requests)
        make = None
        if run.request.target.simulated:
            make = self._simulation.runner
        self._runner = Runner(run, make)
        self._views.show_begin(run, self.check)
        try:
            await self._runner.follow(self._hear(run))
        finally:
            self._runner = None
            # Start the task even if the dashboard ends, because the screen may
            # say "Done" by now. asyncio waits for it at its end. It uses a
            # thread, because the home may be on a network.
            keeping = asyncio.get_running_loop().run_in_executor(
                None,
                self._keep,
                run,
                self.check,
            )
        self._views.show_end(run)
        problems = await asyncio.shield(keeping)
        self._views.show_kept(run, problems)
        return run

    def _keep(self, run: Run, check: Check | None) -> list[str]:
        started_at = check.result.started_at if check else None
        return keep([*run.devices.values()], check_started_at=started_at)

    def _hear(self, run: Run) -> Callable[[Target, Event], None]:
        def hear(target: Target, event: Event) -> None:
            if isinstance(event, RunLimit):
                self._views.show_limit(run, target, event)

        return hear

    def stop(self) -> None:
        """Stop the runs of all devices, and begin no further part."""
        if self._run is not None:
            self._run.stop()
        if self.check is not None:
            self.check.stopping = True
        # It is None between two parts of a check.
        if self._runner is not None:
            self._stopping = asyncio.create_task(self._runner.stop())

    async def finish(self) -> None:
        """Stop, and wait until the results are stored."""
        self.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._idle.wait()
