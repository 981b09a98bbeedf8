"""Form of the benchmark tab: kind, device, data type, size, duration, frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widgets import Button, Input, Label, OptionList, Select, Static

from gputop.agent.problem import Problem
from gputop.bench.plan import request, target_choice
from gputop.bench.plan.kinds import CHECK, KINDS
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.check_parts import DEFAULT_LEVEL, LEVELS
from gputop.text import short_name, visible
from gputop.ui.drawing.ordered_input import OrderedInput
from gputop.ui.drawing.palette import FAULT

CPU, ALL = "cpu", "all"
"""Values of options that are not a UUID: the CPU, and all GPUs or all data types."""


class NumberInput(OrderedInput):
    """An input that accepts the characters in `letters` and passes other keys to the dashboard."""

    def __init__(
        self,
        value: str,
        letters: str = "0123456789.",
        *,
        id: str,  # noqa: A002
    ) -> None:
        super().__init__(
            value,
            id=id,
            compact=True,
            restrict=f"[{letters}]*",
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


class ListField(Select[str]):
    """A list of options, whose labels are not parsed as markup."""

    def __init__(self, first: str, *, id: str) -> None:  # noqa: A002
        self.options = [(first, first)]
        """Label and value of each option."""
        super().__init__(
            self.options,
            id=id,
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )

    def fill(self, options: list[tuple[str, str]], value: str) -> None:
        # New options close an open list.
        if self.options != options:
            self.options = options
            self.set_options((Content(text), key) for text, key in options)
            # The same value may have another label.
            self.mutate_reactive(ListField.value)  # type: ignore[misc]
        self.value = value


class Form(Container):
    """One line of fields, or two on a narrow screen. Each is an argument of `gputop bench`.

    A device that is gone stays chosen, and a run on it is refused.
    """

    class Submitted(Message):
        """Enter was pressed in a field or on the button."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = request.cpu_target()
        self._offered = {CPU: cpu}
        self._refused: Mapping[str, Problem] = {}
        self._key: str | None = None
        """Option of the device; None before the first GPU is on offer."""
        self._kind_field = ListField(CHECK, id="kind")
        self._device_field = ListField(CPU, id="device")
        dtype = target_choice.common_dtype((cpu,))
        self._dtype_field = ListField(dtype, id="dtype")
        self._lists = (
            self._kind_field,
            self._device_field,
            self._dtype_field,
        )
        self._size_field = NumberInput("auto", "0123456789auto", id="size")
        self._seconds_field = NumberInput(
            f"{request.DEFAULT_SECONDS:g}",
            id="seconds",
        )
        self._hertz_field = NumberInput(
            f"{request.DEFAULT_HERTZ:g}",
            id="hertz",
        )
        self._button = Button(id="start", compact=True)
        self.reason = Static(id="reason")
        """Line under the form with the reason why it cannot be run."""
        self.show_running(running=False)

    def compose(self) -> ComposeResult:
        with Horizontal(id="what"):
            yield from (Label("Kind"), self._kind_field)
            yield from (Label("Device", classes="device"), self._device_field)
        with Horizontal(id="how"):
            yield from (Label("Type", classes="dtype"), self._dtype_field)
            yield from (Label("Size", classes="size"), self._size_field)
            yield Label("Time s", classes="seconds")
            yield self._seconds_field
            yield Label("Hz", classes="hertz")
            yield from (self._hertz_field, self._button)

    def show_running(self, *, running: bool) -> None:
        """Show the button that starts a run, or stops it."""
        self._button.label = "Stop" if running else "Start"

    def refuse(self, field: str, why: str) -> None:
        """Mark the field with that id as wrong, with the reason under the form; "" for none."""
        for each in self.query("Select, Input"):
            each.set_class(each.id == field, "wrong")
        self.reason.update(Text(why, style=FAULT))
        self.reason.display = bool(why)

    def find_wrong(self) -> tuple[str, str]:
        """Return the first field with a wrong number, and why; two empty strings if none is."""
        for field, parse in (
            (self._size_field, request.parse_size),
            (self._seconds_field, request.parse_seconds),
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
        """Focus the next or previous field."""
        fields = "#form Select, #form Input, #form Button"
        if step > 0:
            self.screen.focus_next(fields)
        else:
            self.screen.focus_previous(fields)

    @property
    def kind(self) -> str:
        return str(self._kind_field.value)

    def offer(
        self,
        targets: Sequence[Target],
        refused: Mapping[str, Problem],
    ) -> None:
        """Offer these devices and keep the choice.

        `refused` has the reasons, by UUID, for devices that cannot be tested.
        """
        if not all(each.children for each in self._lists):
            # The form is closing before it was complete.
            return
        self._offered = {target.uuid or CPU: target for target in targets}
        self._refused = refused
        self._update()
        first = next(iter(self._offered), CPU)
        if self._key is None and first != CPU:
            self.choose(first)

    def choose(
        self,
        uuid: str | None,
        kind: str | None = None,
    ) -> None:
        """Choose a kind and a device, with its default data type if the device changed.

        Raises `ValueError` with the remedy if the device is not on offer.
        """
        key = uuid or CPU
        if key not in self._offered:
            raise ValueError(self._why_not(key))
        self._device_field.value = key
        self._kind_field.value = kind or self.kind
        self._update()

    def take_highlighted(self) -> None:
        """Choose the highlighted line of an open list, as Enter would."""
        for field in self._lists:
            if field.expanded:
                line = field.query_one(OptionList).highlighted or 0
                field.value = field.options[line][1]
                field.expanded = False
                self._update()

    @on(Select.Changed)
    def _update(self) -> None:
        """Offer the options that suit the chosen ones."""
        chosen, dtype = str(self._device_field.value), self._dtype_field.value
        if chosen != (self._key or CPU):
            self._key, dtype = chosen, ""
        kinds = self.kinds
        kind = self.kind if self.kind in kinds else CHECK
        self._kind_field.fill([(each, each) for each in kinds], kind)
        of = KINDS[kind]
        for field, is_used in (
            (self._device_field, not of.several_devices),
            (self._dtype_field, of.has_dtype),
            (self._size_field, of.has_size),
            (self._seconds_field, kind != CHECK),
            (self._hertz_field, kind == "pulse"),
        ):
            field.disabled = not is_used
            for each in (field, *self.query(f".{field.id}")):
                each.visible = is_used
        self.set_class(kind == "pulse", "pulsed")
        self._device_field.fill(self._device_options(), self._key or CPU)
        targets = self.targets
        if not targets:
            return
        dtypes = [*target_choice.shared_dtypes(targets)]
        if of.several_dtypes and len(targets) == 1:
            dtypes.append(ALL)
        if dtype not in dtypes:
            dtype = target_choice.common_dtype(targets)
        self._dtype_field.fill([(each, each) for each in dtypes], str(dtype))

    def _device_options(self) -> list[tuple[str, str]]:
        options = []
        for key, target in self._offered.items():
            options.append((_label(target), key))
        if self._all:
            options.append((f"all {len(self._all)} GPUs", ALL))
        chosen = self._key or CPU
        if all(key != chosen for _, key in options):
            options.append(("choose a device", chosen))
        return options

    @property
    def _all(self) -> tuple[Target, ...]:
        """All GPUs if there are several, else none."""
        offered = self._offered.values()
        gpus = tuple(each for each in offered if each.kind == "cuda")
        return gpus if len(gpus) > 1 else ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """The chosen devices, or none if they are gone."""
        key = self._key or CPU
        if KINDS[self.kind].several_devices or key == ALL:
            return self._all
        return (self._offered[key],) if key in self._offered else ()

    def _why_not(self, key: str) -> str:
        """Return why an option is not on offer, and the remedy."""
        if key in self._refused:
            return f"{self._refused[key]}."
        return (
            "The device is gone: choose another one, or wait until it is back."
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of runs that the devices on offer support."""
        is_simulated = any(each.simulated for each in self._offered.values())
        found = []
        for name, kind in KINDS.items():
            if is_simulated and name != CHECK and not kind.is_simulated:
                continue
            if kind.several_devices and not self._all:
                continue
            found.append(name)
        return tuple(found)

    @on(Input.Submitted)
    @on(Button.Pressed)
    def _submit(self) -> None:
        self.post_message(self.Submitted())

    def requests(self, python: str | None) -> list[Request]:
        """Return a request for each device. Raise `ValueError` with the remedy."""
        targets, kind = self.targets, KINDS[self.kind]
        if not targets:
            raise ValueError(self._why_not(self._key or CPU))
        dtypes = [target_choice.common_dtype(targets)]
        if kind.has_dtype and self._dtype_field.value == ALL:
            # The usual type comes first, so that a run that is stopped early
            # has it.
            dtypes += target_choice.shared_dtypes(targets)
        elif kind.has_dtype:
            dtypes = [str(self._dtype_field.value)]
        dtype, *further = dict.fromkeys(dtypes)
        size = None
        if kind.has_size:
            size = request.parse_size(self._size_field.value)
        seconds = LEVELS[DEFAULT_LEVEL].seconds
        if self.kind != CHECK:
            seconds = request.parse_seconds(self._seconds_field.value)
        hertz = request.DEFAULT_HERTZ
        if self.kind == "pulse":
            hertz = request.parse_hertz(self._hertz_field.value)
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


def _label(target: Target) -> str:
    """Return a label. It starts with the MIG profile, so that a narrow field shows the profile."""
    name = short_name(visible(target.name))
    gpu, _, profile = name.rpartition(" MIG ")
    if target.parent_uuid is not None and gpu:
        name = f"MIG {profile}, {gpu}"
    return f"CPU {name}" if target.uuid is None else f"{target.number} {name}"
