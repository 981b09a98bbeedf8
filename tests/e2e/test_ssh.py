import asyncio
import os
import shutil
import subprocess
import sys

import pytest

from gputop.agent.problem import Problem
from gputop.stream.child import Snapshot
from gputop.stream.machines import host_snapshots
from tests.driver import FakeDriver
from tests.e2e.conftest import Lab
from tests.e2e.shipped import device
from tests.waiting import until

BOUND = 60.0
ORIGINAL = '"$SSH_ORIGINAL_COMMAND"'
SHELLS = ("sh", "bash", "dash", "zsh", "csh", "tcsh", "fish")


def asked(lab: Lab) -> Snapshot | Problem:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PATH", f"{lab.programs()}:{os.environ['PATH']}")
        return asyncio.run(asyncio.wait_for(host_snapshots(["far"]), BOUND))["far"]


def snapshot(lab: Lab) -> Snapshot:
    answer = asked(lab)
    assert not isinstance(answer, Problem), answer
    return answer


@pytest.mark.driver
def test_the_whole_schema_comes_back(lab: Lab, driver: FakeDriver) -> None:
    driver.write(device(7, temperature_celsius=41))
    lab.environment |= driver.environment()
    lab.add("far")
    inventory, sample = snapshot(lab)
    assert [each.name for each in inventory.devices] == ["NVIDIA Test 7"]
    assert [each.temperature_celsius for each in sample.devices] == [41]
    assert sample.host.cpu_percent is not None


@pytest.mark.daily(4)
@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_starts_it(lab: Lab, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    lab.add("far", f"ForceCommand exec {program} -c {ORIGINAL}")
    assert snapshot(lab).inventory.hostname


PRINTS = r"echo Welcome; echo; printf '\033]0;ada@far: ~\007'; echo to standard error >&2"


def test_a_start_up_file_may_print(lab: Lab) -> None:
    lab.add("far", f"ForceCommand {PRINTS}; yes Welcome | head -n 500; exec sh -c {ORIGINAL}")
    assert snapshot(lab).inventory.hostname


READ_ONLY = "mount -t tmpfs -o ro none $HOME && mount -t tmpfs -o ro none /tmp"


def test_it_needs_no_place_to_write(lab: Lab) -> None:
    """In a file system of its own, where root may make one."""
    words = ["unshare", "-m", "sh", "-c", f"{READ_ONLY}\nexec true"]
    if shutil.which("unshare") is None or subprocess.run(words, check=False).returncode != 0:
        pytest.skip("unshare needs root")
    lab.environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    lab.add("far", f"ForceCommand exec unshare -m sh -c '{READ_ONLY}; exec sh -c {ORIGINAL}'")
    assert snapshot(lab).inventory.hostname


def test_no_file_is_left_there(lab: Lab) -> None:
    home, temporary = lab.folder / "home", lab.folder / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    lab.environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    lab.add("far", f"ForceCommand cd; exec sh -c {ORIGINAL}")
    assert snapshot(lab).inventory.hostname
    assert [*home.rglob("*"), *temporary.rglob("*")] == []


def test_a_host_behind_a_jump_host(lab: Lab) -> None:
    lab.add("jump")
    lab.add("far", options="ProxyJump jump")
    assert snapshot(lab).inventory.hostname


ASKS = "printf 'Choose a project: '"


@pytest.mark.parametrize(
    ("command", "why", "remedy"),
    [
        (
            f"PATH=/no/such/folder; eval {ORIGINAL}",
            "there is no python3",
            "Install Python 3.9 or later there",
        ),
        (
            f"{ASKS}; read project; exec sh -c {ORIGINAL}",
            "the connection ended, after it printed 'Choose a project:'",
            "~/.bashrc",
        ),
        (
            f"{ASKS}; exec cat >/dev/null",
            "it sent nothing for too long, after it printed 'Choose a project:'",
            "~/.bashrc",
        ),
    ],
    ids=["no Python", "a start-up file that reads", "one that waits"],
)
def test_what_is_wrong_there_is_named(lab: Lab, command: str, why: str, remedy: str) -> None:
    lab.add("far", f"ForceCommand {command}")
    answer = asked(lab)
    assert isinstance(answer, Problem)
    assert answer.why == why
    assert remedy in answer.remedy


@pytest.mark.parametrize(
    ("jump", "why"),
    [
        ("AllowTcpForwarding no", "administratively prohibited"),
        ("AllowUsers nobody-at-all", "Permission denied"),
    ],
)
def test_a_jump_host_that_lets_nothing_pass(lab: Lab, jump: str, why: str) -> None:
    lab.add("jump", jump)
    lab.add("far", options="ProxyJump jump")
    answer = asked(lab)
    assert isinstance(answer, Problem)
    assert answer.why.startswith("its jump host refused the connection: ")
    assert why in answer.why


WATCH = """\
import asyncio, sys
from gputop.stream.machines import Machines
async def watch():
    async for record in Machines(["far"], 0.25).records():
        print(type(record).__name__, flush=True)
asyncio.run(watch())
"""


@pytest.mark.parametrize("records", [1, 8], ids=["connecting", "running"])
def test_a_watcher_that_is_killed_leaves_no_process_there(lab: Lab, records: int) -> None:
    lab.add("far")
    env = {**os.environ, "PATH": f"{lab.programs()}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", WATCH]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        for _ in range(records):
            assert watcher.stdout.readline()
        watcher.kill()
    until(lambda: not lab.left(), otherwise=lab.left)
