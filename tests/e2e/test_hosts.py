import os
import shlex
from pathlib import Path

import pytest

from gputop.agent.snapshot import MachineState, Sample
from gputop.schema.decode import decode
from tests import fake_ssh, streams
from tests.driver import FakeDriver
from tests.e2e.conftest import Lab
from tests.e2e.shipped import NO_DRIVER, SOON, dashboard, device, run, see
from tests.fake_ssh import FakeSsh
from tests.terminal import Terminal


def row_of(terminal: Terminal, host: str) -> str:
    rows = (row.strip("▌ ") for row in terminal.text.splitlines())
    return next((row for row in rows if row.startswith(f"{host} ")), "")


@pytest.mark.daily(1)
@pytest.mark.driver
@pytest.mark.parametrize("end", ["stop", "freeze"])
def test_one_of_two_real_hosts_ends_and_returns(lab: Lab, driver: FakeDriver, end: str) -> None:
    lab.environment |= driver.environment()
    lab.add("one")
    two = lab.add("two")
    driver.write(device(7, temperature_celsius=41))
    env = {**NO_DRIVER, "PATH": f"{lab.programs()}:{os.environ['PATH']}"}
    with dashboard("--host", "one", "--host", "two", env=env) as terminal:
        see(terminal, "2 GPUs", "2 hosts", without=("connecting",))
        terminal.wait_for(lambda t: all("41°C" in row_of(t, name) for name in ("one", "two")))
        agents = [words for words in lab.left().values() if "#gputop" in words]
        assert len(agents) == 2
        getattr(two, end)()
        see(terminal, "Host two: unreachable", "AWAY for")
        # The other one goes on: what changes there is seen.
        driver.write(device(7, temperature_celsius=83))
        terminal.wait_for(lambda t: "83°C" in row_of(t, "one"))
        assert "83°C" not in row_of(terminal, "two")
        two.stop()
        two.start()
        see(terminal, "2 hosts", without=("AWAY", ": unreachable", "connecting"))
        terminal.wait_for(lambda t: "83°C" in row_of(t, "two"))
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone(SOON)


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    return FakeSsh(tmp_path)


STREAM = ("--remote-command", shlex.join(fake_ssh.stream(seconds=0.2)))


def test_leaving_leaves_nothing_of_any_host(ssh: FakeSsh) -> None:
    ssh.does("slow", fake_ssh.HANGING)
    ssh.does("secret", fake_ssh.NO_KEY)
    ssh.does("noisy", fake_ssh.NOISY)
    hosts = [part for name in ("a", "slow", "secret", "noisy") for part in ("--host", name)]
    with dashboard(*hosts, *STREAM, env={**NO_DRIVER, "PATH": ssh.path}) as terminal:
        see(terminal, "noisy", "4 GPUs", "AWAY for")
        assert "Connecting" in row_of(terminal, "slow")
        terminal.send("1")  # the worst one
        see(terminal, "it needs a password or another key.", "`ssh-copy-id secret`")
        terminal.send("q")
        assert terminal.wait() == 0
        terminal.wait_until_gone(SOON)


def test_the_stream_of_several_hosts(ssh: FakeSsh) -> None:
    ssh.does("b", fake_ssh.REFUSED)
    words = ("--host", "b", "--host", "a", *STREAM, "--interval", "0.25", "--count", "2")
    done = run("stream", *words, env={**NO_DRIVER, "PATH": ssh.path})
    assert (done.returncode, done.stderr) == (0, "")
    last = decode(done.stdout.splitlines()[-1].encode())
    assert isinstance(last, Sample)
    assert [(machine.name, machine.state) for machine in last.machines] == [
        ("b", MachineState.AWAY),
        ("a", MachineState.OK),
    ]
    assert [readings.uuid for readings in last.devices] == [
        f"a/{device.uuid}" for device in streams.inventory(2).devices
    ]
