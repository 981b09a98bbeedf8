"""Rules about the work: waiting for input, and units that are not used."""

from __future__ import annotations

from gputop.agent.device import Absence
from gputop.agent.snapshot import ProcessKind
from gputop.health import thresholds as t
from gputop.health.bound_by import (
    BUSY,
    DRAM,
    FP32,
    FP64,
    MEMORY_BUSY,
    NVLINK,
    POWER,
    SM,
    TENSOR,
    activity_percent,
    power_percent,
)
from gputop.health.findings import (
    Bound,
    Evidence,
    Finding,
    Severity,
    capitalized,
)
from gputop.health.rule_view import RuleView, needed
from gputop.schema.derived import (
    HOST_CPU,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_IO_WAIT,
)
from gputop.schema.values import UNSEEN

CLOCK, USED, HEAT = "sm_clock_mhz", "memory_used_bytes", "temperature_celsius"
COMPUTES = (ProcessKind.COMPUTE, ProcessKind.BOTH, ProcessKind.MPS)


def input_bound(view: RuleView) -> Finding | None:
    """Find idle time while the host has no free CPU or waits for storage."""
    evidence = _gaps(view)
    if evidence is None:
        return None
    if not view.processes:
        # This raises if processes are not listed.
        view.mean(PROCESS_COUNT)
        return None
    cpu, host = view.mean_or_none(PROCESS_CPU), view.mean_or_none(HOST_CPU)
    waits = view.mean_or_none(PROCESS_IO_WAIT)
    if waits is not None:
        waits *= 100
    shown = {
        ("CPU of its busiest process", PROCESS_CPU): cpu,
        ("waits for storage", PROCESS_IO_WAIT): waits,
        ("CPU of the host", HOST_CPU): host,
    }
    idle = evidence[0].value
    for (label, name), percent in shown.items():
        if percent is not None:
            evidence.append(view.measured(label, name, percent, "%"))
    why, remedy = _short_of(view, cpu, waits, host)
    if why:
        title = f"may be waiting for input, {why}"
        return Finding(
            Severity.WARNING,
            title,
            evidence,
            remedy,
            cost_percent=idle,
            bound=Bound.INPUT,
        )
    # The job may have nothing to do, or may wait for something invisible here.
    why, remedy = _unseen(view, cpu, waits)
    return Finding(
        Severity.INFORMATION,
        f"work has gaps, {why}",
        evidence,
        remedy,
        bound=Bound.INPUT,
    )


def _gaps(view: RuleView) -> list[Evidence] | None:
    """Return the evidence for work with gaps, as on a device that waits for its input."""
    busy = activity_percent(view)
    if not (view.passes(t.STARVED, busy) and view.passes(t.WORKS, busy)):
        return None
    label, samples = "idle", view.driver_samples(view.activity)
    if samples is None:
        samples = view.samples(view.activity)
    else:
        label = f"idle, from {1 / samples.step:.0f} samples a second"
    name, period = view.activity, samples.period
    found = [view.measured(label, name, 100 - busy, headline="idle {}")]
    if period is not None:
        label, line = "gaps every", "every {}"
        found.append(view.measured(label, name, period, "s", headline=line))
    return found


def _unseen(
    view: RuleView,
    cpu: float | None,
    waits: float | None,
) -> tuple[str, str]:
    """Return that no cause was found, or which cause could not be checked, and the remedy."""
    if cpu is None or any(
        each.children_cpu_most_percent is None for each in view.processes
    ):
        remedy = PROFILE
        absence = view.absence(PROCESS_CPU)
        if absence is not None:
            remedy = UNSEEN.get(absence, PROFILE)
        return "the CPU time of its processes is unknown", capitalized(remedy)
    if waits is None:
        return (
            "storage waits of its processes are unknown",
            PROFILE,
        )
    return "cause not seen", PROFILE


def _short_of(
    view: RuleView, cpu: float | None, waits: float | None, host: float | None
) -> tuple[str, str]:
    """Return the resource that the processes lack, and the advice; empty if none."""
    if waits is not None and view.passes(t.IO_WAIT, waits):
        return "a process waits for storage", STORAGE
    if cpu is not None and view.passes(t.FULL_CORE, cpu):
        for process in view.processes:
            workers = process.children_cpu_most_percent or 0.0
            if t.FULL_CORE.passed(workers, held=True):
                return "a CPU core is full", WORKERS
        return "a CPU core is full", MAIN_THREAD
    if host is not None and view.passes(t.FULL_HOST, host):
        return "the host's CPU is full", HOST
    return "", ""


STORAGE = (
    "Storage may be the limit: local or faster disks, larger files, a cache, more workers that "
    "read ahead"
)
WORKERS = (
    "The workers of its loader may be the limit: more of them, cheaper transforms, data prepared "
    "ahead, pinned memory. In the dashboard `s` on its process shows where it waits"
)
MAIN_THREAD = (
    "Its main thread may be the limit: load in workers (num_workers), prefetch, pin memory; if it "
    "launches many small kernels, larger batches or CUDA graphs. In the dashboard `s` on its "
    "process shows where it spends its time"
)
PROFILE = (
    "If it should be busy: look for waits on the network, on other processes or on locks, with "
    "`s` on its process in the dashboard (py-spy), or torch.profiler"
)
HOST = (
    "Its processes may not get enough CPU: check what else runs on the host, and the number of "
    "workers for its cores"
)


def not_working(view: RuleView) -> Finding | None:
    """Find a device that is always busy while few of its SMs work."""
    evidence = few_sms_work(view)
    # Another finding names the rank that it waits for.
    if evidence is None or view.held_up is not None:
        return None
    bound, title, remedy = Bound.LAUNCHES, "busy, but few SMs work", SMALL
    many = view.device.sm_count
    if evidence[1].reading != SM:
        title = "busy, but draws little power"
    elif many and evidence[1].value / 100 * many < 1.5:
        title = f"busy, but about one SM of {many} works"
    nvlink = view.means(*(("NVLink", name) for name in NVLINK), on_line=True)
    nvlink.sort(key=lambda each: each.value)
    if nvlink and view.passes(t.NVLINK_WORKS, nvlink[-1].value):
        evidence.append(nvlink[-1])
        bound, remedy = Bound.TRANSFERS, OVERLAP
        title = "few SMs work, and NVLink does"
    elif _a_peer_works(view):
        bound, remedy = Bound.PEERS, SLOWEST
        title = "few SMs work, it waits for another GPU of its job"
    return Finding(
        Severity.WARNING,
        title,
        [*evidence, *view.means(("tensor active", TENSOR))],
        remedy,
        bound=bound,
    )


SMALL = (
    "Small kernels: larger batches, torch.compile, CUDA graphs. If it waits for other devices "
    "(NCCL), look for the slowest of them"
)
OVERLAP = (
    "Overlap communication with work, use larger messages, or look for the slowest of the devices "
    "that take part"
)
SLOWEST = "It may wait in NCCL: look for the slowest device of its job"


def few_sms_work(view: RuleView) -> list[Evidence] | None:
    """Return the evidence for a device that is always busy while few of its SMs work.

    Without the reading *SM active*, low power is the evidence.
    """
    busy = view.mean(BUSY)
    if not view.passes(t.BUSY, busy):
        return None
    shown = view.means(("busy", BUSY), on_line=True)
    sm = view.mean_or_none(SM)
    if sm is not None:
        if not view.passes(t.FEW_SMS, sm):
            return None
        return [*shown, *view.means(("SM active", SM), on_line=True)]
    drawn = needed(power_percent(view), SM)
    if not view.passes(t.FEW_WATTS, drawn):
        return None
    label, line = "share of the power limit", "{} of the limit"
    share = view.measured(label, POWER, drawn, "%", headline=line)
    return [*shown, share, *view.means(("power", POWER))]


def _a_peer_works(view: RuleView) -> bool:
    """Return True if a device of the job is less busy, or if more of its SMs work."""
    name, most = SM, t.FEW_SMS.end
    if view.mean_or_none(SM) is None:
        name = POWER
        most = t.FEW_WATTS.end / 100 * (view.sample.power_limit_watts or 0.0)
    least_busy = min(view.peers.means(BUSY), default=100.0)
    return (
        least_busy < t.BUSY.end
        or max(view.peers.means(name), default=0.0) > most
    )


def no_tensor_cores(view: RuleView) -> Finding | None:
    """Find SMs that work without their tensor cores."""
    computes = any(process.kind in COMPUTES for process in view.processes)
    if not computes or _hardly_works(view):
        return None
    evidence = _passing(
        view,
        ("SM active", SM, t.SMS_WORK),
        ("tensor active", TENSOR, t.NO_TENSOR),
    )
    # Simulations need FP64, and memory bandwidth is a separate limit.
    fp64, dram = view.mean_or_none(FP64) or 0.0, view.mean_or_none(DRAM) or 0.0
    if evidence is None or fp64 >= t.FP64 or dram >= t.DRAM.end:
        return None
    bound = None
    if view.passes(t.PIPE_WORKS, view.mean_or_none(FP32) or 0.0):
        bound = Bound.FP32
    return Finding(
        Severity.INFORMATION,
        "SMs work without tensor cores, may run in FP32",
        [*evidence, *view.means(("FP32 active", FP32), ("DRAM active", DRAM))],
        "If it trains or multiplies matrices: autocast to bfloat16, or TF32 by "
        "torch.set_float32_matmul_precision('high'); sizes in multiples of 8",
        bound=bound,
    )


def memory_bound(view: RuleView) -> Finding | None:
    """Find work that is limited by memory bandwidth."""
    if _hardly_works(view):
        return None
    without_gpm = view.absence(DRAM) not in (None, Absence.NO_DATA_YET)
    if without_gpm and view.mean_or_none(TENSOR) is None:
        return _memory_busy(view)
    evidence = _passing(
        view,
        ("DRAM active", DRAM, t.DRAM),
        ("tensor active", TENSOR, t.LITTLE_TENSOR),
    )
    if evidence is None:
        return None
    return Finding(
        Severity.INFORMATION,
        "limited by memory bandwidth",
        [*evidence, *view.means(("SM active", SM))],
        LESS_TRAFFIC,
        bound=Bound.MEMORY,
    )


def _memory_busy(view: RuleView) -> Finding:
    """Return the finding about memory that is nearly always accessed.

    Without GPM, nothing more is known, and less does not show that bandwidth is not the limit.
    """
    limit = ("memory busy", MEMORY_BUSY, t.MEMORY_WORKS)
    return Finding(
        Severity.INFORMATION,
        "memory is nearly always busy",
        needed(_passing(view, limit), DRAM),
        LESS_TRAFFIC,
        bound=Bound.MEMORY,
    )


LESS_TRAFFIC = (
    "Fuse kernels (torch.compile), larger batches where it decodes, smaller data types; otherwise "
    "this is as fast as it gets"
)


def _passing(
    view: RuleView, *limits: tuple[str, str, t.Limit]
) -> list[Evidence] | None:
    """Return the means as evidence if each passes its limit, else None."""
    for _, name, limit in limits:
        if not view.passes(limit, view.mean(name)):
            return None
    return view.means(
        *((label, name) for label, name, _ in limits), on_line=True
    )


def _hardly_works(view: RuleView) -> bool:
    activity = view.mean_or_none(view.activity)
    return activity is not None and activity < t.SMS_WORK.end
