"""NVML, as devices and readings: the only module that imports `pynvml`.

A call on a sick GPU can block for ever, attaching to it included. So nothing here touches a device
before `Reader.read`, and each reader wants a thread of its own.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml as nvml

from gputop.telemetry.reading import DriverError, GpuProcess, Reading
from gputop.telemetry.snapshot import (
    READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
    Problem,
    ProcessKind,
)

# Seconds between questions that cost the driver more than others. A little under the round number:
# where the interval is one second, a tick that comes a moment early must not wait for the next.
_PROCESSES = 0.95
_SLOW = 4.95

_PROBLEMS = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: Problem(
        "No NVIDIA driver",
        "libnvidia-ml.so.1 is not found",
        "Install the driver, or start the container with --gpus all",
    ),
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: Problem(
        "NVIDIA driver not loaded",
        "its kernel module does not run",
        "Try sudo modprobe nvidia, then read dmesg",
    ),
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Problem(
        "NVIDIA driver half upgraded",
        "the kernel still runs another version of it",
        "Reboot, or reload the nvidia modules",
    ),
    nvml.NVML_ERROR_NO_PERMISSION: Problem(
        "No permission for the GPUs",
        "/dev/nvidia* refuses this user or container",
        "Ask for access to these devices",
    ),
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Problem(
        "NVIDIA driver too old",
        "it lacks a function that nvidia-ml-py calls",
        "Upgrade the driver",
    ),
}
_ABSENCES = {
    nvml.NVML_ERROR_NO_PERMISSION: Absence.NO_PERMISSION,
    nvml.NVML_ERROR_TIMEOUT: Absence.TIMED_OUT,
    nvml.NVML_ERROR_NOT_FOUND: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_NO_DATA: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_NOT_READY: Absence.NO_DATA_YET,
    nvml.NVML_ERROR_GPU_IS_LOST: Absence.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: Absence.LOST,
    nvml.NVML_ERROR_NOT_SUPPORTED: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Absence.NOT_SUPPORTED,
    nvml.NVML_ERROR_DEPRECATED: Absence.NOT_SUPPORTED,
}
_STATES = {
    nvml.NVML_ERROR_GPU_IS_LOST: DeviceState.LOST,
    nvml.NVML_ERROR_RESET_REQUIRED: DeviceState.NEEDS_RESET,
}


def start() -> Driver:
    """Initialize NVML, which can take seconds; raises `DriverError`."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise DriverError(_problem(error)) from None
    except nvml.NVMLLibraryMismatchError:  # not an NVMLError
        raise DriverError(_PROBLEMS[nvml.NVML_ERROR_FUNCTION_NOT_FOUND]) from None
    return Driver()


def _problem(error: Any) -> Problem:
    words = " ".join(str(error).split())[:45].rstrip(".")
    return _PROBLEMS.get(error.value) or Problem(
        "NVML does not work", f"{words} (code {error.value})", "Run nvidia-smi, then read dmesg"
    )


class Driver:
    """The driver, initialized. `cuda_version` is the newest CUDA that it runs, such as `13.0`."""

    def __init__(self) -> None:
        self.driver_version: str | None = _system(nvml.nvmlSystemGetDriverVersion)
        version = _system(nvml.nvmlSystemGetCudaDriverVersion_v2)
        self.cuda_version: str | None = version and f"{version // 1000}.{version % 1000 // 10}"

    def readers(self) -> tuple[Reader, ...]:
        """One for each of NVML's indices, without touching a device; raises `DriverError`."""
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise DriverError(_problem(error)) from None
        return tuple(Reader(index, self.driver_version) for index in range(count))

    def close(self) -> None:
        """Shut NVML down; the driver may wait for calls that are under way."""
        with contextlib.suppress(nvml.NVMLError):  # there is nobody left who could act on it
            nvml.nvmlShutdown()


def _system(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (nvml.NVMLError, UnicodeDecodeError):
        return None


class Reader:
    """One device, asked from one thread at a time.

    `device` is a placeholder with the uuid `unknown:INDEX` until the device has said who it is, and
    can be another after a loss, since indices move: the caller compares it after every `read`.
    """

    def __init__(
        self,
        index: int,
        driver_version: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.index = index
        self.device = self._nobody(Absence.NO_DATA_YET)
        self._clock = clock
        self._lists = _process_lists(driver_version)
        self._handle: Any = None
        self._missing: set[_Source] = set()
        """What the driver does not have: never called again."""
        self._answers: dict[_Question, tuple[float, Any]] = {}

    def read(self) -> Reading:
        """Ask what is due, however long the driver takes; nothing that it says is raised.

        Each of `READINGS` gets either a value or a reason in `sample.absent`; `absent["processes"]`
        says why processes are missing, be it all or some.
        """
        try:
            # Without its uuid a device has no key, so it is asked again.
            if self._handle is None or "uuid" in self.device.absent:
                self._attach()
            answers = [self._answer(question) for question in _QUESTIONS]
            lists = [self._answer(question) for question in self._lists]
        except nvml.NVMLError as error:
            return self._unreadable(error.value)
        values, absent = _sort(_QUESTIONS, answers)
        processes, missing = _merge(*lists)
        if missing:
            absent["processes"] = missing
        # One that needs a reset may still answer some questions.
        reset = nvml.NVML_ERROR_RESET_REQUIRED in (*answers, *lists)
        sample = DeviceSample(
            uuid=self.device.uuid,
            state=DeviceState.NEEDS_RESET if reset else DeviceState.OK,
            age_seconds=0.0,
            absent=absent,
            **values,
        )
        return Reading(sample, processes)

    def _attach(self) -> None:
        self._handle = nvml.nvmlDeviceGetHandleByIndex(self.index)
        values, absent = _sort(_IDENTITY, [self._ask(question) for question in _IDENTITY])
        self.device = self._somebody(values, absent)

    def _somebody(self, values: Mapping[str, Any], absent: Mapping[str, Absence]) -> Device:
        unknown = {"uuid": f"unknown:{self.index}", "name": "unknown device"}
        return Device(index=self.index, absent=absent, **{**unknown, **values})

    def _nobody(self, absence: Absence) -> Device:
        return self._somebody({}, {name: absence for q in _IDENTITY for name in q.names})

    def _unreadable(self, code: int) -> Reading:
        """The device as a whole does not answer: the next `read` attaches to it anew."""
        self._handle = None
        self._answers.clear()
        absence = _absence(code)
        if "uuid" in self.device.absent:
            self.device = self._nobody(absence)
        sample = DeviceSample(
            uuid=self.device.uuid,
            state=_STATES.get(code, DeviceState.OK),
            age_seconds=0.0,
            absent=dict.fromkeys((*READINGS, "processes"), absence),
        )
        return Reading(sample, ())

    def _answer(self, question: _Question) -> Any:
        now = self._clock()
        asked, answer = self._answers.get(question, (-math.inf, None))
        if now - asked >= question.seconds:
            answer = self._ask(question)
            self._answers[question] = now, answer
        return answer

    def _ask(self, question: _Question) -> Any:
        """What the first source says that driver and device support, or else the return code.

        Raises `NVMLError` where the device is lost.
        """
        code = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for source in question.sources:
            if source in self._missing:
                continue
            try:
                return source(self._handle)
            except nvml.NVMLError as error:
                code = error.value
                if code == nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
            if code == nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                self._missing.add(source)
            if _absence(code) is not Absence.NOT_SUPPORTED:
                break
        return code


_Source = Callable[[Any], Any]
"""Asks a handle: what `_Question` says, or raises `NVMLError`."""


class _Question:
    """The values of `names`, in order, each perhaps an `Absence`; from the first source that can.

    `seconds` go by between two calls, according to what it costs the driver.
    """

    def __init__(self, names: str, *sources: _Source, seconds: float = 0.0) -> None:
        self.names = names.split()
        self.sources = sources
        self.seconds = seconds


def _absence(code: int) -> Absence:
    return _ABSENCES.get(code, Absence.ERROR)


def _sort(
    questions: Iterable[_Question], answers: Iterable[Any]
) -> tuple[dict[str, Any], dict[str, Absence]]:
    """The values by name, and the reasons for those that are missing."""
    values: dict[str, Any] = {}
    absent: dict[str, Absence] = {}
    for question, answer in zip(questions, answers, strict=True):
        row = [_absence(answer)] * len(question.names) if isinstance(answer, int) else answer
        for name, raw in zip(question.names, row, strict=True):
            value = _value(name, raw)
            if isinstance(value, Absence):
                absent[name] = value
            else:
                values[name] = value
    return values, absent


def _value(name: str, raw: Any) -> Any:
    """NVML's number in the unit that the name ends in, or why it is none."""
    if isinstance(raw, str):  # an absence too
        return raw
    # "Not available" is all bits set in 32 or 64 of them, which is -1 where they are signed.
    unavailable = raw in (None, -1, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
    if unavailable or (name == "performance_state" and raw > 15):  # of which 32 is "unknown"
        return Absence.NOT_SUPPORTED
    if abs(raw) >= 1 << 63 or (name.endswith("_utilization_percent") and not 0 <= raw <= 100):
        return Absence.ERROR
    return raw / 1000 if name.endswith("_watts") else raw


def _one(call: Callable[..., Any], *arguments: int) -> _Source:
    return lambda handle: (call(handle, *arguments),)


def _text(call: Callable[[Any], str | bytes]) -> _Source:
    def source(handle: Any) -> tuple[str | Absence]:
        try:
            text = call(handle)
        except UnicodeDecodeError as error:  # nvidia-ml-py decodes strictly; 11.495 did not at all
            text = error.object
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return (text or Absence.NO_DATA_YET,)

    return source


def _utilization(handle: Any) -> tuple[Any, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu, rates.memory


def _memory_v2(handle: Any) -> tuple[Any, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    return memory.total, memory.used, memory.free, memory.reserved


def _memory_v1(handle: Any) -> tuple[Any, ...]:
    # `used` includes what version 2 reports as reserved, and nothing says how much that is.
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.total, memory.used, memory.free, Absence.NOT_SUPPORTED


def _pci(handle: Any) -> tuple[str, str]:
    # From the numbers: the domain of the text has four or eight digits, depending on the driver.
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    bus_id = f"{pci.domain:08X}:{pci.bus:02X}:{pci.device:02X}.0"
    return bus_id, f"{pci.pciDeviceId >> 16:04x}"  # the lower half is the vendor


def _process_lists(driver_version: str | None) -> list[_Question]:
    """The questions for the compute and the graphics list; their answers are rows."""
    numbers = [int(part) for part in (driver_version or "").split(".")[:2] if part.isdecimal()]
    # These drivers fill in a wider struct for version 3 than nvidia-ml-py and all others know.
    versions = ("v2", "v3") if [535, 43] <= numbers <= [535, 86] else ("v3", "v2")
    lists = []
    for kind in ("Compute", "Graphics"):
        calls = (getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses_{v}") for v in versions)
        lists.append(_Question("", *calls, seconds=_PROCESSES))
    return lists


def _merge(compute: Any, graphics: Any) -> tuple[tuple[GpuProcess, ...], Absence | None]:
    """Both lists as one, by pid, and why it may lack some."""
    kinds: dict[int, ProcessKind] = {}
    memory: dict[int, int] = {}
    missing = None
    for kind, rows in ((ProcessKind.GRAPHICS, graphics), (ProcessKind.COMPUTE, compute)):
        if isinstance(rows, int):
            # Some drivers fail to say "none", and where there is no graphics nothing is missing.
            none = rows in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND)
            if not none and (
                kind is ProcessKind.COMPUTE or _absence(rows) is not Absence.NOT_SUPPORTED
            ):
                missing = _absence(rows)
            continue
        for row in rows:
            kinds[row.pid] = kind if kinds.get(row.pid, kind) is kind else ProcessKind.BOTH
            used = _value("memory_used_bytes", row.usedGpuMemory)
            if not isinstance(used, Absence):
                # Either list has all that the process holds: a sum would count it twice.
                memory[row.pid] = max(used, memory.get(row.pid, 0))
    processes = (
        GpuProcess(pid, kind, memory.get(pid), None if pid in memory else Absence.NOT_SUPPORTED)
        for pid, kind in sorted(kinds.items())
    )
    return tuple(processes), missing


_IDENTITY = (
    _Question("uuid", _text(nvml.nvmlDeviceGetUUID)),
    _Question("name", _text(nvml.nvmlDeviceGetName)),
    _Question("pci_bus_id pci_device_id", _pci),
    _Question("memory_total_bytes", lambda h: _memory_v2(h)[:1], lambda h: _memory_v1(h)[:1]),
    _Question(
        "compute_capability",
        lambda h: ("{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h)),),
    ),
    _Question("sm_clock_max_mhz", _one(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM)),
    _Question("memory_clock_max_mhz", _one(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM)),
    _Question("power_limit_default_watts", _one(nvml.nvmlDeviceGetPowerManagementDefaultLimit)),
    _Question(
        "temperature_slowdown_celsius",
        _one(nvml.nvmlDeviceGetTemperatureThreshold, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    ),
)
_QUESTIONS = (
    _Question("gpu_utilization_percent memory_utilization_percent", _utilization),
    _Question(
        "memory_total_bytes memory_used_bytes memory_free_bytes memory_reserved_bytes",
        _memory_v2,
        _memory_v1,
    ),
    _Question(
        "temperature_celsius",
        _one(nvml.nvmlDeviceGetTemperatureV, nvml.NVML_TEMPERATURE_GPU),
        _one(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
    ),
    _Question("power_watts", _one(nvml.nvmlDeviceGetPowerUsage)),
    _Question("sm_clock_mhz", _one(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)),
    _Question("memory_clock_mhz", _one(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)),
    _Question("performance_state", _one(nvml.nvmlDeviceGetPerformanceState)),
    _Question("fan_percent", _one(nvml.nvmlDeviceGetFanSpeed), seconds=_SLOW),
    _Question(
        "power_limit_watts",
        _one(nvml.nvmlDeviceGetEnforcedPowerLimit),
        _one(nvml.nvmlDeviceGetPowerManagementLimit),
        seconds=_SLOW,
    ),
)
