"""Frames for a terminal that takes them, that stalls, and that is gone: on a real pty."""

from __future__ import annotations

import asyncio
import os
import select
import tty
from collections.abc import Iterator

import pytest

from gputop.ui.terminal.output import LATE_SECONDS, FrameWriter

SCREEN = "x" * 20_000


class Stalled:
    """A pty of which nothing is read unless told, and an outlet to it with a clock by hand."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        os.set_blocking(self.slave, False)
        self.now, self.repainted = 100.0, 0
        loop = asyncio.get_running_loop()
        self.outlet = FrameWriter(loop, self.slave, self._repaint, lambda: self.now)

    def _repaint(self) -> None:
        self.repainted += 1

    async def read(self) -> bytes:
        """All that comes, also what comes because of it."""
        found = b""
        for _ in range(3):
            await asyncio.sleep(0)
            while select.select([self.master], [], [], 0)[0]:
                found += os.read(self.master, 1 << 16)
                await asyncio.sleep(0)
        return found

    def fill(self) -> None:
        while not self.outlet.waiting_bytes:
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
    assert stalled.repainted == 0


async def test_what_is_late_is_dropped_and_painted_anew(stalled: Stalled) -> None:
    stalled.fill()
    stalled.now += 2 * LATE_SECONDS
    for n in range(1000):
        stalled.outlet.write(f"late {n} {SCREEN}")
    assert stalled.outlet.waiting_bytes <= len(SCREEN)
    assert stalled.repainted == 0
    sent = await stalled.read()
    assert b"late" not in sent
    assert len(sent) % len(SCREEN) == 0, "a frame was cut"
    assert stalled.repainted == 1
    stalled.outlet.write("now")
    assert await stalled.read() == b"now"


async def test_a_moment_s_stall_loses_nothing(stalled: Stalled) -> None:
    stalled.fill()
    stalled.now += LATE_SECONDS / 2
    stalled.outlet.write("soon")
    assert (await stalled.read()).endswith(b"xsoon")
    assert stalled.repainted == 0


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
    assert stalled.outlet.waiting_bytes == 0
    stalled.master = os.dup(stalled.slave)
