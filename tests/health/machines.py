"""Machines for doctor: a fake driver, a fake root and a fake torch, and the facts made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.interface import DriverError
from gputop.agent.linux.driver_files import inspect_system
from gputop.agent.nvml import driver as nvml
from gputop.agent.nvml import failures
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Host, Inventory, Sample, Source
from gputop.bench.run.worker_launch import Interpreter, InterpreterSearch
from gputop.health.doctor.doctor_facts import DoctorFacts, TorchFacts
from gputop.health.doctor.kernel_log import read_kernel_log
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.fake_root import BUILT, DEVICES, LIBRARY, LOADED, fake_root, gpu
from tests.streams import GIB, NOW

UPTIME = 100_000.0
VALUES = FakeDevice().values
PYTHON = Interpreter("/opt/train/bin/python", "active virtual environment", "2.9.0+cu128")
TORCH = TorchFacts(
    version="2.9.0+cu128",
    cuda_version="12.8",
    architectures=("sm_80", "sm_90", "compute_90"),
    device_count=1,
)
HEALTHY = {**BUILT, **LOADED, **DEVICES, **LIBRARY, **gpu(0), "/dev/kmsg": ""}
TERMINAL = {"TERM": "xterm-256color", "LANG": "en_US.UTF-8"}


def h100(**changes: Any) -> FakeDevice:
    return FakeDevice(**{"processes": (FakeProcess(4242, memory_bytes=24 * GIB),), **changes})


def has(**fields: int) -> dict[str, Any]:
    """A device whose fields of GetFieldValues are these."""
    names = {"uncorrected": 4, "lifetime": 6, "pending": 144, "failed": 145, "recovery": 230}
    return {"values": {**VALUES, **{f"field.{names[name]}": n for name, n in fields.items()}}}


def lacks(*numbers: int) -> dict[str, Any]:
    gone = {f"field.{number}" for number in numbers}
    return {"values": {name: value for name, value in VALUES.items() if name not in gone}}


@dataclass(frozen=True)
class Machine:
    """As it stands, one that is well, with one device at work."""

    devices: tuple[FakeDevice, ...] = field(default_factory=lambda: (h100(),))
    driver: Mapping[str, Any] = field(default_factory=dict)
    root: Mapping[str, str] = field(default_factory=lambda: HEALTHY)
    torch: TorchFacts | None = TORCH
    environment: Mapping[str, str] = field(default_factory=lambda: TERMINAL)
    xids: tuple[int, ...] = ()
    """Reported while doctor looks."""
    changes: Mapping[str, Any] = field(default_factory=dict)

    def facts(self, driver: FakeDriver, folder: Path) -> DoctorFacts:
        """What is gathered of it, in this process: the driver through NVML, the rest from files."""
        root = fake_root(folder, self.root)
        driver.write(*self.devices, **self.driver)
        machine = inspect_system(root, {})
        with pytest.MonkeyPatch.context() as patch:
            # Whatever this machine is, the failures of the fake driver are of that one.
            patch.setattr(nvml, "inspect_system", lambda: machine)
            patch.setattr(failures, "inspect_system", lambda: machine)
            inventory, sample = snapshot(driver, self.xids)
        facts = DoctorFacts(
            inventory=inventory,
            sample=sample,
            system=machine,
            kernel_log=read_kernel_log(root, lambda: UPTIME),
            found=InterpreterSearch(None, ())
            if self.torch is None
            else InterpreterSearch(PYTHON, (PYTHON,)),
            torch=self.torch,
            environment=self.environment,
            on_terminal=True,
            colours=256,
            python_version="3.12.4",
        )
        return replace(facts, **self.changes)


def snapshot(driver: FakeDriver, xids: tuple[int, ...]) -> tuple[Inventory, Sample]:
    made = Inventory(NOW, "node07", Source.NVML, DriverState.OK, 1.0)
    try:
        started = nvml.start()
        readers = started.readers()
    except DriverError as error:
        state = DriverState.UNAVAILABLE
        return replace(made, driver_state=state, problem=error.problem), Sample(NOW, Host())
    readings = [reading for reader in readers for reading in reader.read(gpm=False)]
    for number in xids:
        driver.report_xid(0, number)
    events = [event for _ in xids for event in started.events()]
    made = replace(
        made,
        driver_version=started.driver_version,
        cuda_version=started.cuda_version,
        devices=tuple(reading.device for reading in readings),
        unlisted_gpus=started.unlisted_gpus(),
    )
    started.close()
    return made, Sample(NOW, Host(), tuple(each.sample for each in readings), events=tuple(events))


HUNG = Problem("The NVIDIA driver does not answer", "it sent nothing within 30 s", "Look at dmesg")
