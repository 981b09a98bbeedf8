"""Table of clock event reasons: why clocks are not higher, with all their names.

Bits and meanings are those of nvml.h (`nvmlClocksEventReason…`), which names bits up to 0x100. A
bit without a name there becomes a word such as `bit_0x200`, so that the mask can be made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from operator import attrgetter, or_
from typing import NamedTuple


class ClockEvent(NamedTuple):
    """A reason why clocks are not higher."""

    word: str
    """The name in the stream, in recordings and in metrics."""
    bit: int
    """The bit in NVML's mask; 0 for a cause that NVML has a counter for, and no bit."""
    label: str
    short: str = ""
    """One or two words for a narrow column; empty for idle, which goes without saying."""
    smi: str = ""
    """The column of nvidia-smi after `clocks_event_reasons.`; empty where it has none."""
    fault: str = ""
    """Words for the fault, after "GPU 0 is"; empty where the reason is normal."""
    is_heat: bool = False


# fmt: off
CLOCK_EVENTS = (
    ClockEvent("hw_thermal", 0x40, "hardware thermal slowdown", "HW heat", "hw_thermal_slowdown",
               "throttled by heat (hardware)", is_heat=True),
    ClockEvent("sw_thermal", 0x20, "software thermal slowdown", "heat", "sw_thermal_slowdown",
               "throttled by heat", is_heat=True),
    # In recordings of gputop 0.1: the same counter as that of sw_thermal.
    ClockEvent("thermal", 0, "thermal slowdown", "heat", "", "throttled by heat", is_heat=True),
    ClockEvent("hw_power_brake", 0x80, "external power brake", "power brake",
               "hw_power_brake_slowdown", "braked by its power supply"),
    ClockEvent("hw_slowdown", 0x8, "hardware slowdown", "HW slowdown", "hw_slowdown",
               "slowed down by hardware"),
    ClockEvent("sw_power_cap", 0x4, "power cap", "power cap", "sw_power_cap"),
    ClockEvent("reliability", 0, "reliability voltage", "voltage"),
    ClockEvent("board_limit", 0, "board limit", "board limit"),
    ClockEvent("sync_boost", 0x10, "sync boost", "sync boost", "sync_boost"),
    ClockEvent("application_clocks", 0x2, "application clocks", "set clocks",
               "applications_clocks_setting"),
    ClockEvent("display_clocks", 0x100, "display clocks", "display"),
    ClockEvent("low_utilization", 0, "low utilization", "low load"),
    ClockEvent("idle", 0x1, "nothing to do", smi="gpu_idle"),
)
# fmt: on
"""Reasons, the gravest first: it explains others that apply at the same time."""
BY_WORD: Mapping[str, ClockEvent] = {event.word: event for event in CLOCK_EVENTS}
BITS: Mapping[str, int] = {
    event.word: event.bit
    for event in sorted(CLOCK_EVENTS, key=attrgetter("bit"))
    if event.bit
}
"""The bit of each word that nvml.h has one for, in the order of the mask."""
HEAT_REASONS = tuple(event.word for event in CLOCK_EVENTS if event.is_heat)
SLOWDOWNS = tuple(event.word for event in CLOCK_EVENTS if event.fault and event.bit)
"""Words of the reasons that mean a fault, the gravest first."""
_WORDS = {bit: word for word, bit in BITS.items()}
_BITS = {**BITS, "board_limit": 0x200, "reliability": 0x400}
"""With the two words that gputop 0.1 had for bits without a name: they are in its recordings."""
_ALL_BITS = (1 << 64) - 1
_PLACES = {word: place for place, word in enumerate(BY_WORD)}


@lru_cache(1 << 12)
def words_of(mask: int) -> tuple[str, ...]:
    """Return a word for each bit of NVML's mask, lowest bit first."""
    bits = (1 << n for n in range(mask.bit_length()))
    return tuple(_WORDS.get(bit, f"bit_{bit:#x}") for bit in bits if mask & bit)


def mask_of(words: Iterable[str]) -> int:
    """Return NVML's mask with the bits of these words; words without a bit add nothing."""
    return reduce(or_, map(_bit, words), 0)


def _bit(word: str) -> int:
    if not word.startswith("bit_"):
        return _BITS.get(word, 0)
    try:
        return int(word.removeprefix("bit_"), 16) & _ALL_BITS
    except ValueError:  # a recording can have anything there
        return 0


def gravest(words: Iterable[str]) -> ClockEvent | None:
    """Return the gravest of these reasons that means a fault, or None where all are normal."""
    there = frozenset(words)
    return next(
        (event for event in CLOCK_EVENTS if event.fault and event.word in there), None
    )


def gravity(word: str) -> tuple[bool, int, str]:
    """Return a sort key: the gravest first, words of later drivers after these, idle last."""
    return word == "idle", _PLACES.get(word, len(_PLACES)), word
