"""Times between samples, and the limits for late devices and streams."""

from __future__ import annotations

SHORTEST_INTERVAL = 0.25
"""Shortest interval in seconds between samples."""
LONGEST_INTERVAL = 60.0
"""Longest interval in seconds between samples."""
DEFAULT_INTERVAL = 1.0
IDENTIFY_SECONDS = 12.0
"""Seconds to wait for the UUIDs of all devices if a device is chosen by UUID or address. Eight
devices without persistence mode need about this long, and a hung device never answers."""


def silence_limit(interval_seconds: float) -> float:
    """Return the seconds without an answer after which a device or stream is not responding."""
    return max(3 * interval_seconds, 3.0)


def old_after(interval_seconds: float) -> float:
    """Return the age in seconds above which a reading has missed a tick.

    It is a little less than two intervals, so that a missed tick is noticed even if the next one is
    early.
    """
    return 1.9 * interval_seconds


def is_old(age_seconds: float | None, interval_seconds: float) -> bool:
    """Return True if a reading has missed a tick."""
    return age_seconds is not None and age_seconds > old_after(
        interval_seconds
    )
