import dataclasses
from collections.abc import Sequence

from gputop.agent.lines import to_line
from gputop.agent.pacing import Pacing
from gputop.agent.snapshot import Event, Record, Sample
from tests import streams
from tests.streams import NOW


def sample(second: float, code: int | None = None, busy: tuple[int, ...] | None = ()) -> Sample:
    events = () if code is None else (Event(NOW + second, None, "xid", code),)
    reading = streams.readings(0, gpu_utilization_samples_percent=busy)
    return dataclasses.replace(
        streams.sample(1, time=NOW + second, uptime_seconds=100.0 + second, events=events),
        devices=(reading,),
    )


def asked() -> Pacing:
    pacing = Pacing(lambda: 100.0)
    pacing.ask()
    return pacing


def samples(records: Sequence[Record]) -> list[Sample]:
    return [record for record in records if isinstance(record, Sample)]


def test_a_reader_that_asks_for_nothing_gets_everything_as_it_is() -> None:
    pacing = Pacing()
    records: list[Record] = [streams.inventory(1), *(sample(n) for n in range(100))]
    assert [each for record in records for each in pacing.select(record)] == records
    assert "waited" not in to_line(sample(0))


def test_one_sample_is_on_its_way_and_those_between_are_dropped() -> None:
    pacing = asked()
    (first,) = samples(pacing.select(sample(3)))
    assert first.waited_seconds == 3.0
    for n in range(4, 10):
        assert pacing.select(sample(n)) == []
    pacing.ask()
    (after,) = samples(pacing.select(sample(10)))
    assert after.time == NOW + 10
    assert pacing.select(sample(11)) == []


def test_samples_before_the_first_request_are_on_their_way_too() -> None:
    pacing = Pacing()
    for n in range(3):
        pacing.select(sample(n))
    for _ in range(3):
        pacing.ask()
    assert pacing.select(sample(3)) == []
    pacing.ask()
    assert samples(pacing.select(sample(4)))


def test_events_utilization_and_inventories_are_kept_for_the_next_sample() -> None:
    pacing = asked()
    pacing.select(sample(0))
    for n, busy in enumerate([(1, 2), (3,), ()]):
        assert pacing.select(streams.inventory(n)) == []
        assert pacing.select(sample(5 + n, code=70 + n, busy=busy)) == []
    pacing.ask()
    inventory, after = pacing.select(sample(9, code=79, busy=(4,)))
    assert inventory == streams.inventory(2)  # the newest alone
    assert isinstance(after, Sample)
    assert [event.code for event in after.events] == [70, 71, 72, 79]
    assert after.devices[0].gpu_utilization_samples_percent == (1, 2, 3, 4)
    pacing.ask()
    (last,) = samples(pacing.select(sample(10)))
    assert last.events == ()  # each is sent once
    assert last.devices[0].gpu_utilization_samples_percent == ()


def test_what_is_kept_for_the_next_sample_is_bounded() -> None:
    pacing = asked()
    for n in range(1100):
        pacing.select(sample(n, code=n, busy=(1,)))
    pacing.ask()
    (last,) = samples(pacing.select(sample(1100)))
    assert [event.code for event in last.events] == [*range(100, 1100)]
    assert len(last.devices[0].gpu_utilization_samples_percent or ()) == 256
    assert len(last.host.cpu_samples_percent or ()) == 256


def is_gone(pacing: Pacing) -> bool:
    return pacing.reader_is_gone


def test_a_reader_that_stops_asking_is_gone_after_two_minutes() -> None:
    now = 100.0
    silent, pacing = Pacing(lambda: now), Pacing(lambda: now)
    silent.select(sample(0))
    pacing.ask()
    now += 1000
    assert not is_gone(silent), "it never asks"
    assert not is_gone(pacing), "nothing was sent since it asked"
    pacing.ask()
    now += 300  # a long interval
    pacing.select(sample(1))
    now += 119
    assert not is_gone(pacing)
    now += 2
    assert is_gone(pacing)
    pacing.ask()
    assert not is_gone(pacing)
