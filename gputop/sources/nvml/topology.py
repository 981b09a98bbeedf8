"""How the GPUs of this machine are connected with each other, and with its processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from gputop.frozen import dataclass
from gputop.problem import Problem
from gputop.schema.device import DeviceState
from gputop.sources.interface import DriverError
from gputop.sources.nvml.driver import driver_error, start
from gputop.sources.nvml.query import STATE_OF_CODE, UNAVAILABLE, nvml
from gputop.threads import call_in_thread

ANSWER_SECONDS = 5.0
"""Longest wait for the GPUs, which are asked at once."""
_SILENT = Problem("No GPU answers", "calls to its driver hang", "Read dmesg, or reboot the machine")

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
    uuid: str | None
    links: tuple[str, ...]
    """Connection with each GPU, in order: `NV18`, `PIX`, `SYS`; `X` with itself."""
    cpu_affinity: str | None = None
    """Processors near it, such as `0-23,48-71`; None if the driver does not tell."""
    numa_affinity: str | None = None
    """NUMA nodes near it."""
    gpu_numa_id: int | None = None
    """NUMA node of the GPU's own memory, where it is one."""
    state: DeviceState = DeviceState.OK
    """How it answered. Without an answer nothing else is known."""


def read_topology() -> tuple[GpuTopology, ...]:
    """Return all GPUs, also those that do not answer.

    The driver itself may block. Raises `DriverError` for it, and if no GPU answers.
    """
    driver = start()
    found = _ask_each(len(driver.readers()))
    gpus = tuple(_topology(*each, found) for each in enumerate(found))
    if not any(each is None for each in found):
        driver.close()  # it would wait for one that hangs
    if all(gpu.uuid is None for gpu in gpus):
        raise next(map(driver_error, filter(None, found)), DriverError(_SILENT))
    return gpus


def _ask_each(count: int) -> list[Any]:
    """Return a `_Gpu` for each index, or its `NVMLError`; None for one that hangs."""
    asked = [call_in_thread(partial(_Gpu, index)) for index in range(count)]
    futures.wait(asked, ANSWER_SECONDS)
    return [each.exception() or each.result() if each.done() else None for each in asked]


def _topology(index: int, gpu: Any, others: Sequence[Any]) -> GpuTopology:
    if not isinstance(gpu, _Gpu):
        state = STATE_OF_CODE.get(getattr(gpu, "value", None), DeviceState.NOT_RESPONDING)
        return GpuTopology(index, None, ("N/A",) * len(others), state=state)
    links = tuple(gpu.link(other) if isinstance(other, _Gpu) else "N/A" for other in others)
    return GpuTopology(index, gpu.uuid, links, gpu.cpus, gpu.nodes, gpu.numa_id)


class _Gpu:
    """A GPU that answers. Raises `NVMLError` if it does not."""

    def __init__(self, index: int) -> None:
        self.handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self.address = _address(nvml.nvmlDeviceGetPciInfo(self.handle))
        self.nvlinks = _nvlinks(self.handle)
        self.uuid = nvml.nvmlDeviceGetUUID(self.handle)
        node = nvml.NVML_AFFINITY_SCOPE_NODE
        self.cpus = _ranges(_answer(nvml.nvmlDeviceGetCpuAffinity, self.handle, _CPU_WORDS))
        words = _answer(nvml.nvmlDeviceGetMemoryAffinity, self.handle, _NODE_WORDS, node)
        self.nodes = _ranges(words)
        numa_id = _answer(nvml.nvmlDeviceGetNumaNodeId, self.handle)
        self.numa_id = None if numa_id in UNAVAILABLE else numa_id

    def link(self, other: _Gpu) -> str:
        """Return the fastest connection with another GPU: NVLinks, direct or through switches."""
        if other is self:
            return "X"
        links = self.nvlinks[other.address] + min(self.nvlinks[None], other.nvlinks[None])
        if links:
            return f"NV{links}"
        with suppress(nvml.NVMLError):
            level = nvml.nvmlDeviceGetTopologyCommonAncestor(self.handle, other.handle)
            return _PATHS.get(level, "N/A")
        return "N/A"


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
    """Return the driver's answer, or None without one. Raises `NVMLError` for a device's fault."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value in STATE_OF_CODE:
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
