"""Faults of the driver, of single devices, of their readings, and of the sampler."""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import replace

from gputop.agent.linux.driver_files import System, inspect_system
from gputop.agent.nvml import diagnosis
from gputop.agent.problem import Problem
from tests.driver import DRIVER_NOT_LOADED, GPU_IS_LOST, FakeDevice, FakeInstance
from tests.e2e.shipped import GIB
from tests.faults.scenario import NO_ZERO, WELL, Deed, Scenario, Stage, three

BACK = ("44 %", "48°C")
FAULTS = ("LOST", "NOT RESPONDING", "NEEDS RESET", "not answering", " old")


def machine(**changes: object) -> Deed:
    return lambda stage: stage.driver.change_machine(**changes)


def change(**changes: object) -> Deed:
    """Change the device 1."""
    return lambda stage: stage.driver.change(1, **changes)


def said(diagnose: Callable[[System], Problem]) -> tuple[str, ...]:
    problem = diagnose(inspect_system())
    return f"  {problem.what}: {problem.why}.", f"  {problem.remedy}."


def library_elsewhere(stage: Stage) -> None:
    folder = stage.folder / "lib"
    folder.mkdir()
    stage.environment["LD_LIBRARY_PATH"] = str(folder)


def install_library(stage: Stage) -> None:
    (stage.folder / "lib" / stage.driver.library.name).symlink_to(stage.driver.library)


def back_in_another_order(stage: Stage) -> None:
    """It is loaded again, and has the devices at other indices, and one of them is another."""
    zero, one, two = stage.driver.devices
    one = replace(one, uuid="GPU-11111111-fa4e-4dcf-8a3b-111111111111")
    two = replace(two, uuid="GPU-22222222-fa4e-4dcf-8a3b-222222222222", name="NVIDIA Other")
    zero = replace(zero, uuid="GPU-00000000-fa4e-4dcf-8a3b-000000000000")
    stage.driver.write(two, zero, one, init_code=0, generation=2)


DRIVER = (
    Scenario(
        name="driver's library missing",
        at_start=True,
        alive=None,
        prepare=library_elsewhere,
        fault=lambda _: None,
        says=said(diagnosis.no_library),
        never=("Test 0", *NO_ZERO),
        mend=install_library,
        then=WELL,
        then_silent=("No NVIDIA",),
    ),
    Scenario(
        name="driver unloaded in mid-run, and loaded anew",
        alive=None,
        fault=machine(generation=1, init_code=DRIVER_NOT_LOADED),
        says=said(diagnosis.not_loaded),
        silent=("Test 0", "44 %", "°C"),
        never=NO_ZERO,
        mend=back_in_another_order,
        then=("0 Other", "1 Test 0", "2 Test 1", "44 %", "59 %"),
        then_silent=("Test 2", "not loaded"),
    ),
    Scenario(
        name="NVML crashes in mid-run",
        alive=None,
        fault=machine(crash=("nvmlDeviceGetPowerUsage",)),
        says=("The NVIDIA library crashed", "reinstall or update the driver"),
        never=NO_ZERO,
        mend=machine(crash=()),
        then=WELL,
        then_silent=("crashed", "No data"),
    ),
)


def instance(number: int, gibibytes: int, profile: str) -> FakeInstance:
    return FakeInstance(
        uuid=f"MIG-{number:08x}-0000-5d7e-9a51-000000000000",
        name=f"NVIDIA Test MIG {profile}",
        gpu_instance=number,
        memory_total_bytes=gibibytes * GIB,
        memory_used_bytes=GIB,
    )


FIRST = instance(1, 40, "3g.40gb")


def with_instances(pid: int) -> tuple[FakeDevice, ...]:
    zero, one, two = three(pid)
    pair = (FIRST, instance(2, 30, "2g.30gb"))
    return zero, replace(one, mig_mode=1, instances=pair), two


DEVICES = (
    Scenario(
        name="device lost in mid-run, and back",
        fault=change(code=GPU_IS_LOST),
        says=("LOST", "1 not answering", "2 Test 2"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(code=0),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="one device hangs",
        fault=change(hang=True),
        says=("NOT RESPONDING", "a driver call hangs", "dmesg", "1 not answering"),
        silent=BACK,
        never=NO_ZERO,
        mend=change(hang=False),
        then=BACK,
        then_silent=FAULTS,
    ),
    Scenario(
        name="one device is slow",
        fault=change(delay_ms=500),
        says=(" s old", "1 slow", "dmesg"),
        never=(*NO_ZERO, "NOT RESPONDING", "LOST"),
        mend=change(delay_ms=0),
        then=BACK,
        then_silent=(*FAULTS, "slow"),
    ),
    Scenario(
        name="MIG instances are cut anew, and MIG is switched off",
        devices=with_instances,
        before=("0 Test 0", "1 Test 1", "3g.40gb", "2g.30gb", "2 Test 2"),
        fault=change(instances=(FIRST, instance(3, 11, "1g.11gb"), instance(4, 13, "1g.13gb"))),
        says=("0 Test 0", "1 Test 1", "3g.40gb", "1g.11gb", "1g.13gb", "11.0 GiB", "13.0 GiB"),
        silent=("2g.30gb", "30.0 GiB"),
        never=(*NO_ZERO, "NOT RESPONDING", "LOST"),
        mend=change(instances=(), mig_mode=0),
        then=("1 Test 1", *BACK),
        then_silent=("MIG", "3g.40gb"),
    ),
)


def stop_sampler(stage: Stage) -> None:
    stage.stopped = stage.terminal.pid_of("gputop stream") or 0
    assert stage.stopped
    os.kill(stage.stopped, signal.SIGSTOP)


def continue_sampler(stage: Stage) -> None:
    """Continue it, unless it was ended for its silence."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(stage.stopped, signal.SIGCONT)


SAMPLER = Scenario(
    name="sampler stopped, and continued",
    fault=stop_sampler,
    says=("No data for ",),
    alive=None,
    mend=continue_sampler,
    then=("44 %",),
    then_silent=("No data for ",),
)
SCENARIOS = (*DRIVER, *DEVICES, SAMPLER)
