"""Times between samples, and what they say about a device or stream."""

from __future__ import annotations

SHORTEST_INTERVAL = 0.25
"""Fewest seconds between samples."""
LONGEST_INTERVAL = 60.0
"""Most seconds between samples."""
IDENTIFY_SECONDS = 12.0
"""Seconds to wait for the UUIDs of all devices where one is chosen by its UUID or address. Eight
devices without persistence mode need about as long, and one that hangs never answers."""


def silence_limit(interval_seconds: float) -> float:
    """Return the seconds without an answer after which a device or stream is not responding."""
    return max(3 * interval_seconds, 3.0)


def old_after(interval_seconds: float) -> float:
    """Return the age in seconds beyond which a reading has missed a tick.

    It is a little less than two intervals, so that a tick that is late by a moment is not missed.
    """
    return 1.9 * interval_seconds


def is_old(age_seconds: float | None, interval_seconds: float) -> bool:
    """Return True if a reading is older than one missed tick explains."""
    return age_seconds is not None and age_seconds > old_after(
        interval_seconds
    )
