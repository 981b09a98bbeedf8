"""Output for a terminal that takes it, stalls, is far away, or is gone: on a real pty."""

from __future__ import annotations

import asyncio
import os
import select
import tty
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputop.ui.terminal.output import (
    ASK_AGAIN_SECONDS,
    ASK_BYTES,
    FIRST_BYTES,
    FIRST_SECONDS,
    LEAST_BYTES,
    LOST_SECONDS,
    PIECE_BYTES,
    QUERY,
    FlowControl,
    FrameWriter,
)

SCREEN = "x" * 20_000


class Stalled:
    """A pty of which nothing is read unless told, and an outlet to it with a clock by hand."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.slave, False)
        self.now = 100.0
        self.frames: list[str] = []
        """Frames to come; each is as long as was asked for."""
        self.asked: list[int | None] = []
        loop = asyncio.get_running_loop()
        self.outlet = FrameWriter(loop, self.slave, self._next_frame, lambda: self.now)

    def _next_frame(self, most_bytes: int | None) -> str:
        self.asked.append(most_bytes)
        return self.frames.pop(0) if self.frames else ""

    async def read(self) -> bytes:
        """All that comes, also what comes because of it."""
        found = b""
        for _ in range(3):
            await asyncio.sleep(0)
            while select.select([self.master], [], [], 0)[0]:
                found += os.read(self.master, 1 << 16)
                await asyncio.sleep(0)
        return found

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are not sent yet."""
        return sum(len(frame) for frame in self.outlet._frames) - self.outlet._sent

    def fill(self) -> None:
        while not self.waiting_bytes:
            self.outlet.write(SCREEN)


@pytest.fixture
async def stalled() -> Iterator[Stalled]:  # type: ignore[misc]
    each = Stalled()
    yield each
    each.outlet.close()
    os.close(each.master)


async def test_what_is_taken_is_sent_at_once(stalled: Stalled) -> None:
    stalled.outlet.write("one")
    stalled.outlet.write("two")
    assert await stalled.read() == b"onetwo"


async def test_a_stall_loses_nothing(stalled: Stalled) -> None:
    stalled.fill()
    stalled.outlet.write("soon")
    assert (await stalled.read()).endswith(b"xsoon")


async def test_the_last_words_come_through_a_stall(stalled: Stalled) -> None:
    stalled.fill()
    clock = iter(range(1000))
    stalled.outlet._clock = lambda: float(next(clock))
    stalled.outlet.finish(b"goodbye")
    assert (await stalled.read()).endswith(b"\x18goodbye")


async def test_a_terminal_that_is_gone_holds_up_nothing(stalled: Stalled) -> None:
    stalled.fill()
    os.close(stalled.master)
    await asyncio.sleep(0)
    stalled.outlet.write("nobody")
    stalled.outlet.finish(b"goodbye")
    assert stalled.waiting_bytes == 0
    stalled.master = os.dup(stalled.slave)


async def test_no_frame_is_made_while_the_terminal_takes_nothing(stalled: Stalled) -> None:
    stalled.fill()
    stalled.frames = ["old"]
    for _ in range(100):
        stalled.outlet.send_frame()
    made = len(stalled.asked)
    stalled.frames = ["newest"]
    assert (await stalled.read()).endswith(b"xnewest")
    assert stalled.asked[made:] == [PIECE_BYTES, PIECE_BYTES]


class Far:
    """A terminal at the end of a line, with a clock by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.flow = FlowControl(lambda: self.now)

    def send(self, count: int) -> bool:
        """Send so many bytes; return True if an answer will say that they have come."""
        self.flow.sent(count)
        return bool(self.flow.ask())

    def answer(self, after: float) -> None:
        self.now += after
        self.flow.answered()


def test_a_fast_line_is_free_after_the_first_answers() -> None:
    far = Far()
    assert far.flow.begin() == QUERY
    far.answer(0.05)
    assert far.flow.room() == FIRST_BYTES
    assert far.send(FIRST_BYTES)
    assert far.flow.room() == 0
    far.answer(0.06)
    assert far.flow.room() is None
    assert not far.send(ASK_BYTES - 1)  # idle ticks ask nothing
    assert far.send(1)
    assert far.flow.room() is None


def test_whoever_ends_before_the_first_answer_waits_for_it() -> None:
    far = Far()
    assert far.flow.answer_seconds == 0
    far.flow.begin()
    assert far.flow.answer_seconds == FIRST_SECONDS
    far.now += FIRST_SECONDS / 2
    assert far.flow.answer_seconds == pytest.approx(FIRST_SECONDS / 2)
    far.now += FIRST_SECONDS  # it does not answer
    assert far.flow.answer_seconds == 0
    far.answer(0.05)
    assert far.flow.answer_seconds == 0


def test_a_slow_line_has_no_more_on_its_way_than_it_carries_soon() -> None:
    far = Far()
    far.flow.begin()
    far.answer(0.1)
    assert far.send(2000)
    far.answer(0.1 + 1.0)  # 2 kB/s
    assert far.flow.room() == 1200
    assert far.send(1200)
    assert far.flow.room() == 0
    far.now += 0.3
    assert far.flow.room() == 0
    far.answer(0.4)
    room = far.flow.room()
    assert room is not None
    assert 1000 < room < 1400
    far.send(1000)
    far.answer(0.12)  # it is faster now
    assert far.flow.room() is None


@pytest.mark.parametrize("bytes_per_second", [1000, 2000, 3000])
@pytest.mark.parametrize("jitter", [0.9, 1.1])
def test_a_slow_line_stays_slow_however_little_is_sent(
    bytes_per_second: int, jitter: float
) -> None:
    """Or the next page would be sent whole, and a key would wait for it."""
    far = Far()
    far.flow.begin()
    far.answer(0.05)
    far.send(FIRST_BYTES)
    far.answer(0.05 + FIRST_BYTES / bytes_per_second)
    for count in range(LEAST_BYTES, ASK_BYTES, 20):
        assert far.send(count), count
        far.answer(0.05 + jitter * count / bytes_per_second)
        assert far.flow.room() is not None, count


def test_a_long_way_is_not_a_slow_line() -> None:
    far = Far()
    far.flow.begin()
    far.answer(0.7)
    far.send(2000)
    far.answer(0.8)
    assert far.flow.room() is None
    far.send(5000)
    far.now += 1.0
    assert far.flow.room() is None
    far.now += 1.0  # no answer: it may have become slow
    assert far.flow.room() == 0


def test_a_terminal_that_does_not_answer_is_not_waited_for() -> None:
    far = Far()
    far.flow.begin()
    far.send(FIRST_BYTES)
    assert far.flow.room() == 0
    far.now += FIRST_SECONDS + 0.01
    assert far.flow.room() is None
    assert not far.send(10 * ASK_BYTES)


def test_a_lost_answer_is_waited_for_only_so_long() -> None:
    far = Far()
    far.flow.begin()
    far.answer(0.1)
    far.send(2000)
    far.now += LOST_SECONDS - 1
    assert far.flow.room() == 0
    far.now += 1.1
    assert far.flow.room() is None
    far.flow.answered()  # too late
    assert far.send(ASK_BYTES)
    far.now += LOST_SECONDS / 2
    assert far.flow.room() is None
    far.flow.answered()
    far.send(ASK_BYTES)
    far.answer(0.1)
    assert far.flow.room() is None


def test_a_late_answer_is_asked_for_again_and_any_answer_will_do() -> None:
    far = Far()
    far.flow.begin()
    far.answer(0.1)
    assert far.send(FIRST_BYTES)
    assert far.flow.ask_again() == ""
    far.now += ASK_AGAIN_SECONDS
    assert far.flow.room() == 0
    assert far.flow.ask_again() == QUERY
    assert far.flow.ask_again() == ""
    far.answer(0.1)  # the first one was lost
    assert far.flow.room() != 0
    assert far.flow.ask_again() == ""


@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.floats(0, 3), st.booleans()), min_size=1, max_size=30
    )
)
@example([(2000, 1.1, True), (290, 0.1, True), (300, 0.1, True)])
def test_where_nothing_may_be_sent_an_answer_is_on_its_way(
    steps: list[tuple[int, float, bool]],
) -> None:
    """Or it would wait for ever: of a line that became slow, little was left to be sent."""
    far = Far()
    far.flow.begin()
    waits = True
    for count, seconds, answers in steps:
        room = far.flow.room()
        waits = far.send(count if room is None else min(count, room)) or waits
        far.now += seconds
        if answers and waits:
            far.flow.answered()
            waits = bool(far.flow.ask())
        assert far.flow.room() != 0 or waits or far.flow.ask()
    far.now += ASK_AGAIN_SECONDS
    for _ in range(20):
        if far.flow.room() != 0:
            break
        assert waits or far.flow.ask() or far.flow.ask_again()
        far.answer(0.01)
        waits = bool(far.flow.ask())
    assert far.flow.room() != 0


async def test_frames_wait_for_answers_and_then_go_on(stalled: Stalled) -> None:
    stalled.outlet.write(stalled.outlet.flow.begin())
    assert await stalled.read() == QUERY.encode()
    stalled.frames = ["a" * FIRST_BYTES, "b"]
    stalled.outlet.send_frame()
    assert await stalled.read() == b"a" * FIRST_BYTES
    stalled.outlet.send_frame()
    assert await stalled.read() == b""
    stalled.outlet.answered()  # of the time before that frame
    assert await stalled.read() == QUERY.encode()
    stalled.outlet.answered()
    assert await stalled.read() == b"b"
