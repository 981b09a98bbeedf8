"""A check while it runs: its parts one after the other, and their joined result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.results.outliers import DeviceOutcome, was_stopped
from gputop.bench.run.check_parts import (
    LEVELS,
    CheckResult,
    Part,
    PartResult,
    part_requests,
    part_result,
)

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request
    from gputop.bench.run.device_run import DeviceRun

    Ends = tuple[Sequence[DeviceRun], Sequence[DeviceOutcome]]
    """Ended runs, and devices that could not be tested."""
    RunPart = Callable[[], Awaitable[Ends]]
    """Runs the requests of the current part."""


class LeftOutError(Exception):
    """No device supports the current part."""


class Check:
    """The parts of a check: what was done, what comes next, and the result so far."""

    def __init__(self, level: str) -> None:
        self.parts = LEVELS[level].parts
        self.result = CheckResult(level, time.time(), {}, len(self.parts))
        """Parts that have ended."""
        self.number = 0
        """Number of the current part, from 1."""
        self.stopping = False
        """True if no further part begins."""
        self._seconds = LEVELS[level].seconds
        self._planned: PartResult | None = None

    @property
    def part(self) -> Part:
        """The current part."""
        return self.parts[self.number - 1]

    @property
    def seconds_to_come(self) -> float:
        """Planned seconds of the parts after the current one."""
        later = self.parts[self.number :]
        return self._seconds * sum(part.share for part in later)

    def requests(self, whole: Sequence[Request]) -> list[Request]:
        """Return the requests of the current part; raise `LeftOutError` if there are none.

        The requests of the whole check have its devices, its data type, and the seconds of all
        parts.
        """
        if not self.result.method:
            self.result = replace(self.result, method=_method(whole))
        self._seconds = whole[0].seconds
        requests, self._planned = part_requests(self.part, whole)
        if not requests:
            raise LeftOutError
        return requests

    async def follow(self, run: RunPart) -> AsyncIterator[PartResult]:
        """Run the parts until the last one, or until one is stopped; yield each when it ends."""
        for part in self.parts:
            self.number += 1
            self._planned = PartResult(part.name, part.share * self._seconds)
            runs: Sequence[DeviceRun] = ()
            others: Sequence[DeviceOutcome] = ()
            with contextlib.suppress(LeftOutError):
                runs, others = await run()
            ended = part_result(self._planned, runs, others)
            self.result = self.result.added(ended)
            yield ended
            if any(map(was_stopped, ended.members)):
                self.stopping = True
            if self.stopping:
                return


def _method(whole: Sequence[Request]) -> dict[str, str]:
    """Return the devices, data types and options of a check by name."""
    first = whole[0]
    return {
        "devices": "; ".join(each.target.label for each in whole),
        "data type": ", ".join(dict.fromkeys(each.dtype for each in whole)),
        "seconds": f"{first.seconds:g}",
        "memory share": f"{first.target.memory_share:g}",
        "verify": "all" if first.verify_all else "some",
    }
