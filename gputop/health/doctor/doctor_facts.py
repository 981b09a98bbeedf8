"""Facts for the checks, and how they are gathered. Calls that can hang run in another process."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.linux.driver_files import System, inspect_system
from gputop.agent.nvml.diagnosis import installed_bindings
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import DriverState, Inventory, Sample
from gputop.agent.visible_devices import VARIABLE
from gputop.bench.run import worker_launch
from gputop.bench.run.worker_launch import (
    InterpreterSearch,
    NoAnswerError,
    answer_in,
    run_program,
)
from gputop.console import terminfo_colours
from gputop.health.doctor.kernel_log import KernelLog, read_kernel_log
from gputop.health.rule_view import NO_INVENTORY, NO_SAMPLE
from gputop.schema.decode import from_plain
from gputop.schema.limits import DecodeError
from gputop.stream.child import StreamError, one_snapshot

if TYPE_CHECKING:
    from gputop.agent.device import Device
    from gputop.bench.run.worker_launch import Interpreter


ASK_SECONDS = 60.0
"""Seconds for torch. Importing it over a network or starting CUDA on many devices takes long."""

# This program creates no context on a device.
PROBE = """
import json, os
channel = os.dup(1)
os.dup2(2, 1)
answer = {}
def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
try:
    import torch
    answer["version"] = str(torch.__version__)
    answer["cuda_version"] = torch.version.cuda
    if torch.version.cuda:
        answer["architectures"] = torch.cuda.get_arch_list()
        try:
            torch.cuda.init()
            answer["device_count"] = torch.cuda.device_count()
        except Exception as error:
            answer["fault"] = first_line(error)
except BaseException as error:
    answer["failure"] = type(error).__name__ + ": " + first_line(error)
os.write(channel, b"\\n" + json.dumps(answer).encode() + b"\\n")
"""


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """An imported torch, or `failure` as the reason why the import failed."""

    version: str | None = None
    cuda_version: str | None = None
    """CUDA version of the build; None for a build without CUDA."""
    architectures: tuple[str, ...] = ()
    device_count: int = 0
    fault: str | None = None
    """Reason why torch cannot use CUDA, in its own words."""
    failure: str | None = None


async def torch_facts(
    interpreter: Interpreter, seconds: float = ASK_SECONDS
) -> TorchFacts:
    """Read the facts from that interpreter's torch, within the time limit."""
    try:
        output, status = await run_program(interpreter.path, PROBE, seconds)
    except (NoAnswerError, ProblemError) as error:
        return TorchFacts(failure=str(error))
    try:
        return from_plain(TorchFacts, answer_in(output, "version", "failure"))
    except (DecodeError, ValueError, RecursionError):
        return TorchFacts(
            failure=f"it ended without an answer (status {status})"
        )


LIBRARIES = ("textual", "rich", "msgspec")
OTHER = "gputop"
"""Distribution of another project with a package and a command of the same name."""
DRIVER_SECONDS = 30.0
"""Seconds for the driver. Eight devices without persistence mode take about half of it."""


@dataclass(frozen=True, slots=True)
class DoctorFacts:
    """Facts at one moment. The defaults describe a machine with nothing installed."""

    inventory: Inventory = NO_INVENTORY
    sample: Sample = NO_SAMPLE
    system: System = field(default_factory=System)
    kernel_log: KernelLog = field(default_factory=KernelLog)
    found: InterpreterSearch = field(
        default_factory=lambda: InterpreterSearch(None, ())
    )
    torch: TorchFacts | None = None
    """Facts about the interpreter's torch; None without an interpreter."""
    environment: Mapping[str, str] = field(default_factory=dict)
    on_terminal: bool = False
    colours: int | None = None
    python_version: str = platform.python_version()
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries for the dashboard and the stream."""
    bindings: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions that install a `pynvml`, by name."""
    other_gputop: str | None = None
    """Version of the other distribution called `gputop`, if it is installed as well."""

    @property
    def driver_answers(self) -> bool:
        """True if the driver has listed its devices."""
        return (
            self.inventory.problem is None
            and self.inventory.driver_state is DriverState.OK
        )

    @property
    def gpus(self) -> tuple[Device, ...]:
        """GPUs without their MIG instances."""
        return tuple(
            each for each in self.inventory.devices if each.parent_uuid is None
        )


async def gather(
    python: str | None = None,
    *,
    root: Path = Path("/"),
    driver_seconds: float = DRIVER_SECONDS,
) -> DoctorFacts:
    """Query driver and torch at the same time. `python` (from `--python`) is the only candidate."""
    asked_torch = asyncio.create_task(
        worker_launch.find_interpreter(python, cuda=True)
    )
    try:
        inventory, sample = await one_snapshot(
            complete=True,
            timeout_seconds=driver_seconds,
            identified=VARIABLE in os.environ,
        )
    except StreamError as error:
        inventory, sample = (
            replace(NO_INVENTORY, problem=error.problem),
            NO_SAMPLE,
        )
    found = await asked_torch
    return DoctorFacts(
        inventory=inventory,
        sample=sample,
        system=inspect_system(root),
        kernel_log=read_kernel_log(root),
        found=found,
        torch=await torch_facts(found.chosen) if found.chosen else None,
        environment=dict(os.environ),
        on_terminal=sys.stdout.isatty(),
        colours=terminfo_colours(),
        libraries={name: metadata.version(name) for name in LIBRARIES},
        bindings=installed_bindings(),
        other_gputop=next(
            (each.version for each in metadata.distributions(name=OTHER)), None
        ),
    )
