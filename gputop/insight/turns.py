"""Whose turn it is: a finding rests on minutes, so that a few devices are judged at each sample."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

AT_A_TIME = 2
"""Devices that are judged at each sample: eight have had their turn after four."""
ROUND_SECONDS = 16.0
"""In which each device has had its turn, however many there are: of 64 then four at each second."""


class Turns:
    """Who waited longest comes first; who has news, at once."""

    def __init__(self, at_a_time: int = AT_A_TIME) -> None:
        self._at_a_time = at_a_time
        self._news: dict[str, object] = {}
        """What was the news of each at its last turn, which was longest ago for the first."""
        self._time = 0.0

    def take(self, news: Mapping[str, object], time: float) -> Collection[str]:
        """Who is judged at that time, of those who are there now, each with its news."""
        elapsed, self._time = time - self._time, time
        known = {uuid: told for uuid, told in self._news.items() if uuid in news}
        due = dict.fromkeys(uuid for uuid in news if uuid not in known or known[uuid] != news[uuid])
        waiting = [uuid for uuid in known if uuid not in due]
        due |= dict.fromkeys(waiting[: self._many(len(news), elapsed)])
        rest = {uuid: told for uuid, told in known.items() if uuid not in due}
        self._news = rest | {uuid: news[uuid] for uuid in due}
        return due

    def _many(self, devices: int, elapsed: float) -> int:
        """How many have their turn after so many seconds; all where the clock was set back."""
        if not 0.0 <= elapsed < ROUND_SECONDS:
            return devices
        return max(self._at_a_time, ceil(devices * elapsed / ROUND_SECONDS))
