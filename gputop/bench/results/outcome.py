"""State of a run on a device in one word, from its start to its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.bench.events import DEGRADED, FAULTY, NOT_JUDGED, UNWATCHED, Result
from gputop.console import COULD_NOT_RUN, FAULT, FINE, INTERRUPTED
from gputop.console import DEGRADED as DEGRADED_STATUS
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
    status: int = FINE
    """Exit status."""


FAULTY_DEVICE = Outcome(0, "FAULTY", "fault", FAULT)
STOPPED = Outcome(1, "stopped", status=INTERRUPTED)
FAILED = Outcome(2, "failed", "warn", COULD_NOT_RUN)
DEGRADED_DEVICE = Outcome(5, "DEGRADED", "warn", DEGRADED_STATUS)
WITHOUT_RESULT = {
    FAULT: FAULTY_DEVICE,
    INTERRUPTED: STOPPED,
    DEGRADED_STATUS: DEGRADED_DEVICE,
}
"""Outcomes of runs without a result by their exit status. Any other status is a failure."""
PROGRESS = {"starting": 8, "preparing": 9, "ready": 10, "running": 11}
"""Ranks of the states of a run that goes on. A device that delays the others comes first."""


def outcome_of(result: Result) -> Outcome:
    """Return the state of a run that has ended with a result."""
    if result.state == FAULTY:
        return FAULTY_DEVICE
    if result.stopped == "user":
        level: Level = "warn" if result.state == DEGRADED else ""
        return STOPPED._replace(level=level)
    word = ending(result).word
    if result.stopped == UNWATCHED:
        return Outcome(3, word, "warn", COULD_NOT_RUN)
    if result.stopped != "time":
        return Outcome(4, word, "warn", DEGRADED_STATUS)
    if result.state == DEGRADED:
        return DEGRADED_DEVICE
    if result.verdict is not None and result.state == NOT_JUDGED:
        return Outcome(12, NOT_JUDGED)
    return Outcome(13, "ok", "good")


def outcome_of_status(status: int) -> Outcome:
    """Return the state of a run that has ended without a result."""
    return WITHOUT_RESULT.get(status) or FAILED._replace(status=status)


def outcome_of_run(run: DeviceRun, behind: float | None = None) -> Outcome:
    """Return the state of a run. `behind` is its distance under the median in percent."""
    if run.faulty:
        return FAULTY_DEVICE
    if run.limit is not None:
        return Outcome(4, run.limit.title.lower(), "warn", DEGRADED_STATUS)
    if run.status is not None:
        return STOPPED if run.stopping else outcome_of_status(run.status)
    found = _progress(run) if run.result is None else outcome_of(run.result)
    lag = Outcome(7, f"{percentage(behind, digits=1)} behind", "warn")
    return found if behind is None else min(found, lag)


def _progress(run: DeviceRun) -> Outcome:
    if run.stopping:
        return Outcome(PROGRESS["running"], "stopping", "warn")
    silent = run.silent_seconds
    if silent is not None:
        return Outcome(6, f"silent {duration(silent)}", "warn")
    return Outcome(PROGRESS[run.state], run.state)
