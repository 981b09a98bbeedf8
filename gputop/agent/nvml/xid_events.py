"""Xid errors, as the driver reports them.

Other events are not needed: uncorrected memory errors, remapped rows and a device that falls off
the bus have Xids of their own, and counters are readings. The calls are those of
https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html, the numbers those of
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
        """Uuids of the devices that were registered, by the address of their handle."""
        self.reporting: set[int] = set()
        """Addresses of the devices that support events."""
        self.outdated = False

    def __del__(self) -> None:
        # Not before the last reference is gone: a device that hangs may still be put into it.
        if hasattr(self, "handle"):
            with contextlib.suppress(nvml.NVMLError):  # as after nvmlShutdown
                nvml.nvmlEventSetFree(self.handle)


class XidEvents:
    """The events of all devices of a driver.

    Each device is registered by the thread of its own reader; one thread waits for all. A set with
    a lost device reports nothing but the loss. So a new one replaces it, in which each reader
    registers its device at its next read; events before that are not reported. If several Xids come
    between two calls of `wait`, NVML may give all of them the number of the last.
    """

    def __init__(self) -> None:
        self._refused: set[int] = set()
        """Addresses of handles that spoil a set."""
        self._set = self._new()

    def register(self, handle: Any, uuid: str) -> None:
        """Register the device of that handle, if it supports events, once for each set.

        May block. Raises `NVMLError` if the device is lost.
        """
        current, address = self._set, _address(handle)
        if current is None or current.outdated or address in self._refused:
            return
        asked = address in current.uuids
        current.uuids[address] = (
            uuid  # in any case: another device can come to a handle
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
                # NVML's documentation: the set is in an undefined state then, and must be freed.
                self._refused.add(address)
                current.reporting.clear()
                current.outdated = True

    def forget(self, handle: Any) -> None:
        """Forget a lost device: if it comes back, its next `register` is as the first one."""
        current, address = self._set, _address(handle)
        self._refused.discard(address)
        if current is not None and address in current.reporting:
            # NVML cannot take a device out of a set.
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
            # Before the wait, so that readers find it.
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
        """Free the set before NVML is shut down: after that it cannot be freed."""
        self._set = None

    def _new(self) -> _EventSet | None:
        """Return another set, or None if there is none now."""
        try:
            return _EventSet()
        except nvml.NVMLError:  # not supported, or NVML was shut down
            return None


def _address(handle: Any) -> int:
    """Return the address, which is the same for each copy of a handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _no_events() -> tuple[Event, ...]:
    """Return no events after a wait, so that a caller that asks in a loop keeps no core busy."""
    threading.Event().wait(WAIT_SECONDS)
    return ()
