"""Xid errors from the driver.

Other events are not needed: uncorrected memory errors, remapped rows and a device that falls off
the bus have their own Xids, and counters are readings. The calls are documented in
https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html, the numbers in
https://docs.nvidia.com/deploy/xid-errors/.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Any

from gputop.agent.nvml.bindings import nvml
from gputop.agent.snapshot import Event

WAIT_SECONDS = 1.0
_XID = nvml.nvmlEventTypeXidCriticalError
_NO_NUMBER = 999


class _EventSet:
    """An event set of NVML, with the devices that readers registered in it."""

    def __init__(self) -> None:
        self.handle = nvml.nvmlEventSetCreate()
        self.uuids: dict[int, str] = {}
        """UUIDs of the registered devices, by the address of their handle."""
        self.reporting: set[int] = set()
        """Addresses of the devices that support events."""
        self.outdated = False

    def __del__(self) -> None:
        # Freed with the last reference, because a device that hangs may still
        # be registered in it.
        if hasattr(self, "handle"):
            # This fails after nvmlShutdown.
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlEventSetFree(self.handle)


class XidEvents:
    """The events of all devices of a driver.

    The thread of each reader registers its device; one thread waits for all. A set with a lost
    device reports nothing but the loss. So a new set replaces it, and each reader registers its
    device again at its next read. Events in between are not reported. If several Xids occur between
    two calls of `wait`, NVML may return the number of the last one for all.
    """

    def __init__(self) -> None:
        self._refused: set[int] = set()
        """Addresses of handles that make a set unusable."""
        self._set = self._new()

    def register(self, handle: Any, uuid: str) -> None:
        """Register the handle's device once for each set, if it supports events.

        May block. Raises `NVMLError` if the device is lost.
        """
        current, address = self._set, _address(handle)
        if current is None or current.outdated or address in self._refused:
            return
        asked = address in current.uuids
        current.uuids[address] = (
            # Always set it: a handle may belong to another device later.
            uuid
        )
        if asked:
            return
        try:
            if nvml.nvmlDeviceGetSupportedEventTypes(handle) & _XID:
                nvml.nvmlDeviceRegisterEvents(handle, _XID, current.handle)
                current.reporting.add(address)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                del current.uuids[address]
                raise
            if error.value == nvml.NVML_ERROR_UNKNOWN:
                # NVML's documentation says that the set is undefined after
                # this and must be freed.
                self._refused.add(address)
                current.reporting.clear()
                current.outdated = True

    def forget(self, handle: Any) -> None:
        """Forget a lost device, so that its next `register` counts as the first."""
        current, address = self._set, _address(handle)
        self._refused.discard(address)
        if current is not None and address in current.reporting:
            # NVML cannot remove a device from a set.
            current.outdated = True

    def wait(self) -> tuple[Event, ...]:
        """Return the events since the last call, after up to `WAIT_SECONDS`. For one thread."""
        current = self._set
        if current is None or not current.reporting:
            if current is None or current.outdated:
                self._set = self._new()
            return _no_events()
        seconds = 0.0 if current.outdated else WAIT_SECONDS
        try:
            data = nvml.nvmlEventSetWait_v2(
                current.handle, int(seconds * 1000)
            )
        except nvml.NVMLError as error:
            timed_out = error.value == nvml.NVML_ERROR_TIMEOUT
            if timed_out and not current.outdated:
                return ()
            # Set it before the wait, so that readers find it.
            self._set = self._new()
            return () if timed_out else _no_events()
        if not data.eventType & _XID:
            return ()
        number = None if data.eventData == _NO_NUMBER else int(data.eventData)
        return (
            Event(
                time.time(),
                current.uuids.get(_address(data.device)),
                "xid",
                number,
            ),
        )

    def close(self) -> None:
        """Free the set before NVML is shut down. It cannot be freed later."""
        self._set = None

    def _new(self) -> _EventSet | None:
        """Return another set, or None if it cannot be created now."""
        try:
            return _EventSet()
        # Events are not supported, or NVML was shut down.
        except nvml.NVMLError:
            return None


def _address(handle: Any) -> int:
    """Return the address, which is the same for all copies of a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _no_events() -> tuple[Event, ...]:
    """Return no events after a pause, so that a loop around it does not spin."""
    threading.Event().wait(WAIT_SECONDS)
    return ()
