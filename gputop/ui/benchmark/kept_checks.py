"""Checks assembled from the stored results of their parts, and reports of stored results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gputop.bench.events import Result
from gputop.bench.plan.kinds import CHECK
from gputop.bench.plan.request import Target
from gputop.bench.results.check_report import check_details, check_page
from gputop.bench.results.html_report import html_document, html_page
from gputop.bench.results.outliers import GRAVEST_FIRST, DeviceOutcome
from gputop.bench.results.verdict import status
from gputop.bench.run.check_parts import DEFAULT_LEVEL, CheckResult, PartResult
from gputop.bench.run.device_run import DeviceRun
from gputop.files import write_whole

Curves = Callable[[Result], str | None]
"""Function that returns the stored curves of a result."""


def check_result(parts: Sequence[Result]) -> Result:
    """Return a result that represents the parts of a check in a list.

    It has the figures of the soak and the gravest verdict.
    """
    shown = next((each for each in parts if each.kind == "soak"), parts[-1])
    gravest = min(parts, key=lambda each: GRAVEST_FIRST.index(status(each)))
    return replace(
        shown,
        kind=CHECK,
        points=(),
        started_at=parts[0].check_started_at or parts[0].started_at,
        seconds=sum(each.seconds for each in parts),
        wrong_elements=sum(each.wrong_elements for each in parts),
        stopped=gravest.stopped,
        comparison=gravest.comparison,
        verdict=gravest.verdict,
    )


def check_of(
    parts: Sequence[Result], curves: Curves | None = None
) -> CheckResult:
    """Return the check with these results. With `curves`, its parts have their curves."""
    found: dict[str, list[Result]] = {}
    for result in parts:
        name = (
            result.kind if result.points else f"{result.kind} {result.dtype}"
        )
        found.setdefault(name, []).append(result)
    ended = []
    for name, results in found.items():
        members = tuple(map(_outcome, results))
        series = []
        for result in results if curves else ():
            run = DeviceRun.of_result(
                result,
                target_of(result),
                curves(result) if curves else None,
            )
            series.append(run.history())
        seconds = max(each.seconds for each in results)
        ended.append(
            PartResult(
                name,
                seconds,
                members=members,
                series=tuple(series),
            ),
        )
    devices = "; ".join(dict.fromkeys(each.device for each in parts))
    started_at = parts[0].check_started_at or parts[0].started_at
    method = {"devices": devices}
    return CheckResult(
        DEFAULT_LEVEL, started_at, method, len(ended), tuple(ended)
    )


def _outcome(result: Result) -> DeviceOutcome:
    place = (
        "CPU" if result.device_uuid is None else f"GPU {result.device_index}"
    )
    host = result.host or ""
    return DeviceOutcome(
        host,
        result.device_uuid,
        place,
        result.device,
        result,
    )


def target_of(result: Result) -> Target:
    """Return the device of a result."""
    uuid, index = result.device_uuid, result.device_index
    if uuid is None:
        return Target("cpu", None, None, result.device, None, None)
    return Target("cuda", uuid, index, result.device, None, None)


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
        target = target_of(result)
        run = DeviceRun.of_result(result, target, curves(result))
        page = html_page(result, run.history())
    moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(result.started_at))
    path = Path(f"gputop-{result.kind}-{moment}.html").absolute()
    write_whole(path, page.encode())
    return path
