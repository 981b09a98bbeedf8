"""Messages between gputop and its relay, as lines of JSON. `post` is the number of a lent GPU."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import msgspec

from gputop.bench.cluster.node_actor import NodeAnswer  # noqa: TC001 - msgspec reads the types


@dataclass(frozen=True)
class Place:
    """Order: lend this many GPUs, with a Python on the nodes. With `cpu`, test the nodes' CPUs."""

    count: int
    python: str | None
    cpu: bool


@dataclass(frozen=True)
class Start:
    """Order: start a worker that sees the GPU with this UUID, or the CPU if it is None."""

    post: int
    request: str
    uuid: str | None


@dataclass(frozen=True)
class Write:
    """Order: write a line to the worker's standard input."""

    post: int
    line: str


@dataclass(frozen=True)
class Signal:
    """Order: send a signal to the worker."""

    post: int
    number: int


@dataclass(frozen=True)
class Release:
    """Order: give the GPU back to Ray, which ends its worker."""

    post: int


@dataclass(frozen=True)
class Joined:
    """Number of the cluster's nodes, of its GPUs, and of the GPUs that are not in use by Ray."""

    nodes: int
    gpus: int
    free: int


@dataclass(frozen=True)
class Refused:
    """Reason why the cluster cannot be used."""

    why: str


@dataclass(frozen=True)
class Lent:
    """A GPU was lent: the answer of its node."""

    post: int
    answer: NodeAnswer


@dataclass(frozen=True)
class Output:
    """A line of a worker."""

    post: int
    line: str


@dataclass(frozen=True)
class Ended:
    """A worker has ended. `status` is None if unknown."""

    post: int
    status: int | None
    errors: str


@dataclass(frozen=True)
class Lost:
    """No GPU was lent, or its node was lost."""

    post: int
    why: str


Order = Place | Start | Write | Signal | Release
Report = Joined | Refused | Lent | Output | Ended | Lost
_CLASSES = (
    *(Place, Start, Write, Signal, Release),
    *(Joined, Refused, Lent, Output, Ended, Lost),
)
NAMES: dict[str, type[Order | Report]] = {
    each.__name__: each for each in _CLASSES
}


def to_line(message: Order | Report) -> bytes:
    """Return a message as a line of JSON."""
    named = [type(message).__name__, asdict(message)]
    return json.dumps(named).encode() + b"\n"


def from_line(line: bytes) -> Order | Report:
    """Return the message of a line; raise `ValueError` for other lines."""
    try:
        name, fields = json.loads(line)
        return msgspec.convert(fields, NAMES[name])
    except (LookupError, TypeError) as error:
        raise ValueError(str(error)) from None
