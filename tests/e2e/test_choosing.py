"""GPUs by index, UUID, PCI address and MIG UUID, in every command, with the fake driver."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from gputop.bench.plan import target_choice
from tests.driver import FakeDevice, FakeDriver, FakeInstance
from tests.e2e.shipped import dashboard, leave, run, see
from tests.e2e.test_exporter import serving

pytestmark = pytest.mark.driver

SECOND = "GPU-558d9f47-0c1e-4a6b-9b1f-5c1d2e3f4a5b"
THIRD = "GPU-558e0000-1111-4222-8333-444455556666"
PART = "MIG-0b9f5e0d-0a4b-5e07-8a5f-2f4d1c7f9e22"
MACHINE = (
    FakeDevice(pci_bus_id="00000000:23:00.0"),
    FakeDevice(uuid=SECOND, pci_bus_id="00000000:43:00.0"),
    FakeDevice(
        uuid=THIRD,
        pci_bus_id="00000000:C3:00.0",
        mig_mode=1,
        instances=(FakeInstance(), FakeInstance(uuid=PART, gpu_instance=8)),
    ),
)
"""Three GPUs, of which the last one has two MIG instances."""
CHOSEN: dict[str, list[tuple[int, int | None]]] = {
    "0000:43:00.0": [(1, None)],
    "2": [(2, None), (2, 0), (2, 1)],
    PART: [(2, None), (2, 1)],
}
"""Ids, and what each means: the index of the GPU and that of the instance."""


def asked(
    driver: FakeDriver, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run(*arguments, env={**driver.environment(), **environment})


def devices_of(record: dict[str, Any]) -> list[tuple[int, int | None]]:
    return [(each["index"], each.get("mig_index")) for each in record["devices"]]


@pytest.mark.daily(2)
@pytest.mark.parametrize("given", CHOSEN)
def test_the_commands_that_print_take_any_id(driver: FakeDriver, given: str) -> None:
    driver.write(*MACHINE)
    wanted = CHOSEN[given]
    done = asked(driver, "status", "--json", "-i", given)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert devices_of(document["inventory"]) == wanted
    assert document["inventory"]["devices_left_out"] == 2
    uuids = [each["uuid"] for each in document["inventory"]["devices"]]
    assert [each["uuid"] for each in document["sample"]["devices"]] == uuids
    listed = asked(driver, "status", "-L", "--id", given).stdout.splitlines()
    assert len(listed) == len(wanted)
    lines = asked(driver, "stream", "--count", "1", "-i", given).stdout.splitlines()
    assert devices_of(json.loads(lines[-2])) == wanted


def test_the_variable_chooses_where_it_should(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    done = asked(driver, "status", "--json", "--only-visible", CUDA_VISIBLE_DEVICES=PART)
    assert devices_of(json.loads(done.stdout)["inventory"]) == CHOSEN[PART]
    assert asked(driver, "pick", CUDA_VISIBLE_DEVICES=PART).stdout == f"{PART}\n"


def test_the_dashboard_and_the_exporter(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    with dashboard("-i", PART, env=driver.environment()) as terminal:
        see(terminal, "1 of 3 GPUs", "97 %", without=("No GPU",))
        leave(terminal)
    with serving("-i", PART, env=driver.environment()) as exporter:
        exporter.until(exporter.up)
        infos = [dict(has) for name, has in exporter.series() if name == "gputop_device_info"]
    assert {each["uuid"] for each in infos} == {THIRD, PART}


@pytest.mark.parametrize(("given", "uuid"), [("GPU-558d", SECOND), ("2:1", PART)])
def test_the_device_of_a_stress_test(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, given: str, uuid: str
) -> None:
    driver.write(*MACHINE)
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    named = target_choice.parse_devices(given)
    (target,) = target_choice.select_targets(named, "soak", ignore_busy=True)
    assert target.uuid == uuid


def test_a_choice_of_nothing_is_one_line(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    done = asked(driver, "status", "-i", "GPU-558")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"GPU-558 is ambiguous: it matches GPU 1 ({SECOND}), GPU 2 ({THIRD})." in done.stderr
    assert done.stderr.count("\n") == 1


def test_numbers_of_a_mixed_machine_are_refused_as_pick_does(driver: FakeDriver) -> None:
    driver.write(FakeDevice(), FakeDevice(name="NVIDIA T4"))
    for command in (["status", "--only-visible"], ["pick"]):
        done = asked(driver, *command, CUDA_VISIBLE_DEVICES="1")
        assert (done.returncode, done.stdout) == (3, "")
        assert "CUDA_VISIBLE_DEVICES=1 is ambiguous: CUDA counts the fastest" in done.stderr
        assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name devices by their UUIDs" in done.stderr
