"""Rules about the work: waiting for input, units left unused, devices behind their peers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from gputop.health import thresholds as t
from gputop.health.findings import Evidence, Finding, Severity, unit_of
from gputop.health.rule_view import NoEvidence, RuleView
from gputop.schema.snapshot import (
    HOST_CPU,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
    ProcessKind,
)
from gputop.text import percentage, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gputop.schema.snapshot import Process

BUSY, SM, TENSOR = "gpu_utilization_percent", "sm_active_percent", "tensor_active_percent"
DRAM, FP64, POWER = "dram_active_percent", "fp64_active_percent", "power_watts"
CLOCK, USED, TEMPERATURE = "sm_clock_mhz", "memory_used_bytes", "temperature_celsius"
COMPUTES = (ProcessKind.COMPUTE, ProcessKind.BOTH, ProcessKind.MPS)


class _HostSide(NamedTuple):
    """Load of the host, in %; None if unknown."""

    cpu: float | None
    """CPU of the busiest process, % of one core."""
    waits: float | None
    """% of the time in which a process waits for storage."""
    host: float | None
    """CPU of the host, % of all cores."""


def input_bound(view: RuleView) -> Finding | None:
    """Find idle time while the host has no CPU to spare or waits for storage."""
    activity = view.activity
    busy, fine = view.mean(activity), view.driver_samples(activity)
    busy = fine.mean if fine else busy
    if not (view.passes(t.STARVED, busy) and view.passes(t.WORKS, busy)):
        return None
    if not view.processes:
        view.mean(PROCESS_COUNT)  # raises if processes are not listed
        return None
    waits = view.mean_or_none(PROCESS_IO_WAIT)
    side = _HostSide(
        view.mean_or_none(PROCESS_CPU),
        None if waits is None else 100 * waits,
        view.mean_or_none(HOST_CPU),
    )
    why, advice = _short_of(view, side)
    if not why:
        unseen = any(process.children_cpu_most_percent is None for process in view.processes)
        if side.cpu is None or unseen:  # its workers may be busy
            raise NoEvidence(PROCESS_CPU)
        if side.waits is None:
            raise NoEvidence(PROCESS_IO_WAIT)
        return None
    span, period = view.span(t.WINDOW_SECONDS), fine.period if fine else view.period(activity)
    label = f"idle, from {1 / fine.step:.0f} samples a second" if fine else "idle"
    evidence = [Evidence(label, activity, 100 - busy, "%", span)]
    gaps = ""
    if period is not None:
        gaps = f", every {period:.0f} s" if period >= 9.95 else f", every {period:.1f} s"
        evidence.append(Evidence("from gap to gap", activity, period, "s", span))
    for label, name, value in (
        ("CPU of its busiest process", PROCESS_CPU, side.cpu),
        ("waits for storage", PROCESS_IO_WAIT, side.waits),
        ("CPU of the host", HOST_CPU, side.host),
    ):
        if value is not None:
            evidence.append(Evidence(label, name, value, "%", span))
    idle = percentage(100 - busy)
    sentence = f"May be waiting for its input: idle {idle} of the time{gaps}, {why}"
    return Finding(Severity.WARNING, sentence, evidence, advice)


def _short_of(view: RuleView, side: _HostSide) -> tuple[str, str]:
    """Return what its processes lack, and the advice; empty if nothing."""
    if side.waits is not None and view.passes(t.IO_WAIT, side.waits):
        return "a process waits for storage", STORAGE
    if side.cpu is not None and view.passes(t.FULL_CORE, side.cpu):
        workers = max((p.children_cpu_most_percent or 0.0 for p in view.processes), default=0.0)
        of_workers = t.FULL_CORE.passed(workers, held=True)
        return "a CPU core is full", WORKERS if of_workers else MAIN_THREAD
    if side.host is not None and view.passes(t.FULL_HOST, side.host):
        return "the host's CPU is full", HOST
    return "", ""


STORAGE = (
    "Storage may be the limit: local or faster disks, larger files, a cache, more workers that "
    "read ahead"
)
WORKERS = (
    "The workers of its loader may be the limit: more of them, cheaper transforms, data prepared "
    "ahead, pinned memory"
)
MAIN_THREAD = (
    "Its main thread may be the limit: load in workers (num_workers), prefetch, pin memory; if it "
    "launches many small kernels, larger batches or CUDA graphs"
)
HOST = (
    "Its processes may not get enough CPU: check what else runs on the host, and the number of "
    "workers for its cores"
)


def not_working(view: RuleView) -> Finding | None:
    """Find a device that is always busy while few of its SMs work."""
    busy = view.mean(BUSY)
    if not view.passes(t.BUSY, busy):
        return None
    sm = view.mean_or_none(SM)
    advice = (
        "Small kernels: larger batches, torch.compile, CUDA graphs. If it waits for other devices "
        "(NCCL), look for the slowest of them"
    )
    if sm is not None:
        if not view.passes(t.FEW_SMS, sm):
            return None
        many = view.device.sm_count
        share = f"{percentage(sm)} of its SMs' time is used" if sm >= 0.5 else "its SMs hardly work"
        if many and sm / 100 * many < 1.5:
            share = f"about one SM of {many} works"
        evidence = [*view.mean_evidence("busy", BUSY), *view.mean_evidence("SM active", SM)]
        evidence += view.mean_evidence("tensor active", TENSOR)
        return Finding(Severity.WARNING, f"Busy {percentage(busy)}, but {share}", evidence, advice)
    watts, limit = view.mean_or_none(POWER), view.sample.power_limit_watts
    if watts is None or not limit or limit <= 0:
        raise NoEvidence(SM)
    drawn = 100 * watts / limit
    if not view.passes(t.FEW_WATTS, drawn):
        return None
    evidence = [*view.mean_evidence("busy", BUSY), *view.mean_evidence("power", POWER)]
    evidence.append(Evidence("power, of its limit", POWER, drawn, "%", view.span(t.WINDOW_SECONDS)))
    draws = f"draws {percentage(drawn)} of its power limit"
    sentence = f"Busy {percentage(busy)}, but {draws}: may do little"
    return Finding(Severity.WARNING, sentence, evidence, advice)


def no_tensor_cores(view: RuleView) -> Finding | None:
    """Find SMs that work without their tensor cores."""
    if not any(process.kind in COMPUTES for process in view.processes):
        return None
    activity = view.mean_or_none(view.activity)
    if activity is not None and activity < t.SMS_WORK.end:
        return None
    sm, tensor = view.mean(SM), view.mean(TENSOR)
    if not (view.passes(t.SMS_WORK, sm) and view.passes(t.NO_TENSOR, tensor)):
        return None
    if (view.mean_or_none(FP64) or 0.0) >= t.FP64 or (view.mean_or_none(DRAM) or 0.0) >= t.DRAM.end:
        return None
    evidence = [*view.mean_evidence("SM active", SM), *view.mean_evidence("tensor active", TENSOR)]
    return Finding(
        Severity.INFORMATION,
        f"Its SMs work ({percentage(sm)}), its tensor cores do not: may run in FP32",
        [*evidence, *view.mean_evidence("DRAM active", DRAM)],
        "If it trains or multiplies matrices: autocast to bfloat16, or TF32 by "
        "torch.set_float32_matmul_precision('high'); sizes in multiples of 8",
    )


def memory_bound(view: RuleView) -> Finding | None:
    """Find work that is limited by the bandwidth of the device memory."""
    activity = view.mean_or_none(view.activity)
    if activity is not None and activity < t.SMS_WORK.end:
        return None
    dram, tensor = view.mean(DRAM), view.mean(TENSOR)
    if not (view.passes(t.DRAM, dram) and view.passes(t.LITTLE_TENSOR, tensor)):
        return None
    evidence = [
        *view.mean_evidence("DRAM active", DRAM),
        *view.mean_evidence("tensor active", TENSOR),
    ]
    return Finding(
        Severity.INFORMATION,
        f"Limited by its memory: {percentage(dram)} of the bandwidth, "
        f"tensor cores {percentage(tensor)}",
        [*evidence, *view.mean_evidence("SM active", SM)],
        "Fuse kernels (torch.compile), larger batches where it decodes, smaller data types; "
        "otherwise this is as fast as it gets",
    )


def find_peers(views: Mapping[str, RuleView], uuids: Iterable[str]) -> None:
    """Set the peers of these devices: those of the same model that work on the same job."""
    whole = {uuid: view for uuid, view in views.items() if view.device.parent_uuid is None}
    jobs: dict[tuple[str, object], dict[str, RuleView]] = defaultdict(dict)
    for uuid, view in whole.items():
        for process in view.processes:
            for key in _jobs(process):
                jobs[key][uuid] = view
    for uuid in whole.keys() & uuids:
        view = views[uuid]
        peers: dict[str, RuleView] = {}
        for process in view.processes:
            for key in _jobs(process):
                peers |= jobs[key]
        view.peers = [
            each
            for each in peers.values()
            if each is not view and each.device.name == view.device.name
        ]


def _jobs(process: Process) -> Iterable[tuple[str, object]]:
    """Yield keys that the processes of one job share."""
    yield "pid", process.pid
    if process.slurm_job is not None:
        yield "job", process.slurm_job
    elif process.parent_pid is not None and process.parent_pid > 1 and process.command:
        # A launcher starts the same program for each device; a shell starts different programs.
        program = " ".join(process.command.split()[:3])
        yield "launcher", (process.parent_pid, program)


def straggler(view: RuleView) -> Finding | None:
    """Find a clock below those of its peers, which then wait for it."""
    if not view.peers:
        return None
    busy = view.mean(view.activity)
    others = _median(view, view.activity)
    if not (view.passes(t.STRAGGLER_LOAD, busy) and view.passes(t.STRAGGLER_LOAD, others)):
        return None
    mine, theirs = view.mean(CLOCK), _median(view, CLOCK)
    if theirs <= 0:
        return None
    behind = 100 * (mine - theirs) / theirs
    if not view.passes(t.STRAGGLER, behind):
        return None
    evidence = [Evidence("SM clock, to theirs", CLOCK, behind, "%", view.span(t.WINDOW_SECONDS))]
    for label, name in (
        ("SM clock", CLOCK),
        ("power", POWER),
        ("busy", view.activity),
        ("temperature", TEMPERATURE),
    ):
        evidence += _beside(view, label, name)
    return Finding(
        Severity.WARNING,
        f"May hold up its job: its SM clock is {percentage(-behind)} below {_peers(view)}",
        evidence,
        "The others wait for it at every step: check its temperature, what holds its clocks back, "
        "and what else runs on it",
    )


def imbalance(view: RuleView) -> Finding | None:
    """Find a device that holds more memory, or does less work, than its peers."""
    if not view.peers:
        return None
    total = view.sample.memory_total_bytes or view.device.memory_total_bytes
    memory, theirs = view.mean_or_none(USED), _known_median(view, USED)
    busy, busy_of_others = view.mean_or_none(view.activity), _known_median(view, view.activity)
    more = less = None
    if memory is not None and theirs is not None and total:
        more = 100 * (memory - theirs) / total
    if busy is not None and busy_of_others is not None:
        less = busy_of_others - busy
    if more is not None and view.passes(t.MORE_MEMORY, more):
        assert memory is not None
        assert theirs is not None
        return Finding(
            Severity.INFORMATION,
            f"Holds {size(memory - theirs)} more memory than {_peers(view)}",
            [*_beside(view, "in use", USED), *_beside(view, "busy", view.activity)],
            "Its share of the work may be larger; look for what all ranks put on this device "
            "(cuda:0 by default)",
        )
    if less is not None and view.passes(t.LESS_BUSY, less):
        return Finding(
            Severity.INFORMATION,
            f"Busy {percentage(busy)}, and {_peers(view)} {percentage(busy_of_others)}: "
            "work may be uneven",
            [*_beside(view, "busy", view.activity), *_beside(view, "in use", USED)],
            "Check how work is split; in a pipeline, how its stages are cut",
        )
    if more is None and less is None:
        raise NoEvidence(USED)
    return None


def _peers(view: RuleView) -> str:
    if len(view.peers) > 1:
        return f"the median of its {len(view.peers)} peers"
    return f"its peer (GPU {view.peers[0].device.label})"


def _known_median(view: RuleView, name: str) -> float | None:
    medians: dict[str, float | None] = view.memo.setdefault("medians", {})
    if name not in medians:
        numbers = sorted(n for peer in view.peers if (n := peer.mean_or_none(name)) is not None)
        half = len(numbers) // 2  # an even count has its median between two
        medians[name] = (numbers[half] + numbers[-half - 1]) / 2 if numbers else None
    return medians[name]


def _median(view: RuleView, name: str) -> float:
    found = _known_median(view, name)
    if found is None:
        raise NoEvidence(name)
    return found


def _beside(view: RuleView, label: str, name: str) -> list[Evidence]:
    """Return its mean and the median of its peers as evidence."""
    theirs = _known_median(view, name)
    found = view.mean_evidence(label, name)
    if found and theirs is not None:
        span = view.span(t.WINDOW_SECONDS)
        found.append(Evidence(f"{label}, its peers", name, theirs, unit_of(name), span))
    return found
