"""State of the exporter between scrapes: the newest records of a stream, counts, and pods.

The containers that hold GPUs are listed by the kubelet on its pod-resources socket. The service is
`v1.PodResourcesLister` of
https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto. It knows what
device plugins give out, but not the claims of dynamic resource allocation.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from gputop import from_checkout
from gputop.agent.device import Device
from gputop.agent.problem import Problem
from gputop.agent.snapshot import EVENTS, DriverState, Event, Inventory, Record, Sample
from gputop.agent.times import silence_limit
from gputop.health.findings import Finding
from gputop.health.judge import Judge
from gputop.stream.child import Interruption, Snapshot, StreamChild
from gputop.stream.history import History
from gputop.text import visible

XidKey = tuple[str | None, int | None]
"""Device and number; each None where the driver does not say which."""


class XidCount(NamedTuple):
    """Number of times that a device reported an Xid, and the last time, in Unix seconds."""

    times: int
    last: float


@dataclass(frozen=True, slots=True)
class ExporterState:
    """State of a stream at one moment. Immutable, so another thread can have it."""

    inventory: Inventory | None = None
    sample: Sample | None = None
    received: float = 0.0
    """Monotonic time of the sample."""
    xids: Mapping[XidKey, XidCount] = field(default_factory=dict)
    interruptions: int = 0
    findings: tuple[Finding, ...] = ()
    """Active findings, the gravest first. Those from before a restart of the sampler stay so."""
    begun: Mapping[tuple[str, str], int] | None = None
    """Count of findings that began, by device and rule; None if the rules are not asked."""

    def current(self, now: float) -> Snapshot | None:
        """Return the newest records, unless the sample is older than a stream may be silent."""
        if self.inventory is None or self.sample is None:
            return None
        fresh = now - self.received <= silence_limit(self.inventory.interval_seconds)
        return Snapshot(self.inventory, self.sample) if fresh else None


class StreamFollower:
    """Follows the stream of a child, and judges it, for readers that ask now and then."""

    def __init__(
        self,
        on_problem: Callable[[Problem], None] = lambda _: None,
        *,
        judges: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Pass each new problem to `on_problem`; ask the rules if it `judges`."""
        self.state = ExporterState(begun={} if judges else None)
        """Replaced as a whole."""
        self._on_problem, self._clock = on_problem, clock
        self._inventory: Inventory | None = None
        self._reported: Problem | None = None
        self._history, self._judge = History(), Judge()
        self._events: deque[Event] = deque(maxlen=EVENTS)

    async def follow(self, child: StreamChild) -> None:
        """Follow it forever. A problem is reported once, until the driver has answered again."""
        async with contextlib.aclosing(child.records()) as records:
            async for record in records:
                self.add_record(record)

    def add_record(self, record: Record | Interruption) -> None:
        """Update the state with a record, and report a new problem."""
        if isinstance(record, Sample):
            self._add_sample(record)
            return
        if isinstance(record, Interruption):
            self.state = replace(self.state, interruptions=self.state.interruptions + 1)
        else:
            self._inventory = (
                record  # a part of the state with the sample that it announces
            )
        if record.problem is not None and record.problem != self._reported:
            self._reported = record.problem
            self._on_problem(record.problem)
        elif isinstance(record, Inventory) and record.driver_state is DriverState.OK:
            self._reported = None

    def _add_sample(self, sample: Sample) -> None:
        state, known, xids = self.state, self._inventory, dict(self.state.xids)
        for event in sample.events:
            if event.kind == "xid":
                key = event.device_uuid, event.code
                before = xids.get(key, XidCount(0, event.time))
                xids[key] = XidCount(before.times + 1, max(before.last, event.time))
        state = replace(
            state, inventory=known, sample=sample, received=self._clock(), xids=xids
        )
        # A restarted sampler knows nothing yet.
        if (
            state.begun is not None
            and known
            and known.driver_state is not DriverState.STARTING
        ):
            self._history.add(sample)
            self._events.extend(sample.events)
            findings = self._judge.judge(
                self._history, known, sample, self._events
            ).findings
            active = {(each.device_uuid, each.rule) for each in state.findings}
            begun = Counter(state.begun)
            begun.update({(each.device_uuid, each.rule) for each in findings} - active)
            state = replace(state, findings=findings, begun=begun)
        self.state = state


REFRESH_SECONDS, TIMEOUT_SECONDS = 5.0, 5.0
KEPT_SECONDS = 60.0
"""Age in seconds up to which an answer counts: containers run on while a kubelet restarts."""
MOST_BYTES = 4 << 20
"""Longest answer. That of a node with hundreds of pods has some 100 kB."""
MOST_CONTAINERS = 32
"""Containers of a device that are known, the first by name."""
_SHARED = re.compile(r"::\d+$|/vgpu\d+$")
"""End of the id of a device that containers share: `GPU-…::0`, or `nvidia0/vgpu1` on GKE."""


class PodContainer(NamedTuple):
    """A container that holds a device, by the names that its pod's manifest has. Foreign text."""

    namespace: str
    pod: str
    container: str


Pods = Mapping[str, tuple[PodContainer, ...]]
"""Containers that hold each device, by the id that the device plugin gave it."""


class PodResources:
    """Keeps what the kubelet says, while `follow` runs."""

    def __init__(
        self, socket: str, tell: Callable[[Problem], None], *, must_exist: bool = True
    ) -> None:
        """Report the first of problems in a row to `tell`; a missing socket if it `must_exist`."""
        self._socket, self._tell, self._must_exist = socket, tell, must_exist
        self._pods: Pods = {}
        self._read_at = -KEPT_SECONDS
        self._failed = False

    def pods(self) -> Pods:
        """Return the newest answer, or nothing if it is old. Any thread may call this."""
        return self._pods if time.monotonic() - self._read_at < KEPT_SECONDS else {}

    async def follow(self) -> None:
        """Ask forever, every few seconds."""
        while True:
            try:
                self._pods = parse_answer(await _list_pods(self._socket))
                self._read_at, self._failed = time.monotonic(), False
            except (ImportError, OSError, ValueError) as error:
                if self._must_exist or not isinstance(error, FileNotFoundError):
                    self._fail(error)
            await asyncio.sleep(REFRESH_SECONDS)

    def _fail(self, error: Exception) -> None:
        remedy = "It is asked again every few seconds"
        if isinstance(error, ImportError):
            remedy = "Type " + from_checkout("'.[kubernetes]'")
        elif isinstance(error, PermissionError):
            remedy = "Run the exporter as root"
        if not self._failed:
            why = visible(getattr(error, "strerror", None) or str(error), 200)
            what = "The pods that hold the GPUs are not known"
            self._tell(Problem(what, f"{self._socket}: {why}", remedy))
        self._failed = True


async def _list_pods(socket: str) -> bytes:
    """Return the kubelet's answer. Raises OSError, and ImportError without gRPC."""
    _check_socket(socket)
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # its log would go to standard error
    import grpc

    options = (
        ("grpc.max_receive_message_length", MOST_BYTES),
        # A new connection each time, without the pause after a failed one.
        ("grpc.use_local_subchannel_pool", 1),
    )
    async with grpc.aio.insecure_channel(f"unix:{socket}", options) as channel:
        call = channel.unary_unary("/v1.PodResourcesLister/List")
        try:
            return bytes(await call(b"", timeout=TIMEOUT_SECONDS))
        except grpc.RpcError as error:
            raise OSError(f"{error.code().name}, {error.details()}") from None


def _check_socket(socket: str) -> None:
    """Raise OSError if the socket is missing or belongs to others."""
    Path(socket).stat()
    if not os.access(socket, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def parse_answer(answer: bytes) -> Pods:
    """Parse a `ListPodResourcesResponse`. Raises ValueError if it is damaged."""
    found: dict[str, set[PodContainer]] = defaultdict(set)
    for pod in map(_fields, _fields(answer)[1]):
        for container in map(_fields, pod[3]):
            holder = PodContainer(_text(pod[2]), _text(pod[1]), _text(container[1]))
            for devices in map(_fields, container[2]):
                if _text(devices[1]).startswith("nvidia.com/"):
                    for name in devices[2]:
                        found[_SHARED.sub("", _text([name]))].add(holder)
    return {name: tuple(sorted(each)[:MOST_CONTAINERS]) for name, each in found.items()}


def holders_of(device: Device, gpu: Device, pods: Pods) -> tuple[PodContainer, ...]:
    """Return the containers that hold a device, a MIG instance of `gpu` or that itself."""
    name = f"nvidia{gpu.minor_number}"  # as GKE's plugin names devices
    if device.mig_gpu_instance is not None:
        name += f"/gi{device.mig_gpu_instance}"
    return pods.get(device.uuid) or pods.get(name, ())


def _text(values: list[bytes]) -> str:
    """Return the last value of a field that should have one."""
    return values[-1].decode(errors="replace") if values else ""


def _fields(message: bytes) -> defaultdict[int, list[bytes]]:
    """Return texts, bytes and messages in a message, by the number of their field.

    The format is https://protobuf.dev/programming-guides/encoding/. Raises ValueError if damaged.
    """
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind, size = key & 7, 0
        if kind == 0:
            _, at = _number(message, at)
        elif kind == 2:
            size, at = _number(message, at)
        else:
            size = {1: 8, 5: 4}.get(kind, len(message))  # there are no others: too long
        if at + size > len(message):
            raise ValueError("the answer is damaged")
        if kind == 2:
            found[key >> 3].append(message[at : at + size])
        at += size
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    """Return the number of variable length at `at`, and where it ends."""
    value = 0
    for shift, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError("the answer is damaged")
