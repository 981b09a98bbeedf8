"""`gputop pick` as a command: what goes to CUDA, and what goes to who reads it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.stream.launch import module_command
from tests import fake_ssh
from tests.driver import GPU_IS_LOST, RESET_REQUIRED, UNKNOWN, FakeDevice, FakeProcess
from tests.e2e.shipped import run
from tests.fake_ssh import FakeSsh
from tests.health.machines import has
from tests.streams import inventory, readings, sample

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver

PICK = [*module_command("gputop"), "pick"]
BOUND = 60.0
GIB = 1 << 30
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
UUIDS = [f"GPU-{n:08x}-fa4e-4dcf-8a3b-{n:012x}" for n in range(9)]
"""As the fake driver makes them."""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def device(busy: int = 0, used: int = 0, **changes: Any) -> FakeDevice:
    return FakeDevice(gpu_utilization_percent=busy, memory_used_bytes=used * GIB, **changes)


def picked(
    driver: FakeDriver, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run("pick", *arguments, env={**driver.environment(), **environment})


@pytest.mark.driver
def test_the_idlest_first(driver: FakeDriver) -> None:
    driver.write(device(9, 40), device(0, 1), device(0), device(code=GPU_IS_LOST))
    done = picked(driver, "-n", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{UUIDS[2]},{UUIDS[1]},{UUIDS[0]}\n"


@pytest.mark.driver
def test_nothing_fits_and_the_reason_for_each(driver: FakeDriver) -> None:
    driver.write(
        device(97, 3),
        device(0, 70),
        device(compute_mode=2),
        device(compute_mode=3, processes=(FakeProcess(os.getpid()),)),
    )
    done = picked(driver, "--max-busy", "10", "--min-free", "20GiB")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    start, _, end = line.partition(f"process {os.getpid()} ")
    assert start == (
        "gputop: error: no device fits. GPU 0: 97 % busy, at most 10 % wanted. "
        "GPU 1: 9.03 GiB of 79.0 GiB free, 20.0 GiB wanted. GPU 2: its compute mode is prohibited. "
        "GPU 3: its compute mode is exclusive, and "
    )
    assert end.endswith(" holds it. Ask for less, wait with --wait, or see `gputop doctor`.")


BAD: dict[str, Any] = {
    "LOST: it no longer answers on its bus": {"code": GPU_IS_LOST},
    "NEEDS RESET: the driver has given up on it": {"code": RESET_REQUIRED},
    "NOT RESPONDING: calls to its driver hang or fail": {"code": UNKNOWN},
    "needs a reset": has(recovery=1),
    "needs a reboot of its machine": has(recovery=2),
    "3 uncorrected ECC errors": has(uncorrected=3),
    "no spare memory rows left": has(failed=1),
    "a memory row to remap at the next reset": has(pending=1),
}


@pytest.mark.driver
def test_a_device_with_a_fault_is_never_picked(driver: FakeDriver) -> None:
    """All of them are idle and the last one is full: that one is taken, with a warning."""
    driver.write(*(device(**faults) for faults in BAD.values()), device(99, 78))
    done = picked(driver)
    assert (done.returncode, done.stdout) == (0, f"{UUIDS[-1]}\n")
    done = picked(driver, "-n", "2")
    assert (done.returncode, done.stdout) == (3, "")
    for index, reason in enumerate(BAD):
        assert f"GPU {index}: {reason}" in done.stderr


@pytest.mark.driver
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--min-free", "200GiB"],
            "none of 2 devices have 200 GiB of memory: the largest has 79.6 GiB",
        ),
        (["--min-free", "200GiB", "--wait"], "none of 2 devices have 200 GiB of memory"),
        (["--min-free", "60GiB", "-n", "2"], "1 of 2 devices have 60.0 GiB of memory"),
    ],
)
def test_more_memory_than_there_is(driver: FakeDriver, arguments: list[str], says: str) -> None:
    """Nothing is waited for: it would be for ever."""
    driver.write(device(), device(memory_total_bytes=40 * GIB))
    done = picked(driver, *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"gputop: error: {says}")
    assert done.stderr.endswith(". Ask for less with --min-free.\n")
    assert done.stderr.count("\n") == 1


INDICES = "gputop: these indices need CUDA_DEVICE_ORDER=PCI_BUS_ID: without it CUDA counts the "


@pytest.mark.driver
def test_indices_are_those_of_the_bus(driver: FakeDriver) -> None:
    driver.write(
        device(9, pci_bus_id="00000000:9A:00.0"),
        device(0, pci_bus_id="00000000:1A:00.0"),
        device(5, pci_bus_id="00000000:2A:00.0"),
    )
    done = picked(driver, "-n", "3", "--index")
    assert (done.returncode, done.stdout) == (0, "0,1,2\n")
    assert done.stderr == f"{INDICES}fastest device first\n"
    done = picked(driver, "--index", "--max-busy", "100", **BY_BUS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.driver
def test_as_json(driver: FakeDriver) -> None:
    driver.write(device(30), device(0, 1))
    done = picked(driver, "--json", "--max-busy", "10")
    document = json.loads(done.stdout)
    assert (done.returncode, document["picked"]) == (0, [UUIDS[1]])
    assert [each["reason"] for each in document["devices"]] == [
        None,
        "30 % busy, at most 10 % wanted",
    ]
    assert document["devices"][1]["busy_percent"] == 30.0
    done = picked(driver, "--json", "--min-free", "100%", "-n", "2")
    assert (done.returncode, json.loads(done.stdout)["picked"]) == (3, [])


@pytest.mark.driver
def test_a_device_that_comes_free_is_waited_for(driver: FakeDriver) -> None:
    """What it waits for is said once; a gap of less than a second is not idle."""
    driver.write(device(97))
    with subprocess.Popen(
        [*PICK, "--max-busy", "10", "--wait"],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"gputop: no device fits: waiting\n"
        driver.change(0, gpu_utilization_percent=0)
        out, rest = process.communicate(timeout=BOUND)
        assert (process.returncode, out, rest) == (0, f"{UUIDS[0]}\n".encode(), b"")


@pytest.mark.driver
def test_an_interrupted_wait_prints_nothing(driver: FakeDriver) -> None:
    driver.write(device(97))
    with subprocess.Popen(
        [*PICK, "--max-busy", "10", "--wait", "600"],
        env={**os.environ, **driver.environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"gputop: no device fits: waiting, for up to 600 s\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=BOUND) == (b"", b"")
        assert process.returncode == 130


def test_simulated_devices_are_said_to_be(tmp_path: Path) -> None:
    done = run("pick", "--demo")
    assert done.stdout.startswith("GPU-51a00007-")  # the notebook that does nothing
    assert done.stderr == "gputop: these devices are simulated: CUDA cannot use them\n"


# On other hosts.


@pytest.fixture
def ssh(tmp_path: Path) -> FakeSsh:
    """Hosts `a`, whose two devices are busy, and `b`, whose two are idle."""
    made = FakeSsh(tmp_path)
    for host, busy in (("a", 90), ("b", 3)):
        changes = {"gpu_utilization_percent": busy, "memory_used_bytes": 0}
        devices = tuple(readings(n, memory_free_bytes=80 * GIB, **changes) for n in range(2))
        seen = replace(sample(0), devices=devices)
        words = shlex.join(fake_ssh.stream(inventory(2), seen))
        made.does(host, f"command={shlex.quote(words)}")
    return made


def picked_of(ssh: FakeSsh, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("pick", *arguments, env={"PATH": ssh.path, "CUDA_VISIBLE_DEVICES": "7"})


@pytest.mark.parametrize(("options", "names"), [([], "{0},{1}"), (["--index"], "0,1")])
def test_the_host_with_the_idlest_devices(ssh: FakeSsh, options: list[str], names: str) -> None:
    """CUDA_VISIBLE_DEVICES is about this machine."""
    done = picked_of(ssh, "-n", "2", "--host", "a", "--host", "b", *options)
    uuids = [each.uuid for each in inventory(2).devices]
    assert (done.returncode, done.stdout) == (0, f"b {names.format(*uuids)}\n")


def test_a_host_that_is_away_is_named_and_the_others_are_chosen_from(ssh: FakeSsh) -> None:
    ssh.does("c", fake_ssh.REFUSED)
    done = picked_of(ssh, "--host", "c", "--host", "b")
    assert done.stdout.startswith("b GPU-")
    assert "c is unreachable: connect to host c port 22: Connection refused" in done.stderr
    assert done.stderr.count("\n") == 1
    alone = picked_of(ssh, "--host", "c")
    assert (alone.returncode, alone.stdout) == (3, "")
    assert alone.stderr.startswith("gputop: error: c is unreachable: connect to host c")
