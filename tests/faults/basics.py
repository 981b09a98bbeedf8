"""The plainest of the faults, for any monitor: `peers.py` compares them.

They say nothing of gputop's own texts, which are in the other tables; `never` is what is wrong
wherever it stands.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.driver import DRIVER_NOT_LOADED, GPU_IS_LOST, FakeProcess
from tests.faults.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.stage import Stage

    Deed = Callable[[Stage], None]

ALL_BITS = (1 << 32) - 1
"""What NVML says instead of a number that there is none of."""
NO_ZERO = (r"(?<![\d.])0°C", r"(?<![\d.])0 (W|(of|/) \d+ ?W)")
INJECTED = "\x1b]0;injected\x07\x1b[2J\x1b[31m"
"""A title for the window, a cleared screen, and red."""


def machine(**changes: object) -> Deed:
    """Lets the whole machine be so."""
    return lambda stage: stage.driver.change_machine(**changes)


def second(**changes: object) -> Deed:
    """Lets the second device be so."""
    return lambda stage: stage.driver.change(1, **changes)


def first(**changes: object) -> Deed:
    return lambda stage: stage.driver.change(0, **changes)


def hostile_process(stage: Stage) -> None:
    """A process of the second device, whose command line has escape sequences."""
    cat = shutil.which("cat")
    assert cat is not None
    name = f"train{INJECTED}.py"
    started = subprocess.Popen([name, "-"], executable=cat, stdin=subprocess.PIPE)
    stage.memory["process"] = started
    stage.driver.change(1, processes=(FakeProcess(started.pid),))


def end_of_process(stage: Stage) -> None:
    with stage.memory["process"] as process:
        process.kill()
    stage.driver.change(1, processes=())


SCENARIOS = (
    Scenario(
        name="library missing",
        at_start=True,
        alive=None,
        environment={"LD_LIBRARY_PATH": ""},
        fault=lambda _: None,
        says=(),
        never=NO_ZERO,
    ),
    Scenario(
        name="driver not loaded, then loaded",
        at_start=True,
        alive=None,
        fault=machine(init_code=DRIVER_NOT_LOADED),
        says=(),
        never=NO_ZERO,
        mend=machine(init_code=0),
    ),
    Scenario(
        name="nvmlInit takes 2 s",
        at_start=True,
        fault=machine(init_delay_ms=2_000),
        says=(),
        never=NO_ZERO,
        mend=machine(init_delay_ms=0),
    ),
    Scenario(
        name="nvmlInit never returns, then does",
        at_start=True,
        alive=None,
        fault=machine(init_hang=True),
        says=(),
        mend=machine(init_hang=False),
    ),
    Scenario(
        name="first device lost at start, then back",
        at_start=True,
        alive=1,
        fault=first(code=GPU_IS_LOST),
        says=(),
        never=(*NO_ZERO, r"\b0\W+(NVIDIA )?Test [12]\b"),
        mend=first(code=0),
    ),
    Scenario(
        name="second device lost in mid-run, and back",
        fault=second(code=GPU_IS_LOST),
        says=(),
        never=NO_ZERO,
        mend=second(code=0),
    ),
    Scenario(
        name="second device hangs, then answers",
        fault=second(hang=True),
        says=(),
        mend=second(hang=False),
    ),
    Scenario(
        name="second device takes 500 ms a call",
        fault=second(delay_ms=500),
        says=(),
        mend=second(delay_ms=0),
    ),
    Scenario(
        name="readings not supported",
        at_start=True,
        fault=second(
            gpu_utilization_percent=None,
            memory_used_bytes=None,
            temperature_celsius=None,
            power_milliwatts=None,
            fan_percent=None,
        ),
        says=(),
        never=NO_ZERO,
    ),
    Scenario(
        name="sentinels instead of numbers",
        fault=second(
            gpu_utilization_percent=ALL_BITS,
            temperature_celsius=ALL_BITS,
            power_milliwatts=ALL_BITS,
            sm_clock_mhz=ALL_BITS,
        ),
        says=(),
        never=(r"429496\d*", r"(?<!\d)-1 ?(%|°C|W)", r"\b\d{4,} [%W]"),
        mend=second(
            gpu_utilization_percent=44,
            temperature_celsius=48,
            power_milliwatts=313_000,
            sm_clock_mhz=1320,
        ),
    ),
    Scenario(
        name="escape sequences in a command line",
        fault=hostile_process,
        says=(),
        mend=end_of_process,
    ),
    Scenario(
        name="NVML crashes at a reading (SIGSEGV)",
        fault=machine(crash=("nvmlDeviceGetPowerUsage",)),
        says=(),
        never=NO_ZERO,
        alive=None,
        mend=machine(crash=()),
    ),
    Scenario(
        name="NVML crashes at its start (SIGSEGV)",
        at_start=True,
        alive=None,
        fault=machine(init_crash=True),
        says=(),
        mend=machine(init_crash=False),
    ),
)
