"""What comes in pieces, several numbers with each sample: the driver's own samples of *busy*."""

from __future__ import annotations

from collections import deque

FINE_CAPACITY = 720
"""Numbers kept of a device: two minutes of six a second, in 16 kB."""


class FineSeries:
    """The last percentages, by the sample that brought them."""

    __slots__ = ("_many", "_pieces")

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._many = 0

    def add(self, number: int, piece: tuple[int, ...]) -> None:
        """Takes in what the sample of that number brought; an impossible value makes it a gap."""
        if min(piece) < 0 or max(piece) > 100:
            return
        self._pieces.append((number, bytes(piece)))
        self._many += len(piece)
        while self._many > FINE_CAPACITY:
            self._many -= len(self._pieces.popleft()[1])

    def since(self, number: int) -> bytes:
        """Those that came with later samples than that one, oldest first."""
        return b"".join([piece for at, piece in self._pieces if at > number])
