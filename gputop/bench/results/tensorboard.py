"""A run as scalars for TensorBoard.

Its files are TFRecords of protobuf messages, simple enough to be written here: a run need not have
TensorBoard installed, which is then only for whoever looks at it.
(The formats: tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto,
tensorflow/core/framework/summary.proto; the checksum is the CRC-32C of RFC 3720.)
"""

from __future__ import annotations

import re
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.files import write_whole
from gputop.text import moment, short_name, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.bench.events import Result
    from gputop.bench.run.state import RunCurves

Scalar = tuple[str, float, int, float]
"""Tag, Unix seconds, step, value."""
LARGEST_STEP = (1 << 63) - 1
"""Largest step, a signed integer of 64 bits."""


def write(folder: Path, result: Result, course: RunCurves) -> Path:
    """Write the run into a folder of its own in `folder`, and return the file; raise `OSError`."""
    own = folder / run_name(result)
    own.mkdir(parents=True, exist_ok=True)
    file = own / f"events.out.tfevents.{result.started_at:.0f}.gputop"
    write_whole(file, b"".join(records(result, course)))
    return file


def run_name(result: Result) -> str:
    """Return the folder's name, which is the run's name in TensorBoard."""
    began = moment(result.started_at, "%Y-%m-%dT%H-%M-%S")
    device = (result.device_uuid or "cpu")[:12]
    words = (began, short_name(result.device), device, result.kind, result.dtype)
    size = f"{result.m}x{result.n}x{result.k}" if not result.points else "table"
    return "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.") for word in (*words, size))


def scalars(result: Result, course: RunCurves) -> Iterator[Scalar]:
    """Yield scalars. The step is the run's milliseconds, or x for a table."""
    start = result.started_at
    for window in course.progress:
        at, step = start + window.elapsed_seconds, _milliseconds(window.elapsed_seconds)
        yield "run/tflops", at, step, window.tflops
        if window.tflops_device is not None:
            yield "run/tflops_device", at, step, window.tflops_device
    for name, series in course.readings.items():
        for seconds, value in series:
            yield f"device/{name}", start + seconds, _milliseconds(seconds), value
    for point in result.points:
        for name, value in point.values.items():
            yield visible(f"{point.series}/{name}"), start, round(point.x), value
    for name in ("tflops_mean", "tflops_peak", "tflops_sustained", "droop_percent"):
        value = getattr(result, name)
        if value is not None:
            yield f"result/{name}", start + result.seconds, 0, value


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)


def records(result: Result, course: RunCurves) -> Iterator[bytes]:
    """Yield the pieces of the file: its version, and an event for each scalar."""
    yield _record(_event(result.started_at, 0, _bytes(3, b"brain.Event:2")))
    for tag, at, step, value in scalars(result, course):
        scalar = _bytes(1, tag.encode()) + _key(2, 5) + struct.pack("<f", value)
        yield _record(_event(at, max(0, min(step, LARGEST_STEP)), _bytes(5, _bytes(1, scalar))))


def _event(at: float, step: int, what: bytes) -> bytes:
    number = _key(2, 0) + _varint(step) if step else b""  # as protobuf leaves out what is zero
    return _key(1, 1) + struct.pack("<d", at) + number + what


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """Return the masked checksum of these files."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    values = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901 - bit by bit
        values.append(value)
    return tuple(values)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
