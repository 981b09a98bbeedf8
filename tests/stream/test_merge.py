import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import READINGS, Absence
from gputop.agent.lines import to_line
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, MachineState
from gputop.schema.decode import decode
from gputop.schema.derived import label_of
from gputop.stream.child import Interruption
from gputop.stream.merge import MachineStream, inventory_of, sample_of
from tests import streams
from tests.streams import NOW

DEATH = Interruption(
    Problem("The sampler stopped", "ssh: nobody home", ""), retry_seconds=4.0, status=255
)
NOISE = Interruption(Problem("A line of the stream cannot be read", "not JSON", ""), left_out=True)
STARTING: dict[str, Any] = {"driver_state": DriverState.STARTING}


def machine(name: str = "b") -> MachineStream:
    return MachineStream(name, 0.0)


def answering(**inventory: Any) -> MachineStream:
    made = machine()
    made.add_record(streams.inventory(2, **inventory), 1.0, NOW)
    made.add_record(streams.sample(2), 1.0, NOW)
    return made


def test_devices_and_processes_carry_the_name_of_their_machine() -> None:
    made = answering(unlisted_gpus=("0000:27:00.0",))
    assert made.machine(1.0).unlisted_gpus == ("0000:27:00.0",)
    uuids = [f"b/{device.uuid}" for device in streams.inventory(2).devices]
    assert [d.uuid for d in made.devices] == uuids
    assert [label_of(d) for d in made.devices] == ["b:0", "b:1"]
    assert [d.number for d in made.devices] == ["0", "1"]
    assert [d.own for d in made.devices] == [*streams.inventory(2).devices]
    assert not any(d.is_here for d in made.devices)
    assert [r.uuid for r in made.readings(1.0)] == uuids
    assert [p.device_uuid for p in made.processes] == uuids
    assert {p.machine for p in made.processes} == {"b"}
    assert not any(p.is_here for p in made.processes)


@pytest.mark.parametrize("theirs", [-86_400.0, -5.0, 0.0, 5.0, 86_400.0])
def test_another_clock_makes_nothing_old_or_new(theirs: float) -> None:
    made = machine()
    made.add_record(streams.inventory(1, time=NOW + theirs), 1.0, NOW)
    xid = Event(NOW + theirs - 30, streams.device(0).uuid, "xid", 79)
    made.add_record(streams.sample(1, time=NOW + theirs, events=(xid,)), 1.0, NOW)
    assert made.machine(1.5).age_seconds == 0.5
    assert made.machine(1.5).time == NOW + theirs  # which process ages are counted to
    assert made.pop_events() == (
        dataclasses.replace(
            xid, device_uuid=f"b/{streams.device(0).uuid}", machine="b", time=NOW - 30
        ),
    )
    assert made.pop_events() == ()


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_ages_are_counted_from_when_a_value_was_read_not_from_when_it_arrived(ahead: float) -> None:
    far = machine()
    far.add_record(streams.inventory(1), 0.0, NOW)
    reading = streams.readings(0, age_seconds=0.25)
    asked_at: float | None = None
    for read, arrives in ((1.0, 1.0), (2.0, 4.5), (5.0, 11.0), (60.0, 171.0)):
        sample = dataclasses.replace(
            streams.sample(),
            time=NOW + read + ahead,
            uptime_seconds=90_000.0 + read,
            devices=(reading,),
            waited_seconds=None if asked_at is None else read - asked_at,
        )
        far.add_record(sample, arrives, NOW + arrives)
        asked_at = arrives
        for now in (arrives, arrives + 1):
            late = now - read
            assert far.machine(now).age_seconds == pytest.approx(late, abs=0.05)
            assert far.readings(now)[0].age_seconds == pytest.approx(late + 0.25, abs=0.05)


def test_one_that_is_away_says_why_and_keeps_its_devices_without_readings() -> None:
    made = answering()
    made.add_record(DEATH, 5.0, NOW)
    now = made.machine(6.0)
    assert now.state is MachineState.AWAY
    assert now.age_seconds == 5.0  # since its last sample
    assert (now.retry_seconds, made.machine(9.1).retry_seconds) == (3.0, 0.0)
    assert now.problem == Problem("b is unreachable", "nobody home", "`ssh b` may say more")
    assert now.driver_version == "580.65.06"  # not news
    assert now.host.cpu_percent is None
    assert [label_of(d) for d in made.devices] == ["b:0", "b:1"]
    assert made.processes == ()
    for reading in made.readings(6.0):
        assert all(getattr(reading, name) is None for name in READINGS)
        assert {reading.absent[name] for name in READINGS} == {Absence.UNREACHABLE}
        assert reading.absent["processes"] is Absence.UNREACHABLE


def test_one_says_what_is_wrong_there() -> None:
    assert answering(problem=streams.NO_DRIVER).machine(1.0).problem == streams.NO_DRIVER
    made = answering()
    made.add_record(NOISE, 1.5, NOW)
    assert [made.machine(now).problem for now in (4.0, 4.1)] == [None, NOISE.problem]
    made.add_record(dataclasses.replace(streams.sample(2), problem=DEATH.problem), 5.0, NOW)
    assert made.machine(9.0).problem == DEATH.problem


def test_a_sampler_that_was_started_again_takes_no_device_away() -> None:
    made = answering()
    made.add_record(DEATH, 5.0, NOW)
    made.add_record(streams.inventory(**STARTING), 6.0, NOW)
    made.add_record(streams.sample(0), 6.0, NOW)
    assert len(made.devices) == 2
    assert made.machine(6.0).state is MachineState.CONNECTING
    made.add_record(streams.inventory(1), 7.0, NOW)
    made.add_record(streams.sample(1), 7.0, NOW)
    assert made.machine(7.0).state is MachineState.OK
    assert len(made.devices) == 1


@pytest.mark.parametrize("devices", [0, 1])
def test_devices_come_with_their_readings(devices: int) -> None:
    """A sample between them would have none, and would be the one that `--count 1` asks for."""
    made = machine()
    made.add_record(streams.inventory(devices, **STARTING), 1.0, NOW)
    made.add_record(streams.sample(devices), 1.0, NOW)
    made.add_record(streams.inventory(2), 2.0, NOW)
    assert len(made.devices) == len(made.readings(2.0)) == devices
    assert made.machine(2.0).driver_state is DriverState.STARTING
    made.add_record(streams.sample(2), 3.0, NOW)
    assert [d.uuid for d in made.devices] == [r.uuid for r in made.readings(3.0)]
    assert made.machine(3.0).driver_state is DriverState.OK


MOMENTS = st.sampled_from(
    [
        streams.inventory(2),
        streams.inventory(3),
        streams.inventory(**STARTING),
        streams.no_driver(),
        streams.sample(0),
        streams.sample(2),
        streams.sample(3, events=(Event(NOW, None, "xid", 79),)),
        DEATH,
        NOISE,
    ]
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "localhost"]), MOMENTS), max_size=12))
def test_whatever_comes_in_whatever_order_is_one_stream(moments: list[tuple[str, Any]]) -> None:
    machines = {name: machine(name) for name in ("a", "b", "localhost")}
    for second, (name, moment) in enumerate(moments):
        machines[name].add_record(moment, float(second), NOW + second)
        inventory = inventory_of(machines.values(), 1.0, NOW)
        sample = sample_of(machines.values(), float(second), NOW)
        assert decode(to_line(inventory)) == inventory
        assert decode(to_line(sample)) == sample
        uuids = [device.uuid for device in inventory.devices]
        assert len({*uuids}) == len(uuids)
        assert [m.name for m in sample.machines] == [*machines]
        for each in sample.machines:
            assert (each.state is MachineState.AWAY) <= (each.problem is not None)
            assert each.age_seconds is not None
            assert each.age_seconds >= 0
            away = each.state is not MachineState.OK
            theirs = {d.uuid for d in inventory.devices if d.machine == each.name}
            powers = {r.power_watts for r in sample.devices if r.uuid in theirs}
            assert not away or powers <= {None}
