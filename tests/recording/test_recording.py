import dataclasses
import errno
import gzip
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.agent.lines import to_line
from gputop.agent.snapshot import SCHEMA, Event, Inventory, Record, Sample
from gputop.recording.reader import Recording, RecordingError
from gputop.recording.writer import GrowingFile, OutputError, default_name
from gputop.text import moment
from tests import recordings, streams

NAMES = ["a.jsonl", "a.jsonl.gz"]
PROCESSES = (streams.process(4000, 0, command="python trainer.py"),)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_as_written_from_every_sample_on(tmp_path: Path, name: str) -> None:
    records = recordings.records(40, 2)
    other = dataclasses.replace(streams.inventory(2), cuda_version=None)
    records[20:20] = [other]  # before sample 19
    event = Event(1.0, None, "xid", 79)
    records[3] = dataclasses.replace(records[3], events=(event,))  # type: ignore[arg-type]
    path = recordings.write(tmp_path / name, records)
    if name.endswith(".gz"):
        assert gzip.decompress(path.read_bytes()).count(b"\n") == len(records)
    recording = recordings.scanned(path)
    assert list(recording.records()) == records
    assert list(recording.events) == [(2, event)]
    for first in (0, 1, 18):
        assert list(recording.records_from(first)) == [records[0], *records[first + 1 :]]
    for first in (19, 39):
        assert list(recording.records_from(first)) == [other, *records[first + 2 :]]
    assert recording.ending is None


def test_gaps_and_clocks_that_are_set_back(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 6, gaps={2: 100.0, 4: -50.0, 5: 7200.0})
    recording = recordings.scanned(path)
    assert [*recording.positions] == [0, 1, 102, 103, 103, 3703]
    found = [recording.sample_at(position) for position in (-5, 0, 101.9, 102, 9999)]
    assert found == [0, 0, 1, 2, 5]


def test_a_file_that_is_cut_off_while_it_is_played_ends_there(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 5)
    recording = recordings.scanned(path)
    played = recording.records_from(0)
    found = [next(played), next(played)]
    os.truncate(path, path.stat().st_size // 2)
    found += played
    assert len(recording.positions) == len(found) - 1
    assert str(recording.ending).startswith(f"sample {len(found)} cannot be read again: ")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda line: line.replace(b'"host":{', b'"host":['),
    "no UTF-8": lambda line: line.replace(b"trainer", b"train\xffr").replace(b"python", b"p\xffn"),
    "another type": lambda line: line.replace(b'"sample"', b'"simple"'),
    "time is infinite": lambda line: re.sub(b'"time":[0-9.]+', b'"time":1e400', line),
    "deep": lambda line: line[:-1] + b',"x":' + b"[" * 100_000,
    "cut off": lambda line: line[:-1],
    "wrong types": lambda line: line.replace(b'"pid":4000', b'"pid":"x"'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_good_up_to_a_damaged_line_and_says_where(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    made = [dataclasses.replace(each, processes=PROCESSES) for each in recordings.samples(9)]
    records: list[Record] = [streams.inventory(1), *made]
    written = [to_line(record).encode() for record in records]
    written[5] = damage(written[5])
    assert written[5] != to_line(made[4]).encode()
    path = tmp_path / name
    data = b"\n".join([*written, b""])
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    recording = recordings.scanned(path)
    assert recordings.numbers(list(recording.records())) == [0, 1, 2, 3]
    last = moment(made[3].time, "%Y-%m-%d %H:%M:%S")
    assert recording.ending == f"damaged at line 6; played up to {last}"
    assert (len(recording.positions), recording.end) == (4, 3.0)
    assert recording.last()[1] == made[3]


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_an_older_recording_plays_and_a_newer_one_says_what_to_do(
    tmp_path: Path, schema: int
) -> None:
    inventory = json.loads(to_line(streams.inventory(1))) | {"schema": schema}
    sample = json.loads(to_line(recordings.samples(1)[0]))
    del inventory["cpu_name"], inventory["devices"][0]["temperature_slowdown_celsius"]
    del sample["events"], sample["devices"][0]["energy_joules"]
    sample["devices"][0]["gone"] = 1
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(inventory)}\n{json.dumps(sample)}\n")
    if schema < SCHEMA:
        recording = Recording(path)
        assert [type(record) for record in recording.records()] == [Inventory, Sample]
        assert recording.ending is None
    else:
        with pytest.raises(RecordingError) as error:
            Recording(path)
        assert str(error.value) == (
            f"{path} cannot be played: the stream has schema {schema}, this gputop reads up to "
            f"{SCHEMA}. Upgrade this gputop"
        )


INVENTORY = to_line(streams.inventory(1)).encode()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not a recording"),
        (b"root:x:0:0\n" * 100, "it is not a recording"),
        (b"\x1f\x8b\x08" + b"\0" * 100, "it is not a recording"),
        (b'{"type":"sample","time":1.0,"host":{}}\n', "it is not a recording"),
        (INVENTORY, "it has no sample that can be read"),
        (INVENTORY + b'\n{"type":"sam', "it has no sample that can be read"),
        (INVENTORY + b'\n{"type":"sample","time":1,"host":7}', "it has no sample that can be read"),
        ("a folder", "it is not a file"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_recording(tmp_path: Path, data: bytes | str | None, why: str) -> None:
    path = tmp_path / "a"
    if isinstance(data, bytes):
        path.write_bytes(data)
    elif data:
        path.mkdir()
    with pytest.raises(RecordingError) as error:
        Recording(path)
    assert error.value.problem.why == why


def test_a_file_is_its_users_own_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path, link, nowhere = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "c.jsonl"
    recordings.make(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    link.symlink_to(path)
    nowhere.symlink_to(tmp_path / "d.jsonl")
    for there in (path, link, nowhere):
        with pytest.raises(
            OutputError, match=r"the file exists already\. Remove it, or name another"
        ):
            GrowingFile(there)
    assert path.read_bytes() == before
    assert not nowhere.exists()
    with pytest.raises(OutputError, match="No such file or directory"):
        GrowingFile(tmp_path / "no" / "a.jsonl")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("room", [0, 5, 200])
def test_a_full_disk_leaves_what_was_written(
    tmp_path: Path, name: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = GrowingFile(tmp_path / name)
    records = recordings.records(3)
    for record in records:
        file.write_record(record)
    write, left = os.write, room

    def full(descriptor: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        took = write(descriptor, bytes(data)[:left])
        left -= took
        return took

    monkeypatch.setattr(os, "write", full)
    other = streams.sample(1, streams.crowd(60, 1))
    with pytest.raises(OutputError, match=r"No space left on device\. Free some space"):
        file.write_record(other)
    left = 100
    file.close()
    recording = Recording(tmp_path / name)
    assert (list(recording.records()), recording.ending) == (records, None)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("node07", "gputop-node07-20251120-120000.jsonl.gz"),
        ("../../etc/x y", "gputop-etc-x-y-20251120-120000.jsonl.gz"),
        ("x" * 61, f"gputop-{'x' * 60}-20251120-120000.jsonl.gz"),
        ("...", "gputop-host-20251120-120000.jsonl.gz"),
    ],
)
def test_the_name_of_a_recording(host: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)
    assert default_name(host, streams.NOW) == name


def test_a_recording_whose_file_is_removed_ends_with_the_reason(tmp_path: Path) -> None:
    file = GrowingFile(tmp_path / "a.jsonl")
    file.write_record(streams.inventory())
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(OutputError, match="it was removed"):
        file.write_record(streams.sample())
    file.close()
