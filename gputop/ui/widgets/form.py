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
        self._targets: dict[str, Target] = {}

    def compose(self) -> ComposeResult:
        yield Label("Device")
        yield Select[str]([], id="device", compact=True, allow_blank=True, prompt="none")
        yield Label("Type")
        yield Select[str]([], id="dtype", compact=True, allow_blank=True, prompt="none")
        yield Label("Size")
        yield Input("auto", id="size", compact=True, restrict="[0-9auto]*", max_length=7)
        yield Label("Seconds")
        yield Input(
            f"{plan.DEFAULT_SECONDS:g}",
            id="seconds",
            compact=True,
            restrict=r"[0-9.]*",
            max_length=6,
        )
        yield Button("Start", id="start", compact=True)

    def offer(self, targets: tuple[Target, ...]) -> None:
        """Offers these devices; keeps the choice if it is still among them."""
        offered = {target.uuid or CPU: target for target in targets}
        names_before = {key: target.label for key, target in self._targets.items()}
        self._targets = offered
        if names_before == {key: target.label for key, target in offered.items()}:
            return
        select = self.query_one("#device", Select)
        chosen = select.value
        select.set_options([(_label(target), key) for key, target in offered.items()])
        select.value = chosen if chosen in offered else next(iter(offered))

    def choose(self, uuid: str | None) -> None:
        """Sets the device, and the data type that suits it."""
        key = uuid if uuid in self._targets else CPU
        select = self.query_one("#device", Select)
        if select.value != key:
            select.value = key
            self._offer_dtypes(self._targets[key])

    @on(Select.Changed, "#device")
    def _device_changed(self, event: Select.Changed) -> None:
        target = self._targets.get(str(event.value))
        if target is not None:
            self._offer_dtypes(target)

    def _offer_dtypes(self, target: Target) -> None:
        select = self.query_one("#dtype", Select)
        available = [offer.dtype for offer in plan.offered(target) if offer.available]
        before = select.value
        select.set_options([(name, name) for name in available])
        select.value = before if before in available else plan.default_dtype(target)

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _submit(self) -> None:
        self.post_message(self.Submitted())

    def request(self, python: str | None) -> Request:
        """What the fields say; raises `ValueError` with what, why and the remedy."""
        target = self._targets[str(self.query_one("#device", Select).value)]
        return Request(
            target=target,
            dtype=str(self.query_one("#dtype", Select).value),
            size=plan.parse_size(self.query_one("#size", Input).value),
            seconds=plan.parse_seconds(self.query_one("#seconds", Input).value),
            python=python,
        )


def _label(target: Target) -> str:
    name = short_name(visible(target.name))
    return f"CPU {name}" if target.uuid is None else f"{target.index} {name}"
