"""The agent over a real `sshd`: what comes back, what fails and is named, and what stays there."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.agent.problem import Problem
from gputop.stream.machines import host_snapshots
from tests.e2e import sshd
from tests.e2e.conftest import Lab, until_gone
from tests.e2e.shipped import device

if TYPE_CHECKING:
    from gputop.stream.child import Snapshot
    from tests.driver import FakeDriver

BOUND = 60.0
ORIGINAL = '"$SSH_ORIGINAL_COMMAND"'
SHELLS = ("sh", "bash", "dash", "zsh", "csh", "tcsh", "fish")


def asked(lab: Lab, name: str) -> Snapshot | Problem:
    """Answers of the host."""
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{lab.programs()}:{path}"
    try:
        return asyncio.run(asyncio.wait_for(host_snapshots([name]), BOUND))[name]
    finally:
        os.environ["PATH"] = path


def snapshot(lab: Lab, name: str = "far") -> Snapshot:
    """The snapshot of a host that answers."""
    answer = asked(lab, name)
    assert isinstance(answer, tuple), answer
    return answer


def problem(lab: Lab, name: str = "far") -> Problem:
    """Why a host does not answer."""
    answer = asked(lab, name)
    assert isinstance(answer, Problem)
    assert answer.what == f"{name} is unreachable"
    assert str(answer).isprintable()
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


# What fails, and is named.


ASKS = "printf 'Choose a project: '"
WRONG: dict[str, tuple[list[str], str, str]] = {
    "no Python": (
        [f"ForceCommand PATH=/no/such/folder; eval {ORIGINAL}"],
        "there is no python3",
        "Install Python 3.9 or later there",
    ),
    "an old Python": (
        [f"ForceCommand PATH={{folder}}:/bin; eval {ORIGINAL}"],
        "its python3 is 3.6, and 3.9 or later is needed",
        "Install a newer python3 there",
    ),
    "a start-up file that reads the agent": (
        [f"ForceCommand {ASKS}; read project; exec sh -c {ORIGINAL}"],
        "the connection ended, after it printed 'Choose a project:'",
        "~/.bashrc",
    ),
    "a start-up file that waits at a prompt": (
        [f"ForceCommand {ASKS}; exec cat >/dev/null"],
        "it sent nothing for too long, after it printed 'Choose a project:'",
        "~/.bashrc",
    ),
}
"""Lines of the host's configuration, what is said, and what to do."""
OLD = f"""#!/bin/sh
exec {sys.executable} "$1" "$2" 'import sys;sys.version_info=(3,6);'"$3"
"""


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_there_is_named(lab: Lab, what: str) -> None:
    python = lab.folder / "python3"
    python.write_text(OLD)
    python.chmod(0o755)
    lines, why, remedy = WRONG[what]
    lab.add("far", *(line.format(folder=lab.folder) for line in lines))
    found = problem(lab)
    assert found.why == why
    assert remedy in found.remedy


def test_another_host_key(lab: Lab) -> None:
    known = lab.folder / "other-known-hosts"
    other = sshd.make_key(lab.folder / "other-key")
    far = lab.add("far", options=f"UserKnownHostsFile {known}")
    known.write_text(f"[127.0.0.1]:{far.port} {Path(f'{other}.pub').read_text()}")
    assert problem(lab).why == "its host key has changed"


def test_a_password_is_wanted(lab: Lab) -> None:
    key = sshd.make_key(lab.folder / "unknown-key")
    lab.add("far", options=f"IdentityFile {key}\nIdentitiesOnly yes\nIdentityAgent none")
    # The first line of ours wins, and both keys would be tried.
    (lab.folder / "user-key").unlink()
    assert problem(lab).why == "it needs a password or another key"


def test_a_server_that_says_nothing(lab: Lab) -> None:
    lab.add("far").freeze()
    assert "timed out" in problem(lab).why


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["AllowTcpForwarding no"], "administratively prohibited"),
        (["AllowUsers nobody-at-all"], "Permission denied"),
    ],
)
def test_a_jump_host_that_lets_nothing_pass(lab: Lab, lines: list[str], why: str) -> None:
    lab.add("jump", *lines)
    lab.add("far", options="ProxyJump jump")
    found = problem(lab)
    assert found.why.startswith("its jump host refused the connection: ")
    assert why in found.why


# How it ends.


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
    until_gone(lab)
