"""The MIG instances of a GPU, as devices of their own.

NVML says little of an instance: who it is, its memory, its processes. All else is missing there:
how warm the GPU is, or what it draws, would be a wrong number under the name of a part of it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gputop.schema.device import READINGS, Absence, Device, DeviceSample
from gputop.sources.interface import GpuProcess, Reading
from gputop.sources.nvml.calls import nvml
from gputop.sources.nvml.gpm import Gpm, Percentages, all_missing
from gputop.sources.nvml.processes import add_attributed, attributed, merge, total
from gputop.sources.nvml.question import (
    SLOW,
    Asker,
    Question,
    absence_of,
    one,
    sort,
    state_of,
    text,
    unreadable,
)
from gputop.sources.nvml.readings import BAR1, BAR1_TOTAL, MEMORY, MEMORY_TOTAL

_COUNT = Question("", one(nvml.nvmlDeviceGetMaxMigDeviceCount), seconds=SLOW)
_IDENTITY = (
    Question("name", text(nvml.nvmlDeviceGetName)),
    Question("mig_gpu_instance", one(nvml.nvmlDeviceGetGpuInstanceId)),
    Question("mig_compute_instance", one(nvml.nvmlDeviceGetComputeInstanceId)),
    Question(
        "sm_count",
        lambda h: (
            nvml.nvmlDeviceGetAttributes_v2(h).multiprocessorCount or Absence.NOT_SUPPORTED,
        ),
    ),
    Question(
        "memory_total_bytes",
        *MEMORY_TOTAL.sources,
        lambda h: (nvml.nvmlDeviceGetAttributes_v2(h).memorySizeMB << 20 or Absence.NOT_SUPPORTED,),
    ),
    BAR1_TOTAL,
)
_READINGS = (MEMORY, BAR1)
_INHERITED = ("architecture", "compute_capability", "virtualization", "memory_is_shared")
"""What is true of a chip and of every part of it."""
_GONE = (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT, nvml.NVML_ERROR_GPU_IS_LOST)
"""What is said of an index without an instance, and by the handle of one that was destroyed."""
_MOST = 64
"""Instances, should a driver say 0xFFFFFFFF."""
_NOWHERE = (0xFFFF_FFFF, 0xFFFF_FFFF)
"""The ids of a process that is on no instance."""


def _uuid(handle: Any) -> str:
    """Raises `NVMLError` where there is none: it has no key then."""
    (uuid,) = text(nvml.nvmlDeviceGetUUID)(handle)
    if isinstance(uuid, Absence):
        raise nvml.NVMLError(nvml.NVML_ERROR_NO_DATA)
    return str(uuid)


class Parts(NamedTuple):
    """The instances of a GPU at one moment."""

    readings: tuple[Reading, ...]
    others: Sequence[Any]
    """The GPU's process lists, as `merge` takes them, without the processes of its instances."""
    attributed: int | Absence
    """Bytes that the processes of all instances hold."""


class Instances:
    """Those on one GPU, as they come and go; `lists` are the questions for its processes."""

    def __init__(self, lists: Sequence[Question], clock: Callable[[], float]) -> None:
        self._lists = lists
        self._clock = clock
        self._asker = Asker(clock)
        self._known: dict[int, _Instance] = {}

    def read(self, gpu: Any, parent: Device, lists: Sequence[Any], *, gpm: bool) -> Parts:
        """The instances now, where MIG is on; `lists` is what the GPU says of its processes.

        Raises `NVMLError` where the GPU is lost.
        """
        found = {
            index: self._find(gpu, parent, index, gpm=gpm) for index in self._indices(gpu, parent)
        }
        before = self._known.values()
        self._known = {index: instance for index, instance in found.items() if instance}
        for instance in set(before) - set(self._known.values()):
            instance.close()
        instances = tuple(self._known.values())
        for instance in instances:
            instance.sort_out(lists)
        # Compute instances of one GPU instance share its memory: each says what all of them use.
        held: dict[int | str, int | Absence] = defaultdict(int)
        for instance in instances:
            held[instance.shares] = total(held[instance.shares], instance.attributed)
        return Parts(
            tuple(instance.reading(held[instance.shares]) for instance in instances),
            [_others(rows, instances) for rows in lists],
            total(*held.values()),
        )

    def unreadable(self, code: int) -> tuple[Reading, ...]:
        """What was there when the GPU as a whole began to answer with that code."""
        self._asker.forget()
        for instance in self._known.values():
            instance.asker.forget()
            instance.close()
        devices = [instance.device for instance in self._known.values()]
        return tuple(Reading(device, unreadable(device.uuid, code)) for device in devices)

    def _indices(self, gpu: Any, parent: Device) -> Sequence[int]:
        if parent.mig_mode == "enabled":
            count = self._asker.answer(gpu, _COUNT)
            return tuple(self._known) if isinstance(count, int) else range(min(count[0], _MOST))
        # One that only this time fails to say the mode, or how many, still has those it had.
        return tuple(self._known) if parent.mig_mode is None else ()

    def _find(self, gpu: Any, parent: Device, index: int, *, gpm: bool) -> _Instance | None:
        """The instance at the index, if there is one, when it was asked everything.

        Both may go at any moment, instance and GPU. When the instance seems to be gone, the GPU
        is asked again: it says that there is none, or another one, or that it is lost itself.
        """
        known = self._known.get(index)
        for again in (False, True):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
                return known.silent(error.value) if known and error.value not in _GONE else None
            try:
                # At every read: the driver gives the handle of one that is gone to a new one.
                uuid = _uuid(handle)
                if known is None or known.device.uuid != uuid:
                    asker = Asker(self._clock)
                    device = _device(asker, handle, parent, uuid=uuid, mig_index=index)
                    known = _Instance(device, asker, self._lists, _gpm(gpu, device, self._clock))
                known.ask(handle, gpm=gpm)
            except nvml.NVMLError as error:
                if known:
                    known.silent(error.value)
                continue
            if again or not known.seems_gone:
                break
        return known


def _device(asker: Asker, handle: Any, parent: Device, **known: Any) -> Device:
    """Who an instance is; raises `NVMLError` where it, or the GPU, is lost."""
    found = sort(_IDENTITY, [asker.ask(handle, question) for question in _IDENTITY])
    values = {
        "index": parent.index,
        "parent_uuid": parent.uuid,
        "name": f"{parent.name} MIG",
        **{name: getattr(parent, name) for name in _INHERITED},
        **found.values,
        **known,
    }
    unsaid = {f.name for f in dataclasses.fields(Device)} - {*values, "absent"}
    absent = dict.fromkeys(sorted(unsaid), Absence.NOT_SUPPORTED) | found.absent
    absent |= {name: parent.absent[name] for name in _INHERITED if name in parent.absent}
    return Device(absent=absent, **values)


def _gpm(gpu: Any, device: Device, clock: Callable[[], float]) -> Gpm | None:
    """None where it is not known of what: without an id it would be that of the whole GPU."""
    instance = device.mig_gpu_instance
    return None if instance is None else Gpm(gpu, instance, clock)


class _Instance:
    def __init__(
        self, device: Device, asker: Asker, lists: Sequence[Question], gpm: Gpm | None
    ) -> None:
        self.device = device
        self.asker = asker
        self._ids = (device.mig_gpu_instance, device.mig_compute_instance)
        self._questions = lists
        self._answers: Sequence[Any] = ()
        self._lists: Sequence[Any] = ()
        self._gpm = gpm
        self._percentages: Percentages = {}
        self._processes: tuple[GpuProcess, ...] = ()
        self._missing: Absence | None = None

    @property
    def seems_gone(self) -> bool:
        return self._answers[0] in _GONE

    @property
    def shares(self) -> int | str:
        """Whose memory it shares: of its GPU instance, or its own where that is not known."""
        gpu_instance = self.device.mig_gpu_instance
        return self.device.uuid if gpu_instance is None else gpu_instance

    @property
    def attributed(self) -> int | Absence:
        """Bytes that its processes hold."""
        return attributed(self._processes, self._missing)

    @property
    def pids(self) -> set[int]:
        return {process.pid for process in self._processes}

    def ask(self, handle: Any, *, gpm: bool) -> None:
        """Asks what is due; raises `NVMLError` where it, or the GPU, is lost."""
        self._answers = [self.asker.answer(handle, question) for question in _READINGS]
        self._lists = [self.asker.answer(handle, question) for question in self._questions]
        if not gpm:
            self.close()
            self._percentages = all_missing(Absence.DISABLED)
        else:
            missing = all_missing(Absence.NOT_SUPPORTED)
            self._percentages = self._gpm.read() if self._gpm else missing

    def close(self) -> None:
        """Gives back what GPM keeps for it."""
        if self._gpm:
            self._gpm.close()

    def silent(self, code: int) -> _Instance:
        """Of one that is there, and answers everything with that code."""
        self._answers = [code] * len(_READINGS)
        self._lists = [code] * len(self._questions)
        self._percentages = all_missing(absence_of(code))
        return self

    def owns(self, row: Any) -> bool:
        """Whether a row of a process list names it."""
        return (row.gpuInstanceId, row.computeInstanceId) == self._ids

    def sort_out(self, gpu: Sequence[Any]) -> None:
        """Its processes: from its own lists or, where it cannot say, from those of the GPU."""
        rows = [self._rows(own, all_) for own, all_ in zip(self._lists, gpu, strict=True)]
        self._processes, self._missing = merge(*(*rows, nvml.NVML_ERROR_NOT_SUPPORTED))

    def _rows(self, own: Any, gpu: Any) -> Any:
        if isinstance(own, list):
            unnamed = None in self._ids
            return [row for row in own if unnamed or self.owns(row) or _is_nowhere(row)]
        return [row for row in gpu if self.owns(row)] if isinstance(gpu, list) else own

    def reading(self, held: int | Absence) -> Reading:
        """Now; `held` is what processes hold of the memory that it shares."""
        found = sort(_READINGS, self._answers)
        if self._missing:
            found.absent["processes"] = self._missing
        add_attributed(found, self.attributed, held)
        for name, value in self._percentages.items():
            found.add(name, value)
        unsaid = [name for name in READINGS if name not in found.values | found.absent]
        sample = DeviceSample(
            uuid=self.device.uuid,
            state=state_of((*self._answers, *self._lists, (*self._percentages.values(),))),
            age_seconds=0.0,
            absent=found.absent | dict.fromkeys(unsaid, Absence.NOT_SUPPORTED),
            **found.values,
        )
        return Reading(self.device, sample, self._processes)


def _is_nowhere(row: Any) -> bool:
    return (row.gpuInstanceId, row.computeInstanceId) == _NOWHERE


def _others(rows: Any, instances: Sequence[_Instance]) -> Any:
    """The rows of the GPU's list that are no instance's: a process is listed once."""
    if not isinstance(rows, list):
        return rows
    pids = {pid for instance in instances for pid in instance.pids}
    return [row for row in rows if row.pid not in pids and not any(i.owns(row) for i in instances)]
