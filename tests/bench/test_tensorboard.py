"""Scalars that TensorBoard reads. The bytes are checked by a reader of their own, written here."""

from __future__ import annotations

import importlib
import importlib.util
import struct
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Progress
from gputop.bench.results import tensorboard
from gputop.bench.results.tensorboard import crc32c, run_name, scalars, write
from gputop.bench.run.state import RunCurves
from tests.bench.kept import BASE, SWEEP, table

if TYPE_CHECKING:
    from pathlib import Path

COURSE = RunCurves(
    (Progress(0.5, 0.5, 10, 800.0, 805.0), Progress(1.0, 0.5, 20, 780.0, 781.0)),
    {"power_watts": [(0.0, 500.0), (1.0, 690.0)]},
)


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # this and the next two: RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


GOLDEN_VERSION = "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d"
GOLDEN_SCALAR = (
    "2100000000000000017becf60900001040fc54d94110fa012a130a110a0a72756e2f74666c6f7073150000c03f"
    "947a340f"
)


def test_a_file_is_what_tensorboard_itself_writes() -> None:
    """Both records are of the RecordWriter of tensorboard 2.21: the version, and a scalar."""
    bare = replace(BASE, started_at=1700000000.0)
    first, second, *_ = tensorboard.records(bare, RunCurves((Progress(0.25, 0.25, 1, 1.5),)))
    assert first.hex() == GOLDEN_VERSION
    assert second.hex() == GOLDEN_SCALAR


def fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a protobuf message: wire types 0, 1, 2 and 5."""
    found: dict[int, list[Any]] = defaultdict(list)
    while data:
        key, data = varint(data)
        if key & 7 == 0:
            number, data = varint(data)
            found[key >> 3].append(number)
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        if size is None:
            assert key & 7 == 2
            size, data = varint(data)
        found[key >> 3].append(data[:size])
        data = data[size:]
    return found


def varint(data: bytes) -> tuple[int, bytes]:
    value = shift = 0
    while True:
        byte, data = data[0], data[1:]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data


def records(data: bytes) -> list[bytes]:
    """What is in a TFRecord file, with both checksums of each checked."""
    found = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        record = data[12 : 12 + length]
        for part, masked in ((data[:8], data[8:12]), (record, data[12 + length : 16 + length])):
            crc = crc32c(part)
            rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
            assert struct.unpack("<I", masked)[0] == (rotated + 0xA282EAD8) % (1 << 32)
        found.append(record)
        data = data[16 + length :]
    return found


def read(file: Path) -> list[tuple[str, float, int, float]]:
    """The scalars of a file, behind its version."""
    version, *events = map(fields, records(file.read_bytes()))
    assert version[3] == [b"brain.Event:2"]
    found = []
    for event in events:
        (summary,) = map(fields, event[5])
        (value,) = map(fields, summary[1])
        (at,) = struct.unpack("<d", event[1][0])
        (number,) = struct.unpack("<f", value[2][0])
        found.append((value[1][0].decode(), at, *event.get(2, [0]), number))
    return found


def test_what_is_written_is_what_was_measured(tmp_path: Path) -> None:
    result = replace(table("sweep", SWEEP), tflops_peak=1.5)
    file = write(tmp_path / "runs", result, COURSE)
    found = read(file)
    wanted = list(scalars(result, COURSE))
    assert [each[:3] for each in found] == [each[:3] for each in wanted]
    assert [each[3] for each in found] == pytest.approx([each[3] for each in wanted])
    start = result.started_at
    assert ("run/tflops", start + 0.5, 500, 800.0) in found
    assert ("run/tflops_device", start + 1.0, 1000, 781.0) in found
    assert ("device/power_watts", start, 0, 500.0) in found
    assert [step for tag, _, step, _ in found if tag == "float32/tflops"] == [
        2**n for n in range(1, 12)
    ]
    assert ("result/tflops_peak", start + 60.0, 0, 1.5) in found
    assert "result/tflops_mean" not in {tag for tag, *_ in found}


def test_every_run_has_a_folder_of_its_own(tmp_path: Path) -> None:
    others = (replace(BASE, device_uuid="GPU-0b"), replace(BASE, started_at=1.0))
    files = [write(tmp_path, each, COURSE) for each in (BASE, *others)]
    assert len({file.parent for file in files}) == 3
    assert all("tfevents" in file.name for file in files)
    assert [each.name for each in files[0].parent.iterdir()] == [files[0].name]


def test_a_name_is_no_path() -> None:
    name = run_name(replace(BASE, device="../../etc/ \x1b[2J", dtype="a/b", device_uuid=None))
    assert "/" not in name
    assert name.isprintable()
    assert not name.startswith(".")


@given(st.integers(0, (1 << 63) - 1))
def test_varints_come_back(value: int) -> None:
    assert varint(tensorboard._varint(value)) == (value, b"")


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
def test_tensorboard_reads_it(tmp_path: Path) -> None:
    reading = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    file = write(tmp_path, BASE, COURSE)
    found = reading.EventAccumulator(str(file.parent)).Reload()
    events = found.Scalars("run/tflops")
    assert [(each.step, each.value) for each in events] == [(500, 800.0), (1000, 780.0)]
