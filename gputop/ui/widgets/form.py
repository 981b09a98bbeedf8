"""What to run: kind, device, data type, size, duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Container, Horizontal
from textual.message import Message
from textual.widgets import Button, Input, Label, Select

from gputop.bench import plan
from gputop.bench.plan import Request, Target
from gputop.text import short_name, visible
from gputop.ui.widgets.field import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.telemetry.snapshot import Problem

CPU = "cpu"
KINDS = tuple(kind for kind in plan.KINDS if kind != "pairs")
"""Those of one device."""
DEFAULT_KIND = "soak"
WITHOUT_TYPE, WITHOUT_SIZE = ("copy",), ("latency", "copy")
"""Kinds that have no data type, and those that have sizes of their own."""
ALL = "all"
"""The choice of every data type that the device has, for a sweep."""


class Form(Container):
    """One line of fields, two where it is narrow; every field is an argument of `gputop bench`.

    What was chosen outlives what is on offer: a device that is away is named so, and refused.
    """

    class Submitted(Message):
        """Somebody pressed Enter in a field, or the button."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = plan.cpu_target()
        self._offered = {CPU: cpu}
        self._refused: Mapping[str, Problem] = {}
        self._device: Target | None = None
        """None until there is a choice: the CPU alone, before the stream has come, is none."""
        self._dtype: str | None = None
        """As chosen by hand; None is what suits the device."""
        self._listed: tuple[object, object] | None = None
        self._kind_field: Select[str] = Select(
            [(kind, kind) for kind in KINDS],
            value=DEFAULT_KIND,
            id="kind",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        self._device_field: Select[str] = Select(
            [(_label(cpu), CPU)],
            id="device",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        self._dtype_field: Select[str] = Select(
            _dtypes(cpu, DEFAULT_KIND),
            id="dtype",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        self._size_field = Field("auto", "0123456789auto", id="size", max_length=7)
        self._seconds_field = Field(
            f"{plan.DEFAULT_SECONDS:g}", "0123456789.", id="seconds", max_length=6
        )
        self._button = Button("Start", id="start", compact=True)

    def compose(self) -> ComposeResult:
        with Horizontal(id="what"):
            yield Label("Kind")
            yield self._kind_field
            yield Label("Device")
            yield self._device_field
        with Horizontal(id="how"):
            yield Label("Type")
            yield self._dtype_field
            yield Label("Size")
            yield self._size_field
            yield Label("Time s")
            yield self._seconds_field
            yield self._button

    def step(self, step: int) -> None:
        """Goes to the next field of the kind, or the one before; before there is a layout too."""
        every: list[Widget] = [
            self._kind_field,
            self._device_field,
            self._dtype_field,
            self._size_field,
            self._seconds_field,
            self._button,
        ]
        fields = [field for field in every if not field.disabled]
        at = next((n for n, field in enumerate(fields) if field.has_focus_within), None)
        if at is None:
            at = -1 if step > 0 else 0
        self.screen.set_focus(fields[(at + step) % len(fields)])

    @property
    def kind(self) -> str:
        """What kind of run it is."""
        return str(self._kind_field.value)

    @property
    def target(self) -> Target:
        """The device of the form, even while it is away."""
        return self._device or next(iter(self._offered.values()))

    def offer(
        self, targets: tuple[Target, ...], refused: Mapping[str, Problem] | None = None
    ) -> None:
        """Offers these devices; the choice stays as it is.

        Of those that are there and cannot be tested, `refused` says why, by UUID.
        """
        self._offered = {_key(target): target for target in targets}
        self._refused = refused or {}
        if self._device is not None:
            self._device = self._found(self._device) or self._device
        elif len(targets) > 1:
            self._device = targets[0]
        self._show()

    def _found(self, chosen: Target) -> Target | None:
        """The device as it is now; one that was unknown when it was chosen, by its index."""
        for target in self._offered.values():
            if _key(target) == _key(chosen) or chosen.uuid == f"unknown:{target.number}":
                return target
        return None

    def choose(self, uuid: str | None, kind: str | None = None) -> None:
        """Sets the device; if it is another one, the data type that suits it too. And the kind.

        Raises `ValueError` with what, why and the remedy where it is not on offer.
        """
        target = self._offered.get(uuid or CPU)
        if target is None:
            raise ValueError(self._why_not(uuid or CPU, "The device"))
        if _key(target) != _key(self.target):
            self._dtype = None
        self._device = target
        if kind is not None:
            with self.prevent(Select.Changed):
                self._kind_field.value = kind
        self._show()

    def _why_not(self, key: str, label: str) -> str:
        problem = self._refused.get(key)
        if problem is not None:
            return f"{problem}."
        return f"{label} is away: choose another device, or wait until it is back."

    def _show(self) -> None:
        target = self.target
        devices = [(_label(each), key) for key, each in self._offered.items()]
        if _key(target) not in self._offered:
            why = "MIG is on" if _key(target) in self._refused else "away"
            devices.append((f"{_label(target)} ({why})", _key(target)))
        dtypes = _dtypes(target, self.kind)
        self._dtype_field.disabled = self.kind in WITHOUT_TYPE
        self._size_field.disabled = self.kind in WITHOUT_SIZE
        with self.prevent(Select.Changed):
            # Only what differs: new options close a list that somebody has open.
            if self._listed != (devices, dtypes):
                self._listed = (devices, dtypes)
                self._device_field.set_options(devices)
                self._dtype_field.set_options(dtypes)
            self._device_field.value = _key(target)
            self._dtype_field.value = self._suitable_dtype()

    def _suitable_dtype(self) -> str:
        chosen = self._dtype
        if chosen is not None and (chosen, chosen) in _dtypes(self.target, self.kind):
            return chosen
        return plan.default_dtype(self.target)

    @on(Select.Changed, "#device")
    def _device_changed(self, event: Select.Changed) -> None:
        target = self._offered.get(str(event.value))
        if target is not None and event.value == self._device_field.value != _key(self.target):
            self.choose(target.uuid)

    @on(Select.Changed, "#kind")
    def _kind_changed(self) -> None:
        self._show()

    @on(Select.Changed, "#dtype")
    def _dtype_changed(self, event: Select.Changed) -> None:
        if event.value == self._dtype_field.value != self._suitable_dtype():
            self._dtype = str(event.value)

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _submit(self) -> None:
        self.post_message(self.Submitted())

    def request(self, python: str | None) -> Request:
        """What the fields say; raises `ValueError` with what, why and the remedy."""
        target = self.target
        if _key(target) not in self._offered:
            raise ValueError(self._why_not(_key(target), target.label))
        dtype, *further = self._chosen_dtypes()
        sized = self.kind not in WITHOUT_SIZE
        return Request(
            target=target,
            dtype=dtype,
            size=plan.parse_size(self._size_field.value) if sized else None,
            seconds=plan.parse_seconds(self._seconds_field.value),
            python=python,
            kind=self.kind,
            further_dtypes=tuple(further),
        )

    def _chosen_dtypes(self) -> tuple[str, ...]:
        """The usual one first: a run that is stopped early has that."""
        usual = plan.default_dtype(self.target)
        if self.kind in WITHOUT_TYPE:
            return (usual,)
        chosen = str(self._dtype_field.value)
        if chosen != ALL:
            return (chosen,)
        offered = (each.dtype for each in plan.offered(self.target) if each.available)
        return tuple(dict.fromkeys((usual, *offered)))


def _key(target: Target) -> str:
    return target.uuid or CPU


def _label(target: Target) -> str:
    """Of a MIG instance its profile before its GPU: that is what is left where it is narrow."""
    name = short_name(visible(target.name))
    gpu, _, profile = name.rpartition(" MIG ")
    if target.parent_uuid is not None and gpu:
        name = f"MIG {profile}, {gpu}"
    return f"CPU {name}" if target.uuid is None else f"{target.number} {name}"


def _dtypes(target: Target, kind: str) -> list[tuple[str, str]]:
    names = [offer.dtype for offer in plan.offered(target) if offer.available]
    return [(name, name) for name in (names if kind != "sweep" else [*names, ALL])]
