"""Copies from one buffer to another, by torch or, between two GPUs, by the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rows import Clock, Work

PAIR_WAYS = {
    "write to": {1: 0},
    "read from": {0: 0},
    "both directions with": {1: 0, 0: 1},
}
"""Copies between this GPU, 0, and a peer, 1: by who receives, who makes them."""
HELD_CYCLES = 40_000
"""Clock cycles for each copy that waits until all of them were launched: longer than Python takes
to launch one, so that its speed is not measured."""
ODD = 0x9E3779B97F4A7C15 - 2**64
"""Makes words of their numbers in which all bytes differ."""


class CopyPath:
    """Two buffers, the clock that times a copy between them, and how often each byte counts."""

    def __init__(
        self,
        series: str,
        to: Any,
        source: Any,
        clock: Clock,
        counted: int,
        threads: int = 0,
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


class Pair:
    """This GPU, 0, and a peer, 1: a stream of each, and what each of them receives."""

    def __init__(
        self,
        device: Any,
        number: int,
        size: int,
    ) -> None:
        self.device, self.size = device, size
        self.places = "cuda:0", f"cuda:{number}"
        self.streams = [
            device.torch.cuda.Stream(device=place) for place in self.places
        ]
        self.buffers = {}
        """Buffer of each receiver, and the one on the other GPU that is copied to it."""
        for to in (1, 0):
            source, received = (self.words_for(to, at) for at in (1 - to, to))
            received.copy_(
                source
            )  # after it the source has access to the other, where it can
            self.buffers[to] = received, source

    def words_for(self, receiver: int, at: int) -> Any:
        """Return what one of them receives, made on either: no link is between."""
        torch, first = self.device.torch, receiver << 40
        last, place = first + self.size // 8, self.places[at]
        return torch.arange(
            first,
            last,
            dtype=torch.int64,
            device=place,
        ).mul_(ODD)

    def synchronize(self) -> None:
        """Wait for both GPUs."""
        for place in self.places:
            self.device.torch.cuda.synchronize(place)


class PairPath(CopyPath):
    """Copies between this GPU, 0, and a peer, 1: by who receives, who makes them.

    The GPU whose stream has a copy makes it: a source writes, a destination reads. torch's `copy_`
    only writes.
    """

    def __init__(
        self,
        pair: Pair,
        series: str,
        copies: dict[int, int],
    ) -> None:
        super().__init__(series, None, None, self.clock_here, len(copies))
        self._pair, self._torch = pair, pair.device.torch
        self._launch = driver_copy()
        self.transfers = []
        for to, by in copies.items():
            self.transfers.append((to, *pair.buffers[to], pair.streams[by]))

    def copy(self, times: int) -> None:
        """Copy that many times, in both directions at once if there are two."""
        here, there = self._pair.streams
        there.wait_stream(here)
        for _, received, source, stream in self.transfers:
            copied = (
                received.data_ptr(),
                source.data_ptr(),
                self._pair.size,
                stream.cuda_stream,
            )
            with self._torch.cuda.stream(
                stream
            ):  # the driver wants its GPU to be the current one
                for _ in repeat(None, times):
                    self._launch(*copied)
        here.wait_stream(there)

    def clear(self) -> None:
        """Remove what earlier copies have left."""
        for _, received, *_ in self.transfers:
            received.zero_()
        self._pair.synchronize()

    def wrong(self) -> int:
        """Return the number of wrong words."""
        self._pair.synchronize()
        found = 0
        for to, received, *_ in self.transfers:
            found += int((received != self._pair.words_for(to, to)).sum())
        return found

    def clock_here(self, work: Work, times: int) -> float:
        """Return the seconds of some work, by events of this GPU's stream."""
        with self._torch.cuda.stream(self._pair.streams[0]):
            return float(self._pair.device.timed(work, times))

    def clock_held(self, work: Work, times: int) -> float:
        """Return the seconds of some work that begins when all of it was launched."""
        with self._torch.cuda.stream(self._pair.streams[0]):
            self._torch.cuda._sleep(times * HELD_CYCLES)  # noqa: SLF001 - torch's only such kernel
        return self.clock_here(work, times)


def driver_copy() -> Callable[[int, int, int, int], None]:
    """Return the driver's copy: of an address to, one from, bytes, and the stream that makes it."""
    driver = ctypes.CDLL("libcuda.so.1")
    function = driver.cuMemcpyAsync
    function.argtypes = (
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )

    def copy(
        to: int,
        source: int,
        size: int,
        stream: int,
    ) -> None:
        if status := function(to, source, size, stream):
            said = ctypes.c_char_p()
            driver.cuGetErrorString(status, ctypes.byref(said))
            raise RuntimeError(
                f"CUDA error: {(said.value or b'').decode()} ({status})"
            )

    return copy
