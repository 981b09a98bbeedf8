"""Rules about jobs on several devices: a device or rank that the others wait for."""

from __future__ import annotations

from statistics import median

from gputop.agent.snapshot import Process
from gputop.health import thresholds as t
from gputop.health.bound_by import BUSY, POWER, TENSOR
from gputop.health.findings import Evidence, Finding, Severity
from gputop.health.ranks import WORDS, HeldUp, Job, title_of
from gputop.health.rule_view import NoEvidence, RuleView, needed
from gputop.health.rules.workload import CLOCK, HEAT, USED
from gputop.schema.derived import label_of
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
    machine = visible(process.machine or "")
    return f"See where it is: `py-spy dump --pid {process.pid}` on {machine}"


def straggler(view: RuleView) -> Finding | None:
    """Find a clock below the clocks of the peers, which then wait for the device."""
    if not view.peers.views or view.waits_for_input:
        return None
    held_up = view.held_up
    if held_up is not None and (held_up.hangs or held_up.rank != view.rank):
        return None
    loads = needed(_against_peers(view, view.activity), view.activity)
    if not view.passes(t.STRAGGLER_LOAD, min(loads)):
        return None
    clocks = _against_peers(view, CLOCK, at_work=True)
    mine, theirs = needed(clocks, CLOCK)
    if theirs <= 0:
        return None
    behind = 100 * (mine - theirs) / theirs
    if not view.passes(t.STRAGGLER, behind):
        return None
    shown = (("power", POWER), ("busy", view.activity), ("temperature", HEAT))
    who = ""
    if view.rank is not None:
        who = f"rank {view.rank} "
    label, line = "SM clock below theirs", "by {}"
    return Finding(
        Severity.WARNING,
        f"{who}may delay its job, SM clock below {_peers(view)}",
        [
            view.measured(label, CLOCK, -behind, "%", headline=line),
            view.measured("SM clock at work, mean", CLOCK, mine),
            view.measured("its peers", CLOCK, theirs),
            *_beside(view, *shown),
        ],
        "The others wait for it at every step: check its temperature, what holds its clocks back, "
        "and what else runs on it",
        cost_percent=-behind,
    )


def imbalance(view: RuleView) -> Finding | None:
    """Find a device that uses more memory or does less work than its peers."""
    if not view.peers.views:
        return None
    used = _against_peers(view, USED)
    busy = _against_peers(view, view.activity)
    if used is None and busy is None:
        raise NoEvidence(USED)
    total = view.sample.memory_total_bytes or view.device.memory_total_bytes
    if used is not None and total:
        more = used[0] - used[1]
        if view.passes(t.MORE_MEMORY, 100 * more / total):
            return _more_memory(view, more)
    if busy is None or view.waits_for_input or view.held_up is not None:
        return None
    mine, theirs = busy
    if not view.passes(t.LESS_BUSY, theirs - mine):
        return None
    name = view.activity
    return Finding(
        Severity.INFORMATION,
        f"less busy than {_peers(view)}, work may be uneven",
        [
            view.measured("busy, mean", name, mine, headline="{}"),
            view.measured("its peers", name, theirs, headline="they {}"),
            *_beside(view, ("in use", USED)),
        ],
        "Check how work is split; in a pipeline, how its stages are cut",
    )


def _more_memory(view: RuleView, more: float) -> Finding:
    return Finding(
        Severity.INFORMATION,
        f"more memory in use than {_peers(view)}",
        [
            view.measured("more in use", USED, more, headline="by {}"),
            *_beside(view, ("in use", USED), ("busy", view.activity)),
        ],
        "Its share of the work may be larger; look for data that all ranks put on this device "
        "(cuda:0 by default)",
    )


def _against_peers(
    view: RuleView, name: str, *, at_work: bool = False
) -> tuple[float, float] | None:
    """Return the mean of the device and the median of its peers, if both are known."""
    own = view.mean_or_none(name, at_work=at_work)
    others = [*view.peers.means(name, at_work=at_work)]
    if own in others:
        others.remove(own)
    if own is None or not others:
        return None
    return own, median(others)


def _peers(view: RuleView) -> str:
    others = [each for each in view.peers.views if each is not view]
    if len(others) > 1:
        return f"the median of its {len(others)} peers"
    return f"GPU {label_of(others[0].device)}"


def _beside(view: RuleView, *labelled: tuple[str, str]) -> list[Evidence]:
    """Return its means, each with the median of its peers, as evidence."""
    found: list[Evidence] = []
    for label, name in labelled:
        found += view.means((label, name))
        both = _against_peers(view, name)
        if both is not None:
            found.append(view.measured(f"{label}, its peers", name, both[1]))
    return found
