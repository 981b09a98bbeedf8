from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Inventory, Record, Sample
from gputop.schema.derived import label_of
from gputop.stream import machines as module
from gputop.stream.child import Patience
from gputop.stream.launch import StreamOptions
from gputop.stream.machines import Machines, host_snapshots
from gputop.stream.merge import MachineStream
from tests import fake_ssh, streams
from tests.fake_ssh import FakeSsh
from tests.terminal import MARKER, processes_of

BOUND = 60.0
INTERVAL = 0.25
RUN = f"remote-{uuid.uuid4()}"


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    made = FakeSsh(tmp_path)
    monkeypatch.setenv("PATH", made.path)
    monkeypatch.setenv(MARKER, RUN)
    monkeypatch.setenv("ASKED", f"{tmp_path}/asked")
    (tmp_path / "asked").touch()
    monkeypatch.setattr(module, "PATIENCE", Patience(BOUND, 0.02, 0.1))
    return made


@contextlib.asynccontextmanager
async def watching(
    *hosts: str, words: list[str] | None = None, interval: float = INTERVAL
) -> AsyncIterator[Watch]:
    machines = Machines(hosts, interval, words or fake_ssh.stream())
    try:
        async with asyncio.timeout(BOUND), contextlib.aclosing(machines.records()) as records:
            yield Watch(machines, records)
    finally:
        await machines.close()
    assert processes_of(RUN) == {}


class Watch:
    def __init__(self, machines: Machines, records: AsyncIterator[Record]) -> None:
        self.machines = machines
        self._records = records
        self.inventory: Inventory | None = None

    async def sample(self) -> Sample:
        """The next one."""
        async for record in self._records:
            if isinstance(record, Sample):
                return record
            self.inventory = record
        raise AssertionError

    async def until(self, wanted: Callable[[Sample], bool]) -> Sample:
        while not wanted(sample := await self.sample()):
            pass
        return sample


def states(sample: Sample) -> dict[str, str]:
    return {machine.name: machine.state.value for machine in sample.machines}


def all_ok(sample: Sample) -> bool:
    return {*states(sample).values()} == {"ok"}


async def test_two_machines_are_one_stream(ssh: FakeSsh) -> None:
    async with watching("a", "b") as watch:
        first = await watch.sample()
        assert states(first) == {"a": "connecting", "b": "connecting"}
        assert watch.inventory is not None
        assert watch.inventory.driver_state.value == "starting"
        sample = await watch.until(all_ok)
        labels = [label_of(device) for device in watch.inventory.devices]
        assert labels == ["a:0", "a:1", "b:0", "b:1"]
        assert watch.inventory.driver_state is DriverState.OK
        assert watch.inventory.driver_version == "580.65.06"
        assert watch.inventory.cpu_name is None
        assert watch.inventory.interval_seconds == INTERVAL
        uuids = [device.uuid for device in watch.inventory.devices]
        assert [reading.uuid for reading in sample.devices] == uuids
        assert len({*uuids}) == 4  # although both have the same devices
        assert [p.machine for p in sample.processes] == ["a", "a", "b", "b"]
        assert sample.host.cpu_percent is None  # this machine is not among them
        assert sample.machines[1].host == streams.host()


async def test_a_sample_comes_with_the_last_of_them_and_not_by_a_clock(ssh: FakeSsh) -> None:
    async with watching("a", "b", interval=10 * BOUND) as watch:
        await watch.until(all_ok)
        for _ in range(3):
            assert all_ok(await watch.sample())
        assert {child._wanted["next"] for child in watch.machines._children.values()} == {True}
        # Each one is asked for.
        await watch.until(lambda _: (ssh.folder / "asked").read_bytes().count(b"next") > 3)


async def test_this_machine_is_one_of_them_without_ssh(
    ssh: FakeSsh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamOptions, "command", property(lambda _: fake_ssh.stream()))
    ssh.does("localhost", fake_ssh.REFUSED)
    async with watching("localhost", "b") as watch:
        sample = await watch.until(all_ok)
        assert watch.inventory is not None
        assert [label_of(d) for d in watch.inventory.devices if d.is_here] == [
            *("localhost:0", "localhost:1")
        ]
        assert sample.host == streams.host()
        assert watch.inventory.cpu_name == "AMD EPYC 9654"


async def test_an_error_of_gputop_does_not_look_like_a_silent_host(
    ssh: FakeSsh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MachineStream, "add_record", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        async with watching("a") as watch:
            await watch.until(all_ok)


async def test_snapshots_are_taken_at_the_same_time_in_the_order_asked_for(ssh: FakeSsh) -> None:
    ssh.does("c", fake_ssh.NO_KEY)
    ssh.does("d", fake_ssh.HANGING)
    ssh.does("e", fake_ssh.NOISY)
    words = fake_ssh.stream()
    ssh.does("f", fake_ssh.TITLE)
    ssh.does("g", fake_ssh.PROMPT)
    names = ["d", "a", "c", "e", "f", "g"]
    found = await host_snapshots(names, words, timeout_seconds=5.0)
    assert [*found] == names
    hanging, a, secret, noisy, titled, asking = found.values()
    assert a == noisy == titled == (streams.inventory(2), streams.sample(2))
    assert str(asking) == (
        "g is unreachable: it sent no reading within 5 s, after it printed 'Choose a project:'. "
        "Start-up files there (such as ~/.bashrc) should print and prompt only in terminals"
    )
    assert isinstance(secret, Problem)
    assert secret.why == "it needs a password or another key"
    assert str(hanging) == "d is unreachable: it sent nothing within 5 s. `ssh d` may say more"
    assert processes_of(RUN) == {}
