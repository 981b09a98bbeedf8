"""What a slow line may hold back, and how old it then is: with clocks and delays made up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputop.agent.lines import to_line
from gputop.agent.sender import IN_FLIGHT, SendWindow
from gputop.agent.snapshot import Event, Inventory, Record, Sample
from gputop.schema.decode import decode
from gputop.stream.merge import ACK_SECONDS, DRIFT, ClockOffset
from tests import streams
from tests.streams import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence

READER = 5000.0
"""The reader's clock where nothing else is said."""


def sample(second: float, code: int | None = None, busy: tuple[int, ...] | None = ()) -> Sample:
    events = () if code is None else (Event(NOW + second, None, "xid", code),)
    reading = streams.readings(0, gpu_utilization_samples_percent=busy)
    return dataclasses.replace(
        streams.sample(1, time=NOW + second, uptime_seconds=100.0 + second, events=events),
        devices=(reading,),
    )


def opened() -> SendWindow:
    """A window at the sending side, whose clock stands at 100."""
    window = SendWindow(lambda: 100.0)
    window.open()
    return window


def samples(records: Sequence[Record]) -> list[Sample]:
    return [record for record in records if isinstance(record, Sample)]


# What is written.


def test_a_reader_that_acknowledges_nothing_gets_everything_as_it_is() -> None:
    window = SendWindow()
    records: list[Record] = [streams.inventory(1), *(sample(n) for n in range(100))]
    assert [each for record in records for each in window.select(record)] == records
    assert "echo" not in to_line(sample(0))


def test_no_more_are_on_their_way_than_the_reader_has_acknowledged() -> None:
    window = opened()
    written = [samples(window.select(sample(n))) for n in range(10)]
    assert [len(each) for each in written] == [1] * IN_FLIGHT + [0] * (10 - IN_FLIGHT)
    window.received(NOW + 0, READER)
    (after,) = samples(window.select(sample(10)))
    assert after.time == NOW + 10  # the newest, and none of those between
    assert after.echo_seconds == READER + 10  # which is 10 s later
    assert window.select(sample(11)) == []
    window.received(NOW + 10, READER)  # and with it all that were written before
    assert len(samples([*window.select(sample(12)), *window.select(sample(13))])) == IN_FLIGHT


def test_a_time_that_was_never_written_acknowledges_nothing() -> None:
    window = opened()
    for n in range(IN_FLIGHT):
        window.select(sample(n))
    window.received(NOW + 0.5, READER)
    assert window.select(sample(5)) == []


def test_times_are_known_again_as_they_were_written() -> None:
    window = opened()
    for n in range(20):
        (written,) = window.select(sample(n + 0.123))
        window.received(decode(to_line(written)).time, READER)


def test_events_utilization_and_inventories_are_kept_for_the_next_sample() -> None:
    window = opened()
    for n in range(IN_FLIGHT):
        window.select(sample(n))
    for n, busy in enumerate([(1, 2), (3,), ()]):
        assert window.select(streams.inventory(n)) == []
        assert window.select(sample(5 + n, code=70 + n, busy=busy)) == []
    window.received(NOW + IN_FLIGHT - 1, READER)
    inventory, after = window.select(sample(9, code=79, busy=(4,)))
    assert inventory == streams.inventory(2)  # the newest alone
    assert isinstance(after, Sample)
    assert [event.code for event in after.events] == [70, 71, 72, 79]
    assert after.devices[0].gpu_utilization_samples_percent == (1, 2, 3, 4)
    (last,) = samples(window.select(sample(10)))
    assert last.events == ()  # each is told once
    assert last.devices[0].gpu_utilization_samples_percent == ()


MOMENTS = st.lists(st.sampled_from(["sample", "event", "inventory", "arrives", "open"]))


@given(MOMENTS)
def test_whatever_the_line_does_nothing_is_lost_but_samples(moments: list[str]) -> None:
    window, acknowledges = SendWindow(), False
    on_the_line: list[float] = []
    made: list[int] = []
    told: list[int] = []
    known = newest = streams.inventory(0)
    for n, moment in enumerate([*moments, "open", *["arrives"] * len(moments), "event"]):
        if moment == "open":
            window.open()
            acknowledges = True
            continue
        if moment == "arrives":
            if acknowledges and on_the_line:
                window.received(on_the_line.pop(0), float(n))
            continue
        if moment == "inventory":
            newest = streams.inventory(n % 5, time=NOW + n)
            written = window.select(newest)
        else:
            code = n if moment == "event" else None
            made += [] if code is None else [n]
            written = window.select(sample(n, code=code))
        for each in written:
            if isinstance(each, Inventory):
                known = each
            else:
                assert known == newest
                told += [event.code or 0 for event in each.events]
                if acknowledges:
                    on_the_line.append(each.time)
        assert len(on_the_line) <= IN_FLIGHT
    assert told == made  # each once, in order, none left


# How old it is.


def test_the_shortest_way_is_taken_for_none_and_all_others_are_longer_by_the_rest() -> None:
    offset = ClockOffset()
    ages = []
    for n, delay in enumerate([0.5, 0.1, 0.1, 3.1, 20.1, 0.1]):
        now = READER + n * 30 + delay
        ages.append(now - offset.made_at(100.0 + n * 30, now))
    assert ages == pytest.approx([0, 0, 0, 3, 20, 0], abs=90 * DRIFT)


DELAYS = st.lists(st.tuples(st.floats(0, 60), st.floats(0, 5)), min_size=1, max_size=50)
"""Of each sample, and of an acknowledgement before it. A sample is made when the one before it has
arrived, and then both, and a second."""


@example([(3.0, 0.0), (0.0, 1.0)], 0.0, 8.9e-5, True)  # bounds that contradict each other by drift
@given(DELAYS, st.floats(-1e9, 1e9), st.floats(-DRIFT / 2, DRIFT / 2), st.booleans())
def test_an_age_is_wrong_by_no_more_than_the_shortest_ways(
    delays: list[tuple[float, float]], apart: float, drift: float, echoes: bool
) -> None:
    offset, now = ClockOffset(), READER
    shortest, shortest_ack = 1e9, 1e9
    for delay, ack in delays:
        made = now + ack + 1.0
        theirs, echo = apart + made * (1 + drift), None
        if echoes:
            echo, shortest_ack = made - ack, min(shortest_ack, ack)
        shortest = min(shortest, delay)
        now = made + delay
        age = now - offset.made_at(theirs, now, echo)
        slack = 2 * DRIFT * (now - READER) + 1e-5
        assert age >= delay - (min(shortest, ACK_SECONDS) if echoes else shortest) - slack
        assert age <= delay + (max(0.0, shortest_ack - ACK_SECONDS) if echoes else 0.0) + slack
        assert age >= 0


def test_a_line_on_which_every_sample_is_late_hides_it_from_no_sender_that_echoes() -> None:
    offset, silent = ClockOffset(), ClockOffset()
    for n in range(20):
        made, now = READER + n, READER + n + 4.0
        assert now - silent.made_at(100.0 + n, now) == 0  # as of an older gputop
        age = now - offset.made_at(100.0 + n, now, echo=made - 0.1)
        assert age == pytest.approx(4.0 - ACK_SECONDS + 0.1, abs=0.01)


def test_clocks_that_drift_apart_for_a_week_make_nothing_old() -> None:
    for drift in (-1e-4, 1e-4):
        offset = ClockOffset()
        for second in range(0, 7 * 86_400, 600):
            theirs, now = second * (1 + drift), READER + second + 0.1
            assert now - offset.made_at(theirs, now) <= 0.1


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_makes_nothing_old(step: float) -> None:
    """The time of day, where a gputop does not send its uptime."""
    offset = ClockOffset()
    for n in range(20):
        now = READER + n + 0.1
        theirs = NOW + n + (step if 5 <= n < 15 else 0.0)
        assert now - offset.made_at(theirs, now) < 0.01


def test_a_machine_that_was_paused_with_its_clock_is_not_behind() -> None:
    """As a virtual machine that was moved: its uptime knows nothing of that minute."""
    offset = ClockOffset()
    for n in range(10):
        paused = 60.0 if n >= 5 else 0.0
        now = READER + n + paused + 0.1
        age = now - offset.made_at(100.0 + n, now, echo=now - 0.2)
        assert age <= 0.01


def test_an_echo_of_another_clock_is_ignored() -> None:
    offset = ClockOffset()
    offset.made_at(100.0, READER)
    assert offset.made_at(101.0, READER + 1, echo=READER + 100) == pytest.approx(READER + 1)
