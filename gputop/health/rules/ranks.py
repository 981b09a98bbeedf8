"""Rule about the ranks of a parallel job: one that all others wait for."""

from __future__ import annotations

from statistics import median

from gputop.agent.snapshot import Process
from gputop.health import thresholds as t
from gputop.health.bound_by import BUSY, POWER, TENSOR
from gputop.health.findings import Evidence, Finding, Severity
from gputop.health.ranks import WORDS, HeldUp, Job, title_of
from gputop.health.rule_view import NoEvidence, RuleView
from gputop.text import visible

LABELS = {
    BUSY: "busy, mean",
    TENSOR: "tensor active, mean",
    POWER: "power, share of the limit",
}
CPU = "cpu_percent"


def held_up(view: RuleView) -> Finding | None:
    """Find the rank that the other ranks of its job wait for, on its device."""
    if view.job is None:
        return None
    if view.mean_or_none(BUSY, t.RANK_SECONDS) is None:
        raise NoEvidence(BUSY)
    found, process = view.job.held_up, view.job.behind
    if found is None or process is None:
        return None
    if process.device_uuid != view.device.uuid:
        return None
    cost = 0.0
    if found.hangs:
        cost = 100.0
    elif found.reading == BUSY:
        cost = found.others - found.own
    return Finding(
        Severity.WARNING,
        title_of(found, process),
        [*_numbers(view, found), *_cpu(view.job.job, found.rank)],
        _remedy(process),
        cost_percent=cost,
    )


def _numbers(view: RuleView, found: HeldUp) -> list[Evidence]:
    own = view.measured(
        LABELS[found.reading],
        found.reading,
        found.own,
        "%",
        t.RANK_SECONDS,
        WORDS[found.reading],
    )
    others = view.measured(
        "the other ranks",
        found.reading,
        found.others,
        "%",
        t.RANK_SECONDS,
        "the others {}",
    )
    return [own, others]


def _cpu(job: Job, rank: int) -> list[Evidence]:
    """Return the use of the CPU now, beside that of the other ranks, if it is known."""
    own = job.ranks[rank].cpu_percent
    others = []
    for number, process in job.ranks.items():
        if number != rank and process.cpu_percent is not None:
            others.append(process.cpu_percent)
    if own is None or not others:
        return []
    return [
        Evidence("CPU of its process", CPU, own, "%"),
        Evidence("of the others", CPU, median(others), "%"),
    ]


def _remedy(process: Process) -> str:
    if process.is_here:
        return f"See where it is: `s` on pid {process.pid} in the dashboard (py-spy)"
    machine = visible(process.machine or "", 64)
    return f"See where it is: `py-spy dump --pid {process.pid}` on {machine}"
