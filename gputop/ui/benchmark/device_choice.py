"""Choice of the device, or of all GPUs, in the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.agent.problem import Problem
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Target
from gputop.text import short_name, visible

CPU, ALL = "cpu", "all"
"""Keys of options that are not a UUID: the CPU, and all GPUs."""


class DeviceChoice:
    """One device, or all GPUs. A device that is gone stays chosen, and a run on it is refused."""

    def __init__(self, cpu: Target) -> None:
        self._offered = {CPU: cpu}
        self._refused: Mapping[str, Problem] = {}
        self._key: str | None = None
        """None before the first choice: without the stream's data, only the CPU is on offer."""

    def offer(
        self,
        targets: Sequence[Target],
        refused: Mapping[str, Problem] | None = None,
    ) -> None:
        """Offer targets. `refused` has the reasons for devices that cannot be tested."""
        self._offered = {key_of(target): target for target in targets}
        self._refused = refused or {}
        if self._key is None and len(targets) > 1:
            self._key = key_of(targets[0])

    @property
    def offered(self) -> tuple[Target, ...]:
        return tuple(self._offered.values())

    def key(self, kind: str) -> str:
        """Return the key of the chosen option for that kind."""
        if KINDS[kind].several_devices:
            return ALL
        return self._key or CPU

    def choose(self, key: str) -> None:
        """Choose an option."""
        self._key = key

    def targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices, or none if they are gone."""
        key = self.key(kind)
        if key in self._offered:
            return (self._offered[key],)
        gpus = tuple(each for each in self.offered if each.kind == "cuda")
        if key == ALL and len(gpus) > 1:
            return gpus
        return ()

    def options(self, kind: str) -> list[tuple[str, str]]:
        """Return label and key of every option for that kind."""
        found = []
        if not KINDS[kind].several_devices:
            for key, target in self._offered.items():
                found.append((label(target), key))
        gpus = sum(target.kind == "cuda" for target in self.offered)
        if gpus > 1:
            found.append((f"all {gpus} GPUs", ALL))
        if not self.targets(kind):
            found.append(("choose a device", self.key(kind)))
        return found

    def available_targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices. Raise `ValueError` if they are gone."""
        targets = self.targets(kind)
        if not targets:
            raise ValueError(self.why_not(self.key(kind)))
        return targets

    def why_not(self, key: str) -> str:
        """Return why an option is not on offer, and the remedy."""
        problem = self._refused.get(key)
        if problem is not None:
            return f"{problem}."
        return (
            "The device is gone: choose another one, or wait until it is back."
        )


def key_of(target: Target) -> str:
    return target.uuid or CPU


def label(target: Target) -> str:
    """Return a label. It starts with the MIG profile, so that a narrow field shows the profile."""
    name = short_name(visible(target.name))
    gpu, _, profile = name.rpartition(" MIG ")
    if target.parent_uuid is not None and gpu:
        name = f"MIG {profile}, {gpu}"
    return f"CPU {name}" if target.uuid is None else f"{target.number} {name}"
