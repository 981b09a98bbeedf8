"""The decoder and what is around it: the fuzzer's corpus again, and streams that are damaged."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Inventory, Sample
from gputop.recording.reader import Recording, RecordingError
from gputop.stream.child import Interruption, StreamChild
from tests import recordings, streams
from tests.fuzz.invariants import GOOD, check_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.agent.snapshot import Record

pytestmark = pytest.mark.slow  # half a minute for all of them

CORPUS = sorted(Path(__file__).with_name("corpus").iterdir())


def test_there_is_a_corpus() -> None:
    assert 10 <= len(CORPUS) <= 100
    assert max(path.stat().st_size for path in CORPUS) <= 4096


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_the_corpus(path: Path) -> None:
    check_stream(path.read_bytes())


LINES = tuple(
    to_line(record)
    for record in (streams.inventory(2), streams.sample(2), streams.sample(0), streams.no_driver())
)
TEXTS = (
    *("1e999", "-1e999", "1e308", "NaN", "-Infinity", "9" * 400, "1" + "0" * 5000, "-0", "0.0005"),
    *("9223372036854775807", "9223372036854775808", "9.3e18", "1e-400", "true", "null", '"1"'),
    *("[" * 10_000, '{"a":' * 10_000, "[" * 900 + "]" * 900, '"\\ud800"', '"\\u0000"', '"\x00"'),
    *('"' + "x" * 200_000 + '"', "{}", "[]", '{"type":"sample"}', "[[]]", '"lost"', ","),
)


@st.composite
def tampered(draw: st.DrawFn) -> str:
    """A line of a stream that is still JSON, most times, and says something else."""
    document: Any = json.loads(draw(st.sampled_from(LINES)))
    place: Any = document
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        deeper = isinstance(place[key], dict | list) and place[key]
        if not deeper or draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    name = key
    match draw(st.sampled_from(["drop", "swap", "put", "put", "new", "twice"])):
        case "drop":
            del place[key]
        case "swap":
            other = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [key]))
            place[key], place[other] = place[other], place[key]
        case "put":
            place[key] = "PUT"
        case "new":
            document["of_a_newer_schema"] = {"any": ["thing", None]}
        case "twice":
            document["TWICE"] = place[key]
            name = draw(st.sampled_from(sorted(document)))
    text = json.dumps(document).replace("TWICE", str(name))
    return text.replace('"PUT"', draw(st.sampled_from(TEXTS)))


DAMAGES: tuple[Callable[[bytes, int], bytes], ...] = (
    lambda line, _: line,
    lambda line, at: line[:at],
    lambda line, _: b"\xef\xbb\xbf" + line,
    lambda line, _: line + b"\r",
    lambda line, at: line[:at] + b"\xe5\x90" + line[at:],
    lambda line, at: line[:at] + b"\0" + line[at:],
    lambda line, _: line.decode(errors="replace").encode("utf-16"),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The same as bytes, of which some are wrong."""
    line = draw(tampered()).encode(errors="surrogatepass")
    return draw(st.sampled_from(DAMAGES))(line, draw(st.integers(0, len(line))))


many = settings(
    max_examples=150,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@many
@given(st.lists(damaged(), max_size=4))
@example([LINES[0].encode(), b'{"type":"sample","time":1e300,"host":{}}'])
@example([b'{"type":"sample","time":1,"host":{"absent":{"' + b"x" * 5000 + b'":7}}}'])
def test_damaged_streams(lines: list[bytes]) -> None:
    check_stream(b"\n".join(lines))


@many
@given(st.lists(damaged(), min_size=1, max_size=5), st.booleans(), st.integers(0, 1 << 20))
def test_damaged_recordings(tmp_path: Path, lines: list[bytes], whole: bool, at: int) -> None:
    """A good sample before the damage is read."""
    last = dataclasses.replace(streams.sample(0), time=1763640007.125)  # none of the lines has it
    one, two = to_line(GOOD).encode(), to_line(last).encode()
    data = b"\n".join([LINES[0].encode(), one, *lines, two, b""])
    for compressed in (False, True):
        path = tmp_path / "a.jsonl"
        written = gzip.compress(data) if compressed else data
        path.write_bytes(written if whole else written[: at % len(written)])
        try:
            recording = Recording(path)
        except RecordingError:
            assert not whole
            continue
        found = list(recording.records())
        assert not whole or GOOD in found
        assert not whole or (found[-1] == last) == (recording.ending is None)
        assert all(isinstance(record, Inventory | Sample) for record in found)
        assert 0 <= recordings.scanned(path).end < 1 << 63


async def received(path: Path) -> list[Record | Interruption]:
    """What a dashboard has of a child that writes that file, until it ends."""
    found: list[Record | Interruption] = []
    child = StreamChild(["cat", str(path)], 1.0)
    async with contextlib.aclosing(child.records()) as records:
        async for record in records:
            found.append(record)
            if isinstance(record, Interruption) and not record.left_out:
                break
    await child.close()
    return found


@settings(parent=many, max_examples=15)
@given(st.lists(damaged(), min_size=1, max_size=5))
def test_a_child_that_says_such_things(tmp_path: Path, lines: list[bytes]) -> None:
    """Each line is a record, or is left out and said so; the good one after each is there."""
    path = tmp_path / "stream"
    one = to_line(GOOD).encode()
    path.write_bytes(b"".join(line + b"\n" + one + b"\n" for line in lines))
    found = asyncio.run(received(path))
    *said, end = found
    assert isinstance(end, Interruption)
    assert not end.left_out
    assert said.count(GOOD) == len(lines)
    assert len(said) == 2 * len(lines) + sum(line.count(b"\n") for line in lines)


def test_a_long_line_is_read_and_its_memory_given_back(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    long = b'{"type":"sample","time":1,"host":{"moon":"' + b"x" * (6 << 20) + b'"}}'
    path.write_bytes(b"\n".join([long, b"x" * (6 << 20), to_line(GOOD).encode(), b""]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        *said, _ = asyncio.run(received(path))
        assert said[0] == Sample(1.0, said[0].host)  # type: ignore[union-attr]
        assert isinstance(said[1], Interruption)
        assert len(str(said[1].problem)) < 1000
        assert said[2] == GOOD
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10, "kilobytes: a few times one line, however often one comes"
