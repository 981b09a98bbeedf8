"""`copy`: bandwidth of memory, between host and device, and between every two GPUs."""

from __future__ import annotations

import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .copy_paths import ODD, PAIR_WAYS, CopyPath, Pair, PairPath
from .errors import first_line
from .needs import GIB, KIB, MIB
from .rows import BLOCK_SECONDS, Rows

if TYPE_CHECKING:
    from .main import WorkerRun

HOST_SIZES = tuple(64 * KIB * 4**power for power in range(8))
"""64 KiB to 1 GiB: from inside the caches to far beyond them."""
DEVICE_SIZES = (MIB, 16 * MIB, 256 * MIB, GIB)
SHARE_OF_FREE = 4
"""Divisor of the free memory for the largest copy: source, destination, and a comparison."""
HOST_COPIES = 4
"""Host buffers per size: pageable, pinned, the smaller pinned buffers that torch keeps, and one for
the comparison with its mask."""
READ_AND_WRITTEN = 2
RANDOM_WORDS = 64 * KIB
"""Random words of a buffer. All other blocks are these words XOR a number, because the host makes
random numbers more slowly than it copies them."""

PAIR_BYTES, SMALL_BYTES = 256 * MIB, 16
"""Bytes of the largest copy between two GPUs, and of the one whose latency is measured."""
LEAST_BETWEEN, MOST_BETWEEN = 0.25, 0.75
"""Shares of the run for copies between GPUs, of which each GPU has an equal part."""
PEER_SECONDS = 1.5
"""Wall time for the rows of one peer, with buffers and comparisons. A fast link needs half."""
ROWS_OF_PAIR = 4
"""Rows of a pair, with the latency."""
MOST_HELD = 100
"""Most small copies that the stream holds back until all of them are launched."""


def copy(device: Any, run: WorkerRun) -> None:
    """Measure a row for each size and path, and then for each other GPU and direction."""
    cuda = device.place == "cuda"
    torch, free = device.torch, run.request.free_bytes
    if cuda:
        free = min(device.free_bytes(), free or device.free_bytes())
    most = (free or 4 * GIB) // SHARE_OF_FREE
    fitting = [
        size for size in (DEVICE_SIZES if cuda else HOST_SIZES) if size <= most
    ]
    sizes = fitting_host(fitting, run)
    counted = sorted({1, torch.get_num_threads()})
    alone = (5 if cuda else len(counted)) * len(sizes)
    peers = reachable_peers(device, run)
    rows = Rows(device, run, alone + ROWS_OF_PAIR * len(peers))
    timing = device.timing
    if cuda:
        timing = "device events, and wall time where memory is pageable"
    between = (
        "; between GPUs by the driver, one pair at a time, "
        "run by the GPU that is named first"
    )
    # A worker without peers shares the lock, too: the other workers wait until
    # it has finished its own copies.
    turn = share_lock(run) if run.request.turns else lambda: None
    seconds = seconds_between(run, len(peers))
    rows.plan(
        "bytes",
        "torch copy_ of random bytes, 8 in a word; within one memory each byte is counted as read "
        f"and as written, between two once{between if peers else ''}; {timing}; "
        "medians of blocks of some 10 ms; compared at the end of each row",
        accumulate="none",
        layout="contiguous",
        data="random bytes",
    )
    rows.to_come = alone
    rows.until -= seconds
    _copy_alone(rows, sizes, counted)
    if peers and not run.halt.is_set():
        _copy_between(rows, peers, turn, seconds / run.request.turns)


def seconds_between(run: WorkerRun, peers: int) -> float:
    """Return the seconds that the turns of all GPUs take together.

    If the run is long enough, each peer gets the seconds that its rows need.
    """
    if not peers:
        return 0.0
    seconds: float = run.request.seconds
    wanted = max(_seconds_needed(run, peers), LEAST_BETWEEN * seconds)
    return min(wanted, MOST_BETWEEN * seconds)


def _seconds_needed(run: WorkerRun, peers: int) -> float:
    turns: int = run.request.turns
    return PEER_SECONDS * peers * turns


def reachable_peers(device: Any, run: WorkerRun) -> dict[int, str]:
    """Return the usable peers by their number in this process, and create context and peer access.

    This is part of the preparation, because it may take seconds. A note names each unusable peer,
    such as a GPU in an exclusive compute mode.
    """
    for peer, mode in run.request.exclusive_peers.items():
        run.notes.append(
            f"{peer}: copies not measured, its compute mode is {mode.replace('_', ' ')}"
        )
    found = {}
    for number, peer in enumerate(run.request.peers, 1):
        try:
            direct = device.torch.cuda.can_device_access_peer(0, number)
            Pair(device, number, SMALL_BYTES)
        except (MemoryError, RuntimeError) as error:
            run.notes.append(
                f"{peer}: copies not measured, {first_line(error)}"
            )
            continue
        found[number] = peer
        run.notes.append(
            f"{peer}: {'peer access' if direct else 'no peer access, by the host'}"
        )
    return found


def fitting_host(sizes: list[int], run: WorkerRun) -> list[int]:
    """Return the sizes that fit in the host's memory, and note the sizes that do not."""
    host = run.request.host_bytes
    if host is None:
        return sizes
    found = [size for size in sizes if HOST_COPIES * size <= host]
    if len(found) < len(sizes):
        run.notes.append(
            f"no copies of {sizes[len(found)] // MIB} MiB and more: they take {HOST_COPIES} times "
            f"as much of the host's memory, of which {host / GIB:.2f} GiB are left for this GPU"
        )
    return found


def _copy_alone(
    rows: Rows,
    sizes: list[int],
    counted: list[int],
) -> None:
    """Measure the copies that need no other GPU."""
    device, torch, threads = rows.device, rows.device.torch, counted[-1]
    for size in sizes:
        with rows.attempt(f"copies of {size / MIB:.4g} MiB"):
            if rows.end_early():
                return
            if device.place == "cuda":
                ways = _cuda_ways(device, size, rows.run)
            else:
                ways = _cpu_ways(device, size, counted)
            for way in ways:
                if rows.end_early():
                    return
                torch.set_num_threads(way.threads or threads)
                _row(rows, way, size, {})
                torch.set_num_threads(threads)


def _row(
    rows: Rows,
    way: CopyPath,
    size: int,
    further: Mapping[str, float],
) -> None:
    way.clear()
    timed = rows.time(way.copy, way.clock, rows.device.wall(way.copy, 1))
    if timed is None:
        return
    rows.device.synchronize()
    rows.run.verified(way.wrong(), 1)
    rate = way.counted * size / timed.seconds
    rows.add(
        way.series, size, {"bytes_per_second": rate, **further, **timed.values}
    )


def _cpu_ways(
    device: Any,
    size: int,
    counted: list[int],
) -> Iterator[CopyPath]:
    to, source = (random_words(device.torch, size) for _ in range(2))
    for threads in counted:
        name = "1 thread" if threads == 1 else f"{threads} threads"
        yield CopyPath(
            f"host, {name}",
            to,
            source,
            device.timed,
            READ_AND_WRITTEN,
            threads,
        )


def _cuda_ways(
    device: Any,
    size: int,
    run: WorkerRun,
) -> Iterator[CopyPath]:
    """Yield the paths, ordered so that each buffer is read before it is written."""
    torch = device.torch
    here, pageable = (
        random_words(torch, size, "cuda"),
        random_words(torch, size),
    )
    yield CopyPath(
        "device to device",
        torch.empty_like(here),
        here,
        device.timed,
        READ_AND_WRITTEN,
    )
    yield CopyPath("host to device, pageable", here, pageable, device.wall, 1)
    yield CopyPath("device to host, pageable", pageable, here, device.wall, 1)
    try:
        pinned = pageable.pin_memory()
    except RuntimeError as error:
        run.notes.append(
            f"pinned: absent at {size / MIB:.4g} MiB, {first_line(error)}"
        )
        return
    yield CopyPath("host to device, pinned", here, pinned, device.timed, 1)
    yield CopyPath("device to host, pinned", pinned, here, device.timed, 1)


def random_words(
    torch: Any,
    size: int,
    place: str = "cpu",
) -> Any:
    """Return a buffer of `size` bytes, in which all blocks of words differ."""
    count = size // 8
    most = min(count, RANDOM_WORDS)
    block = torch.empty(most, dtype=torch.int64, device=place).random_()
    numbers = torch.arange(count // len(block), device=place).mul_(ODD)
    words = torch.empty(
        (len(numbers), len(block)), dtype=torch.int64, device=place
    )
    torch.bitwise_xor(block, numbers.unsqueeze(1), out=words)
    return words.view(-1)


def share_lock(run: WorkerRun) -> Callable[[], None]:
    """Take a shared lock, and return a call that blocks until this worker has the lock alone.

    The call returns when all other workers have finished the copies that need no other GPU. The
    kernel releases the lock when a worker ends for any reason.
    """
    lock = os.open(run.request.rendezvous, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return partial(fcntl.flock, lock, fcntl.LOCK_EX)


def _copy_between(
    rows: Rows,
    peers: dict[int, str],
    turn: Callable[[], None],
    seconds: float,
) -> None:
    """Measure copies to and from each peer for `seconds`, while no other worker copies."""
    device, run = rows.device, rows.run
    # This also returns torch's cached memory, which the other workers need.
    device.free_bytes()
    run.working(math.inf)  # the other workers have their own limits
    turn()
    run.working(0.0)
    # A turn has its full length even if the turns before it were late.
    rows.until = time.monotonic() + seconds
    rows.to_come = (
        ROWS_OF_PAIR * len(peers) + 1
    )  # 1 more leaves time for buffers and comparisons
    missing = list(peers.values())
    for number, peer in peers.items():
        if rows.over:
            break
        missing.remove(peer)
        with rows.attempt(f"copies to and from {peer}"):
            _rows_of_pair(rows, number, peer)
    if missing and not run.halt.is_set():
        enough = math.ceil(_seconds_needed(run, len(peers)) / MOST_BETWEEN)
        why = f"the time was up: give --seconds {enough} or more"
        run.notes.append(f"{', '.join(missing)}: copies not measured, {why}")


def _rows_of_pair(
    rows: Rows,
    number: int,
    peer: str,
) -> None:
    """Measure all copies to and from a peer, because a single direction is not conclusive."""
    device, run = rows.device, rows.run
    free = [device.free_bytes(), device.torch.cuda.mem_get_info(number)[0]]
    most = min(filter(None, [*free, run.request.free_bytes])) // SHARE_OF_FREE
    size = max(
        (each for each in DEVICE_SIZES if each <= min(most, PAIR_BYTES)),
        default=0,
    )
    if not size:
        why = f"{most / MIB:.3g} MiB may be used for each"
        run.notes.append(f"{peer}: copies not measured, {why}")
        return
    latency = _latency(rows, number)
    rows.to_come -= 1
    further = {} if latency is None else {"latency_seconds": latency}
    pair = Pair(device, number, size)
    for way, copies in PAIR_WAYS.items():
        if run.halt.is_set():
            return
        series = f"{run.request.label}: {way} {peer}"
        _row(rows, PairPath(pair, series, copies), size, further)
        further = {}


def _latency(rows: Rows, number: int) -> float | None:
    """Return the seconds of a small copy to a peer, or None if the run was halted first."""
    path = PairPath(
        Pair(rows.device, number, SMALL_BYTES), "", PAIR_WAYS["write to"]
    )
    path.clear()
    each = BLOCK_SECONDS / MOST_HELD
    timed = rows.time(path.copy, path.clock_held, each, most=MOST_HELD)
    rows.run.verified(path.wrong(), 1)
    return None if timed is None else timed.seconds
