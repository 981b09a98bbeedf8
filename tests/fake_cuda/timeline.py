"""The simulated device: kernels with a begin and an end, streams and events.

Times are those of `time.perf_counter`. A kernel begins when it was launched, when the kernels
before it in its stream have ended, and when its engine (products, or copies over a link) is free.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

from .settings import Faults, Settings

QUEUE = 1024
"""Kernels that wait on a device before a launch blocks."""
ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
Work = Callable[[], object]


class Device:
    """A GPU: when its engines are free, and whether it still works."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.free_at = {"compute": 0.0, "link": 0.0}
        self.ends: deque[float] = deque()
        self.has_context = False
        self.death = ""
        """The error of every call since the device died."""

    @property
    def tail(self) -> float:
        return max(self.free_at.values())


class Current(threading.local):
    def __init__(self, stream: Stream) -> None:
        self.stream = stream


class Machine:
    def __init__(self, torch: Any, settings: Settings, devices: int) -> None:
        self.torch, self.settings = torch, settings
        self.faults = Faults(settings.faults, torch)
        self.devices = [Device(number) for number in range(devices)]
        self.streams: WeakValueDictionary[int, Stream] = WeakValueDictionary()
        self.defaults = [Stream(self, device, 0) for device in self.devices]
        self.lock = threading.RLock()
        self.copies: dict[tuple[int, int, int], Work] = {}
        """Copies of the driver that were launched. They are made when somebody waits."""
        self._local = Current(self.defaults[0])

    @property
    def current_stream(self) -> Stream:
        return self._local.stream

    @property
    def current_device(self) -> int:
        return self._local.stream.device.number

    @contextlib.contextmanager
    def using(self, stream: Stream | None) -> Iterator[None]:
        """Make a stream and its device the current ones of this thread."""
        before = self._local.stream
        self._local.stream = stream or before
        try:
            yield
        finally:
            self._local.stream = before

    def need(self, device: Device) -> None:
        """Make the context of a device; raise if that fails, or if the device has died."""
        if device.death:
            raise self.error(device.death)
        if not device.has_context:
            self.faults.reach("context", device=device.number)
            device.has_context = True

    def error(self, message: str) -> Exception:
        kind = getattr(self.torch, "AcceleratorError", RuntimeError)
        made: Exception = kind(message + ADVICE)
        return made

    def launch(self, seconds: float, stream: Stream | None = None, engine: str = "compute") -> None:
        stream = stream or self._local.stream
        device = stream.device
        if device.death or not device.has_context:
            self.need(device)
        ends = device.ends
        if len(ends) >= QUEUE:
            sleep_until(ends[-QUEUE])
        with self.lock:
            now = time.perf_counter()
            while ends and ends[0] <= now:
                ends.popleft()
            end = max(now, device.free_at[engine], stream.tail) + seconds
            stream.tail = device.free_at[engine] = end
            ends.append(end)

    def fail(self, what: str, point: str, device: Device) -> None:
        if what == "die":
            device.death = self.faults.message(point)
        elif what == "hang":
            device.free_at = dict.fromkeys(device.free_at, math.inf)

    def synchronize(self, device: Any = None) -> None:
        number = number_of(device, self.current_device)
        self.need(self.devices[number])
        streams = (*self.defaults, *self.streams.values())
        tails = [stream.tail for stream in streams if stream.device.number == number]
        sleep_until(max([self.devices[number].tail, *tails]))
        self.need(self.devices[number])
        self.make_copies()

    def make_copies(self) -> None:
        with self.lock:
            works, self.copies = self.copies, {}
            for work in works.values():
                work()


def number_of(device: Any, otherwise: int) -> int:
    """Return the number of `1`, `cuda:1` or `torch.device("cuda", 1)`."""
    if device is None:
        return otherwise
    if isinstance(device, int):
        return device
    _, _, number = str(device).partition(":")
    return int(number) if number else otherwise


def sleep_until(moment: float) -> None:
    while (seconds := moment - time.perf_counter()) > 0:
        time.sleep(min(seconds, 3600.0))


class Stream:
    def __init__(self, machine: Machine, device: Device, handle: int | None = None) -> None:
        self.machine, self.device = machine, device
        self.tail = 0.0
        self.cuda_stream = id(self) if handle is None else handle
        if handle is None:
            machine.streams[self.cuda_stream] = self

    def wait_stream(self, other: Stream) -> None:
        """Let what follows here begin after all that the other stream has."""
        self.tail = max(self.tail, other.tail)

    def synchronize(self) -> None:
        self.machine.need(self.device)
        sleep_until(self.tail)
        self.machine.need(self.device)
        self.machine.make_copies()


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.time: float | None = None
        self._device: Device | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self.machine.current_stream
        self._device = stream.device
        self.machine.need(stream.device)
        self.time = stream.tail = max(time.perf_counter(), stream.tail)

    def query(self) -> bool:
        self._check()
        ended = self.time is None or time.perf_counter() >= self.time
        if ended:
            self.machine.make_copies()
        return ended

    def synchronize(self) -> None:
        self._check()
        sleep_until(self.time or 0.0)
        self._check()
        self.machine.make_copies()

    def elapsed_time(self, end: Event) -> float:
        if self.time is None or end.time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise self.machine.error("CUDA error: device not ready")
        return (end.time - self.time) * 1000

    def _check(self) -> None:
        if self._device is not None:
            self.machine.need(self._device)
