"""Form of the benchmark tab: kind, device, data type, size, duration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual import on
from textual.containers import Container, Horizontal
from textual.content import Content, ContentText
from textual.message import Message
from textual.widgets import Button, Input, Label, OptionList, Select

from gputop.bench.plan import devices, request
from gputop.bench.plan.request import Request
from gputop.ui.benchmark.device_choice import ALL as ALL_GPUS
from gputop.ui.benchmark.device_choice import CPU, MORE, DeviceChoice, key_of, label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Key
    from textual.widget import Widget

    from gputop.bench.plan.request import Target
    from gputop.problem import Problem


EDITING = {
    "backspace": "delete_left",
    "delete": "delete_right",
    "left": "cursor_left",
    "right": "cursor_right",
    "home": "home",
    "end": "end",
    "ctrl+a": "home",
    "ctrl+e": "end",
    "ctrl+d": "delete_right",
    "ctrl+k": "delete_right_all",
    "ctrl+u": "delete_left_all",
    "ctrl+w": "delete_left_word",
    "enter": "submit",
}
"""Keys that edit the text, and their actions of `Input`."""


class ShortInput(Input):
    """An input that takes the characters of `letters`, and leaves other keys to the dashboard.

    Textual gives printable keys to an `Input` at once and editing keys through the app, so that
    keys that come together overtake each other. Here the input handles both in the order typed.
    """

    def __init__(self, value: str, letters: str, **changes: Any) -> None:
        super().__init__(value, compact=True, restrict=f"[{letters}]*", **changes)
        self._letters = letters

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002
        """True if the key is text here, and not a key of the dashboard."""
        return character is not None and character in self._letters

    async def on_key(self, event: Key) -> None:
        """Edit at once, leave text to `Input`, and pass on other keys."""
        if event.is_printable:
            if not self.check_consume_key(event.key, event.character):
                event.prevent_default()
            return
        action = EDITING.get(event.key)
        if action is not None:
            event.prevent_default().stop()
            await self.run_action(action)


KINDS = tuple(kind for kind in request.KINDS if kind != "pairs")
"""Kinds of run on one device."""
DEFAULT_KIND = "soak"
WITHOUT_TYPE, WITHOUT_SIZE = ("copy",), ("latency", "copy")
"""Kinds without a data type, and kinds with sizes of their own."""
LONGEST_TEXT = 32
"""Most characters of a number. A longer value is refused, not cut."""
ALL = "all"
"""Choice of every data type of the device, for a sweep."""


class Form(Container):
    """One line of fields, or two on a narrow screen; each is an argument of `gputop bench`.

    A device that is away stays chosen, is marked as away, and is refused.
    """

    class Submitted(Message):
        """Enter was pressed in a field, or the button."""

    class Several(Message):
        """The dialog for several devices was requested."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = request.cpu_target()
        self.choice = DeviceChoice(cpu)
        self._dtype: str | None = None
        """Data type chosen by the user, or None for the device's default."""
        self._listed: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        """Options of device and data type: label and value."""
        self._kinds = [(kind, kind) for kind in KINDS]
        self._kind_field = _select("kind", self._kinds)
        self._device_field = _select("device", _inert([(label(cpu), CPU)]))
        self._dtype_field = _select("dtype", _dtypes((cpu,), DEFAULT_KIND))
        # Far longer than any value: a character that is dropped would make another number.
        self._size_field = ShortInput("auto", "0123456789auto", id="size", max_length=LONGEST_TEXT)
        self._seconds_field = ShortInput(
            f"{request.DEFAULT_SECONDS:g}", "0123456789.", id="seconds", max_length=LONGEST_TEXT
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
        """Focus the next field, or the one before. Works before the layout."""
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
        """Kind of run."""
        return str(self._kind_field.value)

    def offer(
        self, targets: tuple[Target, ...], refused: Mapping[str, Problem] | None = None
    ) -> None:
        """Offer these devices and keep the choice.

        `refused` has the reasons, by UUID, of devices that cannot be tested.
        """
        self.choice.offer(targets, refused)
        self._show()

    def choose(self, uuid: str | None, kind: str | None = None) -> None:
        """Choose a device, with its default data type if it is a new one, and the kind.

        Raise `ValueError` with the remedy if it is not on offer.
        """
        key = uuid or CPU
        if all(key_of(target) != key for target in self.choice.offered):
            raise ValueError(self.choice.why_not(key, "The device"))
        self._pick(key)
        if kind is not None:
            with self.prevent(Select.Changed):
                self._kind_field.value = kind
        self._show()

    def choose_several(self, keys: Sequence[str]) -> None:
        """Choose devices by their keys, with the data type that suits them."""
        self.choice.choose_several(keys)
        self._dtype = None
        self._show()

    def take_highlighted(self) -> bool:
        """Choose the highlighted line of an open list, as Enter would.

        Return False if that opens another question, and the form is not ready to run.
        """
        targets, dtypes = self._listed
        for field, options in (
            (self._kind_field, self._kinds),
            (self._device_field, targets),
            (self._dtype_field, dtypes),
        ):
            line = field.query_one(OptionList).highlighted if field.expanded else None
            field.expanded = False
            if line is not None and not self._take(field, options[line][1]):
                return False
        return True

    def _take(self, field: Select[str], value: str) -> bool:
        if field is self._device_field:
            return self._take_device(value)
        with self.prevent(Select.Changed):
            field.value = value
        if field is self._dtype_field and value != self._suitable_dtype():
            self._dtype = value
        self._show()
        return True

    def _take_device(self, key: str) -> bool:
        if key == MORE:
            self.post_message(self.Several())
        else:
            self._pick(key)
        self._show()
        return key != MORE

    def _pick(self, key: str) -> None:
        if self.choice.choose(key):
            self._dtype = None

    def _show(self) -> None:
        lists = (self._kind_field, self._device_field, self._dtype_field)
        if not all(each.children for each in lists):
            return  # it is being closed before it was all there
        kinds = [(kind, kind) for kind in self.kinds]
        if self._kinds != kinds:
            self._kinds, kind = kinds, self.kind
            with self.prevent(Select.Changed):
                self._kind_field.set_options(kinds)
                self._kind_field.value = kind if kind in self.kinds else DEFAULT_KIND
        choices = self.choice.options(self.kind)
        dtypes = _dtypes(self._targets, self.kind)
        self._dtype_field.disabled = self.kind in WITHOUT_TYPE
        self._size_field.disabled = self.kind in WITHOUT_SIZE
        with self.prevent(Select.Changed):
            # Only what differs: new options close a list that somebody has open.
            if self._listed != (choices, dtypes):
                self._listed = (choices, dtypes)
                self._device_field.set_options(_inert(choices))
                self._dtype_field.set_options(dtypes)
            self._device_field.value = self.choice.key(self.kind)
            self._dtype_field.value = self._suitable_dtype()

    @property
    def _targets(self) -> tuple[Target, ...]:
        return self.choice.targets(self.kind)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that the devices on offer can run."""
        pairs = self.choice.can_pair or self.kind == "pairs"
        return (*KINDS, "pairs") if pairs else KINDS

    @property
    def means_all(self) -> bool:
        """True if all usable devices are meant, and none by name."""
        return self.choice.key(self.kind) == ALL_GPUS

    def _suitable_dtype(self) -> str:
        chosen = self._dtype
        if chosen is not None and (chosen, chosen) in _dtypes(self._targets, self.kind):
            return chosen
        return devices.common_dtype(self._targets)

    @on(Select.Changed, "#device")
    def _device_changed(self, event: Select.Changed) -> None:
        key = str(event.value)
        if event.value != self._device_field.value or key == self.choice.key(self.kind):
            return
        self._take_device(key)

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

    def requests(self, python: str | None) -> list[Request]:
        """Return a request for each device; raise `ValueError` with the remedy."""
        targets = self.choice.available_targets(self.kind)
        dtype, *further = self._chosen_dtypes()
        sized = self.kind not in WITHOUT_SIZE
        size = request.parse_size(self._size_field.value) if sized else None
        seconds = request.parse_seconds(self._seconds_field.value)
        return [
            Request(target, dtype, size, seconds, python, self.kind, tuple(further))
            for target in targets
        ]

    def _chosen_dtypes(self) -> tuple[str, ...]:
        """Return the data types, the usual one first: a run stopped early has that."""
        usual = devices.common_dtype(self._targets)
        if self.kind in WITHOUT_TYPE:
            return (usual,)
        chosen = str(self._dtype_field.value)
        if chosen != ALL:
            return (chosen,)
        return tuple(dict.fromkeys((usual, *devices.shared_dtypes(self._targets))))


def _select(name: str, options: Iterable[tuple[ContentText, str]]) -> Select[str]:
    return Select(options, id=name, compact=True, allow_blank=False, type_to_search=False)


def _inert(options: Iterable[tuple[str, str]]) -> list[tuple[Content, str]]:
    """Return device names that are not parsed as markup."""
    return [(Content(text), key) for text, key in options]


def _dtypes(targets: tuple[Target, ...], kind: str) -> list[tuple[str, str]]:
    """Return the data type options. Several devices share one type."""
    names = [*devices.shared_dtypes(targets)]
    if kind == "sweep" and len(targets) == 1:
        names.append(ALL)
    return [(name, name) for name in names]
