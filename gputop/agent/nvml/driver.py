"""NVML as a driver with one reader for each GPU.

A call to a sick GPU can block forever, and so can attaching to it. So only `NvmlReader.read`
touches a device, and a read must not delay the other readers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.interface import DeviceReading, DriverError
from gputop.agent.linux.driver_files import inspect_system, unlisted_gpus
from gputop.agent.nvml import diagnosis
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.device_queries import IDENTITY, MODES, reading_queries
from gputop.agent.nvml.device_reading import (
    device_reading,
    schema_fields,
    unreadable,
)
from gputop.agent.nvml.diagnosis import version_numbers
from gputop.agent.nvml.failures import (
    check_driver,
    diagnose,
    driver_error,
    driver_says,
)
from gputop.agent.nvml.integrated import (
    MEMORY_NAMES,
    MemoryCheck,
    ZeroCheck,
    memory_is_shared,
)
from gputop.agent.nvml.mig import Instances
from gputop.agent.nvml.processes import merge_processes
from gputop.agent.nvml.query import EVERY_SAMPLE, Answers, Clock
from gputop.agent.nvml.utilization import Gpm
from gputop.agent.nvml.values import absence_of, total
from gputop.agent.nvml.xid_events import XidEvents
from gputop.agent.snapshot import Event


def start() -> NvmlDriver:
    """Initialize NVML, which can take seconds. Raises `DriverError`."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise driver_error(error) from None
    # NVMLLibraryMismatchError is not an NVMLError.
    except nvml.NVMLLibraryMismatchError:
        raise DriverError(diagnose(diagnosis.too_old)) from None
    try:
        return NvmlDriver()
    except DriverError:
        _shut_down()
        raise


def _shut_down() -> None:
    # The driver is no longer used.
    with contextlib.suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


class NvmlDriver:
    """The initialized driver. `cuda_version` is the newest CUDA that it supports, such as `13.0`.

    Raises `DriverError` if it does not report its version: the library has no driver then.
    """

    def __init__(self) -> None:
        self.driver_version: str | None = driver_says(
            nvml.nvmlSystemGetDriverVersion
        )
        self.cuda_version: str | None = None
        with contextlib.suppress(nvml.NVMLError):
            version = nvml.nvmlSystemGetCudaDriverVersion_v2()
            self.cuda_version = f"{version // 1000}.{version % 1000 // 10}"
        self._events = XidEvents()
        self._readers: tuple[NvmlReader, ...] = ()
        self._plugged: tuple[str, ...] = ()

    def readers(self) -> tuple[NvmlReader, ...]:
        """Return one reader for each of NVML's indices, without touching a device.

        Raises `DriverError`, also if there is no device. In that case NVML is shut down, because it
        looks for devices only when it starts.
        """
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.close()
            raise driver_error(error) from None
        system = inspect_system()
        if not count:
            self.close()
            raise DriverError(diagnosis.no_devices(system))
        self._plugged = system.usable_gpus
        self._readers = tuple(
            NvmlReader(index, self.driver_version, events=self._events)
            for index in range(count)
        )
        return self._readers

    def unlisted_gpus(self) -> tuple[str, ...]:
        """Return the PCI addresses of GPUs on the bus that have no reader."""
        return unlisted_gpus(
            self._plugged,
            tuple(reader.device.pci_bus_id for reader in self._readers),
        )

    def events(self) -> tuple[Event, ...]:
        """Return the events since the last call. Wait for events for up to a second."""
        return self._events.wait()

    def close(self) -> None:
        """Shut NVML down. The driver may wait for running calls."""
        self._events.close()
        _shut_down()


class NvmlReader:
    """One GPU and its MIG instances, read by one thread at a time.

    `device` is a placeholder with the uuid `unknown:INDEX` until the device has been identified.
    Indices move after a loss, so it may become another device: compare it after every `read`.
    """

    def __init__(
        self,
        index: int,
        driver_version: str | None = None,
        clock: Clock = time.monotonic,
        events: XidEvents | None = None,
    ) -> None:
        self.index = index
        self.device = self._unknown_device(Absence.NO_DATA_YET)
        self._clock = clock
        self._version = version_numbers(driver_version or "")
        self._events = events
        self._gpm: Gpm | None = None
        self._start_counting()
        self._handle: Any = None
        self._answers = Answers(clock)
        self._identity: dict[str, Any] = {}
        self._modes: dict[str, Any] = {}
        """Modes in `device`; empty if `device` has to be made again."""
        self._instances = Instances(self._version, clock)

    def read(self, *, gpm: bool) -> tuple[DeviceReading, ...]:
        """Ask the questions that are due, however long the driver takes.

        Each of `READINGS` gets either a value or a reason in `sample.absent`; `absent["processes"]`
        is the reason why some or all processes are missing. Raises `DriverError` if the driver was
        unloaded or replaced, never for an error of the device.
        """
        began = self._clock()
        try:
            # A device without a uuid has no key, so its identity is read
            # again.
            if self._handle is None or "uuid" in self.device.absent:
                self._attach()
            queries = self._queries
            found = self._answers.ask(self._handle, queries)
            # Answers to less frequent questions may be from before the
            # failure.
            self._answers.check(
                q for q in queries if q.interval == EVERY_SAMPLE
            )
            self._update_modes()
            self._gpm = self._gpm or Gpm(self._handle, clock=self._clock)
            percentages = self._gpm.read(wanted=gpm)
            parts = self._instances.read(self._handle, self.device, gpm=gpm)
            if self._events:
                self._events.register(self._handle, self.device.uuid)
        except nvml.NVMLError as error:
            check_driver()
            return self._unreadable(error.value)
        listed = merge_processes(self.device.uuid, found).without(parts.pids)
        held = total(listed.held_bytes, parts.held_bytes)
        self._mark_disabled(found)
        found |= percentages
        self._remove_untrue(found, held)
        reading = device_reading(
            self.device, found, listed, held, held, self._answers, began
        )
        if reading.sample.state is DeviceState.NEEDS_RESET:
            # Otherwise, its answers to slow questions would survive the reset.
            self._reset()
        return (reading, *parts.readings)

    @property
    def heard_at(self) -> float:
        """Time of the device's last answer, by the clock."""
        return self._answers.heard_at

    def _start_counting(self) -> None:
        self._memory_check = MemoryCheck()
        self._zero_check = ZeroCheck()
        self._queries = reading_queries(self._version, self._clock)

    def _mark_disabled(self, found: dict[str, Any]) -> None:
        if self.device.ecc_enabled is False:
            for name, value in found.items():
                if name.startswith("ecc_") and value is Absence.NOT_SUPPORTED:
                    found[name] = Absence.DISABLED

    def _remove_untrue(
        self, found: dict[str, Any], held: int | Absence
    ) -> None:
        """Remove readings that an integrated device lacks, even if its driver reports them."""
        self._memory_check.remove_contradiction(found, held)
        if (
            self._memory_check.is_shared
            and self._identity["memory_is_shared"] is not True
        ):
            self._share_memory(self._identity)
            self._modes = {}
            self._update_modes()
        if self.device.memory_is_shared:
            found |= dict.fromkeys(MEMORY_NAMES, Absence.NOT_SUPPORTED)
            self._zero_check.remove_zeros(found)

    @staticmethod
    def _share_memory(identity: dict[str, Any]) -> None:
        identity["memory_is_shared"] = True
        identity["memory_total_bytes"] = Absence.NOT_SUPPORTED

    def _attach(self) -> None:
        self._handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
        self._answers.forget()
        found = self._answers.ask(self._handle, IDENTITY)
        # Otherwise, a failing device would lose its identity.
        self._answers.check(IDENTITY)
        self._identity = found
        self._modes = {}
        known, memory = schema_fields(found), found["memory_total_bytes"]
        shared = memory_is_shared(
            known.get("name"), known.get("compute_capability"), memory
        )
        found["memory_is_shared"] = shared
        if shared is True:
            self._share_memory(found)
        # Do this even if the device answers nothing else.
        self._update_modes()

    def _reset(self) -> None:
        """Make the next `read` attach to the device again: its counters may have restarted."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None
        if self._events and self._handle is not None:
            self._events.forget(self._handle)
        self._handle = None
        self._start_counting()

    def _update_modes(self) -> None:
        modes = self._answers.ask(self._handle, MODES)
        if modes == self._modes:
            return
        self._modes = modes
        device = self._known_device(self._identity | modes)
        if {device.mig_mode, self.device.mig_mode} == {"enabled", "disabled"}:
            # The device has other fields now.
            self._answers.forget()
            self._start_counting()
        self.device = device

    def _known_device(self, found: Mapping[str, Any]) -> Device:
        unknown = {"uuid": f"unknown:{self.index}", "name": "unknown device"}
        return Device(index=self.index, **{**unknown, **schema_fields(found)})

    def _unknown_device(self, absence: Absence) -> Device:
        names = [name for query in (*IDENTITY, *MODES) for name in query.names]
        return self._known_device(
            dict.fromkeys([*names, "memory_is_shared"], absence)
        )

    def _unreadable(self, code: int) -> tuple[DeviceReading, ...]:
        self._reset()
        if "uuid" in self.device.absent:
            self.device = self._unknown_device(absence_of(code))
        return (
            unreadable(self.device, code),
            *self._instances.unreadable(code),
        )
