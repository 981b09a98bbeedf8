"""What a device that fails does to a run: each fault is injected into the real worker."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Done, Event, Failed, Verified
from gputop.bench.plan.request import Request, Target
from gputop.bench.results.page import method_facts
from tests.bench.workers import CPU, broken_worker, fake_interpreter, needs_torch
from tests.sessions import Session

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_torch

IN_THE_RUN = """
measure, multiply, calls = loads.measure, Product.multiply, []
def measured(*arguments):
    Product.multiply = failing
    measure(*arguments)
loads.measure = measured
"""
HANGS = f"""{IN_THE_RUN}
main.HANG_SECONDS = 1.0
def failing(self, times=1):
    calls.append(self)
    if len(calls) > 3:
        threading.Event().wait()
    multiply(self, times)
"""
WRONG_THEN_RAISES = f"""{IN_THE_RUN}
backends.Cpu.least_interval = 0.0
backends.Cpu.share_of_checks = 1e9
def failing(self, times=1):
    calls.append(self)
    multiply(self, times)
    self.c[3, 5] = -1e6
    if len(calls) > 40:  # some batches
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


def broken(
    folder: Path, fault: str, dtype: str = "float32", size: int = 128, seconds: float = 600.0
) -> Session:
    path = fake_interpreter(folder, broken_worker(fault))
    return Session(Request(CPU, dtype, size, seconds, path))


async def heard(session: Session) -> list[Event]:
    async with asyncio.timeout(60), contextlib.aclosing(session.events()) as events:
        return [event async for event in events]


async def test_a_device_that_hangs_is_a_fault(tmp_path: Path) -> None:
    *_, last = await heard(broken(tmp_path, HANGS))  # of a run of ten minutes
    assert isinstance(last, Failed)
    assert last.status == 1
    assert "hangs" in last.problem.what


@pytest.mark.slow
@pytest.mark.parametrize("fault", [WRONG_THEN_RAISES])
async def test_what_comes_after_wrong_elements_does_not_hide_them(
    tmp_path: Path, fault: str
) -> None:
    events = await heard(broken(tmp_path, fault))
    last = events[-1]
    assert isinstance(last, Failed)
    assert last.status == 1
    verified = [event for event in events if isinstance(event, Verified)][-1]
    assert verified.wrong_elements > 0
    assert f"{verified.wrong_elements} elements were wrong" in last.problem.why


HELLO = {
    "event": "hello",
    "python": "3.11.0",
    "torch_version": "9.9.9",
    "device_name": "a GPU",
    "threads": 2,
    "pid": 1,
}
PLAN = {
    "event": "plan",
    **dict.fromkeys(("m", "n", "k"), 1024),
    **dict.fromkeys(("dtype", "accumulate", "layout", "data", "method"), "as planned"),
    "relative_error": 1e-6,
}
ERROR = {"event": "error", "kind": "torch", "what": "W", "why": "Y", "remedy": "R"}
WRONG = {"event": "verify", "checks": 3, "wrong_elements": 2}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ((HELLO, ERROR), 3),
        ((HELLO, PLAN, ERROR), 3),
        ((HELLO, PLAN, ERROR | {"kind": "memory"}), 3),
        ((HELLO, ERROR | {"kind": "died"}), 1),
        ((HELLO, PLAN, ERROR | {"kind": "hang"}), 1),
        ((HELLO, PLAN, ERROR | {"checks": 3, "wrong_elements": 1}), 1),
        ((HELLO, PLAN, WRONG, ERROR), 1),
        ((HELLO, PLAN, WRONG), 1),
        ((HELLO, PLAN), 1),
    ],
)
async def test_a_hang_a_death_and_wrong_results_are_faults_and_no_other_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: tuple[dict[str, object], ...],
    status: int,
) -> None:
    monkeypatch.setattr("gputop.bench.run.device_runner.SILENT_SECONDS", 1.0)
    body = f"import json, threading\nfor each in {said!r}: print(json.dumps(each), flush=True)\n"
    target = Target("cuda", "GPU-0a1b", 0, "a GPU", "9.0", None)
    path = fake_interpreter(tmp_path, body + "threading.Event().wait()")
    *_, last = await heard(Session(Request(target, "bfloat16", 1024, 600.0, path)))
    assert isinstance(last, Failed)
    assert last.status == status


DROPPED = (
    *("CUBLASLT_HEURISTICS_CACHE_CAPACITY", "CUBLASLT_HEURISTICS_LUT_FILE", "CUBLASLT_LOG_LEVEL"),
    *("CUBLASLT_WORKSPACE_SIZE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"),
    *("CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT", "CUBLAS_WORKSPACE_CONFIG"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
    *("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    "PYTORCH_TUNABLEOP_ENABLED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    *("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_CUBLASLT_UNIFIED_WORKSPACE"),
    *("TORCH_DISTRIBUTED_DEBUG", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
)


@pytest.mark.slow
async def test_what_changes_the_measurement_is_unset_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*DROPPED, "OMP_NUM_THREADS", "CUDA_CACHE_PATH"):
        monkeypatch.setenv(name, "1")
    fault = """
import os
rates, KINDS = [], main.KINDS
def seen(device, run):
    run.notes.append(" ".join(sorted(os.environ)))
    loads.soak(device, run)
KINDS["soak"] = seen
"""
    *_, last = await heard(broken(tmp_path, fault, seconds=0.5))
    assert isinstance(last, Done)
    assert last.result.unset == tuple(f"{name}=1" for name in DROPPED)
    left = last.result.notes[0].split()
    assert set(left).isdisjoint(DROPPED)
    assert {"OMP_NUM_THREADS", "CUDA_CACHE_PATH"} <= set(left)
    said = dict(method_facts(last.result))["unset"]
    assert said.startswith("CUBLASLT_HEURISTICS_CACHE_CAPACITY=1; CUBLASLT_HEURISTICS_LUT_FILE=1; ")


DIES_LATER = """
def failing(self, times=1):
    def synchronize(self):
        raise RuntimeError("CUDA error: unspecified launch failure")
    backends.Cpu.synchronize = synchronize
    raise RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasGemmEx`")
Product.multiply = failing
"""


@pytest.mark.parametrize("dtype", ["float32", "int8"])
async def test_a_gpu_that_died_is_found_by_the_next_call(tmp_path: Path, dtype: str) -> None:
    """Also where the error would otherwise mean that the device does not have the data type."""
    *_, last = await heard(broken(tmp_path, DIES_LATER, dtype))
    assert isinstance(last, Failed)
    assert last.status == 1
    assert last.problem.what == "The device died"
    assert last.problem.why == "RuntimeError: CUDA error: unspecified launch failure"


async def test_an_error_of_gputop_is_none_of_the_device(tmp_path: Path) -> None:
    fault = f"{IN_THE_RUN}def failing(self, times=1):\n    return times + None\n"
    *_, last = await heard(broken(tmp_path, fault))
    assert isinstance(last, Failed)
    assert last.status == 3
    assert str(last.problem) == (
        "An error of gputop or of torch ended the test: TypeError: unsupported operand type(s) for "
        "+: 'int' and 'NoneType'. Try another torch with --python, or report it"
    )
