"""Rules about device memory: its users, and memory that is nearly full."""

from __future__ import annotations

from gputop.agent.snapshot import Process
from gputop.health import thresholds as t
from gputop.health.conditions import ALMOST_FULL
from gputop.health.findings import Evidence, Finding, Severity
from gputop.health.rule_view import RuleView, finite, needed
from gputop.health.rules.workload import USED
from gputop.schema.derived import PROCESS_COUNT
from gputop.text import visible

FREE = "memory_free_bytes"
ATTRIBUTED, UNATTRIBUTED = (
    "memory_attributed_bytes",
    "memory_unattributed_bytes",
)
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
    history = view.history
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
    user = visible(process.user) if process.user else "somebody"
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


def almost_full(view: RuleView) -> Finding | None:
    """Find memory that is full."""
    title, remedy = ALMOST_FULL, LESS_MEMORY
    if view.device.memory_is_shared:
        used: float = needed(view.host.memory_used_bytes, FREE)
        free: float = needed(view.host.memory_available_bytes, FREE)
        title = f"{title}, which is the host's"
        remedy = f"{remedy}. Programs on the CPU use the same memory"
    else:
        used, free = view.reading(USED), view.reading(FREE)
    share = 0.0
    if used + free > 0:
        share = 100 * used / (used + free)
    if not view.passes(t.FULL, share):
        return None
    evidence = [
        Evidence("share in use", USED, share, "%", headline="{} in use"),
        Evidence("in use", USED, used, "B"),
        Evidence("free", FREE, free, "B"),
    ]
    return Finding(Severity.WARNING, title, evidence, remedy)
