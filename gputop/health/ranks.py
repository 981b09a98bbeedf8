"""Ranks of parallel jobs, on all machines: which ones run, and which one the others wait for.

Ranks meet in collectives (NCCL). A rank that waits there is always busy, draws little power and
uses no tensor cores. So a rank that hangs is the only one that does not wait, and a slow rank is
less busy than the others, or computes for more of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import NamedTuple

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Process
from gputop.health import thresholds as t
from gputop.health.bound_by import BUSY, POWER, SM, TENSOR
from gputop.health.findings import capitalized, listed_ranges
from gputop.health.rule_view import Peers, RuleView, finite, lack_text
from gputop.text import count, percentage

LIMITS = {
    BUSY: t.RANK_LESS_BUSY,
    POWER: t.RANK_MORE_POWER,
    TENSOR: t.RANK_MORE_TENSOR,
}
"""Differences from the other ranks that matter."""


WORDS = {
    BUSY: "busy {}",
    POWER: "power {} of the limit",
    TENSOR: "tensor active {}",
}
"""Words for the numbers."""


MOST_GAPS = 4
"""Most ranges of missing ranks to list."""


class Job(NamedTuple):
    """A parallel job with its ranks that use a GPU."""

    id: str
    ranks: Mapping[int, Process]
    """Process of each rank, on the device where it holds most memory."""
    world_size: int
    """Number of ranks, or the least one if it is unknown."""

    @property
    def missing(self) -> list[tuple[int, int]]:
        """First and last rank of each gap: ranks on none of the machines, or on no GPU."""
        gaps = []
        following = 0
        for rank in [*self.ranks, self.world_size]:
            if rank > following:
                gaps.append((following, rank - 1))
            following = rank + 1
        return gaps

    @property
    def seen(self) -> str:
        """The number of ranks that are there, and the other ones."""
        gaps = self.missing
        if not gaps:
            return count(len(self.ranks), "rank")
        others = "the others"
        if len(gaps) <= MOST_GAPS:
            others = listed_ranges(gaps)
        verb = "are"
        if len(self.ranks) + 1 == self.world_size:
            verb = "is"
        others = f"{others} {verb} not on a GPU here"
        return f"{len(self.ranks)} of {self.world_size} ranks seen: {others}"


Loads = Mapping[int, Mapping[str, float]]
"""Means over `RANK_SECONDS` by rank and reading, with power in percent of the limit."""
FALLEN = "fallen"
"""Key of the power in percent of its highest in ten minutes."""


class HeldUp(NamedTuple):
    """The rank that all other ranks of its job wait for."""

    rank: int
    reading: str
    """The reading that shows it."""
    own: float
    others: float
    """Median of the other ranks."""
    hangs: bool = False
    """True if nothing goes on: all others wait all the time."""

    @property
    def numbers(self) -> str:
        """The numbers in words: `busy 60 %, the others 99 %`."""
        own = WORDS[self.reading].format(percentage(self.own))
        return f"{own}, the others {percentage(self.others)}"


class JobState(NamedTuple):
    """Verdict on a job."""

    job: Job
    held_up: HeldUp | None = None
    waiting: frozenset[int] = frozenset()
    """Ranks that wait in a collective, or launch small kernels if no rank holds them up."""
    lacking: str = ""
    """Reason why the ranks cannot be compared; empty if they were."""

    @property
    def behind(self) -> Process | None:
        """Process of the rank that the others wait for, if there is one."""
        if self.held_up is None:
            return None
        return self.job.ranks[self.held_up.rank]

    def sentence(self, gpu: str = "") -> str:
        """Return the state in one sentence; `gpu` names the device of the rank that is behind."""
        process = self.behind
        if self.held_up is not None and process is not None:
            title = capitalized(title_of(self.held_up, process, gpu))
            return f"{self.job.seen}. {title}: {self.held_up.numbers}"
        if self.lacking:
            return f"{self.job.seen}. Not compared: {self.lacking}"
        if self.job.missing and len(self.waiting) == len(self.job.ranks):
            return f"{self.job.seen}. The others may wait in a collective"
        return f"{self.job.seen}. No rank is out of line"


def title_of(held_up: HeldUp, process: Process, gpu: str = "") -> str:
    """Return the title of the finding about a rank; `gpu` names its device if nothing else does."""
    who = f"rank {held_up.rank} ({gpu}pid {process.pid})"
    if held_up.hangs:
        return f"all ranks but {held_up.rank} wait in a collective for {who}"
    return f"{who} may hold up its job"


def find_jobs(processes: Iterable[Process]) -> list[Job]:
    """Return the jobs with more than one rank."""
    found: dict[str, list[tuple[int, int, Process]]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for process in processes:
        rank, job_id = process.rank, process.job_id
        if rank is None or job_id is None:
            continue
        memory = process.memory_used_bytes or 0
        found[job_id].append((rank, memory, process))
        sizes[job_id] = max(sizes[job_id], rank + 1, process.world_size or 0)
    jobs = []
    for job_id, members in found.items():
        # Of a rank's processes, the one that holds most memory is the last.
        members.sort(key=itemgetter(0, 1))
        ranks = {rank: process for rank, _, process in members}
        if sizes[job_id] > 1:
            jobs.append(Job(job_id, ranks, sizes[job_id]))
    return jobs


def find_peers(
    views: Mapping[str, RuleView], processes: Iterable[Process]
) -> None:
    """Set the peers of each device: devices of the same model that work on its largest job."""
    jobs: dict[tuple[object, ...], dict[str, RuleView]] = defaultdict(dict)
    for process in processes:
        view = views.get(process.device_uuid)
        if view is not None and view.device.parent_uuid is None:
            for key in _job_keys(process):
                jobs[(*key, view.device.name)][view.device.uuid] = view
    for members in jobs.values():
        peers = Peers([*members.values()])
        for view in peers.views:
            if len(peers.views) > max(1, len(view.peers.views)):
                view.peers = peers


def _job_keys(process: Process) -> Iterator[tuple[object, ...]]:
    """Yield keys that the processes of one job share."""
    yield "pid", process.machine, process.pid
    if process.job_id is not None:
        yield "ranks", process.job_id
    parent = process.parent_pid or 0
    if process.slurm_job is not None:
        yield "job", process.slurm_job
    elif parent > 1 and process.command:
        # A launcher starts the same program for each device. A shell
        # starts different programs.
        program = " ".join(process.command.split()[:3])
        yield "launcher", process.machine, parent, program


def judge_jobs(
    views: Mapping[str, RuleView],
    jobs: Iterable[Job],
    before: Mapping[str, JobState],
) -> dict[str, JobState]:
    """Return the verdict on each job, and note it in the views of its devices.

    `before` are the previous verdicts. Never raises.
    """
    states = {}
    for job in jobs:
        known = before.get(job.id)
        held_up = None if known is None else known.held_up
        state = _judge(job, views, held_up)
        states[job.id] = state
        for rank, process in job.ranks.items():
            view = views.get(process.device_uuid)
            if view is not None:
                view.job = state
                view.rank = rank
    return states


def _judge(
    job: Job, views: Mapping[str, RuleView], before: HeldUp | None
) -> JobState:
    loads = {}
    for rank, process in job.ranks.items():
        view = views.get(process.device_uuid)
        if view is None:
            return JobState(job, lacking=f"rank {rank} has no device")
        load = _load_of(view)
        if load is None:
            absence = view.absence(BUSY)
            why = lack_text(BUSY, absence, view.device, view.host)
            if absence is not None:
                why = f"rank {rank} has {why}"
            return JobState(job, lacking=why)
        loads[rank] = load
    devices = {process.device_uuid for process in job.ranks.values()}
    if len(devices) < len(loads):
        return JobState(job, lacking="ranks share a GPU")
    return compare(job, loads, before)


def _load_of(view: RuleView) -> dict[str, float] | None:
    """Return the load of a device, or None if it is unknown."""
    load = {}
    for name in (BUSY, SM, TENSOR, POWER):
        mean = view.mean_or_none(name, t.RANK_SECONDS)
        if mean is not None:
            load[name] = mean
    if BUSY not in load or view.sample.state is not DeviceState.OK:
        return None
    watts = load.pop(POWER, None)
    limit = view.sample.power_limit_watts
    if watts is not None and limit:
        load[POWER] = 100 * watts / limit
    if watts is not None and SM not in load:
        highest = max(finite(view.values(POWER, t.LONG_SECONDS, 0.0)))
        load[FALLEN] = 100 * watts / max(1.0, highest)
    return load


def compare(job: Job, loads: Loads, before: HeldUp | None = None) -> JobState:
    """Return which rank the others wait for. `before` is the previous verdict."""
    hung = before is not None and before.hangs
    waiting = set()
    working = set()
    for rank, load in loads.items():
        if waits(load, held=hung):
            waiting.add(rank)
        elif not waits(load, held=True):
            working.add(rank)
    state = JobState(job, waiting=frozenset(waiting))
    if waiting and len(working) == 1 and len(waiting) == len(loads) - 1:
        return state._replace(held_up=_hung(working.pop(), loads))
    if len(loads) < t.FEWEST_RANKS:
        few = f"{count(t.FEWEST_RANKS, 'rank')} are needed"
        return state._replace(lacking=few)
    found: dict[int, HeldUp] = {}
    for reading in LIMITS:
        held_up = _out_of_line(loads, reading, before)
        if held_up is not None:
            found.setdefault(held_up.rank, held_up)
    if len(found) == 1:
        (held_up,) = found.values()
        return state._replace(held_up=held_up)
    return state


def waits(load: Mapping[str, float], *, held: bool) -> bool:
    """Return True for the load of a rank that waits in a collective all the time."""
    if not t.BUSY.passed(load[BUSY], held=held):
        return False
    if SM in load:
        few = t.FEW_SMS.passed(load[SM], held=held)
        return few and t.NO_TENSOR.passed(load.get(TENSOR, 0.0), held=held)
    for limit, name in ((t.FEW_WATTS, POWER), (t.FALLEN, FALLEN)):
        if name in load and limit.passed(load[name], held=held):
            return True
    return False


def _hung(rank: int, loads: Loads) -> HeldUp:
    """Return that all others wait for this rank, with a number in which they differ."""
    readings = [BUSY, TENSOR, POWER]
    if t.BUSY.passed(loads[rank][BUSY], held=True):
        readings = [TENSOR, POWER, BUSY]
    for reading in readings:
        numbers = _numbers(loads, reading)
        if numbers:
            own = numbers.pop(rank)
            others = median(numbers.values())
            return HeldUp(rank, reading, own, others, hangs=True)
    raise AssertionError("busy is known")


def _out_of_line(
    loads: Loads, reading: str, before: HeldUp | None
) -> HeldUp | None:
    """Return the rank that is less busy than all others, or that does more work in its time."""
    from gputop.bench.results.statistics import robust_sigma

    numbers = _numbers(loads, reading)
    if not numbers:
        return None
    pick = max
    if reading == BUSY:
        pick = min
    rank = pick(numbers, key=lambda each: numbers[each])
    own = numbers.pop(rank)
    others = [*numbers.values()]
    theirs = median(others)
    apart = abs(own - theirs)
    # Of two ranks that are out of line, neither is named.
    nearest = min(abs(own - other) for other in others)
    is_held = before is not None and before.rank == rank
    if (
        _are_busy(loads, rank, held=is_held)
        and LIMITS[reading].passed(apart, held=is_held)
        and apart >= t.DEVIATIONS * robust_sigma(others)
        and nearest >= apart / 2
    ):
        return HeldUp(rank, reading, own, theirs)
    return None


def _are_busy(loads: Loads, rank: int, *, held: bool) -> bool:
    """Return True if the other ranks are busy, as ranks are that wait for another one."""
    busy = _numbers(loads, BUSY)
    busy.pop(rank)
    return t.BUSY.passed(median(busy.values()), held=held)


def _numbers(loads: Loads, reading: str) -> dict[int, float]:
    """Return the numbers of all ranks; empty if one of them is missing."""
    numbers = {}
    for rank, load in loads.items():
        if reading not in load:
            return {}
        numbers[rank] = load[reading]
    return numbers


def in_order(states: Iterable[JobState]) -> Sequence[JobState]:
    """Return the jobs, first those with a rank that holds them up."""
    return sorted(states, key=lambda each: each.held_up is None)
