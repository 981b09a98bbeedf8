from dataclasses import replace

import pytest

from gputop.agent import opening, reading
from gputop.agent.device import Absence, Device
from gputop.agent.interface import DeviceReading
from gputop.agent.selection import Selection
from gputop.agent.snapshot import DriverState, Sample
from tests.agent.fakes import BOUND, Clock, FakeDriver, Open, Readers, Stream, answer

UUIDS = [f"GPU-{number}5678901-fa4e-4dcf-8a3b-000000000000" for number in range(3)]
ADDRESSES = tuple(f"0000:{number + 1}a:00.0" for number in range(3))


@pytest.fixture
def readers(readers: Readers) -> Readers:
    """Readers of devices that are not known before they are identified, as those of NVML are."""
    for index, reader in enumerate(readers):
        fake = answer(f"GPU-{index}")
        device = replace(fake.device, uuid=UUIDS[index], pci_bus_id=f"0000{ADDRESSES[index]}")
        sample = replace(fake.sample, uuid=UUIDS[index])
        reader.reading = replace(fake, device=device, sample=sample, processes=())
        absent = dict.fromkeys(("uuid", "pci_bus_id"), Absence.NO_DATA_YET)
        reader.device = Device(index, f"unknown:{index}", "unknown device", absent=absent)
    return readers


def indices(stream: Stream, sample: Sample) -> list[int]:
    assert stream.inventory is not None
    assert [each.uuid for each in sample.devices] == [d.uuid for d in stream.inventory.devices]
    return [device.index for device in stream.inventory.devices]


def first(stream: Stream) -> Sample:
    return stream.until(lambda _: stream.state() is DriverState.OK)


def test_a_device_that_answers_late_is_found_then(
    opened: Open, readers: Readers, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then one line says which device does not answer. The driver is not started again."""
    # A thread whose gate is shut is stuck at once, and is not waited for.
    monkeypatch.setattr(opening, "IDENTIFY_SECONDS", 0.2)
    monkeypatch.setattr(opening, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(reading, "STUCK_SECONDS", -1.0)
    readers[1].gate.clear()
    starts: list[FakeDriver] = []

    def start() -> FakeDriver:
        starts.append(FakeDriver(*readers))
        return starts[-1]

    stream = opened(start, selection=Selection((UUIDS[1],)))
    sample = stream.until(lambda _: stream.state() is DriverState.UNAVAILABLE)
    assert sample.devices == ()
    assert str(stream.problem()) == (
        f"No device has the UUID {UUIDS[1]}: this machine has GPU 0, 1, 2, and there is no "
        "answer from GPU 1. A GPU that does not answer can be chosen by its index, such as 1"
    )
    readers[1].gate.set()
    assert indices(stream, first(stream)) == [1]
    assert stream.problem() is None
    assert len(starts) == 1
    assert not starts[0].closed.is_set()


def test_a_uuid_that_no_device_has_is_looked_for_again(
    opened: Open, readers: Readers, clock: Clock
) -> None:
    starts: list[FakeDriver] = []

    def start() -> FakeDriver:
        starts.append(FakeDriver(*readers[: 1 + len(starts)]))
        return starts[-1]

    stream = opened(start, selection=Selection((UUIDS[1],)))
    stream.until(lambda _: stream.state() is DriverState.UNAVAILABLE)
    assert starts[0].closed.wait(BOUND)
    clock.retry.set()
    assert indices(stream, first(stream)) == [1]


def test_an_instance_is_read_with_its_gpu_and_without_the_others(
    opened: Open, readers: Readers
) -> None:
    reader = readers[1]
    whole = reader.reading
    parts = []
    for number in range(3):
        uuid = f"MIG-{number}"
        changes = {"uuid": uuid, "parent_uuid": UUIDS[1], "mig_index": number}
        part = replace(whole.device, **changes)  # type: ignore[arg-type]
        parts.append(DeviceReading(part, replace(whole.sample, uuid=uuid)))
    reader.instances = tuple(parts)
    stream = opened(lambda: FakeDriver(*readers), selection=Selection(("MIG-1",)))
    sample = first(stream)
    assert [device.uuid for device in sample.devices] == [UUIDS[1], "MIG-1"]
    assert stream.inventory is not None
    assert stream.inventory.devices_left_out == 2
    reader.instances = ()
    gone = stream.until(lambda sample: len(sample.devices) < 2)
    assert [device.uuid for device in gone.devices] == [UUIDS[1]]
