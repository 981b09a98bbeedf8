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
"""Copies between this GPU (0) and a peer (1): the receiving GPU, and the GPU that runs the copy."""
HELD_CYCLES = 40_000
"""Clock cycles that the stream is held back per copy. Python launches a copy in less time, so that
its own speed is not measured."""
ODD = 0x9E3779B97F4A7C15 - 2**64
"""Factor that turns consecutive numbers into words with different bytes."""


class CopyPath:
    """Two buffers, the clock that times a copy, and the factor by which its bytes count."""

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
        """Copy `times` times. Copies with pinned or device memory are only enqueued."""
        to, source = self.to, self.source
        for _ in repeat(None, times):
            to.copy_(source, non_blocking=True)

    def clear(self) -> None:
        """Overwrite the result of earlier copies."""
        self.to.zero_()

    def wrong(self) -> int:
        """Return the number of wrong words."""
        return int((self.to != self.source.to(self.to.device)).sum())


class Pair:
    """This GPU (0) and a peer (1), with a stream and the buffers of each."""

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
        """For each receiver: its buffer, and the buffer on the other GPU that is the source."""
        for to in (1, 0):
            source, received = (self.words_for(to, at) for at in (1 - to, to))
            received.copy_(
                source
            )  # torch enables peer access here if the GPUs support it
            self.buffers[to] = received, source

    def words_for(self, receiver: int, at: int) -> Any:
        """Return the words that a GPU receives, made on GPU `at` without using the link."""
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
    """Copies between this GPU (0) and a peer (1): `copies` is as in `PAIR_WAYS`.

    A copy runs on the GPU of its stream: the source GPU writes, or the destination GPU reads.
    torch's `copy_` always runs on the source GPU.
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
            ):  # the driver requires the stream's GPU to be current
                for _ in repeat(None, times):
                    self._launch(*copied)
        here.wait_stream(there)

    def clear(self) -> None:
        """Overwrite the results of earlier copies."""
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
        """Return the seconds of work that starts only when all of it has been launched."""
        with self._torch.cuda.stream(self._pair.streams[0]):
            self._torch.cuda._sleep(times * HELD_CYCLES)  # noqa: SLF001 - torch's only such kernel
        return self.clock_here(work, times)


def driver_copy() -> Callable[[int, int, int, int], None]:
    """Return the driver's copy function: destination and source address, bytes, stream."""
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
