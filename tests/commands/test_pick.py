import dataclasses
import json
from typing import Any

import pytest

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.problem import Problem
from gputop.agent.snapshot import Machine, MachineState, Process
from gputop.commands.pick import LOOKS
from gputop.stream.child import Snapshot
from tests.commands.conftest import STOPPED, Prepared, Ran
from tests.e2e.shipped import run
from tests.health.test_idle_devices import among, look, taken
from tests.streams import GIB, NO_DRIVER, device, lost, no_driver, process, sample

UUIDS = [device(n).uuid for n in range(9)]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def seen(
    *looks: DeviceSample, devices: tuple[Device, ...] = (), processes: tuple[Process, ...] = ()
) -> list[Snapshot]:
    devices = devices or tuple(device(n) for n in range(len(looks)))
    return [Snapshot(among(*devices), taken(*looks, processes=processes))] * LOOKS


def test_the_idlest_first(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gputop.stream.child.awaits_identity", lambda _: True)
    found = Prepared(*seen(look(0, 9, 40), look(1, 0, 78), look(2), lost(3)))
    assert ran(found, "pick", "-n", "3") == (0, f"{UUIDS[2]},{UUIDS[1]},{UUIDS[0]}\n", "")
    assert found.asked["interval"] * (found.taken - 1) == 1.0, "it looks for a second"


def test_nothing_fits_and_the_reason_for_each(ran: Ran) -> None:
    modes = ("default", "default", "prohibited", "exclusive_process")
    found = seen(
        look(0, 97, 77),
        look(1, 0, 9),
        look(2),
        look(3),
        devices=tuple(device(n, compute_mode=mode) for n, mode in enumerate(modes)),
        processes=(process(7, 3),),
    )
    status, out, err = ran(found, "pick", "--max-busy", "10", "--min-free", "20GiB")
    assert (status, out) == (3, "")
    assert err == (
        "gputop: error: no device fits. GPU 0: 97 % busy, at most 10 % wanted. "
        "GPU 1: 9.00 GiB of 80.0 GiB free, 20.0 GiB wanted. GPU 2: its compute mode is prohibited. "
        "GPU 3: its compute mode is exclusive, and process 7 of ada holds it. "
        "Ask for less, wait with --wait, or see `gputop doctor`.\n"
    )


BAD: dict[str, dict[str, Any]] = {
    "LOST: it no longer answers on its bus": {"state": DeviceState.LOST},
    "NEEDS RESET: the driver has given up on it": {"state": DeviceState.NEEDS_RESET},
    "NOT RESPONDING: calls to its driver hang or fail": {"state": DeviceState.NOT_RESPONDING},
    "needs a reset": {"recovery_action": "gpu_reset"},
    "needs a reboot of its machine": {"recovery_action": "node_reboot"},
    "3 uncorrected ECC errors": {"ecc_uncorrected": 3},
    "no spare memory rows left": {"remap_failed": True},
    "a memory row to remap at the next reset": {"remap_pending": True},
}


def test_a_device_with_a_fault_is_never_picked(ran: Ran) -> None:
    """All of them are idle and the last one is full: that one is taken, with a warning."""
    sick = [look(n, **faults) for n, faults in enumerate(BAD.values())]
    found = seen(*sick, look(8, 99, 2))
    status, out, err = ran(found, "pick")
    assert (status, out) == (0, f"{UUIDS[8]}\n")
    assert "is 99 % busy" in err
    status, out, err = ran(found, "pick", "-n", "2")
    assert (status, out) == (3, "")
    assert "2 devices are wanted, 1 fits. GPU 8: fits. " in err
    for index, reason in enumerate(BAD):
        assert f"GPU {index}: {reason}" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["200GiB"], "none of 2 devices have 200 GiB of memory: the largest has 80.0 GiB"),
        (["200GiB", "--wait"], "none of 2 devices have 200 GiB of memory"),
        (["60GiB", "-n", "2"], "1 of 2 devices have 60.0 GiB of memory"),
    ],
)
def test_more_memory_than_there_is_is_not_waited_for(
    ran: Ran, arguments: list[str], says: str
) -> None:
    small = look(1, memory_used_bytes=0, memory_free_bytes=40 * GIB)
    found = seen(look(0, free=80), small, devices=(device(0), device(1, memory_total_bytes=None)))
    status, out, err = ran(found, "pick", "--min-free", *arguments)
    assert (status, out) == (3, "")
    assert err.startswith(f"gputop: error: {says}")
    assert err.endswith(". Ask for less with --min-free.\n")


def test_indices_are_those_of_the_bus(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    buses = ("9A", "1A", "2A")
    devices = tuple(device(n, pci_bus_id=f"00000000:{bus}:00.0") for n, bus in enumerate(buses))
    found = seen(look(0, 9), look(1), look(2, 5), devices=devices)
    status, out, err = ran(found, "pick", "-n", "3", "--index")
    assert (status, out) == (0, "0,1,2\n")
    assert err.startswith("gputop: these indices need CUDA_DEVICE_ORDER=PCI_BUS_ID: without it ")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert ran(found, "pick", "--index") == (0, "0\n", "")


def test_as_json(ran: Ran) -> None:
    found = seen(look(0, 30), look(1, 0, 78))
    status, out, _ = ran(found, "pick", "--json", "--max-busy", "10")
    document = json.loads(out)
    assert out == json.dumps(document, indent=2) + "\n"
    assert (status, document["picked"]) == (0, [UUIDS[1]])
    busy = "30 % busy, at most 10 % wanted"
    assert [each["reason"] for each in document["devices"]] == [None, busy]
    assert document["devices"][1]["busy_percent"] == 30.0
    status, out, _ = ran(found, "pick", "--json", "--min-free", "100%", "-n", "2")
    assert (status, json.loads(out)["picked"]) == (3, [])


@pytest.mark.parametrize(
    ("words", "then", "status", "out"),
    [
        ([], seen(look(0)), 0, f"{UUIDS[0]}\n"),
        (["600"], [KeyboardInterrupt()], 130, ""),
        ([], [STOPPED, *seen(look(0))], 0, f"{UUIDS[0]}\n"),
    ],
)
def test_a_device_that_comes_free_is_waited_for(
    ran: Ran, words: list[str], then: list[Any], status: int, out: str
) -> None:
    """What it waits for is said once; a gap of less than a second is not idle."""
    gap = [*seen(look(0))[1:], *seen(look(0, 97))]
    found = ran([*seen(look(0, 97)), *gap, *then], "pick", "--max-busy", "10", "--wait", *words)
    until = ", for up to 600 s" if words else ""
    assert found == (status, out, f"gputop: no device fits: waiting{until}\n")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Snapshot(no_driver(), sample(0)), f"{NO_DRIVER}"),
        (Snapshot(among(), sample(0)), "There is no device to pick: the driver has none"),
        (STOPPED, "The sampler stopped: "),
    ],
)
def test_without_devices_it_is_one_line(ran: Ran, found: Any, said: str) -> None:
    status, out, err = ran([found], "pick")
    assert (status, out, err.count("\n")) == (3, "", 1)
    assert err.startswith(f"gputop: error: {said}")


def test_simulated_devices_are_said_to_be() -> None:
    done = run("pick", "--demo")
    assert done.stdout.startswith("GPU-51a00007-")  # the notebook that does nothing
    assert done.stderr == "gputop: these devices are simulated: CUDA cannot use them\n"


@pytest.mark.parametrize(("options", "names"), [([], ",".join(UUIDS[2:4])), (["--index"], "0,1")])
def test_the_host_with_the_idlest_devices(
    ran: Ran, options: list[str], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside one that is away. CUDA_VISIBLE_DEVICES is about this machine."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    away = Machine("c", MachineState.AWAY, problem=Problem("c is unreachable", "why", "Try"))
    machines = (Machine("a", MachineState.OK), Machine("b", MachineState.OK), away)
    found = [
        Snapshot(each.inventory, dataclasses.replace(each.sample, machines=machines))
        for each in seen(
            *(look(n, 90 if n < 2 else 3, 80) for n in range(4)),
            devices=tuple(device(n, machine="ab"[n // 2]) for n in range(4)),
        )
    ]
    status, out, err = ran(found, "pick", "-n", "2", "--host", "a", "--host", "b", *options)
    assert (status, out) == (0, f"b {names}\n")
    assert err.startswith("gputop: c is unreachable: why. Try.\n")
    _, _, err = ran(found, "pick", "-n", "3", "--host", "a", "--host", "b")
    assert "3 devices are wanted, no host has that many. " in err
    alone = Snapshot(among(), dataclasses.replace(sample(0), machines=(away,)))
    status, out, err = ran([alone], "pick", "--host", "c")
    assert (status, out, err) == (3, "", "gputop: error: c is unreachable: why. Try\n")
