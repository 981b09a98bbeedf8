"""The request of a run: the first line of the worker's input, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

GO, STOP = b"go\n", b"stop\n"
"""Lines after the request: start a run that waits for other devices, and end the run."""


@dataclass(frozen=True)
class WorkerDataType:
    """A data type, and the sizes of its products on the device."""

    name: str
    operand_bits: int
    result_bytes: int
    library_bytes: int
    """Temporary bytes per element that the library needs."""
    largest: int
    """Largest size that `auto` chooses."""
    fitting: int
    """Largest size that fits in the memory."""
    multiple: int
    """Divisor of all sizes."""
    least: int
    """Smallest size."""


@dataclass(frozen=True)
class WorkerRequest:
    """A requested run on one device. Fields in bytes are limits of the run's memory."""

    kind: str
    device: str
    """`cpu` or `cuda`."""
    name: str
    label: str
    """Short label of the device on its host."""
    dtype: str
    dtypes: tuple[WorkerDataType, ...]
    """All data types. The first is `dtype`."""
    size: int | None
    seconds: float
    verify_all: bool
    waits: bool
    """True if the run waits for `go` after the plan."""
    free_bytes: int | None
    host_bytes: int | None
    peers: tuple[str, ...]
    """Labels of the other visible devices, in their order."""
    exclusive_peers: Mapping[str, str]
    """Compute modes of the other GPUs that refuse copies, by label."""
    compute_mode: str | None
    pci_bus_id: str | None
    hertz: float
    """Frequency of pulses, or 0 for a steady load."""
    rank: int
    ranks: int
    """Number of ranks of a collective, or 0."""
    turns: int
    """Number of GPUs that copy between each other in turn, or 0."""
    rendezvous: str
    """Path of a file or HOST:PORT, by which ranks find each other or GPUs take turns."""
    agent_folders: tuple[str, ...] | None
    """Folders of the agent and of nvidia-ml-py, for the guard; None for a run without a guard."""
    gpu_uuid: str | None
    """UUID of the whole GPU, which the guard reads."""
    part_of: str
    """Label of the whole GPU, for a MIG instance."""

    def to_line(self) -> bytes:
        """Return the request as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> WorkerRequest:
        """Return the request in a line."""
        fields = json.loads(line)
        fields["dtypes"] = tuple(
            WorkerDataType(**each) for each in fields["dtypes"]
        )
        return cls(**fields)
