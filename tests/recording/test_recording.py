"""Recordings on disk: written, cut off, damaged, and read from any place."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import json
import os
import random
import stat
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.recording import reader as line_reader
from gputop.recording.reader import LONGEST_STEP_SECONDS, Recording, RecordingError, lines
from gputop.recording.writer import SAMPLES_A_PART, GrowingFile, OutputError, Recorder, default_name
from gputop.schema.snapshot import SCHEMA, Event, Inventory, Sample, encode
from tests import recordings, streams

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.schema.snapshot import Record

NAMES = ["a.jsonl", "a.jsonl.gz"]
LONG = 3 * SAMPLES_A_PART + 10


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    records = recordings.records(LONG, 2)
    recording = Recording(recordings.write(tmp_path / name, records))
    assert list(recording.records()) == records
    assert recording.damaged == 0


def test_others_can_read_it_too(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl.gz", 3)
    with gzip.open(path, "rt") as file:
        assert [json.loads(line)["type"] for line in file] == ["inventory", *["sample"] * 3]


def test_a_new_inventory_is_in_its_place(tmp_path: Path) -> None:
    first, second = recordings.samples(2)
    records: list[Record] = [
        streams.inventory(1),
        first,
        streams.inventory(1, driver_version="600.1"),
        second,
    ]
    path = recordings.write(tmp_path / "a.jsonl", records)
    assert list(Recording(path).records()) == records


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_read_from_every_sample_on(tmp_path: Path, name: str) -> None:
    recording = Recording(recordings.make(tmp_path / name, LONG))
    recording.index.finish()
    assert recording.index.count == LONG
    for first in (0, 1, SAMPLES_A_PART - 1, SAMPLES_A_PART, LONG - 1):
        (number, inventory), *rest = recording.play(first)
        assert (number, inventory) == (first, streams.inventory(1))
        assert [n for n, _ in rest] == list(range(first, LONG))
        assert recordings.numbers([r for _, r in rest]) == [n % 101 for n in range(first, LONG)]


def test_a_stream_from_a_shell_has_one_inventory(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = recordings.records(LONG)
    path.write_text("".join(f"{encode(record)}\n" for record in records))
    recording = Recording(path)
    recording.index.finish()
    assert next(recording.play(LONG - 2)).record == records[0]
    assert recording.last() == (records[0], records[-1])


def test_json_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = recordings.records(3)
    documents = [json.dumps(json.loads(encode(record)), sort_keys=True) for record in records]
    path.write_text("\n".join(documents))
    recording = Recording(path)
    assert list(recording.records()) == records
    recording.index.finish()
    assert (recording.index.count, recording.index.end, recording.damaged) == (3, 2.0, 0)


def test_gaps_and_clocks_that_are_set_back(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 6, gaps={2: 100.0, 4: -50.0})
    index = Recording(path).index
    index.finish()
    assert [*index.positions] == [0, 1, 102, 103, 103, 104]
    assert [index.sample_at(position) for position in (-5, 0, 101.9, 102, 999)] == [0, 0, 1, 2, 5]


@pytest.mark.parametrize("which", [0, 3, 6])
@pytest.mark.parametrize("time", [0.0, 9e9])
def test_a_time_that_leaps_is_no_gap(tmp_path: Path, which: int, time: float) -> None:
    made = recordings.samples(7)
    made[which] = dataclasses.replace(made[which], time=time)
    recording = Recording(recordings.write(tmp_path / "a.jsonl", [streams.inventory(1), *made]))
    recording.index.finish()
    assert recording.index.end <= LONGEST_STEP_SECONDS + 7


@pytest.mark.parametrize("name", NAMES)
def test_cut_off_at_any_byte_all_before_is_read(tmp_path: Path, name: str) -> None:
    """What was written before a flush is there, whatever comes after it."""
    path, cut = tmp_path / name, tmp_path / f"cut-{name}"
    recorder, records, ends = Recorder(path), recordings.records(5), []
    for record in records:
        recorder.write(record)
        ends.append(recorder.file.size)
    whole = path.read_bytes()
    recorder.close()
    sizes = {size + by for size in ends for by in (-1, 0, 1)} | {*range(ends[1], ends[-1], 37)}
    for size in sorted(size for size in sizes if ends[1] <= size <= len(whole)):
        cut.write_bytes(whole[:size])
        complete = sum(end <= size for end in ends)
        recording = Recording(cut)
        found = list(recording.records())
        assert found[:complete] == records[:complete]
        assert len(found) - complete in (0, 1)  # a line may lack nothing but its end
        assert recording.damaged <= 1


def _flipped(data: bytes, bits: list[int]) -> bytes:
    flipped = bytearray(data)
    for bit in bits:
        flipped[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(flipped)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Recordings of several parts, small ones."""
    folder = tmp_path_factory.mktemp("originals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gputop.recording.writer.SAMPLES_A_PART", 4)
        return {name: recordings.make(folder / name, 20).read_bytes() for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damage_is_survived(
    tmp_path: Path, originals: dict[str, bytes], name: str, data: st.DataObject
) -> None:
    """Truncations and flipped bits: what is read is what was written, or is passed over."""
    original = originals[name]
    size = data.draw(st.integers(0, len(original)))
    flips = data.draw(st.lists(st.integers(0, 8 * len(original)), max_size=10))
    path = tmp_path / name
    path.write_bytes(_flipped(original[:size], flips) if size else b"")
    try:
        recording = Recording(path)
    except RecordingError:
        return
    found = list(recording.records())
    recording.index.finish()
    for (one, _), (other, _) in pairwise(recording.play(0)):
        assert one <= other < recording.index.count
    positions = [*recording.index.positions]
    assert positions == sorted(positions)
    assert all(isinstance(record, Inventory | Sample) for record in found)
    if any(isinstance(record, Sample) for record in found):
        assert isinstance(recording.last()[1], Sample)


@pytest.mark.parametrize("seed", range(10))
def test_ten_flips_of_one_bit_cost_a_part_at_most(
    tmp_path: Path, originals: dict[str, bytes], seed: int
) -> None:
    original = originals["a.jsonl.gz"]
    path = tmp_path / "a.jsonl.gz"
    # Behind the first member's header: without it nobody takes the file for gzip.
    bit = random.Random(seed).randrange(8 * 10, 8 * len(original))  # noqa: S311 - no secret
    path.write_bytes(_flipped(original, [bit]))
    recording = Recording(path)
    found = [r for r in recording.records() if isinstance(r, Sample)]
    assert len(found) >= 20 - 4 - 1
    assert recording.damaged >= 1 or len(found) == 20


def test_a_damaged_line_is_counted_once(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 10)
    written = path.read_bytes().splitlines()
    written[3] = written[3].replace(b'"host":{', b'"host":[')  # a good head, and no JSON
    written[6] = b"\xff" * 50
    written[8] = written[8].replace(b'"pid":4000', b'"pid":"x"')
    path.write_bytes(b"\n".join(written))
    recording = Recording(path)
    assert recordings.numbers(list(recording.records())) == [0, 1, 3, 4, 6, 8, 9]
    recording.index.finish()
    for _ in range(2):
        played = [r for _, r in recording.play(0) if isinstance(r, Sample)]
        assert recordings.numbers(played) == [0, 1, 3, 4, 6, 8, 9]
    assert recording.damaged == 3


def test_a_line_without_an_end_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_reader, "LINE_BYTES", 1 << 16)
    path = tmp_path / "a.jsonl"
    first, second = recordings.samples(2)
    with path.open("wb") as file:
        file.write(encode(streams.inventory(1)).encode() + b"\n")
        file.write(encode(first).encode() + b"\n" + b"x" * (1 << 20) + b"\n")
        file.write(encode(second).encode() + b"\n")
    recording = Recording(path)
    assert list(recording.records()) == [streams.inventory(1), first, second]
    assert recording.damaged == 1
    with path.open("rb") as file:
        longest = max(len(line.data or b"") for line in lines(file))
    assert longest < 1 << 16


def test_a_place_leads_to_its_line(tmp_path: Path) -> None:
    for name in NAMES:
        path = recordings.make(tmp_path / name, LONG)
        with path.open("rb") as file, path.open("rb") as again:
            for line in list(lines(file))[:: SAMPLES_A_PART // 2]:
                assert next(lines(again, line.start)) == line


def test_an_older_recording_plays(tmp_path: Path) -> None:
    """Fields that were not there yet have their defaults; unknown ones are left alone."""
    inventory = json.loads(encode(streams.inventory(1)))
    sample = json.loads(encode(recordings.samples(1)[0]))
    inventory["schema"] = SCHEMA - 1
    del inventory["cpu_name"], inventory["devices"][0]["temperature_slowdown_celsius"]
    del sample["events"], sample["devices"][0]["energy_joules"]
    sample["devices"][0]["gone"] = 1
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(inventory)}\n{json.dumps(sample)}\n")
    recording = Recording(path)
    found = list(recording.records())
    assert [type(record) for record in found] == [Inventory, Sample]
    assert recording.damaged == 0


def test_a_newer_recording_says_so(tmp_path: Path) -> None:
    inventory = json.loads(encode(streams.inventory(1))) | {"schema": SCHEMA + 1}
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(inventory)}\n")
    with pytest.raises(RecordingError) as error:
        Recording(path)
    assert str(error.value) == (
        f"{path} cannot be played: the stream has schema {SCHEMA + 1}, this gputop reads up to "
        f"{SCHEMA}. Upgrade this gputop"
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is no recording"),
        (gzip.compress(b"", mtime=0), "it is no recording"),
        (b"root:x:0:0\n" * 100, "it is no recording"),
        (b"\x1f\x8b\x08" + b"\0" * 100, "it is no recording"),
        (b"\0" * 100_000, "it is no recording"),
        (b"[1]\n{}\n3\n", "it is no recording"),
        (b'{"type":"sample","time":1.0,"host":{}}\n', "it is no recording"),
        (encode(streams.inventory(1)).encode(), "it has no sample that can be read"),
        (
            encode(streams.inventory(1)).encode() + b'\n{"type":"sam',
            "it has no sample that can be read",
        ),
    ],
)
def test_what_is_no_recording(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(RecordingError) as error:
        Recording(path)
    assert error.value.problem.why == why


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, why in (
        (tmp_path, "it is not a file"),
        (tmp_path / "x", "No such file or directory"),
    ):
        with pytest.raises(RecordingError) as error:
            Recording(path)
        assert error.value.problem.why == why


def test_a_file_is_its_users_own_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path, empty, link = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "c.jsonl"
    recordings.make(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    link.symlink_to(path)
    with pytest.raises(OutputError, match=r"it is there already\. Remove it, or name another"):
        Recorder(path)
    with pytest.raises(OutputError, match="it is a link"):
        Recorder(link)
    assert path.read_bytes() == before
    empty.touch(0o644)  # as mktemp makes one
    recordings.make(empty, 1)
    assert stat.S_IMODE(empty.stat().st_mode) == 0o600
    with pytest.raises(OutputError, match="No such file or directory"):
        Recorder(tmp_path / "no" / "a.jsonl")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("room", [0, 5, 200])
def test_a_full_disk_leaves_what_was_written(
    tmp_path: Path, name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path / name)
    records = recordings.records(3)
    for record in records:
        recorder.write(record)
    left = room

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        took = write(descriptor, bytes(data)[:left])
        left -= took
        return took

    write = os.write
    monkeypatch.setattr(os, "write", full)
    other = dataclasses.replace(recordings.samples(1)[0], processes=tuple(streams.crowd(60, 1)))
    with pytest.raises(OutputError, match=r"No space left on device\. Free some space"):
        recorder.write(other)
    left = 0 if room == 0 else 100
    recorder.close()
    recording = Recording(tmp_path / name)
    assert (list(recording.records()), recording.damaged) == (records, 0)
    if name.endswith(".gz") and room:
        with gzip.open(tmp_path / name) as file:
            assert len(file.read().splitlines()) == len(records)


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        file = GrowingFile(path)
        file.write(b"a line\n")
        assert os.read(reader, 100) == b"a line\n"
        file.close()
    finally:
        os.close(reader)


def test_a_sync_at_every_record_costs_little(tmp_path: Path) -> None:
    """The price of a file that can be cut off anywhere: a tenth, and a fifth of its lines' size."""
    path = tmp_path / "a.jsonl.gz"
    recordings.make(path, LONG, 8)
    with gzip.open(path) as file:
        whole = file.read()
    assert path.stat().st_size < 1.5 * len(gzip.compress(whole, 6))
    assert path.stat().st_size < len(whole) / 5


def test_events_are_indexed(tmp_path: Path) -> None:
    made = recordings.samples(5)
    made[2] = dataclasses.replace(made[2], events=(Event(made[2].time, None, "xid", 79),))
    recording = Recording(recordings.write(tmp_path / "a.jsonl", [streams.inventory(1), *made]))
    recording.index.finish()
    assert list(recording.index.events) == [2]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("node07", "gputop-node07-20251120-120000.jsonl.gz"),
        ("../../etc/x y", "gputop-etc-x-y-20251120-120000.jsonl.gz"),
        ("", "gputop-host-20251120-120000.jsonl.gz"),
    ],
)
def test_the_name_of_a_recording(host: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)
    assert default_name(host, streams.NOW) == name
