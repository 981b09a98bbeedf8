import time
from unittest.mock import Mock

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.nvml import xid_events as nvml_events
from gputop.agent.nvml.driver import NvmlDriver, NvmlReader, start
from gputop.agent.snapshot import Event
from tests.driver import GPU_IS_LOST, UNKNOWN, FakeDevice, FakeDriver

pytestmark = pytest.mark.driver

CREATE, FREE = "nvmlEventSetCreate", "nvmlEventSetFree"
REGISTER = "nvmlDeviceRegisterEvents"
WAIT = "nvmlEventSetWait_v2"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_events, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(nvml_events, "threading", Mock())


class Machine:
    def __init__(self, nvml: FakeDriver, *devices: FakeDevice) -> None:
        self.nvml = nvml
        nvml.write(*devices)
        self.driver: NvmlDriver = start()
        self.readers: tuple[NvmlReader, ...] = self.driver.readers()
        self.read()

    def read(self) -> list[DeviceState]:
        return [reader.read(gpm=False)[0].sample.state for reader in self.readers]

    def events(self) -> list[tuple[int | None, int | None]]:
        found: list[Event] = []
        while more := self.driver.events():
            found += more
        assert {event.kind for event in found} <= {"xid"}
        index = {reader.device.uuid: reader.index for reader in self.readers}
        return [(index[event.device_uuid], event.code) for event in found if event.device_uuid]


@pytest.fixture
def machine(nvml: FakeDriver) -> Machine:
    return Machine(nvml, FakeDevice(), FakeDevice(), FakeDevice())


def test_an_xid_comes_once_with_its_device_and_time(machine: Machine) -> None:
    before = time.time()
    machine.nvml.report_xid(1, 79)
    (event,) = machine.driver.events()
    assert event == Event(event.time, machine.readers[1].device.uuid, "xid", 79)
    assert before <= event.time <= time.time()
    assert machine.events() == []
    for index, number in ((2, 31), (0, 999), (2, 31)):
        machine.nvml.report_xid(index, number)
    assert machine.events() == [(2, 31), (0, None), (2, 31)]


def test_a_device_that_spoils_the_set_is_left_out_of_the_next(nvml: FakeDriver) -> None:
    """NVML: a set is in an undefined state after this code, and has to be freed."""
    machine = Machine(nvml, FakeDevice(), FakeDevice(fail={REGISTER: UNKNOWN}), FakeDevice())
    assert machine.events() == []
    nvml_events.threading.Event().wait.assert_called_once_with(0.02)  # type: ignore[attr-defined]
    calls = nvml.calls()
    assert (calls[CREATE], calls[FREE], calls[WAIT]) == (2, 1, 0)
    assert machine.read() == [DeviceState.OK] * 3
    for index, number in ((1, 79), (2, 31), (0, 13)):
        nvml.report_xid(index, number)
    assert machine.events() == [(2, 31), (0, 13)]
    assert [nvml.calls(index)[REGISTER] for index in range(3)] == [2, 1, 1]
    # After a loss and a reset it may be all right.
    nvml.change(1, code=GPU_IS_LOST)
    machine.read()
    nvml.change(1, code=0, fail={})
    machine.read()
    nvml.report_xid(1, 48)
    assert machine.events() == [(1, 48)]


def test_the_others_go_on_reporting_after_a_loss(machine: Machine) -> None:
    machine.nvml.change(1, code=GPU_IS_LOST)
    machine.nvml.report_xid(1, 79)
    machine.nvml.report_xid(2, 74)
    assert machine.events() == [(1, 79), (2, 74)]  # and then the set says that one is lost
    ok, lost = DeviceState.OK, DeviceState.LOST
    assert machine.read() == [ok, lost, ok]
    machine.nvml.report_xid(0, 45)
    assert machine.events() == [(0, 45)]
    calls = machine.nvml.calls()
    assert (calls[CREATE], calls[FREE]) == (2, 1)
    machine.nvml.change(1, code=0)
    assert machine.read() == [ok, ok, ok]
    machine.nvml.report_xid(1, 31)
    machine.nvml.report_xid(0, 13)
    assert machine.events() == [(1, 31), (0, 13)]
    assert [machine.nvml.calls(index)[REGISTER] for index in range(3)] == [2, 2, 2]
    machine.driver.close()
    assert machine.nvml.calls()[FREE] == machine.nvml.calls()[CREATE]
