"""The exit statuses, the same for every command."""

FINE = 0
FAULT = 1
"""A fault was found: a wrong result, a failed check."""
USAGE = 2
COULD_NOT_RUN = 3
"""No device, no torch, not enough memory."""
DEGRADED = 4
"""Throttled, ended early by a limit, or below its baseline."""
INTERRUPTED = 130
