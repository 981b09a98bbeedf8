"""Ends of a run on one device: its result, or the reason why there is none."""

from __future__ import annotations

import platform
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop import __version__
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.bench.events import UNWATCHED, Failed, Result, Verified
from gputop.bench.plan.kinds import KINDS
from gputop.bench.worker.errors import less
from gputop.console import (
    COULD_NOT_RUN,
    DEGRADED,
    FAULT,
    INTERRUPTED,
    signal_name,
)
from gputop.text import count, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.worker.events import WorkerDone, WorkerFailed

ANOTHER_PYTHON = "Choose another interpreter with --python"
CHECK_TORCH = "Check that `import torch` works in that Python, or choose another with --python"


class NoResultError(ProblemError):
    """The end of a run without a result."""

    def __init__(self, problem: Problem, status: int = COULD_NOT_RUN) -> None:
        super().__init__(problem)
        self.status = status


def stop_status(by: str | None) -> int:
    """Return the exit status of a run without a result that was stopped by the user or a limit.

    None is a run that was not stopped.
    """
    if by in (None, UNWATCHED):
        return COULD_NOT_RUN
    return INTERRUPTED if by == "user" else DEGRADED


def stopped_early(by: str | None) -> NoResultError:
    """Return the end of a run that was stopped before its first figures."""
    what = "The stress test was stopped"
    remedy = "Start it again to have a result"
    status = stop_status(by)
    if status == DEGRADED:
        what = "The stress test was ended by a limit"
        remedy = "Check the device, then start the test again"
    problem = Problem(what, "no product had been timed yet", remedy)
    return NoResultError(problem, status)


def garbage(line: bytes) -> NoResultError:
    """Return the end of a run whose worker has sent something else than events."""
    text = visible(line[:200].decode(errors="replace").strip())
    what = "The stress test's worker sent something that is not an event"
    return NoResultError(Problem(what, text, ANOTHER_PYTHON))


def no_answer(
    device: DeviceRun, seconds: float, after_output: str
) -> NoResultError:
    """Return the end of a run whose worker has sent nothing for so many seconds."""
    what = "The stress test's worker does not answer"
    why = f"it sent nothing for {seconds:g} s{after_output}"
    if device.hello is None:
        return NoResultError(Problem(what, why, CHECK_TORCH))
    status = COULD_NOT_RUN if device.planned is None else FAULT
    problem = Problem(what, why, "Look for Xid errors in `dmesg`")
    return NoResultError(problem, status)


def exit_problem(
    request: Request,
    device: DeviceRun,
    status: int | None,
    errors: bytes,
    after_output: str,
) -> Problem:
    """Return why a worker ended without a last event, by its exit status and standard error."""
    what = "The stress test's worker ended without a result"
    if status is None:
        remedy = "Try another torch with --python"
        return Problem(what, "it closed its output", remedy)
    if status < 0:
        remedy = CHECK_TORCH
        if device.hello is not None:
            remedy = "Look for the cause in `dmesg`"
        if -status == signal.SIGKILL:  # nearly always by the OOM killer
            options = less(request.kind)
            remedy = f"If memory ran out (`dmesg` says so), choose {options}"
        why = f"it was ended by {signal_name(status)}"
        return Problem(what, why, remedy)
    lines = errors.decode(errors="replace").strip().splitlines()
    last = visible(lines[-1].strip()) if lines else ""
    if says_process_limit(last):
        return process_limit_problem(what)
    last = f", {last}" if last else after_output
    return Problem(what, f"exit status {status}{last}", CHECK_TORCH)


def failure(
    error: WorkerFailed, device: DeviceRun, stopped_by: str | None
) -> Failed:
    """Return the end of a run by an error of its worker."""
    what, why = visible(error.what), visible(error.why)
    problem = Problem(what, why, visible(error.remedy))
    # Other errors come from gputop, torch or the request.
    failed = error.kind in ("hang", "died", "wrong")
    if says_process_limit(why) and not failed:
        problem = process_limit_problem(what)
    status = FAULT if failed else stop_status(stopped_by)
    verified = device.verified
    if error.wrong_elements:
        verified = Verified(error.checks, error.wrong_elements)
    return with_wrong_elements(Failed(problem, status), verified)


def with_wrong_elements(failed: Failed, verified: Verified | None) -> Failed:
    """Return the end of a run as a fault of the device if elements were wrong before."""
    if verified is None or not verified.wrong_elements:
        return failed
    wrong = verified.wrong_elements
    elements = "1 element was" if wrong == 1 else f"{wrong} elements were"
    found = f"{elements} wrong in {count(verified.checks, 'check')}"
    problem = failed.problem
    if failed.status == FAULT:
        why = f"{problem.why}; {found}"
        return Failed(replace(problem, why=why), FAULT)
    what = "The device computes wrong results"
    why = f"{found}, and then the run ended early ({problem.what}: {problem.why})"
    remedy = "Do not train on it; run the test again to be sure"
    return Failed(Problem(what, why, remedy), FAULT)


def result_of(
    done: WorkerDone,
    request: Request,
    device: DeviceRun,
    stopped_by: str | None,
    *,
    host: str | None,
    python: str,
    started_at: float,
) -> Result:
    """Return the result of a run that its worker has ended with figures.

    `host` is None for this machine. Raise `NoResultError` if the run was stopped before its first
    figures, and `ValueError` if it has none for another reason.
    """
    hello, planned = device.hello, device.planned
    target, figures = request.target, done.figures
    rows = tuple(device.rows) or figures.points
    has_rows = KINDS[request.kind].has_rows
    measured = bool(rows) if has_rows else figures.iterations > 0
    if hello is None or planned is None or not measured:
        if stopped_by is not None:
            raise stopped_early(stopped_by)
        raise ValueError("a result without a run")
    is_cuda = target.kind == "cuda"
    m, n, k = figures.shape or (planned.m, planned.n, planned.k)
    stopped = done.stopped
    if stopped == "user":
        stopped = stopped_by or stopped
    return Result(
        device=hello.device_name,
        device_uuid=target.uuid,
        device_index=_index(target),
        host=host or platform.node() or None,
        kind=request.kind,
        dtype=planned.dtype,
        m=m,
        n=n,
        k=k,
        accumulate=planned.accumulate,
        layout=planned.layout,
        data=planned.data,
        method=planned.method,
        verify="all" if request.verify_all else "some",
        threads=None if is_cuda else hello.threads,
        started_at=started_at,
        stopped=stopped,
        seconds=figures.seconds,
        iterations=figures.iterations,
        checks=figures.checks,
        verified_products=figures.verified_products,
        wrong_elements=figures.wrong_elements,
        mismatches=figures.mismatches,
        tflops_mean=figures.tflops_mean,
        tflops_peak=figures.tflops_peak,
        tflops_device=figures.tflops_device,
        # The windows of the run are judged later.
        tflops_sustained=None,
        droop_percent=None,
        points=rows,
        notes=done.notes,
        python=python,
        torch_version=hello.torch_version,
        cuda_version=hello.cuda_version if is_cuda else None,
        cublas_version=hello.cublas_version,
        unset=hello.unset,
        bound_to=hello.bound_to,
        gputop_version=__version__,
    )


def _index(target: Target) -> int | None:
    """Return the index that nvidia-smi shows for a whole GPU of this machine, or None."""
    is_whole = target.kind == "cuda" and target.mig_index is None
    return target.index if is_whole and target.host is None else None
