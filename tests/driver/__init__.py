"""A fake NVIDIA driver: `libnvidia-ml.so.1` built from `fake_nvml.c`, and the file that steers it.

    driver.write(FakeDevice(), FakeDevice(power_milliwatts=612_000), init_delay_ms=2_000)
    subprocess.run([...], env={**os.environ, **driver.environment()})
    driver.change(1, code=GPU_IS_LOST)   # while programs run

A value of `None` is one that the device does not support.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import hashlib
import itertools
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pynvml
import pytest

UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
NO_DATA = 21
UNKNOWN = 999

_GIB = 1 << 30
_MIB = 1 << 20
LINKS = 18
ALL_LINKS = 0xFFFFFFFF
_ZERO = dict.fromkeys((3, 4, 5, 6, 76, 77, 79, 94, 142, 143, 144, 145, 230, 270, 271), 0)
FIELDS = _ZERO | {
    74: 5_000_000_000,
    75: 2_000_000,
    78: 1_500_000_000,
    82: 58,
    83: 918_273_645,
    91: LINKS,
    185: 612_340,
    186: 598_120,
    193: -8,
    194: -2,
    195: 0,
    196: 0,
    197: 1 << 40,
    198: 1 << 41,
    269: 2_000_000,
}
"""The fields of GetFieldValues that have no links."""
LINK_FIELDS = {
    f"field.{field}.{link}": (LINKS if link == ALL_LINKS else 1) << 30
    for field in (138, 139)
    for link in (*range(LINKS), ALL_LINKS)
}
GPM: dict[int | str, float] = {
    1: 98.5,
    2: 91.5,
    3: 37.25,
    5: 68.75,
    10: 54.5,
    11: 0.0,
    12: 12.25,
    13: 3.5,
}
XID = 0x8
_SOURCE = Path(__file__).with_name("fake_nvml.c")


@dataclass(frozen=True, slots=True)
class FakeProcess:
    """A row of a device's process lists; `kind` is `compute`, `graphics` or `mps`."""

    pid: int
    kind: str = "compute"
    memory_bytes: int | None = _GIB
    sm_percent: int | None = None
    """Share of the SMs for `GetProcessUtilization`, which leaves out who has none."""

    def __str__(self) -> str:
        memory = "-" if self.memory_bytes is None else self.memory_bytes
        usage = "" if self.sm_percent is None else f" {self.sm_percent} 0"
        return f"{self.pid} {self.kind} {memory}{usage}"


@dataclass(frozen=True, slots=True)
class FakeUsage:
    """A row of a device's process utilization, `age_ms` old when it is handed out."""

    pid: int
    sm_percent: int = 0
    memory_percent: int = 0
    encoder_percent: int = 0
    decoder_percent: int = 0
    age_ms: int = 0

    def __str__(self) -> str:
        pid, *percentages, age = dataclasses.astuple(self)
        return " ".join(map(str, (pid, age, *percentages)))


@dataclass(frozen=True, slots=True)
class FakeSample:
    """A sample of GPU utilization, with its time by the driver's clock."""

    time_us: int
    percent: float = 97

    def __str__(self) -> str:
        return f"{self.time_us} {self.percent}"


def _lines(made: FakeDevice | FakeInstance, prefix: str, own: Mapping[str, str]) -> Iterator[str]:
    """The lines of the state file for the fields; `own` has texts for those that are empty."""
    for item in dataclasses.fields(made):
        value = getattr(made, item.name)
        if item.name == "instances":
            continue
        if isinstance(value, Mapping):
            infix = "" if item.name == "values" else f"{item.name}."
            yield from (f"{prefix}.{infix}{key} {n}" for key, n in value.items())
        elif isinstance(value, tuple):
            key = "process" if item.name == "processes" else item.name
            yield from (f"{prefix}.{key}.{n} {row}" for n, row in enumerate(value))
        elif value is not None:
            text = int(value) if isinstance(value, bool) else value
            yield f"{prefix}.{item.name} {own[item.name] if text == '' else text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeInstance:
    """A MIG instance, as it stands a 1g.10gb of an H100: all that its handle answers for."""

    uuid: str = ""
    name: str | None = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    gpu_instance: int | None = 7
    compute_instance: int | None = 0
    sm_count: int | None = 16
    memory_total_bytes: int | None = 9_984 * _MIB
    memory_used_bytes: int | None = 2 * _GIB
    memory_reserved_bytes: int | None = 0
    bar1_total_bytes: int | None = 16_383 * _MIB
    bar1_used_bytes: int | None = 0
    values: Mapping[str, int] = field(default_factory=dict)
    """Other keys of the state file: what a driver says that takes the handle for the GPU's."""
    processes: tuple[FakeProcess, ...] = ()
    fail: Mapping[str, int] = field(default_factory=dict)
    code: int = 0

    def lines(self, index: int, number: int) -> Iterator[str]:
        """The lines of the state file for the instance `number` of the device `index`."""
        own = {"uuid": f"MIG-{index:08x}-{number:04x}-5d7e-9a51-{number:012x}"}
        return _lines(self, f"device.{index}.instance.{number}", own)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeDevice:
    """A device; as it stands, an H100 SXM 80 GB at work. Fields are keys of the state file."""

    name: str | None = "NVIDIA H100 80GB HBM3"
    uuid: str | None = ""
    pci_bus_id: str | None = ""
    pci_device_id: str | None = "2330"
    minor_number: int | None = 0
    compute_capability_major: int | None = 9
    compute_capability_minor: int | None = 0
    gpu_cores: int | None = 16_896
    architecture: int | None = 9
    memory_total_bytes: int | None = 81_559 * _MIB
    memory_used_bytes: int | None = 24 * _GIB
    """Without the reserved part, which version 1 of the call adds to it."""
    memory_reserved_bytes: int | None = 633 * _MIB
    bar1_total_bytes: int | None = 128 * _GIB
    bar1_used_bytes: int | None = 2 * _MIB
    gpu_utilization_percent: int | None = 97
    memory_utilization_percent: int | None = 41
    encoder_utilization_percent: int | None = 0
    decoder_utilization_percent: int | None = 0
    jpeg_utilization_percent: int | None = 0
    ofa_utilization_percent: int | None = 0
    temperature_celsius: int | None = 64
    temperature_margin_celsius: int | None = 23
    fan_percent: int | None = None
    fans: int | None = None
    power_milliwatts: int | None = 612_340
    power_limit_milliwatts: int | None = 700_000
    power_limit_enforced_milliwatts: int | None = 700_000
    power_limit_default_milliwatts: int | None = 700_000
    power_limit_min_milliwatts: int | None = 200_000
    power_limit_max_milliwatts: int | None = 700_000
    energy_millijoules: int | None = 918_273_645
    graphics_clock_mhz: int | None = 1_755
    sm_clock_mhz: int | None = 1_755
    memory_clock_mhz: int | None = 2_619
    video_clock_mhz: int | None = 1_545
    graphics_clock_max_mhz: int | None = 1_980
    sm_clock_max_mhz: int | None = 1_980
    memory_clock_max_mhz: int | None = 2_619
    video_clock_max_mhz: int | None = 1_545
    performance_state: int | None = 0
    clock_event_reasons: int | None = 0x4
    pcie_generation: int | None = 5
    pcie_width: int | None = 16
    pcie_generation_max: int | None = 5
    pcie_width_max: int | None = 16
    persistence_mode: int | None = 1
    compute_mode: int | None = 0
    ecc_mode: int | None = 1
    mig_mode: int | None = 0
    instances: tuple[FakeInstance | None, ...] = ()
    """Those that there are while `mig_mode` is 1; None is a gap."""
    sm_count: int | None = None
    """Only MIG instances have it."""
    virtualization_mode: int | None = 0
    values: Mapping[str, int] = field(
        default_factory=lambda: {
            **{f"temperature_threshold.{n}": c for n, c in enumerate((92, 89, 95, 87))},
            **{f"pcie_throughput_kib.{n}": kib for n, kib in enumerate((41_000, 23_000))},
            **{f"field.{field}": value for field, value in FIELDS.items()},
            **LINK_FIELDS,
        }
    )
    """What has a number in its key: `field.82` and its like are those of GetFieldValues."""
    processes: tuple[FakeProcess, ...] = ()
    usage: tuple[FakeUsage, ...] = ()
    samples: tuple[FakeSample, ...] = (FakeSample(5_000_000), FakeSample(5_166_000))
    samples_type: int | None = None
    gpm_supported: int | None = 1
    gpm: Mapping[int | str, float] = field(default_factory=lambda: dict(GPM))
    """What each metric would be at this moment; `5.2` is metric 5 of GPU instance 2."""
    fail: Mapping[str, int] = field(default_factory=dict)
    """Return code by function (`nvmlDeviceGetFanSpeed`), field (`field.83`) or metric (`gpm.5`)."""
    code: int = 0
    hang: bool = False
    delay_ms: int = 0

    def lines(self, index: int) -> Iterator[str]:
        own = {
            "uuid": f"GPU-{index:08x}-fa4e-4dcf-8a3b-{index:012x}",
            "pci_bus_id": f"00000000:{0x17 + 0x10 * index:02X}:00.0",
        }
        yield from _lines(self, f"device.{index}", own)
        for number, instance in enumerate(self.instances):
            if instance is not None:
                yield from instance.lines(index, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeMachine:
    driver_version: str | None = "580.95.05"
    cuda_version: int | None = 13_000
    init_code: int = 0
    init_delay_ms: int = 0
    init_hang: bool = False
    init_crash: bool = False
    crash: tuple[str, ...] = ()
    generation: int = 0
    """Another one is another loading of the driver: who was initialized before is so no more."""
    stale_code: int = UNINITIALIZED
    fail: Mapping[str, int] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        for item in dataclasses.fields(self):
            value, key = getattr(self, item.name), item.name.replace("init_", "init.")
            if isinstance(value, Mapping):
                yield from (f"{key}.{function} {code}" for function, code in value.items())
            elif isinstance(value, tuple):
                yield from (f"{key}.{function} 1" for function in value)
            elif value is not None:
                yield f"{key} {int(value) if isinstance(value, bool) else value}"


class FakeDriver:
    """The library, and the machine that it shows; without a `write`, one without devices."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.library = library
        self.devices: tuple[FakeDevice, ...] = ()
        self.machine = FakeMachine()
        self._events: list[str] = []
        self._state = directory / "nvml-state"
        self._calls = directory / "nvml-calls"
        self.write()

    def environment(self) -> dict[str, str]:
        """What a program's environment needs so that it finds this driver instead of any other."""
        search = os.pathsep.join(
            filter(None, (str(self.library.parent), os.environ.get("LD_LIBRARY_PATH")))
        )
        return {
            "LD_LIBRARY_PATH": search,
            "FAKE_NVML": str(self._state),
            "FAKE_NVML_CALLS": str(self._calls),
        }

    def write(self, *devices: FakeDevice, **machine: object) -> None:
        """Replace all devices, and change fields of the machine, at once."""
        self.devices = devices
        self.change_machine(**machine)

    def change(self, index: int, **changes: object) -> None:
        devices = list(self.devices)
        devices[index] = replace(devices[index], **changes)  # type: ignore[arg-type]
        self.write(*devices)

    def change_machine(self, **changes: object) -> None:
        self.machine = replace(self.machine, **changes)  # type: ignore[arg-type]
        lines = itertools.chain(
            self.machine.lines(),
            [f"devices {len(self.devices)}"],
            (f"event.{number} {event}" for number, event in enumerate(self._events, 1)),
            *(device.lines(index) for index, device in enumerate(self.devices)),
        )
        new = self._state.with_suffix(".new")
        # A driver's text need not be UTF-8: a test writes other bytes as surrogates.
        new.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
        new.replace(self._state)

    def report_xid(self, index: int, number: int) -> None:
        self._events.append(f"{index} {XID:#x} {number}")
        self.change_machine()

    def calls(self, index: int | None = None) -> Counter[str]:
        if not self._calls.exists():
            return Counter()
        rows = (line.split() for line in self._calls.read_text().splitlines())
        return Counter(name for name, where in rows if index is None or where == f"{index}")

    def forget_calls(self) -> None:
        self._calls.unlink(missing_ok=True)


@contextlib.contextmanager
def loaded(driver: FakeDriver) -> Iterator[FakeDriver]:
    """Make the driver the one that `pynvml` in this process speaks to."""
    environment = driver.environment()
    library = ctypes.CDLL(str(driver.library))
    # It may have been loaded by an earlier test already, with other files.
    library.fakeNvmlUse(*(environment[name].encode() for name in ("FAKE_NVML", "FAKE_NVML_CALLS")))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)  # for programs that the test starts
        patch.setattr(pynvml, "nvmlLib", library)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        patch.setattr(pynvml, "_nvmlLib_refcount", 0)
        yield driver
        driver.write(fail={}, init_hang=False)  # lets go whoever hangs
        with contextlib.suppress(pynvml.NVMLError):  # at "uninitialized"
            while True:
                pynvml.nvmlShutdown()


def build(directory: Path, compiler: str, without: tuple[str, ...] = ()) -> Path:
    """Compile the library, leaving out the functions `without`, as a driver older than they are.

    Returns the library's path; one that is there already is not compiled again. Several processes
    may ask for it at the same time: one compiles it, the others wait.
    """
    source = _SOURCE.read_text()
    key = hashlib.sha256("\0".join((compiler, source, *without)).encode()).hexdigest()[:16]
    folder = directory / key
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library, compiler, without)
    return library


def _compile(library: Path, compiler: str, without: tuple[str, ...]) -> None:
    new = library.with_suffix(".new")
    command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    # No SONAME: a process that has this library loaded would otherwise be given it whenever it
    # asks for the real one by that name.
    command += ["-pthread", str(_SOURCE), "-o", str(new)]
    if without:
        hidden = library.with_name("hidden.map")
        hidden.write_text(f"{{ local: {' '.join(f'{name};' for name in without)} }};\n")
        command.append(f"-Wl,--version-script={hidden}")
    subprocess.run(command, check=True, timeout=120)
    new.replace(library)
