"""NVML, as devices and readings: with the modules `nvml_*` all that calls nvidia-ml-py.

A call on a sick GPU can block for ever, attaching to it included. So nothing here touches a device
before `Reader.read`, and each reader wants a thread of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from gputop.schema.device import Absence, Device, DeviceSample, DeviceState
from gputop.sources.interface import DriverError, Reading
from gputop.sources.linux.driver_files import look
from gputop.sources.nvml.calls import nvml
from gputop.sources.nvml.diagnosis import Failure, diagnose
from gputop.sources.nvml.events import Events
from gputop.sources.nvml.gpm import Gpm, Percentages, all_missing
from gputop.sources.nvml.mig import Instances
from gputop.sources.nvml.processes import (
    add_attributed,
    attributed,
    merge,
    process_questions,
    total,
)
from gputop.sources.nvml.question import (
    DRIVER_IS_GONE,
    SLOW,
    Answers,
    Asker,
    absence_of,
    failure_of,
    sort,
    state_of,
    unreadable,
)
from gputop.sources.nvml.readings import IDENTITY, MODES, memory_is_shared, readings
from gputop.sources.nvml.traffic import Pcie

if TYPE_CHECKING:
    from gputop.schema.snapshot import Event

SHARES = 4
"""In so many groups devices are asked what is slow: not all at the same tick."""

_FAILURES = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Failure.NO_LIBRARY,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: Failure.NOT_LOADED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Failure.MISMATCH,
    nvml.NVML_ERROR_NO_PERMISSION: Failure.NO_PERMISSION,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Failure.TOO_OLD,
    nvml.NVML_ERROR_UNINITIALIZED: Failure.GONE,
}


def start() -> Driver:
    """Initialize NVML, which can take seconds; raises `DriverError`."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _error(error) from None
    except nvml.NVMLLibraryMismatchError:  # not an NVMLError
        raise DriverError(diagnose(Failure.TOO_OLD, look())) from None
    try:
        return Driver()
    except DriverError:
        _shut_down()
        raise


def _error(error: Any) -> DriverError:
    words = " ".join(str(error).split())[:45].rstrip(".")
    failure = _FAILURES.get(error.value, Failure.OTHER)
    problem = diagnose(failure, look(), f"{words} (code {error.value})")
    mismatch = error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    return DriverError(problem, mismatch=mismatch)


def _shut_down() -> None:
    with contextlib.suppress(nvml.NVMLError):  # there is nobody left who could act on it
        nvml.nvmlShutdown()


class Driver:
    """The driver, initialized. `cuda_version` is the newest CUDA that it runs, such as `13.0`.

    Raises `DriverError` where it does not say its own version: there is none behind the library.
    """

    def __init__(self) -> None:
        self.driver_version: str | None = _driver_says(nvml.nvmlSystemGetDriverVersion)
        version = _system(nvml.nvmlSystemGetCudaDriverVersion_v2)
        self.cuda_version: str | None = version and f"{version // 1000}.{version % 1000 // 10}"
        self._events = Events()

    def readers(self) -> tuple[Reader, ...]:
        """One for each of NVML's indices, without touching a device.

        Raises `DriverError`, also where there is no device; NVML is shut down then, or it would
        not look again for devices.
        """
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self.close()
            raise _error(error) from None
        if not count:
            self.close()
            raise DriverError(diagnose(Failure.NO_DEVICES, look()))
        return tuple(
            Reader(index, self.driver_version, events=self._events) for index in range(count)
        )

    def events(self) -> tuple[Event, ...]:
        """What the driver reported since the last call; waits for it up to a second."""
        return self._events.wait()

    def close(self) -> None:
        """Shut NVML down; the driver may wait for calls that are under way."""
        self._events.close()
        _shut_down()


def _system(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (nvml.NVMLError, UnicodeDecodeError):
        return None


def _driver_says(call: Callable[[], Any]) -> Any:
    """Return the driver's answer about itself, or None without one. Raises `DriverError`."""
    try:
        return call()
    except UnicodeDecodeError:
        return None
    except nvml.NVMLError as error:
        if absence_of(error.value) is Absence.NOT_SUPPORTED:
            return None
        raise _error(error) from None


def _check_driver() -> None:
    """Raises `DriverError` where a device fails because the driver itself is gone."""
    for call in (nvml.nvmlSystemGetDriverVersion, nvml.nvmlDeviceGetCount):
        _driver_says(call)


def _numbers(version: str | None) -> tuple[int, ...]:
    """`580.95.05` as (580, 95): what is compared."""
    return tuple(int(part) for part in (version or "").split(".")[:2] if part.isdecimal())


def _raise_failure(answers: Iterable[Any]) -> None:
    """Raises `NVMLError` where all of these failed: the device as a whole does not respond."""
    code = failure_of(answers)
    if code is not None:
        raise nvml.NVMLError(code)


class Reader:
    """One GPU and the MIG instances on it, asked from one thread at a time.

    `device` is a placeholder with the uuid `unknown:INDEX` until the device has said who it is, and
    can be another after a loss, since indices move: the caller compares it after every `read`.
    """

    def __init__(
        self,
        index: int,
        driver_version: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        events: Events | None = None,
    ) -> None:
        self.index = index
        self.device = self._nobody(Absence.NO_DATA_YET)
        self._clock = clock
        self._share = 1 - index % SHARES / SHARES
        self._version = _numbers(driver_version)
        self._events = events
        self._gpm: Gpm | None = None
        self._processes = process_questions(self._version, clock)
        self._begin()
        self._handle: Any = None
        self._asker = Asker(clock, self._share)
        self._identity = Answers()
        self._instances = Instances(self._processes[:-1], clock)

    def read(self, *, gpm: bool) -> tuple[Reading, ...]:
        """Ask what is due, however long the driver takes; nothing that it says is raised.

        Raises `DriverError` where the driver is gone: unloaded, or replaced by another.

        Each of `READINGS` gets either a value or a reason in `sample.absent`; `absent["processes"]`
        says why processes are missing, be it all or some.
        """
        try:
            # Without its uuid a device has no key, so it is asked again.
            if self._handle is None or "uuid" in self.device.absent:
                self._attach()
            answers = [self._asker.answer(self._handle, q) for q in self._questions]
            *lists, usage = [self._asker.answer(self._handle, q) for q in self._processes]
            # Of those that are asked every time: others may have been answered before.
            pairs = zip(answers, self._questions, strict=True)
            _raise_failure(answer for answer, question in pairs if not question.seconds)
            self._follow_modes()
            percentages = self._ask_gpm(wanted=gpm)
            parts = self._instances.read(self._handle, self.device, lists, gpm=gpm)
            if self._events:
                self._events.register(self._handle, self.device.uuid)
        except nvml.NVMLError as error:
            _check_driver()
            return self._unreadable(error.value)
        if any(isinstance(each, int) and each in DRIVER_IS_GONE for each in (*answers, *lists)):
            _check_driver()
        found = sort(self._questions, answers)
        processes, missing = merge(*(*parts.others, usage))
        if missing:
            found.absent["processes"] = missing
        held = total(attributed(processes, missing), parts.attributed)
        add_attributed(found, held, held)
        self._say_what_is_disabled(found)
        for name, value in percentages.items():
            found.add(name, value)
        sample = DeviceSample(
            uuid=self.device.uuid,
            state=state_of((*answers, *lists, usage)),
            age_seconds=0.0,
            absent=found.absent,
            **found.values,
        )
        if sample.state is DeviceState.NEEDS_RESET:
            self._lose()  # or what it said of the slow questions would outlast the reset
        return (Reading(self.device, sample, processes), *parts.readings)

    @property
    def heard_at(self) -> float:
        """When the device last answered a question, by the clock."""
        return self._asker.heard_at

    def look_ahead(self, seconds: float) -> None:
        """Ask now what costs the driver much and is due within that time: `read` is quick then."""
        if self._handle is None:
            return
        # What is said of the device as a whole, the next `read` is told as well.
        with contextlib.suppress(nvml.NVMLError):
            for question in (*MODES, *self._questions):
                if question.seconds >= SLOW:
                    self._asker.answer(self._handle, question, seconds)
            self._pcie.look_ahead(self._handle, seconds)

    def _begin(self) -> None:
        """What is counted starts with this."""
        self._pcie = Pcie(self._clock, self._share)
        self._questions = readings(self._version, self._clock, self._pcie, self._share)

    def _say_what_is_disabled(self, found: Answers) -> None:
        if self.device.ecc_enabled is False:
            for name, reason in found.absent.items():
                if name.startswith("ecc_") and reason is Absence.NOT_SUPPORTED:
                    found.absent[name] = Absence.DISABLED

    def _ask_gpm(self, *, wanted: bool) -> Percentages:
        self._gpm = self._gpm or Gpm(self._handle, clock=self._clock)
        if wanted:
            return self._gpm.read()
        self._gpm.close()
        return all_missing(Absence.DISABLED)

    def _attach(self) -> None:
        self._handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
        answers = [self._asker.ask(self._handle, q) for q in IDENTITY]
        _raise_failure(answers)  # who it was is known better
        self._identity = sort(IDENTITY, answers)
        capability = self._identity.values.get("compute_capability")
        shared = memory_is_shared(
            self._identity.values.get("name"), capability, self._identity.get("memory_total_bytes")
        )
        self._identity.add("memory_is_shared", shared)
        self._follow_modes()  # also where it says who it is, and nothing else

    def _lose(self) -> None:
        """The next `read` attaches to the device anew: what it counts may have begun again."""
        self._detach()
        self._asker.forget()
        self._processes = process_questions(self._version, self._clock)
        self._begin()

    def _detach(self) -> None:
        """What belongs to the handle goes with it."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None
        if self._events and self._handle is not None:
            self._events.forget(self._handle)
        self._handle = None

    def _follow_modes(self) -> None:
        modes = sort(MODES, [self._asker.answer(self._handle, question) for question in MODES])
        device = self._somebody(self._identity, modes)
        if device != self.device:
            self.device = device

    def _somebody(self, identity: Answers, modes: Answers) -> Device:
        unknown = {"uuid": f"unknown:{self.index}", "name": "unknown device"}
        return Device(
            index=self.index,
            absent={**identity.absent, **modes.absent},
            **{**unknown, **identity.values, **modes.values},
        )

    def _nobody(self, absence: Absence) -> Device:
        nobody = Answers()
        names = [name for question in (*IDENTITY, *MODES) for name in question.names]
        nobody.absent = dict.fromkeys([*names, "memory_is_shared"], absence)
        return self._somebody(nobody, Answers())

    def _unreadable(self, code: int) -> tuple[Reading, ...]:
        """The device as a whole does not answer."""
        self._lose()
        if "uuid" in self.device.absent:
            self.device = self._nobody(absence_of(code))
        sample = unreadable(self.device.uuid, code)
        return (Reading(self.device, sample), *self._instances.unreadable(code))
