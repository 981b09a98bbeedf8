"""The MIG instances of a GPU, as devices of their own.

NVML reports identity, memory and processes of an instance. All else is missing, because the
temperature or power of the whole GPU would be wrong for a part of it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from gputop.agent.device import READINGS, Absence, Device
from gputop.agent.interface import DeviceReading
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.device_queries import (
    BAR1,
    BAR1_TOTAL,
    MEMORY,
    MEMORY_TOTAL,
    once,
)
from gputop.agent.nvml.device_reading import (
    device_reading,
    schema_fields,
    unreadable,
)
from gputop.agent.nvml.processes import (
    LISTS,
    ProcessList,
    merge_processes,
    process_lists,
)
from gputop.agent.nvml.query import (
    EVERY_10_SECONDS,
    Answers,
    Clock,
    Question,
    scalar,
)
from gputop.agent.nvml.utilization import Gpm, all_missing
from gputop.agent.nvml.values import absence_of, total

_COUNT = Question(
    "count",
    scalar(nvml.nvmlDeviceGetMaxMigDeviceCount),
    interval=EVERY_10_SECONDS,
)
_IDENTITY = (
    once("name", nvml.nvmlDeviceGetName),
    once("mig_gpu_instance", scalar(nvml.nvmlDeviceGetGpuInstanceId)),
    once("mig_compute_instance", scalar(nvml.nvmlDeviceGetComputeInstanceId)),
    once(
        "sm_count",
        lambda h: (
            nvml.nvmlDeviceGetAttributes_v2(h).multiprocessorCount
            or Absence.NOT_SUPPORTED
        ),
    ),
    once(
        "memory_total_bytes",
        *MEMORY_TOTAL.sources,
        lambda h: (
            nvml.nvmlDeviceGetAttributes_v2(h).memorySizeMB << 20
            or Absence.NOT_SUPPORTED
        ),
    ),
    BAR1_TOTAL,
)
_READINGS = (MEMORY, BAR1)
_INHERITED = (
    "architecture",
    "compute_capability",
    "virtualization",
    "memory_is_shared",
)
"""Properties that a chip shares with all of its instances."""
_GONE = (
    nvml.NVML_ERROR_NOT_FOUND,
    nvml.NVML_ERROR_INVALID_ARGUMENT,
    nvml.NVML_ERROR_GPU_IS_LOST,
)
"""Error codes for an index without an instance, and for the handle of a destroyed instance."""
_MOST = 64
"""Most instances, in case a driver returns 0xFFFFFFFF."""
_NOWHERE = (0xFFFF_FFFF, 0xFFFF_FFFF)
"""Ids of a process without an instance."""


class InstanceReadings(NamedTuple):
    """Readings of all instances of a GPU at one moment."""

    readings: tuple[DeviceReading, ...]
    held_bytes: int | Absence
    """Bytes held by the processes of all instances."""

    @property
    def pids(self) -> set[int]:
        """Pids of all processes on the instances."""
        pids = set()
        for reading in self.readings:
            pids |= {process.pid for process in reading.processes}
        return pids


class Instances:
    """The instances on one GPU, which come and go."""

    def __init__(self, driver_version: tuple[int, ...], clock: Clock) -> None:
        self._questions = (*_READINGS, *process_lists(driver_version))
        self._clock = clock
        self._answers = Answers(clock)
        self._known: dict[int, _Instance] = {}

    def read(self, gpu: Any, parent: Device, *, gpm: bool) -> InstanceReadings:
        """Read the instances, if MIG is on. Raises `NVMLError` if the GPU is lost."""
        known = {}
        for index in self._indices(gpu, parent):
            instance = self._find(gpu, parent, index)
            if instance is not None:
                instance.read(gpm=gpm)
                if instance.failure not in _GONE:
                    known[index] = instance
        self._known = known
        # Compute instances of one GPU instance share its memory, and each
        # reports the total use.
        held: dict[int | str, int | Absence] = defaultdict(int)
        for instance in known.values():
            listed = instance.listed.held_bytes
            held[instance.shares] = total(held[instance.shares], listed)
        readings = []
        for instance in known.values():
            readings.append(instance.reading(held[instance.shares]))
        return InstanceReadings(tuple(readings), total(*held.values()))

    def unreadable(self, code: int) -> tuple[DeviceReading, ...]:
        """Return the known instances, after the GPU began to answer with that code."""
        self._answers.forget()
        readings = []
        for instance in self._known.values():
            instance.forget()
            readings.append(unreadable(instance.device, code))
        return tuple(readings)

    def _indices(self, gpu: Any, parent: Device) -> Sequence[int]:
        if parent.mig_mode == "enabled":
            count = self._answers.ask(gpu, (_COUNT,))["count"]
            if not isinstance(count, Absence):
                return range(min(count, _MOST))
        elif parent.mig_mode is not None:
            return ()
        # Keep the instances if the GPU fails for a moment to report its mode
        # or their number.
        return tuple(self._known)

    def _find(self, gpu: Any, parent: Device, index: int) -> _Instance | None:
        """Return the instance at the index. None if there is none or it is being destroyed."""
        known = self._known.get(index)
        handle = None
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            # Read the UUID every time, because the driver reuses handles of
            # destroyed instances.
            uuid = nvml.nvmlDeviceGetUUID(handle)
            if known is None or known.device.uuid != uuid:
                answers = Answers(self._clock)
                device = _device(
                    answers, handle, parent, uuid=uuid, mig_index=index
                )
                known = _Instance(
                    device, answers, self._questions, gpu, self._clock
                )
        except nvml.NVMLError as error:
            if handle is None and error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                raise
            if known is None or error.value in _GONE:
                return None
            known.failure = error.value
        else:
            known.handle = handle
            known.failure = nvml.NVML_SUCCESS
        return known


def _device(
    answers: Answers, handle: Any, parent: Device, **known: Any
) -> Device:
    """Identify an instance. Raises `NVMLError` if the instance or the GPU is lost."""
    names = sorted(
        f.name for f in dataclasses.fields(Device) if f.name != "absent"
    )
    found: dict[str, Any] = dict.fromkeys(names, Absence.NOT_SUPPORTED)
    for name in _INHERITED:
        found[name] = parent.absent.get(name, getattr(parent, name))
    found |= answers.ask(handle, _IDENTITY)
    found |= {"index": parent.index, "parent_uuid": parent.uuid, **known}
    return Device(**{"name": f"{parent.name} MIG", **schema_fields(found)})


class _Instance:
    def __init__(
        self,
        device: Device,
        answers: Answers,
        questions: Sequence[Question],
        gpu: Any,
        clock: Clock,
    ) -> None:
        self.device = device
        self.handle: Any = None
        self.failure: int = nvml.NVML_SUCCESS
        """Error code of an instance that answers nothing."""
        self.listed = ProcessList((), None)
        self._answers = answers
        self._questions = questions
        self._clock = clock
        self._began = clock()
        self._found: dict[str, Any] = {}
        instance = device.mig_gpu_instance
        # Without an id, these would be the readings of the whole GPU.
        self._gpm = None if instance is None else Gpm(gpu, instance, clock)

    @property
    def shares(self) -> int | str:
        """Key of the memory that it shares: the id of its GPU instance, or its own if unknown."""
        gpu_instance = self.device.mig_gpu_instance
        return self.device.uuid if gpu_instance is None else gpu_instance

    def read(self, *, gpm: bool) -> None:
        """Ask the questions that are due."""
        try:
            if not self.failure:
                self._ask(gpm=gpm)
        # The instance or the GPU is lost.
        except nvml.NVMLError as error:
            self.failure = error.value
        if self.failure:
            self.listed = ProcessList((), absence_of(self.failure))

    def forget(self) -> None:
        """Make every question due."""
        self._answers.forget()
        if self._gpm:
            self._gpm.close()

    def reading(self, held: int | Absence) -> DeviceReading:
        """Return its reading. `held` is the bytes that processes hold in the memory it shares."""
        if self.failure:
            return unreadable(self.device, self.failure)
        attributed = self.listed.held_bytes
        return device_reading(
            self.device,
            self._found,
            self.listed,
            attributed,
            held,
            self._answers,
            self._began,
        )

    def _ask(self, *, gpm: bool) -> None:
        self._began = self._clock()
        found: dict[str, Any] = dict.fromkeys(READINGS, Absence.NOT_SUPPORTED)
        found |= self._answers.ask(self.handle, self._questions)
        self._answers.check(_READINGS)
        if self._gpm is not None:
            found |= self._gpm.read(wanted=gpm)
        elif not gpm:
            found |= all_missing(Absence.DISABLED)
        for name in LISTS:
            if not isinstance(found[name], Absence):
                found[name] = [row for row in found[name] if self._owns(row)]
        self.listed = merge_processes(self.device.uuid, found)
        self._found = found

    def _owns(self, row: Any) -> bool:
        """Return True unless the row, in its list of processes, names another instance."""
        ids = (self.device.mig_gpu_instance, self.device.mig_compute_instance)
        named = (row.gpuInstanceId, row.computeInstanceId)
        return None in ids or named in (ids, _NOWHERE)
