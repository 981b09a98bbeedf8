from __future__ import annotations

import builtins
import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "FAKE_CUDA"
RATES = {
    "float64": 60.0,
    "float32": 52.0,
    "tf32": 400.0,
    "bfloat16": 760.0,
    "float16": 760.0,
    "float16_acc16": 760.0,
    "float8": 1170.0,
    "float8_fast": 1400.0,
    "int8": 1200.0,
}
"""TFLOP/s of each kind of product, about those of an H100."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong at a point of the fake CUDA. `__init__.py` lists the points."""

    at: str
    do: str = "raise"
    """`raise` an exception; `die`: each later call fails with `message`; `hang`: the work never
    ends; `wrong`: a wrong element in a product; `other bits`: a right one with other bits."""
    message: str = "CUDA error: an illegal memory access was encountered"
    exception: str = "RuntimeError"
    """A builtin exception, or one of torch."""
    kind: str | None = None
    size: int | None = None
    device: int | None = None
    after: int = 0
    """Number of times that the point is passed before."""
    times: int | None = None
    """How often the fault happens, or None for always."""
    file: str | None = None
    """A file without which the fault does not happen: make it while a worker runs."""


@dataclass(frozen=True)
class Settings:
    """A machine with fake GPUs that are all alike."""

    name: str = "NVIDIA H100 80GB HBM3"
    capability: str = "9.0"
    torch: str = ""
    """Version of torch whose interface is imitated, such as `2.4`; empty for the real one's."""
    archs: str = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"
    """Architectures that this torch was built for."""
    memory_gib: float = 80.0
    context_mib: float = 600.0
    rates: Mapping[str, float] = field(default_factory=dict)
    """TFLOP/s by kind of product, where they differ from `RATES`."""
    peer_access: bool = True
    faults: tuple[Fault, ...] = ()

    @property
    def compute_capability(self) -> tuple[int, int]:
        major, _, minor = self.capability.partition(".")
        return int(major), int(minor)

    def environment(self) -> dict[str, str]:
        """Return the environment variable by which a process gets these settings."""
        return {VARIABLE: json.dumps(dataclasses.asdict(self))}


def from_environment() -> Settings:
    found = json.loads(os.environ.get(VARIABLE, "{}"))
    found["faults"] = tuple(Fault(**fault) for fault in found.get("faults", ()))
    return Settings(**found)


class Faults:
    """The faults of a machine, and how often each point was passed."""

    def __init__(self, faults: tuple[Fault, ...], torch: Any) -> None:
        self._torch = torch
        self._passed = dict.fromkeys(faults, 0)
        self.points = {fault.at for fault in faults}

    def reach(self, point: str, **attributes: object) -> str:
        """Raise if a fault of that point says so; return what else it does, or nothing."""
        if point not in self.points:
            return ""
        for fault, passed in self._passed.items():
            if fault.at != point or not _selects(fault, attributes):
                continue
            if fault.file is not None and not Path(fault.file).exists():
                continue
            self._passed[fault] = passed + 1
            number = passed - fault.after
            if number < 0 or (fault.times is not None and number >= fault.times):
                continue
            if fault.do == "raise":
                raise self.exception(fault)
            return fault.do
        return ""

    def exception(self, fault: Fault) -> Exception:
        kind = getattr(builtins, fault.exception, None) or getattr(self._torch, fault.exception)
        made: Exception = kind(fault.message)
        return made

    def message(self, point: str) -> str:
        return next(fault.message for fault in self._passed if fault.at == point)


def _selects(fault: Fault, attributes: Mapping[str, object]) -> bool:
    for name in ("kind", "size", "device"):
        wanted = getattr(fault, name)
        if wanted is not None and attributes.get(name) != wanted:
            return False
    return True
