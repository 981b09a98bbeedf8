"""Inherited state that changes figures without a word: variables, and far processors."""

from __future__ import annotations

import ctypes
import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Optional

CHANGING = (
    "*WORKSPACE_CONFIG",
    "*_DEFAULT_FPMATH_MODE",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLAS_EMULAT*",
    "CUBLAS_FIXEDPOINT_EMULATION*",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "NVIDIA_TF32_OVERRIDE",
    "PYTORCH_*ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_TUNABLEOP_*",
    "TORCHDYNAMO_*",
    "TORCHINDUCTOR_*",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_*",
    "TORCH_COMPILE_*",
)
"""Variables that change arithmetic, kernels, or how memory is taken."""


def unset_changing() -> list[str]:
    """Unset these variables, before torch is imported, and return them as `NAME=value`."""
    found = [name for name in os.environ if any(fnmatchcase(name, each) for each in CHANGING)]
    return [f"{name}={os.environ.pop(name)[:80]}" for name in sorted(found)]


SYSFS = Path("/sys/bus/pci/devices")


def bind_near(pci_bus_id: str) -> Optional[str]:  # noqa: UP045
    """Bind this process to the processors of its GPU's NUMA node, and return which these are.

    It is never bound to one that it could not use before. None where the node is not known.
    """
    domain, _, rest = pci_bus_id.lower().partition(":")
    try:
        folder = SYSFS / f"{int(domain, 16):04x}:{rest}"
        node = int((folder / "numa_node").read_text())
        near = _numbers((folder / "local_cpulist").read_text()) & os.sched_getaffinity(0)
        if node < 0 or not near:
            return None
        os.sched_setaffinity(0, near)
    except (OSError, ValueError, AttributeError):  # another system, or a node that is not said
        return None
    return f"NUMA node {node}, processors: {len(near)}"


def _numbers(ranges: str) -> set[int]:
    """Return the numbers of `0-3,8`."""
    pairs = (each.partition("-") for each in ranges.strip().split(","))
    return {n for low, _, high in pairs for n in range(int(low), int(high or low) + 1)}


def cublas_version() -> Optional[str]:  # noqa: UP045
    """Return the version of the cuBLAS that this process has loaded, or None."""
    try:
        loaded = re.search(r"/\S*/libcublas\.so\S*", Path("/proc/self/maps").read_text())
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
