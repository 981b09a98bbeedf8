"""State of a run on a device in one word, from its start to its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, UNWATCHED, Result
from gputop.console import INTERRUPTED
from gputop.text import duration, percentage, visible

if TYPE_CHECKING:
    from gputop.bench.results.page import Level
    from gputop.bench.run.device_run import DeviceRun


class Ending(NamedTuple):
    """How a run ended, as one word and as a part of a sentence."""

    word: str
    sentence: str


ENDINGS = {
    "time": Ending("ok", "time was up"),
    "user": Ending("stopped", "stopped by the user"),
    "limit": Ending("too hot", "ended by the temperature limit"),
    "silent": Ending(
        "unwatched", "ended because the device could not be watched"
    ),
    UNWATCHED: Ending("unwatched", "ended because its guard failed"),
}


def ending(result: Result) -> Ending:
    """Return how the run ended."""
    other = Ending(visible(result.stopped, 20), "stopped by the user")
    return ENDINGS.get(result.stopped, other)


class Outcome(NamedTuple):
    """A state. The gravest one has the lowest `rank`."""

    rank: int
    word: str
    level: Level = ""


STOPPED = Outcome(3, "stopped")
PROGRESS = {"starting": 7, "preparing": 8, "ready": 9, "running": 10}
"""Ranks of the states of a run that goes on. A device that delays the others comes first."""


def outcome_of(result: Result) -> Outcome:
    """Return the state of a run that has ended with a result."""
    if result.state == FAULTY:
        return Outcome(0, "FAULTY", "fault")
    if result.stopped == "user":
        return STOPPED
    if result.stopped != "time":
        return Outcome(2, ending(result).word, "warn")
    if result.state == DEGRADED:
        return Outcome(5, "DEGRADED", "warn")
    if result.verdict is not None and result.state == NOT_JUDGED:
        return Outcome(11, NOT_JUDGED)
    return Outcome(12, "ok", "good")


def outcome_of_run(run: DeviceRun, behind: float | None = None) -> Outcome:
    """Return the state of a run. `behind` is its distance under the median in percent."""
    if run.faulty:
        return Outcome(0, "FAULTY", "fault")
    if run.limit is not None:
        return Outcome(2, run.limit.title.lower(), "warn")
    if run.problem is not None:
        if run.stopping or run.status == INTERRUPTED:
            return STOPPED
        return Outcome(1, "failed", "warn")
    found = _progress(run) if run.result is None else outcome_of(run.result)
    lag = Outcome(6, f"{percentage(behind, digits=1)} behind", "warn")
    return found if behind is None else min(found, lag)


def _progress(run: DeviceRun) -> Outcome:
    if run.stopping:
        return Outcome(PROGRESS["running"], "stopping", "warn")
    silent = run.silent_seconds
    if silent is not None:
        return Outcome(4, f"silent {duration(silent)}", "warn")
    return Outcome(PROGRESS[run.state], run.state)
