"""`copy`: bandwidth of memory, and between host and device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from .rows import Clock, Rows

if TYPE_CHECKING:
    from .main import Run

MIB = 1 << 20
HOST_SIZES = tuple(1 << power for power in range(16, 31, 2))
"""64 KiB to 1 GiB: from inside the caches to far beyond them."""
DEVICE_SIZES = (1 << 20, 1 << 24, 1 << 28, 1 << 30)
SHARE_OF_FREE = 4
"""Divisor of the free memory for the largest copy. It exists twice, and once more when compared."""
HOST_COPIES = 4
"""Copies of a size that the host holds: pageable, pinned (and the smaller ones, which torch keeps),
and one to compare with its mask."""
BUFFERS_SECONDS = 3.0
"""Expected seconds to make the largest buffers on a slow host."""
READ_AND_WRITTEN = 2


class CopyPath(NamedTuple):
    """Two buffers, the clock that times a copy between them, and how often each byte counts."""

    series: str
    to: Any
    source: Any
    clock: Clock
    counted: int
    threads: int = 0

    def copy(self, times: int) -> None:
        """Copy that many times, enqueued where memory allows it."""
        to, source = self.to, self.source
        for _ in repeat(None, times):
            to.copy_(source, non_blocking=True)


def copy(device: Any, run: Run) -> None:
    """Measure a row for each size and path."""
    cuda = device.place == "cuda"
    torch, free = device.torch, run.request["free_bytes"]
    if cuda:
        free = min(device.free_bytes(), free or device.free_bytes())
    most = (free or 4 << 30) // SHARE_OF_FREE
    fitting = [size for size in (DEVICE_SIZES if cuda else HOST_SIZES) if size <= most]
    sizes = fitting_host(fitting, run)
    threads = torch.get_num_threads()
    counted = sorted({1, threads})
    ways = (6 if run.request["peer"] else 5) if cuda else len(counted)
    rows = Rows(device, run, ways * len(sizes))
    timing = "device events, and wall time where memory is pageable" if cuda else device.timing
    rows.plan(
        "bytes",
        (0, 0, 0),
        "torch copy_ of random bytes, 8 in a word; within one memory each byte is counted as read "
        f"and as written, between two once; {timing}; "
        "medians of blocks of some 10 ms; compared at the end of each row",
        accumulate="none",
        layout="contiguous",
        data="random bytes",
    )
    for size in sizes:
        rows.expect("making buffers", BUFFERS_SECONDS)
        for way in _cuda_ways(device, size, run) if cuda else _cpu_ways(device, size, counted):
            if rows.over:
                rows.note_time_up()
                return
            if way.threads:
                torch.set_num_threads(way.threads)
            _row(rows, way, size)
            torch.set_num_threads(threads)
            rows.to_come -= 1
        run.known.update(device.memories())


def fitting_host(sizes: list[int], run: Run) -> list[int]:
    """Return the sizes for which the host has room, and note it where some are left out."""
    host = run.request["host_bytes"]
    found = [size for size in sizes if host is None or HOST_COPIES * size <= host]
    if len(found) < len(sizes):
        run.notes.append(
            f"no copies of {sizes[len(found)] // MIB} MiB and more: they take {HOST_COPIES} times "
            f"as much of the host's memory, of which {host / 2**30:.2f} GiB are left for this GPU"
        )
    return found


def _row(rows: Rows, way: CopyPath, size: int) -> None:
    rows.expect("a copy", BUFFERS_SECONDS)
    way.to.zero_()
    each = rows.device.wall(way.copy, 1)
    timed = rows.time(way.copy, way.clock, each)
    if timed is None:
        return
    rows.expect("a comparison", BUFFERS_SECONDS)
    rows.device.synchronize()
    rows.run.verified(int((way.to != way.source.to(way.to.device)).sum()), 1)
    rate = way.counted * size / timed.seconds
    rows.point(way.series, size, timed, {"bytes_per_second": rate})


def _cpu_ways(device: Any, size: int, counted: list[int]) -> Iterator[CopyPath]:
    to, source = (_words(device.torch, size) for _ in range(2))
    for threads in counted:
        name = "1 thread" if threads == 1 else f"{threads} threads"
        yield CopyPath(f"host, {name}", to, source, device.timed, READ_AND_WRITTEN, threads)


def _cuda_ways(device: Any, size: int, run: Run) -> Iterator[CopyPath]:
    """Yield the paths in an order in which a buffer is read before it is written."""
    torch = device.torch
    here, pageable = _words(torch, size).cuda(), _words(torch, size)
    yield CopyPath("device to device", torch.empty_like(here), here, device.timed, READ_AND_WRITTEN)
    yield from _peer_way(device, here, run)
    yield CopyPath("host to device, pageable", here, pageable, device.wall, 1)
    yield CopyPath("device to host, pageable", pageable, here, device.wall, 1)
    try:
        pinned = pageable.pin_memory()
    except RuntimeError as error:
        run.notes.append(f"pinned: absent at {size / MIB:.4g} MiB, {str(error).splitlines()[0]}")
        return
    yield CopyPath("host to device, pinned", here, pinned, device.timed, 1)
    yield CopyPath("device to host, pinned", pinned, here, device.timed, 1)


def _peer_way(device: Any, here: Any, run: Run) -> Iterator[CopyPath]:
    torch, peer = device.torch, run.request["peer"]
    if not peer:
        return
    direct = torch.cuda.can_device_access_peer(0, 1)
    try:
        there = torch.empty_like(here, device="cuda:1")
    except RuntimeError as error:
        size = here.numel() * here.element_size() / MIB
        run.notes.append(f"to {peer}: absent at {size:.4g} MiB, {str(error).splitlines()[0]}")
        return
    how = "peer access" if direct else "through the host"
    yield CopyPath(f"device to {peer}, {how}", there, here, device.timed, 1)


def _words(torch: Any, size: int) -> Any:
    return torch.randint(-(2**62), 2**62, (size // 8,), dtype=torch.int64)
