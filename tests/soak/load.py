import random
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import Any

from tests.driver import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    FakeDevice,
    FakeDriver,
    FakeInstance,
    FakeProcess,
)

DEVICES = 8
MOST_PROCESSES = 24
FAULTS: dict[str, dict[str, Any]] = {
    "lost": {"code": GPU_IS_LOST},
    "needs a reset": {"code": RESET_REQUIRED},
    "hangs": {"hang": True},
    "slow": {"delay_ms": 100},
    "reads less": {
        "fail": {
            "nvmlDeviceGetPowerUsage": NOT_SUPPORTED,
            "nvmlDeviceGetUtilizationRates": NO_PERMISSION,
        }
    },
    "MIG": {"mig_mode": 1, "instances": tuple(FakeInstance(gpu_instance=n) for n in range(7, 10))},
    "too hot": {"temperature_celsius": 95, "clock_event_reasons": 0x40},
}
XIDS = (13, 31, 43, 48, 63, 74, 79, 94, 119)


@dataclass
class Load:
    """On a fake driver; everything in it is drawn from `chance`."""

    driver: FakeDriver
    chance: random.Random
    faults: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By device: which, and for how many ticks more."""
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _started: int = 0

    def tick(self) -> None:
        self.faults = {n: (name, left - 1) for n, (name, left) in self.faults.items() if left > 1}
        if self.chance.random() < 0.05:
            name = self.chance.choice(list(FAULTS))
            self.faults[self.chance.randrange(DEVICES)] = name, self.chance.randrange(4, 60)
        if self.chance.random() < 0.1:
            self._start() if self.chance.random() < 0.5 else self._end()
        self.driver.write(*(self._device(n) for n in range(DEVICES)))
        if self.chance.random() < 0.02:
            self.driver.report_xid(self.chance.randrange(DEVICES), self.chance.choice(XIDS))

    def rest(self, temperature_celsius: int) -> None:
        """Ends all faults; every device is as warm as that."""
        self.faults.clear()
        self.driver.write(*(self._device(n, temperature_celsius) for n in range(DEVICES)))

    def close(self) -> None:
        """Ends the processes, and lets go who hangs."""
        self.rest(40)
        while self._children:
            self._end()

    def _device(self, number: int, temperature: int | None = None) -> FakeDevice:
        at = self.chance.randrange
        usual: dict[str, Any] = {
            "name": f"NVIDIA Test {number}",
            "gpu_utilization_percent": at(101),
            "memory_utilization_percent": at(101),
            "memory_used_bytes": at(80 << 30),
            "temperature_celsius": at(35, 80) if temperature is None else temperature,
            "power_milliwatts": at(90_000, 700_000),
            "sm_clock_mhz": at(345, 1980),
            "energy_millijoules": 918_273_645 + self._started,
            "clock_event_reasons": self.chance.choice((0, 0x1, 0x4, 0x20)),
            "processes": tuple(
                FakeProcess(child.pid, memory_bytes=at(1 << 33), sm_percent=at(101))
                for child in self._children
                if child.pid % DEVICES == number
            ),
        }
        name, _ = self.faults.get(number, ("", 0))
        return FakeDevice(**usual | FAULTS.get(name, {}))

    def _start(self) -> None:
        if len(self._children) < MOST_PROCESSES:
            cat = shutil.which("cat")
            assert cat is not None
            self._started += 1
            name = f"train-{self._started}"
            self._children.append(
                subprocess.Popen([name, "-"], executable=cat, stdin=subprocess.PIPE)
            )

    def _end(self) -> None:
        if self._children:
            child = self._children.pop(self.chance.randrange(len(self._children)))
            with child:
                child.kill()
