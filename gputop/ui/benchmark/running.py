"""The run or check of the benchmark tab, from its begin until its results are stored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop.bench.plan.kinds import CHECK
from gputop.bench.run.check import Check
from gputop.bench.run.check_parts import DEFAULT_LEVEL, CheckResult
from gputop.bench.run.keep import keep
from gputop.bench.run.run import Run
from gputop.bench.run.runner import Runner

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request
    from gputop.bench.run.check import Ends
    from gputop.bench.run.simulation import Simulation

    Begin = Callable[[Run, Check | None], None]
    """Called with a run that begins. It may be the current part of a check."""
    End = Callable[[Run, Sequence[str]], None]
    """Called when the results of a run are stored, with the reasons why some are not."""

FINISH_SECONDS = 3.0
"""Longest wait, when the dashboard ends, for a run to stop and its results to be stored."""


class Running:
    """Runs one run or check at a time, and stores its results."""

    def __init__(self, begin: Begin, end: End, simulation: Simulation) -> None:
        self._begin, self._end = begin, end
        self._simulation = simulation
        self._check: Check | None = None
        """The current check."""
        self._runner: Runner | None = None
        """Runner of the current run. It is None between two parts of a check."""
        self._idle = asyncio.Event()
        self._idle.set()
        """Set while nothing runs and all results are stored."""
        self._stopping: asyncio.Task[None] | None = None
        """A task needs a reference, or it may be collected."""

    @property
    def active(self) -> bool:
        """True until the results of the run, or of all parts of the check, are stored."""
        return not self._idle.is_set()

    async def follow(self, requests: Sequence[Request]) -> CheckResult | None:
        """Run these requests until the results are stored. Return the result of a check."""
        self._idle.clear()
        try:
            if requests[0].kind == CHECK:
                return await self._follow_check(requests)
            await self._follow_run(requests)
            return None
        finally:
            self._check = None
            self._idle.set()

    async def _follow_check(self, requests: Sequence[Request]) -> CheckResult:
        check = self._check = Check(DEFAULT_LEVEL)

        async def run_part() -> Ends:
            run = await self._follow_run(check.requests(requests))
            return [*run.devices.values()], ()

        async for _ in check.follow(run_part):
            pass
        return check.result

    async def _follow_run(self, requests: Sequence[Request]) -> Run:
        run = Run(requests)
        make = None
        if run.request.target.simulated:
            make = self._simulation.runner
        self._runner = Runner(run, make)
        self._begin(run, self._check)
        try:
            await self._runner.follow()
        finally:
            self._runner = None
            # Start the task even if the dashboard ends, because the screen may
            # say "Done" by now. asyncio waits for it at its end. It uses a
            # thread, because the home may be on a network.
            keeping = asyncio.get_running_loop().run_in_executor(
                None,
                self._keep,
                run,
                self._check,
            )
        self._end(run, await asyncio.shield(keeping))
        return run

    def _keep(self, run: Run, check: Check | None) -> list[str]:
        started_at = check.result.started_at if check else None
        return keep([*run.devices.values()], check_started_at=started_at)

    def stop(self) -> None:
        """Stop the runs of all devices, and begin no further part."""
        if self._check is not None:
            self._check.stopping = True
        if self._runner is not None:
            self._runner.state.stop()
            self._stopping = asyncio.create_task(self._runner.stop())

    async def finish(self) -> None:
        """Stop, and wait until the results are stored."""
        self.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._idle.wait()
