"""Frequent errors of CUDA's start and of NCCL: what each one means, and what to do about it.

The patterns are the words of `cudaGetErrorString`, of torch (`c10/cuda/CUDAFunctions.cpp`) and of
NCCL (`shmutils.cc`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .request import WorkerRequest

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
"""Variable of the container toolkit: which of the driver's libraries a container gets."""


Cause = tuple[str, str, str, str]
"""Kind of a `RunError`, what happened, why, and what to do."""


class Known(NamedTuple):
    """An error, recognised by its words. `{gpu}` is the device, `{index}` its nvidia-smi number."""

    words: str
    what: str
    remedy: str
    kind: str = "no_device"


STARTING = (
    Known(
        "system not yet initialized",
        "The NVSwitch fabric of this machine is not ready",
        "Start nvidia-fabricmanager, in the driver's version: `systemctl status "
        "nvidia-fabricmanager` says why it does not run",
    ),
    Known(
        "unsupported display driver / cuda driver combination",
        "libcuda and the loaded driver are of different versions",
        "Reboot if the driver was updated; in a container, remove the cuda-compat package or "
        "another libcuda.so.1 from LD_LIBRARY_PATH",
    ),
    Known(
        "forward compatibility was attempted",
        "The cuda-compat package does not support {gpu}",
        "Remove cuda-compat from LD_LIBRARY_PATH, and update the driver or choose a torch for its "
        "CUDA version with --python",
    ),
    Known(
        "driver on your system is too old|driver version is insufficient|unsupported toolchain",
        "The driver is too old for this torch",
        "Update the driver, or choose a torch for its CUDA version (`nvidia-smi` shows it) with "
        "--python",
    ),
    Known(
        "no NVIDIA driver|libcuda",
        "CUDA's driver library, libcuda.so.1, is missing",
        "Install it with the driver (libcuda1 or libnvidia-compute); start a container with "
        f"`--gpus all` and {CAPABILITIES}=compute,utility",
    ),
    Known(
        "no CUDA-capable device|No CUDA GPUs are available|invalid device ordinal",
        "CUDA does not see {gpu}",
        "Check that the container or job was given it (`ls -l /dev/nvidia*`), and if MIG is on, "
        "choose an instance",
    ),
    Known(
        "OS call failed|operation not permitted",
        "CUDA may not open the driver's device files",
        "Check `ls -l /dev/nvidia*`: this user or container needs nvidiactl, nvidia-uvm and "
        "nvidia{index}",
    ),
    Known(
        "MPS (?:client|server)|create MPS client",
        "CUDA cannot reach the MPS server",
        "Start it with `nvidia-cuda-mps-control -d`, or unset CUDA_MPS_PIPE_DIRECTORY",
    ),
    Known(
        "Grid license",
        "This virtual GPU has no license",
        "Run `nvidia-smi -q -i {index}` for its license status, and check the license server",
    ),
    Known(
        "uncorrectable ECC|uncorrectable NVLink",
        "{gpu} has a fault in its memory or links",
        "Quit gputop and the programs that use {gpu}, then `sudo nvidia-smi --gpu-reset -i "
        "{index}`; if the error returns, have it replaced",
        "died",
    ),
    Known(
        "out of memory",
        "There is no memory for a CUDA context on {gpu}",
        "End processes that use its memory: `nvidia-smi -i {index} -q -d MEMORY,PIDS` lists them",
        "memory",
    ),
    Known(
        "unknown error|initialization error|initialization failed",
        "CUDA does not start",
        "If the machine was suspended, or /dev/nvidia-uvm is missing: `sudo modprobe -r nvidia_uvm "
        "&& sudo modprobe nvidia_uvm`; else look for Xid errors in `dmesg`",
    ),
)
"""Errors while a context is created. The first match in this order counts."""

BUSY = re.compile("busy or unavailable")
BY_MODE = {
    "prohibited": Known(
        "",
        "The compute mode of {gpu} prohibits all programs",
        "Allow it with `sudo nvidia-smi -i {index} -c 0`",
    ),
    "exclusive_process": Known(
        "",
        "{gpu} is held by another process",
        "Find it with `nvidia-smi -i {index} -q -d PIDS` and end it, or allow several processes "
        "with `sudo nvidia-smi -i {index} -c 0`",
    ),
}
OF_UNKNOWN_MODE = Known(
    "",
    "{gpu} cannot be used now",
    "See its compute mode, MIG mode and processes with `nvidia-smi -i {index} -q`, and look for "
    "Xid errors in `dmesg`",
)

NCCL = (
    Known(
        "dev/shm|No space left on device",
        "NCCL has too little shared memory",
        "Start the container with a larger /dev/shm, such as `--shm-size=8g` or `--ipc=host`, or "
        "delete files in it",
        "torch",
    ),
    Known(
        "",
        "NCCL failed",
        "Test the GPUs in pairs, as with --device 0,1, to see which of them it is",
        "torch",
    ),
)


def cause_of_start(text: str, request: WorkerRequest) -> Cause | None:
    """Return the cause of an error while CUDA starts, or None for an unknown one."""
    why, mode = _telling(text), request.compute_mode
    if BUSY.search(text):
        known = BY_MODE.get(mode or "", OF_UNKNOWN_MODE)
        if mode is not None:
            why = f"{why}; its compute mode is {mode.replace('_', ' ')}"
        return _cause(known, why, request)
    for known in STARTING:
        if not re.search(known.words, text):
            continue
        given = os.environ.get(CAPABILITIES)
        if (
            "libcuda" in known.what
            and given
            and not re.search("all|compute", given)
        ):
            remedy = f"Start it with {CAPABILITIES}=compute,{given}"
            what = "This container was not given CUDA's driver library"
            why = f"{CAPABILITIES} is {given}, without compute"
            return known.kind, what, why, remedy
        return _cause(known, why, request)
    return None


def cause_in_nccl(text: str, request: WorkerRequest) -> Cause | None:
    """Return the cause of an NCCL error, or None for another error."""
    if "NCCL" not in text:
        return None
    known = next(each for each in NCCL if re.search(each.words, text))
    return _cause(known, _telling(text), request)


def _cause(
    known: Known,
    why: str,
    request: WorkerRequest,
) -> Cause:
    gpu = request.label
    names = {"gpu": gpu, "index": gpu.rpartition(" ")[2].partition(":")[0]}
    what, remedy = known.what.format(**names), known.remedy.format(**names)
    return known.kind, what, why, remedy


def _telling(text: str) -> str:
    """Return the most specific part of a message: NCCL's last error, or CUDA's own words."""
    before, _, last = text.partition("Last error:")
    lines = (last.strip() or before.strip()).splitlines()
    first = lines[0].strip() if lines else ""
    numbered = re.search(r"Error \d+: .*", first)
    return numbered.group() if numbered else first
