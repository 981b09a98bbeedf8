"""Lines of a plain or gzip file from any position on; damaged parts are skipped."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gputop.bounds import DAMAGES, LINE_BYTES, SKIPPED_BYTES
from gputop.recording.writer import GZIP

if TYPE_CHECKING:
    from gputop.schema.snapshot import Record

MAGIC = b"\x1f\x8b\x08"
"""First bytes of a member of a gzip file."""
CHUNK_BYTES = 1 << 16
"""Bytes read, or decompressed, at a time."""
DEFLATED_BYTES = 1 << 12
"""Bytes of compressed data at a time. A damaged piece loses the whole piece."""


class LinePosition(NamedTuple):
    """Start of a line: a gzip member's offset, and bytes into it once decompressed.

    A plain file is one member.
    """

    member: int
    skip: int


START = LinePosition(0, 0)
Piece = tuple[LinePosition, bytes | None]
"""A piece of the file's content; None for an unreadable part."""


class RecordedLine(NamedTuple):
    """A line without its newline; None for an unreadable part."""

    start: LinePosition
    data: bytes | None
    kind: type[Record] | None = None
    """Kind of its record, once read; None if it is damaged."""
    time: float = 0.0


def lines(file: BinaryIO, start: LinePosition = START) -> Iterator[RecordedLine]:
    """Yield the lines from `start` on, at which a line begins.

    The file is decompressed if it begins as gzip does. A line that is too long yields one None for
    each piece, so that an endless one cannot keep the reader waiting.
    """
    begin, pending, overlong = start, bytearray(), False
    file.seek(0)
    pieces = _inflated if file.read(len(MAGIC)) == MAGIC else _plain
    for place, data in pieces(file, start):
        if data is None:
            yield RecordedLine(begin if pending else place, None)
            pending.clear()
            overlong = False
            continue
        member, offset = place
        for number, part in enumerate(data.split(b"\n")):
            if number:  # the line before it is whole
                if not overlong:
                    yield RecordedLine(begin, bytes(pending))
                pending.clear()
                overlong = False
            if not pending and not overlong:
                begin = LinePosition(member, offset)
            pending += part
            offset += len(part) + 1
        overlong = overlong or len(pending) > LINE_BYTES
        if overlong:
            yield RecordedLine(begin, None)
            pending.clear()
    if pending and not overlong:
        yield RecordedLine(begin, bytes(pending))


def _plain(file: BinaryIO, start: LinePosition) -> Iterator[Piece]:
    file.seek(start.skip)
    offset = start.skip
    while data := file.read(CHUNK_BYTES):
        yield LinePosition(0, offset), data
        offset += len(data)


def _inflated(file: BinaryIO, start: LinePosition) -> Iterator[Piece]:
    """Yield the content of a gzip file's members; after a damaged one comes the next."""
    member, skip = start
    empty = 0
    while empty < DAMAGES:  # a file of empty members would keep the reader waiting
        offset = 0
        try:
            for data in _member(file, member):
                if offset + len(data) > skip:
                    cut = max(0, skip - offset)
                    yield LinePosition(member, offset + cut), data[cut:]
                offset += len(data)
            after = file.tell()
            following = _next_member(file, after)
            # Some files are padded with zeros, which are no loss.
            lost = following != after and any(x.strip(b"\0") for x in _pieces(file, after))
        except zlib.error:
            following, lost = _next_member(file, member + 1), True
        if lost:
            yield LinePosition(member, offset), None
        if following is None:
            return
        member, skip = following, 0
        empty = 0 if offset else empty + 1


def _member(file: BinaryIO, member: int) -> Iterator[bytes]:
    """Yield the content of the member at that offset, and leave the file at its end.

    Raises `zlib.error`. A member that is cut off is no error: more may never have been written.
    """
    file.seek(member)
    inflate = zlib.decompressobj(wbits=GZIP)
    while not inflate.eof:
        read = inflate.unconsumed_tail or file.read(DEFLATED_BYTES)
        data = inflate.decompress(read, CHUNK_BYTES) if read else inflate.flush()
        if data:
            yield data
        if not read:
            return
    file.seek(-len(inflate.unused_data), os.SEEK_CUR)


def _next_member(file: BinaryIO, offset: int) -> int | None:
    """Return the offset of the next member, from that offset on."""
    window, at = b"", offset
    for data in _pieces(file, offset):
        window += data
        found = window.find(MAGIC)
        if found >= 0:
            return at + found
        keep = len(MAGIC) - 1
        at += max(0, len(window) - keep)
        window = window[-keep:]
    return None


def _pieces(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Yield the file from that offset on, up to `SKIPPED_BYTES`."""
    file.seek(offset)
    while file.tell() - offset < SKIPPED_BYTES and (data := file.read(CHUNK_BYTES)):
        yield data
