"""`copy`: bandwidth of memory, between host and device, and between every two GPUs."""

from __future__ import annotations

import ctypes
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .errors import RunError, first_line, is_memory
from .rows import Clock, Rows, Work

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

PAIR_BYTES, SMALL_BYTES = 1 << 28, 16
"""Bytes of the largest copy between two GPUs, and of the one whose latency is measured."""
PAIR_SECONDS = 0.5
"""Share of the run for copies between GPUs, of which each GPU has an equal part."""
ROWS_OF_PAIR = 4
"""Rows of a pair, with the latency."""
MOST_HELD, HELD_CYCLES = 100, 40_000
"""Small copies that wait together, and clock cycles per copy until they begin: longer than Python
takes to launch one, so that its speed is not measured."""
ODD = 0x9E3779B97F4A7C15 - 2**64
"""Makes words of their numbers in which all bytes differ."""


class CopyPath:
    """Two buffers, the clock that times a copy between them, and how often each byte counts."""

    def __init__(
        self, series: str, to: Any, source: Any, clock: Clock, counted: int, threads: int = 0
    ) -> None:
        self.series, self.to, self.source = series, to, source
        self.clock, self.counted, self.threads = clock, counted, threads

    def copy(self, times: int) -> None:
        """Copy that many times, enqueued where memory allows it."""
        to, source = self.to, self.source
        for _ in repeat(None, times):
            to.copy_(source, non_blocking=True)

    def clear(self) -> None:
        """Remove what an earlier copy has left."""
        self.to.zero_()

    def wrong(self) -> int:
        """Return the number of wrong words."""
        return int((self.to != self.source.to(self.to.device)).sum())


def copy(device: Any, run: Run) -> None:
    """Measure a row for each size and path, and then for each other GPU and direction."""
    cuda = device.place == "cuda"
    torch, free, peers = device.torch, run.request["free_bytes"], run.request["peers"]
    if cuda:
        free = min(device.free_bytes(), free or device.free_bytes())
    most = (free or 4 << 30) // SHARE_OF_FREE
    fitting = [size for size in (DEVICE_SIZES if cuda else HOST_SIZES) if size <= most]
    sizes = fitting_host(fitting, run)
    counted = sorted({1, torch.get_num_threads()})
    alone = (5 if cuda else len(counted)) * len(sizes)
    rows = Rows(device, run, alone + ROWS_OF_PAIR * len(peers))
    timing = "device events, and wall time where memory is pageable" if cuda else device.timing
    between = (
        "; between GPUs by the driver, one pair at a time, made by the GPU that is named first"
    )
    turn = share_lock(run) if peers else lambda: None
    rows.plan(
        "bytes",
        (0, 0, 0),
        "torch copy_ of random bytes, 8 in a word; within one memory each byte is counted as read "
        f"and as written, between two once{between if peers else ''}; {timing}; "
        "medians of blocks of some 10 ms; compared at the end of each row",
        accumulate="none",
        layout="contiguous",
        data="random bytes",
    )
    end, rows.to_come = rows.until, alone
    rows.until -= PAIR_SECONDS * run.request["seconds"] if peers else 0.0
    _copy_alone(rows, sizes, counted)
    if peers and not run.halt.is_set():
        _copy_between(rows, turn, end)


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


def _copy_alone(rows: Rows, sizes: list[int], counted: list[int]) -> None:
    device, run, torch = rows.device, rows.run, rows.device.torch
    threads, cuda = torch.get_num_threads(), device.place == "cuda"
    for size in sizes:
        rows.expect("making buffers", BUFFERS_SECONDS)
        for way in _cuda_ways(device, size, run) if cuda else _cpu_ways(device, size, counted):
            if rows.over:
                rows.note_time_up()
                return
            torch.set_num_threads(way.threads or threads)
            _row(rows, way, size)
            torch.set_num_threads(threads)
        run.known.update(device.memories())


def _row(
    rows: Rows, way: CopyPath, size: int, latency: Callable[[], dict[str, float]] = dict
) -> None:
    rows.expect("a copy", BUFFERS_SECONDS)
    way.clear()
    timed = rows.time(way.copy, way.clock, rows.device.wall(way.copy, 1))
    if timed is None:
        return
    rate = way.counted * size / timed.seconds
    values = {"bytes_per_second": rate, **latency()}
    rows.expect("a comparison", BUFFERS_SECONDS)
    rows.device.synchronize()
    rows.run.verified(way.wrong(), 1)
    rows.point(way.series, size, timed, values)
    rows.to_come -= 1


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
    yield CopyPath("host to device, pageable", here, pageable, device.wall, 1)
    yield CopyPath("device to host, pageable", pageable, here, device.wall, 1)
    try:
        pinned = pageable.pin_memory()
    except RuntimeError as error:
        run.notes.append(f"pinned: absent at {size / MIB:.4g} MiB, {first_line(error)}")
        return
    yield CopyPath("host to device, pinned", here, pinned, device.timed, 1)
    yield CopyPath("device to host, pinned", pinned, here, device.timed, 1)


def _words(torch: Any, size: int) -> Any:
    return torch.randint(-(2**62), 2**62, (size // 8,), dtype=torch.int64)


def share_lock(run: Run) -> Callable[[], None]:
    """Share a lock with the other workers, and return the call that waits to have it alone.

    That is when all others have ended what they copy by themselves. The kernel releases the lock of
    a worker that ends, however it ends.
    """
    lock = os.open(run.request["rendezvous"], os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return partial(fcntl.flock, lock, fcntl.LOCK_EX)


def _copy_between(rows: Rows, turn: Callable[[], None], end: float) -> None:
    """Measure copies to and from each peer, while no other worker copies."""
    device, run, peers = rows.device, rows.run, rows.run.request["peers"]
    device.free_bytes()  # gives back what torch keeps: the other workers need it
    why = "other GPUs did not end their copies in time"
    late = RunError("too_slow", "The copies between GPUs were not begun", why, "Test them in pairs")
    run.expect(end - time.monotonic() + BUFFERS_SECONDS, late)
    turn()
    part = PAIR_SECONDS * run.request["seconds"] / (len(peers) + 1)
    rows.until = min(end, time.monotonic() + part)
    rows.to_come = ROWS_OF_PAIR * len(peers) + 1  # which leaves time for buffers and comparisons
    for number, peer in enumerate(peers, 1):
        rows.expect("making buffers", BUFFERS_SECONDS)
        direct = device.torch.cuda.can_device_access_peer(0, number)
        run.notes.append(f"{peer}: {'peer access' if direct else 'no peer access, by the host'}")
        try:
            if not _rows_of_pair(rows, number, peer):
                break
        except (MemoryError, RuntimeError) as error:
            if not is_memory(error):
                raise
            run.notes.append(f"{peer}: copies are absent, {first_line(error)}")
    else:
        return
    rows.note_time_up()


def _rows_of_pair(rows: Rows, number: int, peer: str) -> bool:
    """Measure the copies to and from a peer; return False if there was no time for all."""
    device, run = rows.device, rows.run
    free = [device.free_bytes(), device.torch.cuda.mem_get_info(number)[0]]
    most = min(filter(None, [*free, run.request["free_bytes"]])) // SHARE_OF_FREE
    size = max((each for each in DEVICE_SIZES if each <= min(most, PAIR_BYTES)), default=0)
    if not size:
        raise MemoryError(f"{most / MIB:.3g} MiB may be used for each")
    pair = Pair(device, number, size)

    def latency() -> dict[str, float]:
        timed = rows.time(partial(pair.launch, 1, 0, SMALL_BYTES), pair.held, 0.0, most=MOST_HELD)
        rows.to_come -= 1
        return {"latency_seconds": timed.seconds} if timed else {}

    for way, copies, small in (
        ("write to", {1: 0}, latency),
        ("read from", {0: 0}, dict),
        ("both directions with", {1: 0, 0: 1}, dict),
    ):
        if rows.over:
            return False
        _row(rows, PairPath(f"{run.request['label']}: {way} {peer}", pair, copies), size, small)
    return True


class Pair:
    """This GPU, 0, and a peer, 1: what each sends and receives, and a stream on each.

    The GPU whose stream has a copy makes it: a source writes, a destination reads. torch's `copy_`
    only writes.
    """

    def __init__(self, device: Any, number: int, size: int) -> None:
        self.device, self.torch, self.size = device, device.torch, size
        self.places = "cuda:0", f"cuda:{number}"
        self.sent = [self.words_of(end, end) for end in (0, 1)]
        self.received = [self.torch.empty_like(each) for each in self.sent]
        for to, source in ((0, 1), (1, 0)):  # torch has them access each other, where they can
            self.received[to].copy_(self.sent[source])
        self.streams = [self.torch.cuda.Stream(device=place) for place in self.places]
        self._copy = driver_copy()

    def words_of(self, sender: int, end: int) -> Any:
        """Return what one of them sends, made on either: no link is between."""
        torch, first, place = self.torch, sender << 40, self.places[end]
        end_of_words = first + self.size // 8
        return torch.arange(first, end_of_words, dtype=torch.int64, device=place).mul_(ODD)

    def synchronize(self) -> None:
        """Wait for both."""
        for place in self.places:
            self.torch.cuda.synchronize(place)

    def launch(self, to: int, by: int, size: int, times: int) -> None:
        """Enqueue copies of so many bytes to one of them, made by one of them."""
        received, sent = self.received[to].data_ptr(), self.sent[1 - to].data_ptr()
        stream = self.streams[by].cuda_stream
        for _ in repeat(None, times):
            self._copy(received, sent, size, stream)

    def clock(self, work: Work, times: int, held: int = 0) -> float:
        """Return the seconds of some work, by events of this GPU's stream."""
        with self.torch.cuda.stream(self.streams[0]):
            if held:
                self.torch.cuda._sleep(times * held)  # noqa: SLF001 - torch's only kernel for it
            return float(self.device.timed(work, times))

    def held(self, work: Work, times: int) -> float:
        """Return the seconds of some work that begins when all of it was launched."""
        return self.clock(work, times, HELD_CYCLES)


class PairPath(CopyPath):
    """Copies between two GPUs: who makes them, by who receives."""

    def __init__(self, series: str, pair: Pair, copies: dict[int, int]) -> None:
        super().__init__(series, None, None, pair.clock, len(copies))
        self.pair, self.copies = pair, copies

    def copy(self, times: int) -> None:
        """Copy that many times, in both directions at once if there are two."""
        here, there = self.pair.streams
        there.wait_stream(here)
        for to, by in self.copies.items():
            self.pair.launch(to, by, self.pair.size, times)
        here.wait_stream(there)

    def clear(self) -> None:
        """Remove what earlier copies have left."""
        for to in self.copies:
            self.pair.received[to].zero_()
        self.pair.synchronize()

    def wrong(self) -> int:
        """Return the number of wrong words."""
        self.pair.synchronize()
        pairs = ((self.pair.received[to], self.pair.words_of(1 - to, to)) for to in self.copies)
        return sum(int((found != right).sum()) for found, right in pairs)


def driver_copy() -> Callable[[int, int, int, int], None]:
    """Return the driver's copy: of an address to, one from, bytes, and the stream that makes it."""
    driver = ctypes.CDLL("libcuda.so.1")
    function = driver.cuMemcpyAsync
    function.argtypes = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p

    def copy(to: int, source: int, size: int, stream: int) -> None:
        if status := function(to, source, size, stream):
            said = ctypes.c_char_p()
            driver.cuGetErrorString(status, ctypes.byref(said))
            raise RuntimeError(f"CUDA error: {(said.value or b'').decode()} ({status})")

    return copy
