"""The MIG instances of a GPU, as devices of their own.

NVML reports identity, memory and processes of an instance. All else is missing: the temperature or
power of the GPU would be a wrong number for a part of it.
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
    older_by,
    schema_fields,
    unreadable,
)
from gputop.agent.nvml.processes import ProcessList, merge_processes
from gputop.agent.nvml.query import (
    EVERY_10_SECONDS,
    Answers,
    Clock,
    Question,
    answers_by_name,
    scalar,
    string,
)
from gputop.agent.nvml.utilization import Gpm, Percentages, all_missing
from gputop.agent.nvml.values import absence_of, total

_COUNT = Question(
    "", scalar(nvml.nvmlDeviceGetMaxMigDeviceCount), interval=EVERY_10_SECONDS
)
_IDENTITY = (
    once("name", string(nvml.nvmlDeviceGetName)),
    once("mig_gpu_instance", scalar(nvml.nvmlDeviceGetGpuInstanceId)),
    once("mig_compute_instance", scalar(nvml.nvmlDeviceGetComputeInstanceId)),
    once(
        "sm_count",
        lambda h: (
            nvml.nvmlDeviceGetAttributes_v2(h).multiprocessorCount
            or Absence.NOT_SUPPORTED,
        ),
    ),
    once(
        "memory_total_bytes",
        *MEMORY_TOTAL.sources,
        lambda h: (
            nvml.nvmlDeviceGetAttributes_v2(h).memorySizeMB << 20
            or Absence.NOT_SUPPORTED,
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
"""Properties of a chip and of every part of it."""
_GONE = (
    nvml.NVML_ERROR_NOT_FOUND,
    nvml.NVML_ERROR_INVALID_ARGUMENT,
    nvml.NVML_ERROR_GPU_IS_LOST,
)
"""Codes for an index without an instance, and for the handle of a destroyed one."""
_MOST = 64
"""Instances at most, in case a driver says 0xFFFFFFFF."""
_NOWHERE = (0xFFFF_FFFF, 0xFFFF_FFFF)
"""Ids of a process that is on no instance."""


def _uuid(handle: Any) -> str:
    """Return the uuid. Raises `NVMLError` if there is none: the instance has no key then."""
    (uuid,) = string(nvml.nvmlDeviceGetUUID)(handle)
    if isinstance(uuid, Absence):
        raise nvml.NVMLError(nvml.NVML_ERROR_NO_DATA)
    return str(uuid)


class InstanceReadings(NamedTuple):
    """Readings of all instances of a GPU at one moment."""

    readings: tuple[DeviceReading, ...]
    others: Sequence[Any]
    """The GPU's process lists for `merge_processes`, without the instances' processes."""
    attributed: int | Absence
    """Bytes held by the processes of all instances."""


class Instances:
    """The instances on one GPU, as they come and go. `lists` are the queries for processes."""

    def __init__(self, lists: Sequence[Question], clock: Clock) -> None:
        self._lists = lists
        self._clock = clock
        self._cache = Answers(clock)
        self._known: dict[int, _Instance] = {}

    def read(
        self, gpu: Any, parent: Device, lists: Sequence[Any], *, gpm: bool
    ) -> InstanceReadings:
        """Read the instances, if MIG is on; `lists` are the GPU's own process lists.

        Raises `NVMLError` if the GPU is lost.
        """
        instances = self._update(gpu, parent, gpm=gpm)
        if not instances:
            return InstanceReadings((), lists, 0)
        for instance in instances:
            instance.assign_processes(lists)
        # Compute instances of one GPU instance share its memory: each reports the use of all.
        held: dict[int | str, int | Absence] = defaultdict(int)
        for instance in instances:
            held[instance.shares] = total(
                held[instance.shares], instance.listed.held_bytes
            )
        return InstanceReadings(
            tuple(instance.reading(held[instance.shares]) for instance in instances),
            [_others(rows, instances) for rows in lists],
            total(*held.values()),
        )

    def identify(self, gpu: Any, parent: Device) -> tuple[Device, ...]:
        """Return the instances, if MIG is on. Raises `NVMLError` if the GPU is lost."""
        return tuple(
            instance.device for instance in self._update(gpu, parent, gpm=False)
        )

    def _update(
        self,
        gpu: Any,
        parent: Device,
        *,
        gpm: bool,
    ) -> tuple[_Instance, ...]:
        indices = self._indices(gpu, parent)
        if not indices and not self._known:
            return ()
        found: dict[int, _Instance] = {}
        for index in indices:
            instance = self._find(
                gpu,
                parent,
                index,
                gpm=gpm,
            )
            if instance is not None:
                found[index] = instance
        for gone in {*self._known.values()} - {*found.values()}:
            gone.close()
        self._known = found
        return tuple(found.values())

    def unreadable(self, code: int) -> tuple[DeviceReading, ...]:
        """Return the instances that were there when the GPU began to answer with that code."""
        self._cache.forget()
        for instance in self._known.values():
            instance.cache.forget()
            instance.close()
        return tuple(
            unreadable(instance.device, code) for instance in self._known.values()
        )

    def _indices(self, gpu: Any, parent: Device) -> Sequence[int]:
        if parent.mig_mode == "enabled":
            (count,) = self._cache.ask_due(gpu, (_COUNT,))
            return (
                tuple(self._known)
                if isinstance(count, int)
                else range(min(count[0], _MOST))
            )
        # A GPU that fails just now to report the mode or the number keeps those it had.
        return tuple(self._known) if parent.mig_mode is None else ()

    def _find(
        self, gpu: Any, parent: Device, index: int, *, gpm: bool
    ) -> _Instance | None:
        """Return the instance at the index after asking it everything, or None without one.

        Instance and GPU may go at any moment. If the instance seems to be gone, the GPU is asked
        again: there is none, or another one, or the GPU is lost itself.
        """
        known = self._known.get(index)
        for again in (False, True):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
                return (
                    known.silent(error.value)
                    if known and error.value not in _GONE
                    else None
                )
            try:
                # At every read: the driver reuses the handle of a destroyed instance.
                uuid = _uuid(handle)
                if known is None or known.device.uuid != uuid:
                    cache = Answers(self._clock)
                    device = _device(
                        cache,
                        handle,
                        parent,
                        uuid=uuid,
                        mig_index=index,
                    )
                    known = _Instance(device, cache, self._lists, gpu, self._clock)
                known.ask(handle, gpm=gpm)
            except nvml.NVMLError as error:
                if known:
                    known.silent(error.value)
                continue
            if again or known.answers[0] not in _GONE:
                break
        return known


def _device(cache: Answers, handle: Any, parent: Device, **known: Any) -> Device:
    """Identify an instance. Raises `NVMLError` if it, or the GPU, is lost."""
    names = sorted(f.name for f in dataclasses.fields(Device) if f.name != "absent")
    found = {
        **dict.fromkeys(names, Absence.NOT_SUPPORTED),
        **{name: parent.absent.get(name, getattr(parent, name)) for name in _INHERITED},
        **answers_by_name(_IDENTITY, cache.ask_due(handle, _IDENTITY)),
        "index": parent.index,
        "parent_uuid": parent.uuid,
        **known,
    }
    return Device(**{"name": f"{parent.name} MIG", **schema_fields(found)})


class _Instance:
    def __init__(
        self,
        device: Device,
        cache: Answers,
        lists: Sequence[Question],
        gpu: Any,
        clock: Clock,
    ) -> None:
        self.device = device
        self.cache = cache
        self._clock = clock
        self._began = clock()
        self._ids = (device.mig_gpu_instance, device.mig_compute_instance)
        self._queries = lists
        self.answers: Sequence[Any] = ()
        self._lists: Sequence[Any] = ()
        instance = device.mig_gpu_instance
        # Without an id it would be that of the whole GPU.
        self._gpm = None if instance is None else Gpm(gpu, instance, clock)
        self._percentages: Percentages = {}
        self.listed = ProcessList((), None)

    @property
    def shares(self) -> int | str:
        """Key of the memory that it shares: that of its GPU instance, or its own if unknown."""
        gpu_instance = self.device.mig_gpu_instance
        return self.device.uuid if gpu_instance is None else gpu_instance

    def ask(self, handle: Any, *, gpm: bool) -> None:
        """Ask what is due. Raises `NVMLError` if it, or the GPU, is lost."""
        self._began = self._clock()
        self.answers = self.cache.ask_due(handle, _READINGS)
        self._lists = self.cache.ask_due(handle, self._queries)
        if self._gpm is not None:
            self._percentages = self._gpm.read(wanted=gpm)
        else:
            self._percentages = all_missing(
                Absence.NOT_SUPPORTED if gpm else Absence.DISABLED
            )

    def close(self) -> None:
        """Free its GPM samples."""
        if self._gpm:
            self._gpm.close()

    def silent(self, code: int) -> _Instance:
        """Note that it exists, and answers everything with that code."""
        self.answers = [code] * len(_READINGS)
        self._lists = [code] * len(self._queries)
        self._percentages = all_missing(absence_of(code))
        return self

    def owns(self, row: Any, *others: tuple[int, int]) -> bool:
        """Return True if a row of a process list names it, or has one of the other ids."""
        return (row.gpuInstanceId, row.computeInstanceId) in (self._ids, *others)

    def assign_processes(self, gpu: Sequence[Any]) -> None:
        """Set its processes from its own lists or, if it has none, from those of the GPU."""
        rows = [self._rows(own, all_) for own, all_ in zip(self._lists, gpu)]
        self.listed = merge_processes(
            *(self.device.uuid, *rows, nvml.NVML_ERROR_NOT_SUPPORTED)
        )

    def _rows(self, own: Any, gpu: Any) -> Any:
        if isinstance(own, list):
            unnamed = None in self._ids
            return [row for row in own if unnamed or self.owns(row, _NOWHERE)]
        if isinstance(gpu, list):
            return [row for row in gpu if self.owns(row)]
        return own

    def reading(self, held: int | Absence) -> DeviceReading:
        """Return its reading; `held` are the bytes held by processes in the memory it shares."""
        found: dict[str, Any] = dict.fromkeys(READINGS, Absence.NOT_SUPPORTED)
        found |= answers_by_name(_READINGS, self.answers)
        found["slow_age_seconds"] = older_by(self._began, self.cache.oldest)
        found |= self._percentages
        answers = *self.answers, *self._lists, (*self._percentages.values(),)
        return device_reading(
            self.device, found, answers, self.listed, self.listed.held_bytes, held
        )


def _others(rows: Any, instances: Sequence[_Instance]) -> Any:
    """Return the rows of the GPU's list that belong to no instance: a process is listed once."""
    if not isinstance(rows, list):
        return rows
    left = rows
    for instance in instances:
        pids = {process.pid for process in instance.listed.processes}
        left = [row for row in left if row.pid not in pids and not instance.owns(row)]
    return left
