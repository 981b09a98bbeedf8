"""Checks assembled from the stored results of their parts, and reports of stored results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gputop.bench.events import DEGRADED, FAULTY, Result
from gputop.bench.plan.kinds import CHECK, DeviceKind
from gputop.bench.plan.request import Target
from gputop.bench.results.check_report import check_details, check_page
from gputop.bench.results.html_report import html_document, html_page
from gputop.bench.results.outcome import outcome_of
from gputop.bench.run.check_parts import (
    DEFAULT_LEVEL,
    CheckResult,
    PartResult,
    part_result,
)
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.simulation import SIMULATED
from gputop.files import write_whole

Curves = Callable[[Result], str | None]
"""Function that returns the stored curves of a result."""


def check_result(parts: Sequence[Result]) -> Result:
    """Return a result that represents the parts of a check in a list.

    It has the figures of the soak and the gravest verdict.
    """
    shown = next((each for each in parts if each.kind == "soak"), parts[-1])
    bad = [each for each in parts if each.state in (FAULTY, DEGRADED)]
    gravest = min(bad or parts, key=outcome_of)
    return replace(
        shown,
        kind=CHECK,
        points=(),
        started_at=shown.check_started_at or shown.started_at,
        seconds=sum(each.seconds for each in parts),
        wrong_elements=sum(each.wrong_elements for each in parts),
        stopped=gravest.stopped,
        comparison=gravest.comparison,
        verdict=gravest.verdict,
    )


def check_of(
    parts: Sequence[Result], curves: Curves = lambda _: None
) -> CheckResult:
    """Return the check with these results. With `curves`, its parts have their curves."""
    found: dict[str, list[DeviceRun]] = {}
    for result in parts:
        name = result.kind
        if not result.points:
            name += f" {result.dtype}"
        found.setdefault(name, []).append(run_of(result, curves))
    ended = []
    for name, runs in found.items():
        seconds = max(run.request.seconds for run in runs)
        ended.append(part_result(PartResult(name, seconds), runs))
    devices = "; ".join(dict.fromkeys(each.device for each in parts))
    started_at = check_result(parts).started_at
    method = {"devices": devices}
    return CheckResult(
        DEFAULT_LEVEL, started_at, method, len(ended), tuple(ended)
    )


def run_of(result: Result, curves: Curves) -> DeviceRun:
    """Return the run of a result. Raise `ProblemError` or `ValueError` for broken curves."""
    kind: DeviceKind = "cpu" if result.device_uuid is None else "cuda"
    target = Target(
        kind,
        result.device_uuid,
        result.device_index,
        result.device,
        None,
        None,
        host=result.host,
        simulated=result.python == SIMULATED,
    )
    return DeviceRun.of_result(result, target, curves(result))


def write_report(
    result: Result,
    parts: Sequence[Result],
    curves: Curves,
) -> Path:
    """Write the report of a result, or of a check with these parts, and return its path.

    Raises `ProblemError`, `ValueError`, or `OSError`.
    """
    if parts:
        check = check_of(parts, curves)
        blocks = [*check_page(check), *check_details(check)]
        page = html_document(blocks, check.started_at)
    else:
        page = html_page(result, run_of(result, curves).history())
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(result.started_at))
    path = Path(f"gputop-{result.kind}-{moment}.html").absolute()
    write_whole(path, page.encode())
    return path
