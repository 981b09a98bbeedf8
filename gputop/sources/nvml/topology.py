"""How the GPUs of this machine are connected with each other, and with its processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gputop.sources.nvml.driver import driver_error, start
from gputop.sources.nvml.query import UNAVAILABLE, nvml

_PATHS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvidia-smi's words for the nearest common part of two paths through PCIe."""
_CPU_WORDS, _NODE_WORDS = 64, 16
"""Words of 64 bits for sets of processors and of NUMA nodes."""
_MOST_LINKS = 64

Address = tuple[int, int, int]
"""PCI domain, bus and device."""


@dataclass(frozen=True, slots=True)
class GpuTopology:
    """A GPU, and its connections in nvidia-smi's words."""

    index: int
    uuid: str
    links: tuple[str, ...]
    """Connection with each GPU, in order: `NV18`, `PIX`, `SYS`; `X` with itself."""
    cpu_affinity: str | None
    """Processors near it, such as `0-23,48-71`; None if the driver does not tell."""
    numa_affinity: str | None
    """NUMA nodes near it."""
    gpu_numa_id: int | None
    """NUMA node of the GPU's own memory, where it is one."""


def read_topology() -> tuple[GpuTopology, ...]:
    """Return all GPUs. May block; raises `DriverError`."""
    driver = start()
    try:
        gpus = [_Gpu(reader.index) for reader in driver.readers()]
        return tuple(gpu.topology(gpus) for gpu in gpus)
    except nvml.NVMLError as error:
        raise driver_error(error) from None
    finally:
        driver.close()


class _Gpu:
    """A GPU that answers. Its methods raise `NVMLError` if it does not."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.address = _address(nvml.nvmlDeviceGetPciInfo(self.handle))
        self.nvlinks = _nvlinks(self.handle)

    def topology(self, gpus: Iterable[_Gpu]) -> GpuTopology:
        node = nvml.NVML_AFFINITY_SCOPE_NODE
        numa_id = _answer(nvml.nvmlDeviceGetNumaNodeId, self.handle)
        return GpuTopology(
            self.index,
            nvml.nvmlDeviceGetUUID(self.handle),
            tuple(self.link(other) for other in gpus),
            _ranges(_answer(nvml.nvmlDeviceGetCpuAffinity, self.handle, _CPU_WORDS)),
            _ranges(_answer(nvml.nvmlDeviceGetMemoryAffinity, self.handle, _NODE_WORDS, node)),
            None if numa_id in UNAVAILABLE else numa_id,
        )

    def link(self, other: _Gpu) -> str:
        """Return the fastest connection with another GPU: NVLinks, direct or through switches."""
        if other is self:
            return "X"
        links = self.nvlinks[other.address] + min(self.nvlinks[None], other.nvlinks[None])
        if links:
            return f"NV{links}"
        ancestor = _answer(nvml.nvmlDeviceGetTopologyCommonAncestor, self.handle, other.handle)
        return _PATHS.get(ancestor, "N/A")


def _address(pci: Any) -> Address:
    return pci.domain, pci.bus, pci.device


def _nvlinks(handle: Any) -> Counter[Address | None]:
    """Return how many NVLinks are up, by the address of the GPU at their end; None is a switch."""
    found: Counter[Address | None] = Counter()
    for link in range(_MOST_LINKS):
        is_up = _answer(nvml.nvmlDeviceGetNvLinkState, handle, link)
        if is_up is None:  # there are no more
            break
        kind = _answer(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) if is_up else None
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            found[None] += 1
        elif is_up and (pci := _answer(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)):
            found[_address(pci)] += 1
    return found


def _answer(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the driver's answer, or None without one. Raises `NVMLError` for a lost device."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def _ranges(words: Iterable[int] | None) -> str | None:
    """Return the numbers of a set of bits in words of 64: `0-23,48-71`."""
    if words is None:
        return None
    numbers = [64 * n + bit for n, word in enumerate(words) for bit in range(64) if word >> bit & 1]
    # In a run of consecutive numbers, each is as far from its place in the list as the others.
    groups = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    runs = ([number for _, number in group] for _, group in groups)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
