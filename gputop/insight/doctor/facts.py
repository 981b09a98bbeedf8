"""What the checks go by, and how it is gathered: nothing that can hang does so in this process."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.bench import interpreters, results
from gputop.bench.interpreters import Found
from gputop.insight.doctor.torch_facts import torch_facts
from gputop.telemetry import bindings, kernel_log, system
from gputop.telemetry.child import StreamError, one_snapshot
from gputop.telemetry.kernel_log import KernelLog
from gputop.telemetry.snapshot import DeviceState, DriverState
from gputop.telemetry.system import System
from gputop.terminal import terminfo_colours

if TYPE_CHECKING:
    from gputop.insight.doctor.torch_facts import TorchFacts
    from gputop.telemetry.snapshot import Device, DeviceSample, Event, Inventory, Problem, Sample

OTHER = "gputop"
"""Another project's distribution, with a package and a command of the same name."""
DRIVER_SECONDS = 30.0
"""Eight devices without persistence mode take about half of it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything at one moment; as it stands, a machine that has nothing."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    unanswered: Problem | None = None
    """Why there is no inventory."""
    system: System = field(default_factory=System)
    kernel_log: KernelLog = field(default_factory=KernelLog)
    found: Found = field(default_factory=lambda: Found(None, ()))
    """The interpreter for stress tests."""
    torch: TorchFacts | None = None
    """What its torch says; None where there is none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    on_terminal: bool = False
    colours: int | None = None
    """By terminfo."""
    python_version: str = platform.python_version()
    bindings: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions that install a `pynvml`, by name."""
    other_gputop: str | None = None
    """Version of the other distribution called `gputop`, where it is installed beside this one."""
    results_file: str = ""
    results_problem: Problem | None = None

    @property
    def problem(self) -> Problem | None:
        """Why the driver cannot be used."""
        return self.unanswered or (self.inventory.problem if self.inventory else None)

    @property
    def driver_answers(self) -> bool:
        """Whether it said what devices there are."""
        return (
            self.inventory is not None
            and self.problem is None
            and self.inventory.driver_state is DriverState.OK
        )

    @property
    def driver_version(self) -> str | None:
        """As NVML has it."""
        return self.inventory.driver_version if self.inventory else None

    @property
    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver takes."""
        return self.inventory.cuda_version if self.inventory else None

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Without the MIG instances on them."""
        devices = self.inventory.devices if self.inventory else ()
        return tuple(device for device in devices if device.parent_uuid is None)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the driver reported meanwhile."""
        return self.sample.events if self.sample else ()

    def readings(self, device: Device) -> DeviceSample | None:
        """Of that device, if there are any."""
        return self.sample.device(device.uuid) if self.sample else None

    def answering(self) -> Iterator[tuple[Device, DeviceSample]]:
        """The GPUs that answer, with their readings."""
        for device in self.gpus:
            readings = self.readings(device)
            if readings is not None and readings.state is DeviceState.OK:
                yield device, readings


async def gather(
    python: str | None = None, *, root: Path = Path("/"), driver_seconds: float = DRIVER_SECONDS
) -> Facts:
    """Asks driver and torch at the same time; `python` (of `--python`) is the only candidate."""
    asked_torch = asyncio.create_task(interpreters.find(python, cuda=True))
    inventory, sample, unanswered = await _snapshot(driver_seconds)
    found = await asked_torch
    try:
        results.check_writable()
        results_problem = None
    except results.ResultsError as error:
        results_problem = error.problem
    return Facts(
        inventory=inventory,
        sample=sample,
        unanswered=unanswered,
        system=system.look(root),
        kernel_log=kernel_log.read(root),
        found=found,
        torch=await torch_facts(found.chosen) if found.chosen else None,
        environment=dict(os.environ),
        on_terminal=sys.stdout.isatty(),
        colours=terminfo_colours(),
        bindings=bindings.installed(),
        other_gputop=_version_of(OTHER),
        results_file=str(results.path()),
        results_problem=results_problem,
    )


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


async def _snapshot(seconds: float) -> tuple[Inventory | None, Sample | None, Problem | None]:
    try:
        return *await one_snapshot(complete=True, timeout_seconds=seconds), None
    except StreamError as error:
        return None, None, error.problem
