"""Form of the benchmark tab: kind, device, data type, size, duration, frequency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Input, Label, OptionList, Select, Static

from gputop.agent.problem import Problem
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.kinds import CHECK, KINDS
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.check_parts import DEFAULT_LEVEL, LEVELS
from gputop.ui.benchmark.device_choice import CPU, DeviceChoice, key_of, label
from gputop.ui.drawing.ordered_input import OrderedInput
from gputop.ui.drawing.palette import FAULT


class NumberInput(OrderedInput):
    """An input that accepts the characters in `letters` and passes other keys to the dashboard."""

    def __init__(
        self,
        value: str,
        letters: str = "0123456789.",
        *,
        id: str,  # noqa: A002
    ) -> None:
        # No number needs 32 characters. A longer text is rejected, not cut.
        super().__init__(
            value,
            id=id,
            compact=True,
            restrict=f"[{letters}]*",
            max_length=32,
        )
        self._letters = letters

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002
        """True if the key is text here, and not a key of the dashboard."""
        return character is not None and character in self._letters

    async def on_key(self, event: Key) -> None:
        """Drop other letters. Textual then calls `OrderedInput.on_key`."""
        if event.is_printable and not self.check_consume_key(
            event.key,
            event.character,
        ):
            event.prevent_default()


START, STOP = "Start", "Stop"
ALL = "all"
"""Option of a sweep for all data types of the device."""


class Form(Container):
    """One line of fields, or two on a narrow screen. Each is an argument of `gputop bench`.

    A device that is gone stays chosen, and a run on it is refused.
    """

    class Submitted(Message):
        """Enter was pressed in a field or on the button."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = request.cpu_target()
        self.choice = DeviceChoice(cpu)
        self._dtype: str | None = None
        """Data type chosen by the user, or None for the device's default."""
        kinds = [
            (kind.name, kind.name)
            for kind in KINDS.values()
            if not kind.several_devices
        ]
        self._options = {
            "kind": kinds,
            "device": [(label(cpu), CPU)],
            "dtype": _dtypes((cpu,), CHECK),
        }
        """Label and value of every option, by field."""
        self._lists = tuple(
            Select(
                _inert(each),
                value=each[0][1],
                id=name,
                compact=True,
                allow_blank=False,
                type_to_search=False,
            )
            for name, each in self._options.items()
        )
        self._kind_field, self._device_field, self._dtype_field = self._lists
        self._size_field = NumberInput("auto", "0123456789auto", id="size")
        self._seconds_field = NumberInput(
            f"{request.DEFAULT_SECONDS:g}",
            id="seconds",
        )
        self._hertz_field = NumberInput(
            f"{request.DEFAULT_HERTZ:g}",
            id="hertz",
        )
        self._button = Button(START, id="start", compact=True)
        self.reason = Static(id="reason")
        """Line under the form with the reason why it cannot be run."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="what"):
            yield from (
                Label("Kind"),
                self._kind_field,
                Label("Device"),
                self._device_field,
            )
        with Horizontal(id="how"):
            yield from (Label("Type", id="type-label"), self._dtype_field)
            yield from (Label("Size", id="size-label"), self._size_field)
            yield from (Label("Time s", id="time-label"), self._seconds_field)
            yield from (Label("Hz", id="hz"), self._hertz_field, self._button)

    @property
    def running(self) -> bool:
        """True while a run is in progress. The button then stops it."""
        return str(self._button.label) == STOP

    @running.setter
    def running(self, running: bool) -> None:
        self._button.label = STOP if running else START

    def refuse(self, field: str, why: str) -> None:
        """Mark the field with that id as wrong, with the reason under the form; "" for none."""
        for each in (*self._lists, self._size_field, self._seconds_field):
            each.set_class(each.id == field, "wrong")
        self.reason.update(Text(why, style=FAULT))
        self.reason.display = bool(why)

    def find_wrong(self) -> tuple[str, str]:
        """Return the first field with a wrong number, and why; two empty strings if none is."""
        size, seconds = self._size_field, self._seconds_field
        for field, parse in (
            (size, request.parse_size),
            (seconds, request.parse_seconds),
        ):
            try:
                if not field.disabled:
                    parse(field.value)
            except ValueError as error:
                return str(field.id), str(error)
        return "", ""

    @on(Input.Blurred)
    def _check(self) -> None:
        self.refuse(*self.find_wrong())

    @on(Input.Changed)
    @on(Select.Changed)
    def _check_again(self) -> None:
        # Do not show it at the first digit of a number.
        if self.reason.display:
            self._check()

    def action_field(self, step: int) -> None:
        """Focus the next or previous field. This works before the layout."""
        inputs = (self._size_field, self._seconds_field, self._hertz_field)
        every = (*self._lists, *inputs, self._button)
        fields = [field for field in every if not field.disabled]
        none = -1 if step > 0 else 0
        at = next(
            (n for n, field in enumerate(fields) if field.has_focus_within),
            none,
        )
        self.screen.set_focus(fields[(at + step) % len(fields)])

    @property
    def kind(self) -> str:
        return str(self._kind_field.value)

    def offer(
        self,
        targets: tuple[Target, ...],
        refused: Mapping[str, Problem] | None = None,
    ) -> None:
        """Offer these devices and keep the choice.

        `refused` has the reasons, by UUID, for devices that cannot be tested.
        """
        self.choice.offer(targets, refused)
        self._show()

    def choose(self, uuid: str | None, kind: str | None = None) -> None:
        """Choose a kind and a device, with its default data type if the device changed.

        Raises `ValueError` with the remedy if the device is not on offer.
        """
        key = uuid or CPU
        if all(key_of(target) != key for target in self.choice.offered):
            raise ValueError(self.choice.why_not(key))
        self._pick(key)
        if kind is not None:
            with self.prevent(Select.Changed):
                self._kind_field.value = kind
        self._show()

    def take_highlighted(self) -> None:
        """Choose the highlighted line of an open list, as Enter would."""
        for field in self._lists:
            line = (
                field.query_one(OptionList).highlighted
                if field.expanded
                else None
            )
            field.expanded = False
            if line is not None:
                value = self._options[field.id or ""][line][1]
                with self.prevent(Select.Changed):
                    field.value = value
                self._take(field, value)

    @on(Select.Changed)
    def _changed(self, event: Select.Changed) -> None:
        # Otherwise, another change follows.
        if event.value == event.select.value:
            self._take(event.select, str(event.value))

    def _take(self, field: Widget, value: str) -> None:
        if field is self._device_field:
            self._pick(value)
        elif field is self._dtype_field and value != self._suitable_dtype():
            self._dtype = value
        self._show()

    def _pick(self, key: str) -> None:
        if key != self.choice.key(self.kind):
            self.choice.choose(key)
            self._dtype = None

    def _show(self) -> None:
        if not all(each.children for each in self._lists):
            # The form is closing before it was complete.
            return
        kinds = self.kinds
        kind = self.kind if self.kind in kinds else CHECK
        self._fill(self._kind_field, [(each, each) for each in kinds], kind)
        self._dtype_field.disabled = not KINDS[kind].has_dtype
        self._size_field.disabled = not KINDS[kind].has_size
        self._hertz_field.disabled = kind != "pulse"
        self._seconds_field.disabled = kind == CHECK
        self.set_class(kind == "pulse", "pulsed")
        self.set_class(kind == CHECK, "timed")
        self.set_class(not KINDS[kind].has_dtype, "untyped")
        self.set_class(not KINDS[kind].has_size, "unsized")
        self._fill(
            self._device_field,
            self.choice.options(kind),
            self.choice.key(kind),
        )
        self._fill(
            self._dtype_field,
            _dtypes(self._targets, kind),
            self._suitable_dtype(),
        )

    def _fill(
        self,
        field: Select[str],
        options: list[tuple[str, str]],
        value: str,
    ) -> None:
        with self.prevent(Select.Changed):
            # Set only changed options, because new options close an open list.
            if self._options[field.id or ""] != options:
                self._options[field.id or ""] = options
                field.set_options(_inert(options))
            field.value = value

    @property
    def _targets(self) -> tuple[Target, ...]:
        """The chosen devices; the CPU if they are gone."""
        return self.choice.targets(self.kind) or self.choice.offered[-1:]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of runs that the devices on offer support."""
        gpus = sum(target.kind == "cuda" for target in self.choice.offered)
        found = []
        for name, kind in KINDS.items():
            is_simulated = name == CHECK or kind.is_simulated
            if self._targets[0].simulated and not is_simulated:
                continue
            if kind.several_devices and gpus < 2:
                continue
            found.append(name)
        return tuple(found)

    def _suitable_dtype(self) -> str:
        chosen = self._dtype
        if chosen is not None and (chosen, chosen) in _dtypes(
            self._targets,
            self.kind,
        ):
            return chosen
        return target_choice.common_dtype(self._targets)

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _submit(self) -> None:
        self.post_message(self.Submitted())

    def requests(self, python: str | None) -> list[Request]:
        """Return a request for each device. Raise `ValueError` with the remedy."""
        targets = self.choice.available_targets(self.kind)
        usual = target_choice.common_dtype(targets)
        dtypes = [
            str(self._dtype_field.value)
            if KINDS[self.kind].has_dtype
            else usual,
        ]
        # The usual type comes first, so that a run that is stopped early has
        # it.
        if dtypes == [ALL]:
            dtypes = [
                *dict.fromkeys(
                    (usual, *target_choice.shared_dtypes(targets)),
                ),
            ]
        dtype, *further = dtypes
        sized = KINDS[self.kind].has_size
        size = request.parse_size(self._size_field.value) if sized else None
        seconds = LEVELS[DEFAULT_LEVEL].seconds
        if self.kind != CHECK:
            seconds = request.parse_seconds(self._seconds_field.value)
        pulsed = self.kind == "pulse"
        hertz = (
            request.parse_hertz(self._hertz_field.value)
            if pulsed
            else request.DEFAULT_HERTZ
        )
        return [
            Request(
                target,
                dtype,
                size,
                seconds,
                python,
                self.kind,
                tuple(further),
                hertz=hertz,
            )
            for target in targets
        ]


def field_of(why: str) -> str:
    """Return the id of the field for a refusal, whose remedy names the option (`--size 4096`)."""
    return next(
        (name for name in ("size", "seconds", "dtype") if f"--{name}" in why),
        "device",
    )


def _inert(options: Iterable[tuple[str, str]]) -> list[tuple[Content, str]]:
    """Return the labels as content that is not parsed as markup."""
    return [(Content(text), key) for text, key in options]


def _dtypes(targets: tuple[Target, ...], kind: str) -> list[tuple[str, str]]:
    """Return the options for the data type. Several devices share one type."""
    names = [*target_choice.shared_dtypes(targets)]
    if KINDS[kind].several_dtypes and len(targets) == 1:
        names.append(ALL)
    return [(name, name) for name in names]
