"""The lines of a file, plain or gzip, from any place on; what is damaged is passed over."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from gputop.bounds import DAMAGES, LINE_BYTES, SKIPPED_BYTES
from gputop.recording.writer import GZIP

MAGIC = b"\x1f\x8b\x08"
"""What a member of a gzip file begins with."""
CHUNK_BYTES = 1 << 16
"""Read, or decompressed, at once."""
DEFLATED_BYTES = 1 << 12
"""Of compressed data at once: what is in the same piece as a damage is lost with it."""


class Place(NamedTuple):
    """Where a line begins: in bytes into the member at that offset, once decompressed.

    A plain file is one member.
    """

    member: int
    skip: int


START = Place(0, 0)


class Line(NamedTuple):
    """A line without its newline, or a piece of them; None where something could not be read."""

    place: Place
    data: bytes | None


def is_gzip(file: BinaryIO) -> bool:
    """Whether it begins as gzip does."""
    file.seek(0)
    return file.read(len(MAGIC)) == MAGIC


def lines(file: BinaryIO, *, compressed: bool, start: Place = START) -> Iterator[Line]:
    """The lines from `start` on, which is where one begins.

    Of a line that is too long there is one None for each piece, so that one without an end cannot
    keep the reader waiting.
    """
    begin, pending, overlong = start, bytearray(), False
    for place, data in _inflated(file, start) if compressed else _plain(file, start):
        if data is None:
            yield Line(begin if pending else place, None)
            pending.clear()
            overlong = False
            continue
        member, offset = place
        *whole, rest = data.split(b"\n")
        for part in whole:
            if not pending:
                begin = Place(member, offset)
            if not overlong:
                yield Line(begin, bytes(pending) + part)
            pending.clear()
            overlong = False
            offset += len(part) + 1
        if not pending and not overlong:
            begin = Place(member, offset)
        pending += rest
        overlong = overlong or len(pending) > LINE_BYTES
        if overlong:
            yield Line(begin, None)
            pending.clear()
    if pending and not overlong:
        yield Line(begin, bytes(pending))


def _plain(file: BinaryIO, start: Place) -> Iterator[Line]:
    file.seek(start.skip)
    offset = start.skip
    while data := file.read(CHUNK_BYTES):
        yield Line(Place(0, offset), data)
        offset += len(data)


def _inflated(file: BinaryIO, start: Place) -> Iterator[Line]:
    """What is in the members of a gzip file; after a damaged one comes the next."""
    member, skip = start
    empty = 0
    while empty < DAMAGES:  # a file of members without content would keep the reader waiting
        offset = 0
        try:
            for data in _member(file, member):
                if offset + len(data) > skip:
                    cut = max(0, skip - offset)
                    yield Line(Place(member, offset + cut), data[cut:])
                offset += len(data)
            after = file.tell()
            following = _next_member(file, after)
            lost = following != after and _has_more(file, after)
        except zlib.error:
            following, lost = _next_member(file, member + 1), True
        if lost:
            yield Line(Place(member, offset), None)
        if following is None:
            return
        member, skip = following, 0
        empty = 0 if offset else empty + 1


def _member(file: BinaryIO, member: int) -> Iterator[bytes]:
    """What is in the member at that offset; leaves the file where it ends. Raises `zlib.error`.

    That it is cut off is no error: nobody can say whether more was ever written.
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


def _has_more(file: BinaryIO, offset: int) -> bool:
    """Whether anything but the zeros that pad some files comes from there on."""
    return any(data.strip(b"\0") for data in _pieces(file, offset))


def _next_member(file: BinaryIO, offset: int) -> int | None:
    """Where the next member begins, from that offset on."""
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
    """Return what comes from that offset on, up to `SKIPPED_BYTES`."""
    file.seek(offset)
    while file.tell() - offset < SKIPPED_BYTES and (data := file.read(CHUNK_BYTES)):
        yield data
