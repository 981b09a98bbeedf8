"""The worker's process: its parent, variables, processors, and the library that it has loaded."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from signal import SIGKILL

PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if the parent asked for it."""
    parent = os.environ.pop("GPUTOP_PARENT", None)
    if parent != str(os.getppid()):
        return  # the parent started it through another program
    with contextlib.suppress(AttributeError, OSError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if parent != str(os.getppid()):
        os._exit(1)


CHANGING = (
    "*WORKSPACE_CONFIG",
    "*_DEFAULT_FPMATH_MODE",
    "CUBLASLT_HEURISTICS_*",
    "CUBLASLT_LOG_*",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULAT*",
    "CUBLAS_FIXEDPOINT_EMULATION*",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_*ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_TUNABLEOP_*",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_*",
    "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_NCCL_*",
)
"""Variables that change arithmetic, kernels, memory allocation, or the usable share of a GPU."""


def unset_changing() -> list[str]:
    """Unset the variables in `CHANGING` before torch is imported; return them as `NAME=value`."""
    found = []
    for name in sorted(os.environ):
        if any(fnmatchcase(name, each) for each in CHANGING):
            found.append(f"{name}={os.environ.pop(name)[:80]}")
    return found


SYSFS = Path("/sys/bus/pci/devices")


def bind_near(pci_bus_id: str) -> str | None:
    """Bind this process to the processors of its GPU's NUMA node, and return a description.

    The process keeps only processors that it could already use. Return None if the node is unknown.
    """
    domain, _, rest = pci_bus_id.lower().partition(":")
    try:
        folder = SYSFS / f"{int(domain, 16):04x}:{rest}"
        node = int((folder / "numa_node").read_text())
        near = _numbers(
            (folder / "local_cpulist").read_text()
        ) & os.sched_getaffinity(0)
        if node < 0 or not near:
            return None
        os.sched_setaffinity(0, near)
    except (
        OSError,
        ValueError,
        AttributeError,
    ):  # not on Linux, or without this information in sysfs
        return None
    return f"NUMA node {node}, processors: {len(near)}"


def _numbers(ranges: str) -> set[int]:
    """Return the numbers of `0-3,8`."""
    found: set[int] = set()
    for each in ranges.strip().split(","):
        low, _, high = each.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def cublas_version() -> str | None:
    """Return the version of the cuBLAS that this process has loaded, or None."""
    try:
        loaded = re.search(
            r"/\S*/libcublas\.so\S*", Path("/proc/self/maps").read_text()
        )
        if loaded is None:
            return None
        library, number = ctypes.CDLL(loaded[0]), ctypes.c_int()
        found = []
        for part in range(3):  # major, minor, patch level
            library.cublasGetProperty(part, ctypes.byref(number))
            found.append(str(number.value))
    except (OSError, AttributeError):
        return None
    return ".".join(found)
