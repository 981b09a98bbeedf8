"""The machine that monitors are compared on: devices of the fake driver, held by real processes."""

import contextlib
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Self

from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import GIB, children

FRAMES = 60
"""Seconds of work before it begins again."""
FIRST_CELSIUS = 71
"""The temperature of the first device until it gets busy; no other device has it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a monitor is run on, and in."""

    devices: int
    columns: int
    rows: int
    processes: int = 3
    """For each device."""

    def __str__(self) -> str:
        size = f"{self.columns}x{self.rows}"
        return f"{self.devices} busy devices x {self.processes} processes, {size}"


class Machine:
    """A scene's devices and processes, on a driver; idle until `work`."""

    def __init__(self, scene: Scene, driver: FakeDriver, folder: Path) -> None:
        self.scene = scene
        self.driver = driver
        self.folder = folder
        self._held: list[list[FakeProcess]] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        count = self.scene.devices * self.scene.processes
        started = self._stack.enter_context(children(*(f"job-{n}" for n in range(count))))
        pids = [process.pid for process in started.values()]
        size = self.scene.processes
        self._held = [
            [FakeProcess(pid, memory_bytes=n * GIB) for n, pid in enumerate(group, 1)]
            for group in (pids[index * size :][:size] for index in range(self.scene.devices))
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rest(self, *, init_hang: bool = False) -> None:
        """All devices as they are before any work, in a driver that may not have answered yet."""
        self.driver.write(*self.state(0), init_hang=init_hang)

    def state(self, second: int) -> list[FakeDevice]:
        """The devices in that second, each with numbers of its own that all move a little."""
        return [self._device(index, second) for index in range(self.scene.devices)]

    def _device(self, index: int, second: int) -> FakeDevice:
        usual = FakeDevice()
        step = (second * 7 + index * 3) % 10 if second else 0
        moved = second * GIB * (1 + index % 5) + step * GIB // 16
        counters = ("field.197", "field.198", "field.138.4294967295", "field.139.4294967295")
        return dataclasses.replace(
            usual,
            name=f"NVIDIA Test {index}",
            pci_bus_id=f"{index // 8:08X}:{0x17 + 0x10 * (index % 8):02X}:00.0",
            gpu_utilization_percent=88 + step,
            memory_utilization_percent=40 + step // 2,
            memory_used_bytes=(20 + index % 40) * GIB + step * GIB // 8,
            temperature_celsius=60 + step // 4 if second or index else FIRST_CELSIUS,
            power_milliwatts=600_000 + 7_000 * step,
            energy_millijoules=918_273_645 + second * 600_000,
            sm_clock_mhz=1_700 + 15 * step,
            graphics_clock_mhz=1_700 + 15 * step,
            values={**usual.values, **{key: usual.values[key] + moved for key in counters}}
            | {f"pcie_throughput_kib.{n}": 20_000 * (n + 1) + 100 * step for n in range(2)},
            processes=tuple(
                dataclasses.replace(process, sm_percent=20 + (step + n) % 10)
                for n, process in enumerate(self._held[index])
            ),
        )

    @functools.cached_property
    def _frames(self) -> list[bytes]:
        with tempfile.TemporaryDirectory() as folder:
            scratch = FakeDriver(Path(folder), self.driver.library)
            path, found = Path(scratch.environment()["FAKE_NVML"]), []
            for second in range(1, FRAMES + 1):
                scratch.write(*self.state(second))
                found.append(path.read_bytes())
        return found

    def frame(self, second: int) -> bytes:
        """Return the driver's state in that second of work."""
        return self._frames[second % FRAMES]

    @contextlib.contextmanager
    def work(
        self, frame: Callable[[int], bytes] | None = None, seconds: float = 1.0
    ) -> Iterator[None]:
        """Give the driver another state every second, or other time. `frame` returns each."""
        path, ended = Path(self.driver.environment()["FAKE_NVML"]), Event()
        self.frame(0)  # makes all

        def run() -> None:
            new = path.with_suffix(".next")
            for turn in itertools.count():
                new.write_bytes((frame or self.frame)(turn))
                new.replace(path)
                if ended.wait(seconds):
                    return

        thread = Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
