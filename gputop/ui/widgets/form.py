"""What to run: device, data type, size, duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Button, Input, Label, Select

from gputop.bench import plan
from gputop.bench.plan import Request, Target
from gputop.text import short_name, visible

if TYPE_CHECKING:
    from textual.app import ComposeResult

CPU = "cpu"


class Form(Horizontal):
    """One line of fields; every field is an argument of `gputop bench`."""

    class Submitted(Message):
        """Somebody pressed Enter in a field, or the button."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = plan.cpu_target()
        self._targets = {CPU: cpu}
        self._device_field = Select(
            [(_label(cpu), CPU)], id="device", compact=True, allow_blank=False
        )
        self._dtype_field = Select(_dtypes(cpu), id="dtype", compact=True, allow_blank=False)
        self._size_field = Input(
            "auto", id="size", compact=True, restrict="[0-9auto]*", max_length=7
        )
        self._seconds_field = Input(
            f"{plan.DEFAULT_SECONDS:g}",
            id="seconds",
            compact=True,
            restrict=r"[0-9.]*",
            max_length=6,
        )

    def compose(self) -> ComposeResult:
        yield Label("Device")
        yield self._device_field
        yield Label("Type")
        yield self._dtype_field
        yield Label("Size")
        yield self._size_field
        yield Label("Time s")
        yield self._seconds_field
        yield Button("Start", id="start", compact=True)

    def offer(self, targets: tuple[Target, ...]) -> None:
        """Offers these devices; keeps the choice if it is still among them."""
        offered = {target.uuid or CPU: target for target in targets}
        labels = {key: _label(target) for key, target in offered.items()}
        if labels == {key: _label(target) for key, target in self._targets.items()}:
            self._targets = offered  # their free memory may be another
            return
        # The CPU alone is what is offered before the stream has come: nobody chose it.
        chosen = None if len(self._targets) <= 1 else self._device_field.value
        self._targets = offered
        self._device_field.set_options([(label, key) for key, label in labels.items()])
        self._choose(str(chosen) if chosen in offered else next(iter(offered)))

    def choose(self, uuid: str | None) -> None:
        """Sets the device; if it is another one, the data type that suits it too."""
        key = uuid if uuid in self._targets else CPU
        if self._device_field.value != key:
            self._choose(key or CPU)

    def _choose(self, key: str) -> None:
        with self.prevent(Select.Changed):
            self._device_field.value = key
        self._offer_dtypes(self._targets[key])

    @on(Select.Changed, "#device")
    def _device_changed(self, event: Select.Changed) -> None:
        target = self._targets.get(str(event.value))
        if target is not None:
            self._offer_dtypes(target)

    def _offer_dtypes(self, target: Target) -> None:
        self._dtype_field.set_options(_dtypes(target))
        self._dtype_field.value = plan.default_dtype(target)

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _submit(self) -> None:
        self.post_message(self.Submitted())

    def request(self, python: str | None) -> Request:
        """What the fields say; raises `ValueError` with what, why and the remedy."""
        return Request(
            target=self._targets[str(self._device_field.value)],
            dtype=str(self._dtype_field.value),
            size=plan.parse_size(self._size_field.value),
            seconds=plan.parse_seconds(self._seconds_field.value),
            python=python,
        )


def _label(target: Target) -> str:
    name = short_name(visible(target.name))
    return f"CPU {name}" if target.uuid is None else f"{target.index} {name}"


def _dtypes(target: Target) -> list[tuple[str, str]]:
    return [(offer.dtype, offer.dtype) for offer in plan.offered(target) if offer.available]
