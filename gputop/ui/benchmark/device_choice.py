"""Choice of devices in the form, and the dialog for several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gputop.agent.problem import Problem
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import Target, short_labels
from gputop.text import short_name, visible
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog

CPU, ALL, SOME, MORE = "cpu", "all", "some", "more"
"""Keys of options that are not a UUID: the CPU, all GPUs, several chosen devices, and the dialog.
"""


class DeviceChoice:
    """One device or several. An unavailable device stays chosen, and a run on it is refused."""

    def __init__(self, cpu: Target) -> None:
        self._offered = {CPU: cpu}
        self._refused: Mapping[str, Problem] = {}
        self._chosen: tuple[Target, ...] = ()
        """Empty before the first choice: without the stream's data, only the CPU is on offer."""
        self._all = False
        """True for all GPUs instead of the chosen ones."""

    def offer(
        self,
        targets: Sequence[Target],
        refused: Mapping[str, Problem] | None = None,
    ) -> None:
        """Offer targets. `refused` has the reasons for devices that cannot be tested."""
        self._offered = {key_of(target): target for target in targets}
        self._refused = refused or {}
        first = targets[:1] if len(targets) > 1 else ()
        self._chosen = tuple(map(self._now, self._chosen or first))

    def _now(self, chosen: Target) -> Target:
        """Return the current state of the device. A device of unknown UUID is matched by index."""
        for target in self._offered.values():
            if (
                key_of(target) == key_of(chosen)
                or chosen.uuid == f"unknown:{target.number}"
            ):
                return target
        return chosen

    @property
    def offered(self) -> tuple[Target, ...]:
        return tuple(self._offered.values())

    @property
    def one(self) -> Target:
        """The single device, even if it is unavailable."""
        return (*self._chosen, *self._offered.values())[0]

    @property
    def _gpus(self) -> tuple[Target, ...]:
        return tuple(
            target
            for target in self._offered.values()
            if target.kind == "cuda"
        )

    def key(self, kind: str) -> str:
        """Return the key of the chosen option for that kind."""
        if len(self._chosen) > 1 and not self._all:
            return SOME
        return (
            ALL
            if self._all or KINDS[kind].several_devices
            else key_of(self.one)
        )

    def targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices, at least one, including unavailable ones."""
        key = self.key(kind)
        if key == SOME:
            return self._chosen
        return (key == ALL and self._gpus) or (self.one,)

    def options(self, kind: str) -> list[tuple[str, str]]:
        """Return label and key of every option for that kind."""
        chosen, gpus = self.key(kind), self._gpus
        each = [(label(target), key) for key, target in self._offered.items()]
        found = [] if KINDS[kind].several_devices else each
        if chosen not in (ALL, SOME) and self._is_away(self.one):
            why = "MIG is on" if chosen in self._refused else "away"
            found.append((f"{label(self.one)} ({why})", chosen))
        if len(gpus) > 1:
            found.append((f"all {len(gpus)} GPUs", ALL))
        elif chosen == ALL:
            found.append(
                (f"all GPUs ({'one is there' if gpus else 'away'})", ALL),
            )
        if chosen == SOME:
            away = " (away)" if any(map(self._is_away, self._chosen)) else ""
            found.append((short_labels(self._chosen) + away, SOME))
        if len(self._offered) > 2:
            found.append(("several …", MORE))
        return found

    def choose(self, key: str) -> bool:
        """Choose an option. Return True if the choice changed."""
        before = (self._all, self._chosen)
        if key == ALL:
            self._all = True
        self.choose_several([key])
        return before != (self._all, self._chosen)

    def choose_several(self, keys: Sequence[str]) -> None:
        """Choose several devices. One device is chosen like any other option."""
        if found := tuple(
            self._offered[key] for key in keys if key in self._offered
        ):
            self._all, self._chosen = False, found

    def available_targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices. Raise `ValueError` if one is not on offer."""
        if self.key(kind) == ALL and not self._gpus:
            raise ValueError(
                "All GPUs are away: choose the CPU, or wait until they are back.",
            )
        targets = self.targets(kind)
        for target in targets:
            if self._is_away(target):
                raise ValueError(self.why_not(key_of(target), target.label))
        return targets

    def _is_away(self, target: Target) -> bool:
        return key_of(target) not in self._offered

    def why_not(self, key: str, named: str) -> str:
        """Return why a device is not on offer, and the remedy."""
        problem = self._refused.get(key)
        if problem is not None:
            return f"{problem}."
        return f"{named} is away: choose another device, or wait until it is back."


def key_of(target: Target) -> str:
    return target.uuid or CPU


def label(target: Target) -> str:
    """Return a label. It starts with the MIG profile, so that a narrow field shows the profile."""
    name = short_name(visible(target.name))
    gpu, _, profile = name.rpartition(" MIG ")
    if target.parent_uuid is not None and gpu:
        name = f"MIG {profile}, {gpu}"
    return f"CPU {name}" if target.uuid is None else f"{target.number} {name}"


class DevicesDialog(ChoiceDialog):
    """Dialog to mark devices. It returns the keys of the marked devices, or None."""

    def __init__(
        self,
        offered: Sequence[tuple[str, str]],
        marked: Sequence[str],
    ) -> None:
        """Set the labels and keys on offer, and the marked keys."""
        self._offered, self._marked = offered, set(marked)
        keys = "Space marks · Enter chooses · Esc closes"
        super().__init__("Devices to test together", self._choices(), keys)

    def _choices(self) -> list[Choice]:
        return [
            Choice(f"[{'x' if key in self._marked else ' '}] {label}", "", key)
            for label, key in self._offered
        ]

    def choose(self, choice: Choice) -> None:
        """Mark a device, or remove its mark."""
        self._marked ^= {choice.value}
        self.update(self._choices())

    def press(self, key: str) -> None:
        """Mark, or close with the marked devices in the order of the list."""
        if key == "space":
            self.choose(self.choices[self.at])
        elif key == "enter":
            self.close(
                [key for _, key in self._offered if key in self._marked],
            )
        else:
            super().press(key)
