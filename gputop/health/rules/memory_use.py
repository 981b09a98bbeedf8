"""Rules about device memory: its users, and how long it will last."""

from __future__ import annotations

import math
from typing import NamedTuple

from gputop.agent.snapshot import Process
from gputop.health import thresholds as t
from gputop.health.conditions import ALMOST_FULL
from gputop.health.findings import Evidence, Finding, Severity
from gputop.health.rule_view import NoEvidence, RuleView, finite, needed
from gputop.health.rules.workload import USED
from gputop.schema.derived import PROCESS_COUNT
from gputop.text import duration, visible

FREE = "memory_free_bytes"
ATTRIBUTED, UNATTRIBUTED = (
    "memory_attributed_bytes",
    "memory_unattributed_bytes",
)
MOST_POINTS = 60
"""Most points of a trend. More points do not improve the fit."""
LONGEST_COMMAND = 48
LESS_MEMORY = "Smaller batches or shorter sequences, activation checkpointing; save before it fails"


def held_idle(view: RuleView) -> Finding | None:
    """Find memory that is held for minutes without any work."""
    held = view.reading(ATTRIBUTED)
    if not view.passes(t.HELD, held):
        return None
    activity = view.activity
    if view.reading(activity) > t.IDLE.end:
        return None
    numbers = view.values(activity, t.IDLE_SECONDS, enough=0.95)
    if not view.passes(t.IDLE, max(finite(numbers))):
        return None
    history = view.windows.history
    samples = 0
    for number in reversed(
        history.last(view.device.uuid, activity, history.count)
    ):
        if number > t.IDLE.end:
            break
        samples += 1
    idle = history.span(samples)
    holder = max(
        view.processes, key=lambda p: p.memory_used_bytes or 0, default=None
    )
    return Finding(
        Severity.INFORMATION,
        f"memory held while idle by {process_text(holder)}",
        [
            *view.newest("held", ATTRIBUTED, "{}"),
            Evidence("idle for", activity, idle, "s", idle, "for {}"),
        ],
        "If it was forgotten, end it or ask its user: a notebook keeps its memory until its "
        "kernel ends",
        since=view.now - idle,
    )


def process_text(process: Process | None) -> str:
    """Return a process in a few words. Foreign text is made safe."""
    if process is None:
        return "a process that is not listed"
    user = visible(process.user, 24) if process.user else "somebody"
    if not process.command:
        return f"{user} (pid {process.pid})"
    command = visible(process.command, LONGEST_COMMAND)
    if len(process.command) > LONGEST_COMMAND:
        command = f"{command}…"
    return f"{user} ({command})"


def unattributed(view: RuleView) -> Finding | None:
    """Find memory in use that no listed process holds."""
    # Process lists are older than the memory reading, so only a lasting
    # difference counts.
    least = min(finite(view.values(UNATTRIBUTED)))
    if not view.passes(t.UNATTRIBUTED, least):
        return None
    return Finding(
        Severity.WARNING,
        "memory in use that no listed process holds",
        [
            view.measured(
                "at least",
                UNATTRIBUTED,
                least,
                headline="{}",
            ),
            *view.newest("in use", USED),
        ],
        "Another container may hold them (run with --pid=host or as root), or a dead process: "
        "`fuser -v /dev/nvidia*` shows who has it open",
    )


def ghost_load(view: RuleView) -> Finding | None:
    """Find load without any listed process."""
    if view.processes:
        return None
    busy = view.mean(view.activity)
    if not view.passes(t.GHOST, busy):
        return None
    if max(finite(view.values(PROCESS_COUNT))) > 0:
        return None
    return Finding(
        Severity.WARNING,
        "busy without any listed process",
        [
            view.measured(
                "busy, mean",
                view.activity,
                busy,
                headline="{}",
            ),
            view.measured("processes", PROCESS_COUNT, 0),
        ],
        "It may belong to another container or user: run with --pid=host or as root; "
        "`fuser -v /dev/nvidia*` shows who has it open",
    )


class Trend(NamedTuple):
    """Line through growing memory in use."""

    per_second: float
    fit: float
    """R²: 1 for a perfectly straight line."""
    grew: float
    """Growth in bytes from the first to the last third."""
    seconds: float


def trend(view: RuleView, enough: float) -> Trend | None:
    """Return the trend of up to ten minutes. None unless each third is above the previous one."""
    numbers = view.values(USED, t.LONG_SECONDS, enough)
    if view.reading(USED) <= (view.mean_or_none(USED, t.LONG_SECONDS) or 0.0):
        return None
    step = max(1, len(numbers) // MOST_POINTS)
    places = [
        at for at in range(0, len(numbers), step) if math.isfinite(numbers[at])
    ]
    known = [numbers[at] for at in places]
    third = len(places) // 3
    if not third:
        return None
    # This import is slow and rarely needed.
    from statistics import correlation, fmean, linear_regression

    first, last = fmean(known[:third]), fmean(known[-third:])
    if not first < fmean(known[third:-third]) < last:
        return None
    slope = linear_regression(places, known).slope
    if slope <= 0:
        return None
    window = view.windows.within(t.LONG_SECONDS)
    each = window.span / (window.samples - 1)
    return Trend(
        slope / each,
        correlation(places, known) ** 2,
        last - first,
        each * (len(numbers) - 1),
    )


def almost_full(view: RuleView) -> Finding | None:
    """Find memory that is full, or soon will be at the present growth."""
    title, remedy = ALMOST_FULL, LESS_MEMORY
    line = None
    if view.device.memory_is_shared:
        used: float = needed(view.host.memory_used_bytes, FREE)
        free: float = needed(view.host.memory_available_bytes, FREE)
        title = f"{title}, which is the host's"
        remedy = f"{remedy}. Programs on the CPU use the same memory"
    else:
        used, free = view.reading(USED), view.reading(FREE)
        line = _filling(view, used, free)
    share = _share(used, free)
    evidence = [
        Evidence("share in use", USED, share, "%", headline="{} in use"),
        Evidence("in use", USED, used, "B"),
        Evidence("free", FREE, free, "B"),
    ]
    if line is not None:
        left = free / line.per_second
        growth = 60 * line.per_second
        title = "may run out of memory"
        evidence = [
            Evidence("full in", FREE, left, "s", headline="full in about {}"),
            *evidence,
            Evidence("growth a minute", USED, growth, "B", line.seconds),
        ]
    elif not view.passes(t.FULL, share):
        return None
    return Finding(Severity.WARNING, title, evidence, remedy)


def _share(used: float, free: float) -> float:
    total = used + free
    return 100 * used / total if total > 0 else 0.0


def _filling(view: RuleView, used: float, free: float) -> Trend | None:
    """Return the trend that will soon fill the memory, if there is one."""
    if not view.passes(t.FILLING, _share(used, free)):
        return None
    wanted = view.windows.within(t.LONG_SECONDS).wanted
    try:
        line = trend(view, t.FILLING_SECONDS / wanted)
    except NoEvidence:
        # The share in use is enough for a finding without a trend.
        return None
    if line is None or not view.passes(t.LEAK_FIT, line.fit):
        return None
    soon = view.passes(t.FULL_SOON_SECONDS, free / line.per_second)
    return line if soon else None


def leak(view: RuleView) -> Finding | None:
    """Find memory that grows steadily for longer than loading takes."""
    line = trend(view, t.ENOUGH_OF_WINDOW)
    total = view.sample.memory_total_bytes or view.device.memory_total_bytes
    if line is None or not total or not view.passes(t.LEAK_FIT, line.fit):
        return None
    if not view.passes(t.LEAK_SHARE, 100 * line.grew / total):
        return None
    rate = 60 * line.per_second
    grown = line.per_second * line.seconds
    return Finding(
        Severity.WARNING,
        "memory grows steadily and may leak",
        [
            Evidence("growth", USED, grown, "B", line.seconds),
            Evidence(
                "growth a minute",
                USED,
                rate,
                "B",
                line.seconds,
                f"{{}} a minute for {duration(line.seconds)}",
            ),
            Evidence(
                "in a straight line", USED, 100 * line.fit, "%", line.seconds
            ),
            *view.newest("in use", USED),
        ],
        "Look for tensors kept from step to step: losses added up without .item(), growing "
        "lists, graphs that are not freed",
    )
