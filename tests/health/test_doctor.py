import json
import re
from pathlib import Path

import pytest

from gputop import __version__
from gputop.health.doctor import examine
from gputop.health.doctor.doctor_facts import gather
from gputop.health.findings import Severity
from gputop.output.doctor_page import page
from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver
from tests.e2e.shipped import run
from tests.health.machines import HEALTHY, Machine, h100, has

THREE = (
    h100(persistence_mode=0),
    h100(persistence_mode=0, power_limit_enforced_milliwatts=500_000),
    FakeDevice(code=GPU_IS_LOST),
)
pytestmark = pytest.mark.driver


@pytest.fixture
def no_torch(tmp_path: Path) -> str:
    """A Python that can do nothing, so that nobody waits for torch."""
    script = tmp_path / "no-torch"
    script.write_text('#!/bin/sh\necho \'{"python": [3, 11, 0], "torch": null}\'\n')
    script.chmod(0o755)
    return str(script)


def test_a_machine_without_a_driver() -> None:
    done = run("doctor")
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"PROBLEM +NVML library +No NVIDIA driver: .* not found", done.stdout)
    assert done.stdout.splitlines()[-1].startswith("1 problem")
    assert "Devices" not in done.stdout
    assert f"gputop {__version__}" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()


def test_what_the_rules_say_of_one_snapshot(driver: FakeDriver, no_torch: str) -> None:
    driver.write(FakeDevice(clock_event_reasons=0x20))
    done = run("doctor", "--python", no_torch, env=driver.environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"warning +heat +throttled by heat\n +> Check fans", done.stdout)
    assert re.search(r"warning +unattributed memory +memory in use that no listed", done.stdout)
    driver.change(0, **has(recovery=1))
    done = run("doctor", "--json", "--python", no_torch, env=driver.environment())
    assert (done.returncode, done.stderr) == (1, "")
    made = json.loads(done.stdout)
    assert made.keys() == {"versions", "checks"}
    keys = ("check", "group", "status", "finding", "remedy", "device")
    assert {tuple(each) for each in made["checks"]} == {keys}
    said = {each["check"]: (each["status"], each["finding"]) for each in made["checks"]}
    assert said["thermal"][0] == said["unattributed"][0] == "warning"
    assert said["recovery"] == ("problem", "needs a reset")


def test_a_device_that_hangs_is_waited_for_and_named(driver: FakeDriver, no_torch: str) -> None:
    driver.write(FakeDevice(), FakeDevice(hang=True))
    done = run("doctor", "--python", no_torch, env=driver.environment())
    assert done.returncode == 1
    assert re.search(r"PROBLEM +state +GPU 1: NOT RESPONDING", done.stdout)


async def test_a_driver_that_hangs_is_not_waited_for(
    driver: FakeDriver, no_torch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver.write(FakeDevice(), init_hang=True)
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    facts = await gather(no_torch, root=tmp_path, driver_seconds=3.0)
    (found,) = [each for each in examine(facts) if each.severity is Severity.FAULT]
    assert found.rule == "nvml"
    assert "it sent nothing within 3 s" in found.title


PAGE = """\
Driver
  ok       NVML library         /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
  ok       kernel module        550.54.14, loaded
  ok       versions             library and kernel module agree: 580.95.05
  ok       permission           2 device files, all can be opened
  ok       nouveau              not loaded
  ok       container            none
  ok       WSL                  no
  ok       NVML                 answers; CUDA up to 13.0
  ok       devices              3 GPUs

Devices
  ok       state                GPUs 0 and 1: answers
  PROBLEM  state                GPU 2: LOST: it no longer answers on its bus
                                > Usually only a reboot helps; `dmesg` has the
                                  Xid
  ok       Xid errors           all: none in the kernel's log of the last day
  ok       memory errors        GPUs 0 and 1: no problem
  ok       bad memory rows      GPUs 0 and 1: no problem
  ok       recovery             GPUs 0 and 1: no problem
  ok       out of memory        GPUs 0 and 1: no problem
  ok       heat                 GPUs 0 and 1: no problem
  ok       hardware slowdown    GPUs 0 and 1: no problem
  ok       PCIe link            GPUs 0 and 1: no problem
  ok       unattributed memory  GPUs 0 and 1: no problem
  ok       power limit          GPU 0: no problem
  warning  power limit          GPU 1: 500 W, below its default of 700 W
                                > If this limit is not intended, restore it:
                                  `sudo nvidia-smi -i 1 -pl 700` (check power
                                  and cooling)
  note     persistence          GPUs 0 and 1: off: the first program each time
                                waits for the device to start
                                > `sudo nvidia-smi -i 0,1 -pm 1`, or run
                                  nvidia-persistenced for all GPUs
  ok       compute mode         GPUs 0 and 1: no problem

CUDA and torch
  ok       visible GPUs         not set: CUDA programs see every GPU

gputop
"""


def test_the_page_at_80_columns(nvml: FakeDriver, tmp_path: Path) -> None:
    facts = Machine(THREE, root=HEALTHY, torch=None).facts(nvml, tmp_path)
    findings = [each for each in examine(facts) if each.rule != "torch"]
    text = page(findings, facts, 80)
    assert text.startswith(PAGE)
    assert text.splitlines()[-1] == "1 problem, 1 warning, 1 note."
    coloured = page(findings, facts, 80, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text
    # No text is less than 30 wide.
    assert max(map(len, page(findings, facts, 40).splitlines())) <= 56
