"""Choice of devices in the form, and the dialog for several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from gputop.bench.plan.devices import short_labels
from gputop.text import short_name, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.app import ComposeResult

    from gputop.bench.plan.request import Target
    from gputop.problem import Problem


CPU, ALL, SOME, MORE = "cpu", "all", "some", "more"
"""Keys in place of a UUID: the CPU, all GPUs, those that were picked, and the dialog."""
NEEDS_TWO = "pairs"


class DeviceChoice:
    """One device or several. A device that is away stays chosen, and is refused."""

    def __init__(self, cpu: Target) -> None:
        self._offered = {CPU: cpu}
        self._refused: Mapping[str, Problem] = {}
        self._device: Target | None = None
        """None until there is a choice: before the stream only the CPU is on offer."""
        self._several: str | None = None
        """`ALL` or `SOME` instead of one device."""
        self._picked: tuple[Target, ...] = ()

    def offer(
        self, targets: Sequence[Target], refused: Mapping[str, Problem] | None = None
    ) -> None:
        """Offer targets. `refused` has the reasons of devices that cannot be tested."""
        self._offered = {key_of(target): target for target in targets}
        self._refused = refused or {}
        if self._device is not None:
            self._device = self._now(self._device)
        elif len(targets) > 1:
            self._device = targets[0]
        self._picked = tuple(map(self._now, self._picked))

    def _now(self, chosen: Target) -> Target:
        """Return the device as it is now; one of unknown UUID is matched by index."""
        for target in self._offered.values():
            if key_of(target) == key_of(chosen) or chosen.uuid == f"unknown:{target.number}":
                return target
        return chosen

    @property
    def offered(self) -> tuple[Target, ...]:
        return tuple(self._offered.values())

    @property
    def one(self) -> Target:
        """The single device, also while it is away."""
        return self._device or next(iter(self._offered.values()))

    @property
    def _all(self) -> tuple[Target, ...]:
        """Every GPU, and the CPU if there is only one."""
        gpus = tuple(target for target in self._offered.values() if target.kind == "cuda")
        return gpus if len(gpus) > 1 else self.offered

    @property
    def can_pair(self) -> bool:
        """True if there are two devices, the CPU included."""
        return len(self._offered) > 1

    def key(self, kind: str) -> str:
        """Return the key of the chosen option for that kind."""
        if self._several == SOME and len(self._picked) > 1:
            return SOME
        if self._several == ALL or kind == NEEDS_TWO:
            return ALL
        return key_of(self.one)

    def targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices, also those that are away; at least one."""
        key = self.key(kind)
        if key == SOME:
            return self._picked
        if key == ALL:
            gpus = [target for target in self._all if target.kind == "cuda"]
            return self._all if kind == NEEDS_TWO else tuple(gpus) or (self.one,)
        return (self.one,)

    def options(self, kind: str) -> list[tuple[str, str]]:
        """Return label and key of every option for that kind."""
        key, several = self.key(kind), len(self._all)
        found = [] if kind == NEEDS_TWO else [(label(t), k) for k, t in self._offered.items()]
        if key not in (ALL, SOME) and self._is_away(self.one):
            why = "MIG is on" if key in self._refused else "away"
            found.append((f"{label(self.one)} ({why})", key))
        with_cpu = any(target.kind == "cpu" for target in self._all)
        if with_cpu and kind == NEEDS_TWO:
            found.append((short_labels(self._all), ALL))
        elif not with_cpu:
            found.append((f"all {several} GPUs", ALL))
        elif key == ALL:
            found.append((f"all GPUs ({'one is there' if several > 1 else 'away'})", ALL))
        if key == SOME:
            away = " (away)" if any(map(self._is_away, self._picked)) else ""
            found.append((short_labels(self._picked) + away, SOME))
        if len(self._offered) > 2:
            found.append(("several …", MORE))
        return found

    def choose(self, key: str) -> bool:
        """Choose an option; return True if the choice changed."""
        before = (self._several, self._device)
        if key == ALL or (key == SOME and self._picked):
            self._several = key
        elif key in self._offered:
            self._several, self._device = None, self._offered[key]
        return before != (self._several, self._device)

    def choose_several(self, keys: Sequence[str]) -> None:
        """Choose several devices; a single one is a choice like any other."""
        found = tuple(self._offered[key] for key in keys if key in self._offered)
        if len(found) == 1:
            self.choose(key_of(found[0]))
        elif found:
            self._several, self._picked = SOME, found

    def available_targets(self, kind: str) -> tuple[Target, ...]:
        """Return the chosen devices; raise `ValueError` if one is not on offer."""
        if self.key(kind) == ALL and not any(t.kind == "cuda" for t in self._offered.values()):
            raise ValueError("All GPUs are away: choose the CPU, or wait until they are back.")
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
    """Return the key of a device."""
    return target.uuid or CPU


def label(target: Target) -> str:
    """Return a label. A MIG profile comes first, so that a narrow field shows it."""
    name = short_name(visible(target.name))
    gpu, _, profile = name.rpartition(" MIG ")
    if target.parent_uuid is not None and gpu:
        name = f"MIG {profile}, {gpu}"
    return f"CPU {name}" if target.uuid is None else f"{target.number} {name}"


class DevicesDialog(ModalScreen[list[str] | None]):
    """Dialog to mark devices. It returns the keys of those marked, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", id="several.mark", priority=True),
        Binding("enter", "done", "OK", id="several.done", priority=True),
        Binding("escape,q", "leave", "Cancel", id="several.leave"),
    ]

    def __init__(self, offered: Sequence[tuple[str, str]], marked: Sequence[str]) -> None:
        """Set the labels and keys on offer, and the marked keys."""
        super().__init__()
        self._offered, self._marked = offered, set(marked)
        self._list = OptionList(*map(self._line, offered), compact=True)

    def _line(self, offered: tuple[str, str]) -> Text:
        label, key = offered
        return Text(f"[{'x' if key in self._marked else ' '}] {label}")

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text("Devices to test together", style="bold"))
            yield self._list
            keys = (("Space", "bold"), " Mark   ", ("Enter", "bold"), " OK   ")
            yield Static(Text.assemble(*keys, ("Esc", "bold"), " Cancel"))

    def on_mount(self) -> None:
        """Focus the list."""
        self._list.focus()

    def action_mark(self) -> None:
        """Mark or unmark the line."""
        at = self._list.highlighted
        if at is not None:
            self._marked ^= {self._offered[at][1]}
            self._list.replace_option_prompt_at_index(at, self._line(self._offered[at]))

    def on_option_list_option_selected(self) -> None:
        """Mark with a click, as with Space."""
        self.action_mark()

    def action_done(self) -> None:
        """Close with the marked devices, in the order of the list."""
        self.dismiss([key for _, key in self._offered if key in self._marked])

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)
