from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gputop.bench.plan.request import Request
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import errors
from gputop.bench.worker.cuda_errors import CAPABILITIES
from gputop.bench.worker.request import WorkerRequest
from tests.bench.test_peers import GPUS

ADVICE = "\nCUDA kernel errors might be asynchronously reported at some other API call"
BUSY = f"CUDA error: CUDA-capable device(s) is/are busy or unavailable{ADVICE}"
GPU = replace(GPUS[1], compute_mode="default")


def asked(mode: str | None = "default", kind: str = "soak") -> WorkerRequest:
    target = replace(GPU, compute_mode=mode)
    return worker_request(Request(target, "bfloat16", None, 1.0, kind=kind))


ERRORS = Path(__file__).with_name("start_errors.txt").read_text().split("\n\n")
"""Blocks of three lines: the error of torch, what it is called, and a part of the remedy."""


@pytest.mark.parametrize("block", ERRORS)
def test_each_error_of_the_start_has_its_remedy(
    block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, what, remedy = map(str.strip, block.strip().splitlines())
    monkeypatch.delenv(CAPABILITIES, raising=False)
    refused = errors.no_context(RuntimeError(text + ADVICE), asked())
    assert refused.what == what
    assert remedy in refused.remedy
    assert "another torch" not in refused.remedy
    assert text.endswith(refused.why.partition(";")[0])
    assert "cudaGetDeviceCount" not in refused.why, "CUDA's own words are enough"
    assert refused.kind != "torch"


@pytest.mark.parametrize(
    ("mode", "what", "remedy"),
    [
        (
            "exclusive_process",
            "GPU 1 is held by another process",
            (
                "Find it with `nvidia-smi -i 1 -q -d PIDS` and end it, or allow several processes "
                "with `sudo nvidia-smi -i 1 -c 0`"
            ),
        ),
        (
            "prohibited",
            "The compute mode of GPU 1 prohibits all programs",
            "Allow it with `sudo nvidia-smi -i 1 -c 0`",
        ),
        (None, "GPU 1 cannot be used now", "See its compute mode, MIG mode and processes"),
    ],
)
def test_a_busy_gpu_is_explained_by_its_compute_mode(
    mode: str | None, what: str, remedy: str
) -> None:
    refused = errors.no_context(RuntimeError(BUSY), asked(mode))
    assert refused.what == what
    assert refused.remedy.startswith(remedy)
    words = "" if mode is None else f"; its compute mode is {mode.replace('_', ' ')}"
    assert refused.why == BUSY.splitlines()[0] + words


def test_an_instance_is_one_of_its_gpu() -> None:
    target = replace(GPU, parent_uuid=GPU.uuid, mig_index=2)
    request = worker_request(Request(target, "bfloat16", None, 1.0))
    refused = errors.no_context(RuntimeError("CUDA error: out of memory"), request)
    assert refused.what == "There is no memory for a CUDA context on GPU 1:2"
    assert "`nvidia-smi -i 1 -q" in refused.remedy


@pytest.mark.parametrize(
    ("given", "missing"),
    [("utility,video", True), ("all", False), ("compute,utility", False)],
)
def test_a_container_without_compute_says_so(
    given: str, *, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPABILITIES, given)
    error = RuntimeError("Found no NVIDIA driver on your system. Please check")
    refused = errors.no_context(error, asked())
    assert (refused.why == f"{CAPABILITIES} is {given}, without compute") is missing
    if missing:
        assert refused.what == "This container was not given CUDA's driver library"
        assert refused.remedy == f"Start it with {CAPABILITIES}=compute,{given}"


NCCL = "NCCL error in: /pytorch/c10d/NCCLUtils.hpp:219, unhandled system error, NCCL version 2.21.5"
FULL = (
    "Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device"
)


@pytest.mark.parametrize(
    ("lines", "why", "what", "remedy"),
    [
        (
            (NCCL, "ncclSystemError: System call failed.", "Last error:", FULL),
            FULL,
            "NCCL has too little shared memory",
            "`--shm-size=8g`",
        ),
        (
            (NCCL, "Last error: Call to posix_fallocate failed : No space left on device (28)"),
            "Call to posix_fallocate failed : No space left on device (28)",
            "NCCL has too little shared memory",
            "--ipc=host",
        ),
        ((NCCL, "Last error:"), NCCL, "NCCL failed", "--device 0,1"),
    ],
)
def test_the_last_error_of_nccl_is_told(
    lines: Sequence[str], why: str, what: str, remedy: str
) -> None:
    error = RuntimeError("\n".join(lines))
    refused = errors.explain(error, None, asked(kind="collective"))
    assert (refused.what, refused.why) == (what, why)
    assert remedy in refused.remedy
