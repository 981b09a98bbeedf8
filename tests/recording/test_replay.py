import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from gputop.agent.snapshot import Event, Record, Sample
from gputop.recording.replay import Played, Replay
from tests import recordings, streams

BOUND = 30.0


class Turned(Replay):
    """One whose time goes on only where it waits: to the moment that it waits for."""

    def __init__(self, path: Path) -> None:
        self.time = 1000.0
        self.stalled = asyncio.Event()
        """Set while it waits to be asked."""
        self.seen: list[float] = []
        """Its time at each frame."""
        super().__init__(recordings.scanned(path), lambda: self.time)

    async def _wait(self, seconds: float | None) -> None:
        self.seen.append(round(self.now(), 3))
        if self._changed.is_set():
            seconds = 0.0
        elif seconds is None:
            self.stalled.set()
            await self._changed.wait()
            self.stalled.clear()
        self._changed.clear()
        self.time += max(0.0, seconds or 0.0)


@contextlib.asynccontextmanager
async def playing(replay: Replay) -> AsyncIterator[AsyncGenerator[Played]]:
    async with asyncio.timeout(BOUND), contextlib.aclosing(replay.records()) as received:
        yield received


async def taken(received: AsyncGenerator[Played]) -> list[Record | Event]:
    return list((await anext(received)).records)


def numbers(records: list[Record | Event]) -> list[int | None]:
    return recordings.numbers([record for record in records if isinstance(record, Sample)])


async def test_at_its_own_pace(tmp_path: Path) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl", 5, gaps={3: 24.0}))
    async with playing(replay) as received:
        began, heard = replay.time, []
        for _ in range(5):
            records = await taken(received)
            heard.append((*numbers(records), round(replay.time - began, 3)))
        assert heard == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 27.0), (4, 28.0)]
        waiting = asyncio.ensure_future(taken(received))
        await replay.stalled.wait()
        replay.time += 100
        assert (replay.ended, replay.playing, replay.now()) == (True, False, 28.0)
        replay.pause()
        assert numbers(await waiting) == [0], "it begins again"
        assert numbers(await taken(received)) == [1]


@pytest.mark.parametrize("steps", [-2, 2])
async def test_faster_and_slower(tmp_path: Path, steps: int) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl", 9))
    async with playing(replay) as received:
        await taken(received)
        began = replay.time
        replay.change_speed(steps)
        while replay.position < 8:
            await taken(received)
        assert replay.time - began == pytest.approx(8 / 2.0**steps, abs=0.1)
    replay.change_speed(-99)
    assert replay.speed == 0.25
    replay.change_speed(99)
    assert replay.speed == 64.0


async def test_its_clock_is_the_recordings(tmp_path: Path) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl", 4, gaps={2: 60.0}))
    async with playing(replay) as received:
        for position in (0.0, 1.0, 62.0):
            assert not (await anext(received)).restarted
            assert replay.now() == pytest.approx(position, abs=0.2)
        assert {30.0, 31.0, 61.9} <= {*replay.seen}  # time goes on in the gap
        replay.seek(-50.0)  # the data on the screen does not get older by that
        assert (replay.position, replay.now()) == pytest.approx((12.0, 62.0), abs=0.2)


async def test_paused_it_stands_still(tmp_path: Path) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl", 9))
    async with playing(replay) as received:
        await taken(received)
        replay.pause()
        waiting = asyncio.ensure_future(taken(received))
        await replay.stalled.wait()
        replay.time += 1000
        assert (replay.position, replay.now(), replay.playing) == (0.0, 0.0, False)
        replay.seek(4)
        assert numbers(await waiting) == [0, 1, 2, 3, 4]
        assert (replay.position, replay.playing) == (4.0, False)
        replay.pause()
        assert numbers(await taken(received)) == [5]


async def test_back_and_on(tmp_path: Path) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl.gz", 500))
    async with playing(replay) as received:
        await taken(received)
        replay.seek(450)
        played = await anext(received)
        records = list(played.records)
        assert played.restarted
        assert records[0] == streams.inventory(1)
        assert numbers(records) == [n % 101 for n in range(151, 451)]
        assert numbers(await taken(received)) == [451 % 101]
        replay.seek(-440)
        replay.seek(-5)  # one goes there at once
        played = await anext(received)
        assert (played.restarted, numbers(list(played.records))) == (True, [*range(7)])
        assert numbers(await taken(received)) == [7]
        replay.seek(-9999)
        assert numbers(await taken(received)) == [0]
        assert numbers(await taken(received)) == [1]


async def test_after_a_stall_it_goes_on_in_pieces(tmp_path: Path) -> None:
    replay = Turned(recordings.make(tmp_path / "a.jsonl", 500))
    async with playing(replay) as received:
        await taken(received)
        replay.time += 400
        assert numbers(await taken(received)) == [*range(1, 65)]
        assert replay.position == 64.0


async def test_what_happened_before_is_told(tmp_path: Path) -> None:
    made = recordings.samples(350)
    event = Event(made[5].time, streams.device(0).uuid, "xid", 79)
    made[5] = dataclasses.replace(made[5], events=(event,))
    path = recordings.write(tmp_path / "a.jsonl", [streams.inventory(1), *made])
    replay = Turned(path)
    async with playing(replay) as received:
        await taken(received)
        replay.seek(340)
        records = await taken(received)
        assert records[:2] == [event, streams.inventory(1)]
        assert numbers(records)[0] == 41
