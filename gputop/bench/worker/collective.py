"""`collective`: all-reduce, all-gather and reduce-scatter between devices, as nccl-tests does."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import socket
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from .errors import RunError, first_line, is_death
from .needs import GIB, KIB, MIB
from .rows import ROW_SECONDS, WARM_UP, Rows
from .throughput import SLOWER, products_in

if TYPE_CHECKING:
    from .main import WorkerRun
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
)
SIZES = tuple(KIB * 4**power for power in range(11))
LARGEST_BYTES = {"cpu": 16 * MIB, "cuda": GIB}
SHARE_OF_FREE = 6
"""Divisor of the free memory for the largest message. A check needs four buffers of its size."""
LEAST_OPERATIONS = 5
BYTES_PER_ELEMENT, PERIOD = 4, 97
"""Element i of rank r is the integer i % 97 + r. float32 holds the sums of these exactly."""
HELD_BACK_SECONDS, MEET_SECONDS, LIMIT_SECONDS = 0.5, 60.0, 600.0
"""Delay before an error is reported, timeout for all ranks to connect, and timeout of an operation.
A rank that waits for a stuck one is ended before that."""
HOST_BOUND_BYTES = 64 * KIB
"""Size below which launching an operation from Python takes longer than the operation itself."""
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
SIOCGIFADDR = 0x8915


def bus_factor(series: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, from PERFORMANCE.md of nccl-tests."""
    return (2 if series == ALL_REDUCE else 1) * (ranks - 1) / ranks


def percentile_99(seconds: list[float]) -> float:
    """Return the 99th percentile. With fewer than 100 operations it is the longest time."""
    return sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1]


class Ranks:
    """This process among the ranks. They exchange figures through a store, not by NCCL or gloo.

    The store is a file on one machine, and a server of the first rank at `HOST:PORT` across nodes.
    """

    def __init__(self, device: Any, run: WorkerRun) -> None:
        self.dist = device.torch.distributed
        self.rank, self.count = run.request.rank, run.request.ranks
        self.backend = "nccl" if device.place == "cuda" else "gloo"
        self._agreed = 0
        host, _, port = run.request.rendezvous.rpartition(":")
        if not host:  # all ranks are on this machine
            for name in INTERFACES:
                os.environ.pop(name, None)
        changing = sorted(
            name for name in os.environ if name.startswith(("NCCL_", "GLOO_"))
        )
        run.notes += [
            f"set: {name}={os.environ[name][:80]}" for name in changing
        ]
        limit = timedelta(seconds=LIMIT_SECONDS)
        if host:
            meet = timedelta(seconds=MEET_SECONDS)
            try:
                self.store = self.dist.TCPStore(
                    host, int(port), self.count, self.rank == 0, meet
                )
            except RuntimeError as error:
                why, remedy = (
                    first_line(error),
                    f"Check that the nodes can reach {host}:{port}",
                )
                raise RunError(
                    "not_ready", "The ranks did not meet", why, remedy
                ) from error
            os.environ.setdefault(INTERFACES[0], interface_to(host))
        else:
            self.store = self.dist.FileStore(port, self.count)
            os.environ.update(dict.fromkeys(INTERFACES, "lo"))
        self.store.set_timeout(limit)
        group = (self.backend, None, limit, self.count, self.rank, self.store)
        self.dist.init_process_group(*group)

    def agree(self, *figures: float) -> list[list[float]]:
        """Exchange figures: return those of all ranks, by rank. Blocks until all have called it."""
        self._agreed += 1
        self.store.set(f"{self._agreed}/{self.rank}", json.dumps(figures))
        said = (
            self.store.get(f"{self._agreed}/{rank}")
            for rank in range(self.count)
        )
        return [json.loads(each) for each in said]

    def leave(self) -> None:
        """Leave the store. The first rank leaves last, because it may serve the store."""
        self.store.set(f"left/{self.rank}", "")
        if self.rank == 0:
            self.store.wait([f"left/{rank}" for rank in range(self.count)])


def interface_to(host: str) -> str:
    """Return the network interface by which this machine reaches a host; empty if unknown.

    By default gloo uses the interface of the machine's own name, which is often the loopback.
    """
    with (
        socket.socket(
            socket.AF_INET, socket.SOCK_DGRAM
        ) as probe,  # connecting a UDP socket sends no packet
        contextlib.suppress(OSError),
    ):
        probe.connect((host, 1))
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # has no address
                asked = struct.pack("256s", name.encode())
                if fcntl.ioctl(probe, SIOCGIFADDR, asked)[20:24] == own:
                    return name
    return ""


class Message:
    """The buffers of a size: the whole message (`full`), and this rank's share of it (`part`)."""

    def __init__(
        self,
        device: Any,
        ranks: Ranks,
        size: int,
    ) -> None:
        self._torch, self._ranks = device.torch, ranks
        self._share = size // (BYTES_PER_ELEMENT * ranks.count)
        options = {"dtype": device.torch.float32, "device": device.place}
        self.full = device.torch.empty(self._share * ranks.count, **options)
        self.part = device.torch.empty(self._share, **options)
        self.bytes = BYTES_PER_ELEMENT * self._share * ranks.count

    @property
    def operations(self) -> dict[str, Callable[[], object]]:
        """Operations on these buffers by name."""
        dist = self._ranks.dist
        # Newer versions of torch have these functions under new names.
        gather = (
            getattr(dist, "all_gather_single", None)
            or dist.all_gather_into_tensor
        )
        scatter = (
            getattr(dist, "reduce_scatter_single", None)
            or dist.reduce_scatter_tensor
        )
        return {
            ALL_REDUCE: partial(dist.all_reduce, self.full),
            ALL_GATHER: partial(gather, self.full, self.part),
            REDUCE_SCATTER: partial(scatter, self.part, self.full),
        }

    def wrong(self, series: str, operation: Callable[[], object]) -> int:
        """Return the wrong elements of one operation on known integers."""
        rank, count = self._ranks.rank, self._ranks.count
        own = slice(rank * self._share, (rank + 1) * self._share)
        device, found = self.full.device, self.full
        # The indices are int32, because float32 cannot represent all of them.
        known = self._torch.arange(
            len(found), dtype=self._torch.int32, device=device
        )
        known = known.remainder_(PERIOD).to(self.full.dtype)
        if series == ALL_GATHER:
            known.view(count, -1).add_(
                self._torch.arange(count, device=device).unsqueeze(1)
            )
            self.part.copy_(known[own])
            self.full.zero_()
        else:
            self.full.copy_(known).add_(rank)
            self.part.zero_()
            known.mul_(count).add_(count * (count - 1) // 2)
        operation()
        if series == REDUCE_SCATTER:
            known, found = known[own], self.part
        return int((found != known).sum())


def collective(device: Any, run: WorkerRun) -> None:
    """Measure a row for each size and operation."""
    if device.place == "cpu":
        device.torch.set_num_threads(1)  # the ranks share the cores
    try:
        _measure(device, run)
    except RuntimeError as error:
        # If another rank has died, the parent reports that rank and stops this
        # one, so wait for the stop before reporting this error.
        if not is_death(error) and run.halt.wait(HELD_BACK_SECONDS):
            run.end()
        raise


def _measure(device: Any, run: WorkerRun) -> None:
    ranks = Ranks(device, run)
    free = min(
        filter(None, (device.free_bytes(), run.request.free_bytes)),
        default=GIB,
    )
    most = min(free for (free,) in ranks.agree(free)) // SHARE_OF_FREE
    sizes = [
        size
        for size in SIZES
        if size <= min(most, LARGEST_BYTES[device.place])
    ]
    first = Message(device, ranks, SIZES[0])
    for operation in first.operations.values():
        operation()  # the first operation opens the connections
    rows = Rows(device, run, len(first.operations) * len(sizes))
    timing = "device events" if device.place == "cuda" else device.timing
    if device.place == "cuda":
        run.notes.append(
            f"messages under {HOST_BOUND_BYTES // KIB} KiB: the time is mostly that of launching "
            "an operation from Python, not of the links"
        )
    where = (
        "across nodes" if ":" in run.request.rendezvous else "on one machine"
    )
    rows.plan(
        "float32",
        f"torch.distributed {where}; bytes, mean over the ranks and bus bandwidth as in "
        f"nccl-tests; p99 of the slowest rank; {timing}; compared before and after each row",
        accumulate="float32",
        layout=f"{ranks.count} ranks, {ranks.backend}",
        data="known integers",
    )
    for size in sizes:
        message = Message(device, ranks, size)
        if not all(
            _row(rows, ranks, message, series) for series in message.operations
        ):
            break
    ranks.leave()


def _row(
    rows: Rows,
    ranks: Ranks,
    message: Message,
    series: str,
) -> bool:
    """Measure a row; return False if the time was up before it, on any rank."""
    device, operation, size = (
        rows.device,
        message.operations[series],
        message.bytes,
    )
    wrong = message.wrong(series, operation)
    own = min(device.wall(lambda _: operation(), 1) for _ in range(WARM_UP))
    each, over = map(max, zip(*ranks.agree(own, -rows.left)))  # noqa: B905 - Python 3.9
    if over >= 0:
        rows.until = time.monotonic()  # no rank measures another row
        return not rows.end_early()
    seconds = min(ROW_SECONDS, -over / max(1, rows.to_come))
    times = max(LEAST_OPERATIONS, products_in(seconds, each))
    rows.run.working(SLOWER * times * each)
    operation()  # synchronises the ranks
    took = _seconds_of_each(device, operation, times)
    rows.table.add(times, sum(took))
    wrong += message.wrong(series, operation)
    rows.run.verified(wrong, 1)
    said = ranks.agree(sum(took) / times, percentile_99(took), wrong)
    mean = sum(mean for mean, *_ in said) / ranks.count
    rate = size / mean
    values = {
        "bytes_per_second": bus_factor(series, ranks.count) * rate,
        "algorithm_bytes_per_second": rate,
        "seconds": mean,
        "p99_seconds": max(tail for _, tail, _ in said),
        "wrong": sum(wrong for *_, wrong in said),
    }
    rows.add(series, size, values)
    return True


def _seconds_of_each(
    device: Any, operation: Callable[[], object], times: int
) -> list[float]:
    """Return the seconds of each of `times` operations that follow each other without a pause."""
    if device.place == "cpu":
        ends = [time.perf_counter()]
        for _ in range(times):
            operation()
            ends.append(time.perf_counter())
        return [ends[n + 1] - ends[n] for n in range(times)]
    events = [
        device.torch.cuda.Event(enable_timing=True) for _ in range(times + 1)
    ]
    events[0].record()
    for event in events[1:]:
        operation()
        event.record()
    device.synchronize()
    return [events[n].elapsed_time(events[n + 1]) / 1000 for n in range(times)]
