"""Table of clock event reasons (why clocks are not higher) and their names.

Meanings follow nvml.h (`nvmlClocksEventReason…`). The words and bits are in `agent.words`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gputop.agent.words import CLOCK_EVENT_BITS


class ClockEvent(NamedTuple):
    """A reason why clocks are not higher."""

    word: str
    """Name in the stream, in recordings and in metrics."""
    label: str
    short: str = ""
    """One or two words for a narrow column; empty for idle, which is not shown."""
    fault: str = ""
    """Words for the fault, after "GPU 0 is"; empty if the reason is normal."""
    is_heat: bool = False


# fmt: off
CLOCK_EVENTS = (
    ClockEvent("hw_thermal", "hardware thermal slowdown", "HW heat",
               "throttled by heat (hardware)", is_heat=True),
    ClockEvent("sw_thermal", "software thermal slowdown", "heat",
               "throttled by heat", is_heat=True),
    # Only recordings of gputop 0.1 contain it. It is the same counter as
    # sw_thermal.
    ClockEvent("thermal", "thermal slowdown", "heat", "throttled by heat", is_heat=True),
    ClockEvent("hw_power_brake", "external power brake", "power brake",
               "braked by its power supply"),
    ClockEvent("hw_slowdown", "hardware slowdown", "HW slowdown",
               "slowed down by hardware"),
    ClockEvent("sw_power_cap", "power cap", "power cap"),
    ClockEvent("reliability", "reliability voltage", "voltage"),
    ClockEvent("board_limit", "board limit", "board limit"),
    ClockEvent("sync_boost", "sync boost", "sync boost"),
    ClockEvent("application_clocks", "application clocks", "set clocks"),
    ClockEvent("display_clocks", "display clocks", "display"),
    ClockEvent("low_utilization", "low utilization", "low load"),
    ClockEvent("idle", "nothing to do"),
)
# fmt: on
"""Reasons by severity. The gravest one explains the others that apply at the same time."""
BY_WORD: Mapping[str, ClockEvent] = {
    event.word: event for event in CLOCK_EVENTS
}
HEAT_REASONS = tuple(event.word for event in CLOCK_EVENTS if event.is_heat)
_FAULTS = [event for event in CLOCK_EVENTS if event.fault]
_BITS = {**CLOCK_EVENT_BITS, "board_limit": 0x200, "reliability": 0x400}
"""Bits by word, including two words that only recordings of gputop 0.1 contain."""
_ALL_BITS = (1 << 64) - 1
_PLACES = {word: place for place, word in enumerate(BY_WORD)}


def mask_of(words: Iterable[str]) -> int:
    """Return NVML's mask with the bits of these words. Words without a bit are ignored."""
    mask = 0
    for word in words:
        if word.startswith("bit_"):
            # A recording can contain any text here.
            with contextlib.suppress(ValueError):
                mask |= int(word.removeprefix("bit_"), 16) & _ALL_BITS
        else:
            mask |= _BITS.get(word, 0)
    return mask


def gravest(words: Iterable[str]) -> ClockEvent | None:
    """Return the gravest reason that means a fault, or None if all are normal."""
    there = frozenset(words)
    for event in _FAULTS:
        if event.word in there:
            return event
    return None


def gravity(word: str) -> tuple[bool, int, str]:
    """Return a sort key: the gravest first, then unknown words of later drivers, then idle."""
    return word == "idle", _PLACES.get(word, len(_PLACES)), word
