"""Rules about device memory: who holds it, and how long it will last."""

from __future__ import annotations

import math
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from gputop.health import thresholds as t
from gputop.health.alerts import Severity
from gputop.health.device_view import Look, NoEvidence, finite, now
from gputop.health.findings import Evidence, Said
from gputop.schema.derived import PROCESS_COUNT
from gputop.text import duration, percentage, size, visible

if TYPE_CHECKING:
    from array import array

    from gputop.schema.snapshot import Process

USED, FREE = "memory_used_bytes", "memory_free_bytes"
ATTRIBUTED, UNATTRIBUTED = "memory_attributed_bytes", "memory_unattributed_bytes"
MOST_POINTS = 60
"""Of a trend: more do not make it straighter."""
LONGEST_COMMAND = 48


def held_idle(look: Look) -> Said | None:
    """Memory is held for minutes in which nothing ran."""
    held = look.reading(ATTRIBUTED)
    if not look.passes(t.HELD, held):
        return None
    activity = look.activity
    if look.reading(activity) > t.IDLE.end:
        return None
    numbers = look.values(activity, t.IDLE_SECONDS, enough=0.95)
    if not look.passes(t.IDLE, max(finite(numbers))):
        return None
    idle = _idle_seconds(look, activity)
    holder = max(look.processes, key=lambda p: p.memory_used_bytes or 0, default=None)
    evidence = [now("held", ATTRIBUTED, held), Evidence("idle for", activity, idle, "s", idle)]
    return Said(
        Severity.INFORMATION,
        f"Held and idle for {duration(idle)}: {size(held)} by {who(holder)}",
        evidence,
        "If it is forgotten, end it or ask its user: a notebook keeps its memory until its "
        "kernel ends",
        since=look.now - idle,
    )


def who(process: Process | None) -> str:
    """A process in a few words; its text is made inert."""
    if process is None:
        return "a process that is not listed"
    user = visible(process.user, 24) if process.user else "somebody"
    command = visible(process.command or "", LONGEST_COMMAND)
    more = "…" if len(process.command or "") > LONGEST_COMMAND else ""
    return f"{user} ({command}{more})" if command else f"{user} (pid {process.pid})"


def _idle_seconds(look: Look, activity: str) -> float:
    """Since it last did anything; where that is longer ago than the history goes, all of it."""
    history = look.axis.history
    numbers = history.last(look.device.uuid, activity, history.count)
    idle = 0
    for number in reversed(numbers):
        if number > t.IDLE.end:
            break
        idle += 1
    return history.span(idle)


def unattributed(look: Look) -> Said | None:
    """Memory is in use that no listed process holds."""
    # The lists are older than the memory: only what stays is meant.
    least = min(finite(look.values(UNATTRIBUTED)))
    if not look.passes(t.UNATTRIBUTED, least):
        return None
    evidence = [Evidence("at least", UNATTRIBUTED, least, "B", look.span(t.WINDOW_SECONDS))]
    if look.sample.memory_used_bytes is not None:
        evidence.append(now("in use", USED, look.sample.memory_used_bytes))
    return Said(
        Severity.WARNING,
        f"{size(least)} are in use that no listed process holds",
        evidence,
        "They may be of another container (run with --pid=host or as root), or left behind: "
        "`fuser -v /dev/nvidia*` shows who has it open",
    )


def ghost_load(look: Look) -> Said | None:
    """It is busy, and no process is listed."""
    if look.processes:
        return None
    busy = look.mean(look.activity)
    if not look.passes(t.GHOST, busy):
        return None
    if max(finite(look.values(PROCESS_COUNT))) > 0:
        return None
    span = look.span(t.WINDOW_SECONDS)
    return Said(
        Severity.WARNING,
        f"Busy {percentage(busy)} without any process that is listed",
        [*look.means("busy", look.activity), Evidence("processes", PROCESS_COUNT, 0, "", span)],
        "It may be one of another container or user: run with --pid=host or as root; "
        "`fuser -v /dev/nvidia*` shows who has it open",
    )


class Trend(NamedTuple):
    """A straight line through the memory in use, where it grows."""

    per_second: float
    fit: float
    """R²: 1 is a straight line."""
    grew: float
    """Bytes from the first to the last third."""
    seconds: float


def trend(look: Look, enough: float) -> Trend | None:
    """Of ten minutes, or of as much as there is; None where a third is not above the one before."""
    numbers = look.values(USED, t.LONG_SECONDS, enough)
    if look.reading(USED) <= (look.known(USED, t.LONG_SECONDS) or 0.0):
        return None
    if "trend" not in look.memo:
        window = look.axis.within(t.LONG_SECONDS)
        look.memo["trend"] = _trend(numbers, window.span / max(1, window.many - 1))
    found: Trend | None = look.memo["trend"]
    return found


def _trend(numbers: array[float], each: float) -> Trend | None:
    """Of numbers that are `each` so many seconds apart."""
    step = max(1, len(numbers) // MOST_POINTS)
    ys = numbers[::step].tolist()
    xs = [*range(0, step * len(ys), step)]
    if not math.isfinite(sum(ys)):
        pairs = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y)]
        xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    many, third = len(ys), len(ys) // 3
    if not third:
        return None
    first, middle, last = ys[:third], ys[third:-third], ys[-third:]
    grew = sum(last) / third - sum(first) / third
    if not sum(first) / third < sum(middle) / len(middle) < sum(last) / third:
        return None
    mean_x, mean_y = sum(xs) / many, sum(ys) / many
    dx, dy = [x - mean_x for x in xs], [y - mean_y for y in ys]
    xx, yy, xy = (sum(map(mul, a, b)) for a, b in ((dx, dx), (dy, dy), (dx, dy)))
    if not (xx and yy and each) or xy <= 0:
        return None
    return Trend(xy / xx / each, xy * xy / (xx * yy), grew, each * (len(numbers) - 1))


def almost_full(look: Look) -> Said | None:
    """It is full, or will soon be at the rate at which it fills."""
    used, free = look.reading(USED), look.reading(FREE)
    total = used + free
    share = 100 * used / total if total > 0 else 0.0
    if not look.passes(t.FILLING, share):
        return None
    full = look.passes(t.FULL, share)
    line = _growth(look)
    left = free / line.per_second if line else None
    if left is not None and not look.passes(t.FULL_SOON_SECONDS, left):
        line = left = None
    if not full and left is None:
        return None
    evidence = [now("in use", USED, used), now("free", FREE, free)]
    in_use = f"{percentage(share)} in use"
    sentence = f"Almost out of memory: {in_use}"
    if line is not None and left is not None:
        evidence.append(Evidence("growth a minute", USED, 60 * line.per_second, "B", line.seconds))
        evidence.append(Evidence("full in", FREE, left, "s"))
        sentence = f"May run out of memory in about {duration(left)}: {in_use}, growing"
    return Said(
        Severity.WARNING,
        sentence,
        evidence,
        "Smaller batches or shorter sequences, activation checkpointing; save before it fails",
    )


def _growth(look: Look) -> Trend | None:
    """A straight one, where there is enough to see one."""
    wanted = look.axis.within(t.LONG_SECONDS).wanted
    try:
        line = trend(look, t.FILLING_SECONDS / wanted)
    except NoEvidence:
        return None  # how full it is can be told without
    return line if line is not None and look.passes(t.LEAK_FIT, line.fit) else None


def leak(look: Look) -> Said | None:
    """It grows steadily, for longer than loading takes."""
    line = trend(look, t.ENOUGH_OF_WINDOW)
    total = look.sample.memory_total_bytes or look.device.memory_total_bytes
    if line is None or not total or not look.passes(t.LEAK_FIT, line.fit):
        return None
    if not look.passes(t.LEAK_SHARE, 100 * line.grew / total):
        return None
    rate = 60 * line.per_second
    grown = line.per_second * line.seconds
    return Said(
        Severity.WARNING,
        f"Memory grows steadily, {size(rate)} a minute for {duration(line.seconds)}: may leak",
        [
            Evidence("growth", USED, grown, "B", line.seconds),
            Evidence("growth a minute", USED, rate, "B", line.seconds),
            Evidence("in a straight line", USED, 100 * line.fit, "%", line.seconds),
            now("in use", USED, look.reading(USED)),
        ],
        "Look for tensors that are kept from step to step: losses added up without .item(), "
        "growing lists, graphs that are not freed",
    )
