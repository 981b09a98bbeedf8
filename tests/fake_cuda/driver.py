"""libcuda: the copy of the driver between two devices."""

from __future__ import annotations

import ctypes
from typing import Any

from .timeline import Machine

LIBRARY = "libcuda.so.1"
LAUNCH_SECONDS = 2e-6
PEER_LINK = 3e11
"""Bytes per second."""
ILLEGAL_ADDRESS, INVALID_HANDLE = 700, 400
MESSAGES = {
    ILLEGAL_ADDRESS: b"an illegal memory access was encountered",
    INVALID_HANDLE: b"invalid resource handle",
}


class CopyFunction:
    """`cuMemcpyAsync`, which returns a status."""

    argtypes: Any = None

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __call__(self, to: int, source: int, size: int, handle: int) -> int:
        machine, current = self._machine, self._machine.current_device
        stream = machine.streams.get(handle) if handle else machine.defaults[current]
        if stream is None or stream.device.number != current:
            return INVALID_HANDLE
        if machine.faults.reach("peer copy", device=current) == "die":
            return ILLEGAL_ADDRESS
        machine.launch(LAUNCH_SECONDS + size / PEER_LINK, stream, "link")
        with machine.lock:
            machine.copies[to, source, size] = lambda: ctypes.memmove(to, source, size)
        return 0


class Driver:
    def __init__(self, machine: Machine) -> None:
        self.cuMemcpyAsync = CopyFunction(machine)

    def cuGetErrorString(self, status: int, text: Any) -> int:  # noqa: N802 - the driver's name
        """Set a `char *` to the message of a status."""
        text._obj.value = MESSAGES[status]
        return 0


def install(machine: Machine) -> None:
    real, driver = ctypes.CDLL, Driver(machine)

    def load(name: Any, *arguments: Any, **options: Any) -> Any:
        if name == LIBRARY:
            return driver
        return real(name, *arguments, **options)

    ctypes.CDLL = load  # type: ignore[assignment,misc]
