import json
from typing import Any

import pytest

from tests.driver import FakeDevice, FakeDriver, FakeInstance
from tests.e2e.shipped import dashboard, run, see
from tests.e2e.test_exporter import exporting

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
CHOSEN: dict[str, list[tuple[int, int | None]]] = {
    "0000:43:00.0": [(1, None)],
    "2": [(2, None), (2, 0), (2, 1)],
    PART: [(2, None), (2, 1)],
}
"""Ids, and what each means: the index of the GPU and that of the instance."""


def devices_of(inventory: dict[str, Any]) -> list[tuple[int, int | None]]:
    return [(each["index"], each.get("mig_index")) for each in inventory["devices"]]


@pytest.mark.daily(2)
@pytest.mark.parametrize("given", CHOSEN)
def test_the_commands_that_print_take_any_id(driver: FakeDriver, given: str) -> None:
    driver.write(*MACHINE)
    env = driver.environment()
    document = json.loads(run("status", "--json", "-i", given, env=env).stdout)
    assert devices_of(document["inventory"]) == CHOSEN[given]
    assert document["inventory"]["devices_left_out"] == 2
    uuids = [each["uuid"] for each in document["inventory"]["devices"]]
    assert [each["uuid"] for each in document["sample"]["devices"]] == uuids
    listed = run("status", "-L", "--id", given, env=env).stdout.splitlines()
    assert len(listed) == len(CHOSEN[given])
    lines = run("stream", "--count", "1", "-i", given, env=env).stdout.splitlines()
    assert devices_of(json.loads(lines[-2])) == CHOSEN[given]


def test_the_variable_chooses_where_it_should(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    env = {**driver.environment(), "CUDA_VISIBLE_DEVICES": PART}
    document = json.loads(run("status", "--json", "--only-visible", env=env).stdout)
    assert devices_of(document["inventory"]) == CHOSEN[PART]
    assert run("pick", env=env).stdout == f"{PART}\n"


def test_the_dashboard_and_the_exporter(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    with dashboard("-i", PART, env=driver.environment()) as terminal:
        see(terminal, "1 of 3 GPUs", "97 %", without=("No GPU",))
    with exporting("-i", PART, env=driver.environment()) as exporter:
        exporter.until(exporter.up)
        infos = [dict(has) for name, has in exporter.series() if name == "gputop_device_info"]
    assert {each["uuid"] for each in infos} == {THIRD, PART}


def test_a_choice_of_nothing_is_one_line(driver: FakeDriver) -> None:
    driver.write(*MACHINE)
    done = run("status", "-i", "GPU-558", env=driver.environment())
    assert (done.returncode, done.stdout) == (3, "")
    assert f"GPU-558 is ambiguous: it matches GPU 1 ({SECOND}), GPU 2 ({THIRD})." in done.stderr
    assert done.stderr.count("\n") == 1
