"""Ended runs: their results are judged and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.problem import ProblemError
from gputop.bench.events import Done
from gputop.bench.results import store
from gputop.bench.results.verdict import DEFAULTS, VerdictLimits

if TYPE_CHECKING:
    from gputop.bench.run.device_run import DeviceRun


def keep(
    runs: Sequence[DeviceRun],
    limits: VerdictLimits = DEFAULTS,
    check_started_at: float | None = None,
) -> list[str]:
    """Judge and store the results of ended runs. Return the problems, each once.

    Results of a check have its start.
    """
    done, results = [], []
    for run in runs:
        if run.result is not None:
            done.append(run)
            results.append(run.result)
    problems = []
    verdicts = store.judged(results, limits)
    for run, judged in zip(done, verdicts, strict=True):
        result = replace(judged, check_started_at=check_started_at)
        run.end = Done(result)
        if not run.request.target.has_history:
            continue
        try:
            run.end = Done(store.append(result, run.kept_curves()))
        except ProblemError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))
