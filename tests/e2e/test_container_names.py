"""A process in a container of a user has the container's name, in scripts and on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import run
from tests.faults.pretend import Pretended, pretended

pytestmark = pytest.mark.driver

NAMED, NAMELESS = 4_000_001, 4_000_002
ID = "4f1c0ab2d9e7" + "8635" * 13
OTHER = "b00b1e5c0de5" + "9ace" * 13
GROUP = "0::/user.slice/user-4242.slice/user@4242.service/user.slice/libpod-{}.scope\n"
LIST = ".local/share/containers/storage/overlay-containers/containers.json"


@pytest.fixture
def machine(driver: FakeDriver, tmp_path: Path) -> Pretended:
    """A GPU with two processes in containers, of which one has a name in a file of Podman's."""
    machine = pretended(tmp_path / "pretended", driver.library)
    machine.write("user.4242", b"bob")
    machine.write(LIST, json.dumps([{"id": ID, "names": ["trainer"]}]).encode())
    machine.add(NAMED, b"python\0train.py\0", cgroup=GROUP.format(ID).encode())
    machine.add(NAMELESS, b"python\0other.py\0", cgroup=GROUP.format(OTHER).encode())
    driver.write(FakeDevice(processes=(FakeProcess(NAMED), FakeProcess(NAMELESS))))
    machine.environment |= driver.environment()
    return machine


def test_in_json(machine: Pretended) -> None:
    page = run("status", "--json", env=machine.environment).stdout
    containers = {
        each["pid"]: each["container"] for each in json.loads(page)["sample"]["processes"]
    }
    assert containers == {NAMED: "trainer", NAMELESS: OTHER[:12]}
