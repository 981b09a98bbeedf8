"""Rules about the work: does it wait for its input, is it the kind that the device is good at."""

from __future__ import annotations

from typing import NamedTuple

from gputop.health import thresholds as t
from gputop.health.alerts import Severity
from gputop.health.device_view import Look, NoEvidence
from gputop.health.findings import Evidence, Said
from gputop.schema.derived import HOST_CPU, PROCESS_COUNT, PROCESS_CPU, PROCESS_IO_WAIT
from gputop.schema.snapshot import ProcessKind
from gputop.text import percentage

BUSY, SM, TENSOR = "gpu_utilization_percent", "sm_active_percent", "tensor_active_percent"
DRAM, FP64, POWER = "dram_active_percent", "fp64_active_percent", "power_watts"
COMPUTES = (ProcessKind.COMPUTE, ProcessKind.BOTH, ProcessKind.MPS)


class _HostSide(NamedTuple):
    """What the host does meanwhile, in %; None where it is not known."""

    cpu: float | None
    """Of one core, the fullest of its processes."""
    waits: float | None
    """Of the time, for storage."""
    host: float | None
    """Of all cores."""


def input_bound(look: Look) -> Said | None:
    """Idle a good part of the time, while the host has no CPU to spare or waits for storage."""
    activity = look.activity
    busy, fine = look.mean(activity), look.fine(activity)
    busy = fine.mean if fine else busy
    if not (look.passes(t.STARVED, busy) and look.passes(t.WORKS, busy)):
        return None
    if not look.processes:
        look.mean(PROCESS_COUNT)  # is there none, or are they not listed
        return None
    waits = look.known(PROCESS_IO_WAIT)
    side = _HostSide(
        look.known(PROCESS_CPU), None if waits is None else 100 * waits, look.known(HOST_CPU)
    )
    why, advice = _short_of(look, side)
    if not why:
        unseen = any(process.children_cpu_most_percent is None for process in look.processes)
        if side.cpu is None or unseen:  # its workers may be full
            raise NoEvidence(PROCESS_CPU)
        if side.waits is None:
            raise NoEvidence(PROCESS_IO_WAIT)
        return None
    span, period = look.span(t.WINDOW_SECONDS), fine.period if fine else look.period(activity)
    label = f"idle, from {1 / fine.step:.0f} samples a second" if fine else "idle"
    evidence = [Evidence(label, activity, 100 - busy, "%", span)]
    gaps = ""
    if period is not None:
        gaps = f", every {period:.0f} s" if period >= 9.95 else f", every {period:.1f} s"
        evidence.append(Evidence("from gap to gap", activity, period, "s", span))
    for label, name, value in (
        ("CPU of its fullest process", PROCESS_CPU, side.cpu),
        ("waits for storage", PROCESS_IO_WAIT, side.waits),
        ("CPU of the host", HOST_CPU, side.host),
    ):
        if value is not None:
            evidence.append(Evidence(label, name, value, "%", span))
    idle = percentage(100 - busy)
    sentence = f"May be waiting for its input: idle {idle} of the time{gaps}, {why}"
    return Said(Severity.WARNING, sentence, evidence, advice)


def _short_of(look: Look, side: _HostSide) -> tuple[str, str]:
    """What its processes are short of, and what to do; empty where of nothing."""
    if side.waits is not None and look.passes(t.IO_WAIT, side.waits):
        return "a process waits for storage", STORAGE
    if side.cpu is not None and look.passes(t.FULL_CORE, side.cpu):
        workers = max((p.children_cpu_most_percent or 0.0 for p in look.processes), default=0.0)
        of_workers = t.FULL_CORE.passed(workers, held=True)
        return "a CPU core is full", WORKERS if of_workers else MAIN_THREAD
    if side.host is not None and look.passes(t.FULL_HOST, side.host):
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
    "Its processes may not get the CPU that they want: look at what else runs on the host, and at "
    "how many workers there are for its cores"
)


def not_working(look: Look) -> Said | None:
    """There is always a kernel, and few of its SMs have anything to do."""
    busy = look.mean(BUSY)
    if not look.passes(t.BUSY, busy):
        return None
    sm = look.known(SM)
    advice = (
        "Small kernels: larger batches, torch.compile, CUDA graphs. If it waits for other devices "
        "(NCCL), look for the slowest of them"
    )
    if sm is not None:
        if not look.passes(t.FEW_SMS, sm):
            return None
        many = look.device.sm_count
        share = f"{percentage(sm)} of its SMs' time is used" if sm >= 0.5 else "its SMs hardly work"
        if many and sm / 100 * many < 1.5:
            share = f"about one SM of {many} works"
        evidence = [*look.means("busy", BUSY), *look.means("SM active", SM)]
        evidence += look.means("tensor active", TENSOR)
        return Said(Severity.WARNING, f"Busy {percentage(busy)}, but {share}", evidence, advice)
    watts, limit = look.known(POWER), look.sample.power_limit_watts
    if watts is None or not limit or limit <= 0:
        raise NoEvidence(SM)
    drawn = 100 * watts / limit
    if not look.passes(t.FEW_WATTS, drawn):
        return None
    evidence = [*look.means("busy", BUSY), *look.means("power", POWER)]
    evidence.append(Evidence("power, of its limit", POWER, drawn, "%", look.span(t.WINDOW_SECONDS)))
    draws = f"draws {percentage(drawn)} of its power limit"
    sentence = f"Busy {percentage(busy)}, but {draws}: may do little"
    return Said(Severity.WARNING, sentence, evidence, advice)


def no_tensor_cores(look: Look) -> Said | None:
    """The SMs work, and not the part of them that is made for matrices."""
    if not any(process.kind in COMPUTES for process in look.processes):
        return None
    activity = look.known(look.activity)
    if activity is not None and activity < t.SMS_WORK.end:
        return None
    sm, tensor = look.mean(SM), look.mean(TENSOR)
    if not (look.passes(t.SMS_WORK, sm) and look.passes(t.NO_TENSOR, tensor)):
        return None
    if (look.known(FP64) or 0.0) >= t.FP64 or (look.known(DRAM) or 0.0) >= t.DRAM.end:
        return None
    evidence = [*look.means("SM active", SM), *look.means("tensor active", TENSOR)]
    return Said(
        Severity.INFORMATION,
        f"Its SMs work ({percentage(sm)}), its tensor cores do not: may run in FP32",
        [*evidence, *look.means("DRAM active", DRAM)],
        "If it trains or multiplies matrices: autocast to bfloat16, or TF32 by "
        "torch.set_float32_matmul_precision('high'); sizes in multiples of 8",
    )


def memory_bound(look: Look) -> Said | None:
    """The device memory is read as fast as it can be, and little is computed on it."""
    activity = look.known(look.activity)
    if activity is not None and activity < t.SMS_WORK.end:
        return None
    dram, tensor = look.mean(DRAM), look.mean(TENSOR)
    if not (look.passes(t.DRAM, dram) and look.passes(t.LITTLE_TENSOR, tensor)):
        return None
    evidence = [*look.means("DRAM active", DRAM), *look.means("tensor active", TENSOR)]
    return Said(
        Severity.INFORMATION,
        f"Limited by its memory: {percentage(dram)} of the bandwidth, "
        f"tensor cores {percentage(tensor)}",
        [*evidence, *look.means("SM active", SM)],
        "Fuse kernels (torch.compile), larger batches where it decodes, smaller data types; "
        "otherwise this is as fast as it gets",
    )
