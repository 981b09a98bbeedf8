"""The exit statuses, the same for every command, and what another process's means."""

import signal

FINE = 0
FAULT = 1
"""A fault was found: a wrong result, a failed check."""
USAGE = 2
COULD_NOT_RUN = 3
"""No device, no torch, not enough memory."""
DEGRADED = 4
"""Throttled, ended early by a limit, or below its baseline."""
INTERRUPTED = 130


def signal_name(status: int) -> str:
    """The signal behind the negative status of a process that one ended: `SIGKILL`."""
    known = {each.value: each.name for each in signal.Signals}
    return known.get(-status, f"signal {-status}")


TOO_MANY_FILES = "too many files are open. Raise the limit: `ulimit -n 1024`."
"""Said where the limit on descriptors ends a command: by then nothing more can be imported."""
