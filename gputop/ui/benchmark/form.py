"""What to run: kind, device, data type, size, duration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Input, Label, OptionList, Select

from gputop.bench.plan import devices, request
from gputop.bench.plan.request import Request
from gputop.ui.benchmark.choice import ALL as ALL_GPUS
from gputop.ui.benchmark.choice import CPU, MORE, Choice, key_of, label
from gputop.ui.benchmark.field import Field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from gputop.bench.plan.request import Target
    from gputop.problem import Problem

KINDS = tuple(kind for kind in request.KINDS if kind != "pairs")
"""Those of one device."""
DEFAULT_KIND = "soak"
WITHOUT_TYPE, WITHOUT_SIZE = ("copy",), ("latency", "copy")
"""Kinds that have no data type, and those that have sizes of their own."""
LONGEST_TEXT = 32
"""Characters of a number; the fields show as many as a value that is taken can have."""
ALL = "all"
"""The choice of every data type that the device has, for a sweep."""


class Form(Container):
    """One line of fields, two where it is narrow; every field is an argument of `gputop bench`.

    What was chosen outlives what is on offer: a device that is away is named so, and refused.
    """

    class Submitted(Message):
        """Somebody pressed Enter in a field, or the button."""

    class Several(Message):
        """Somebody wants to pick several devices."""

    def __init__(self) -> None:
        super().__init__(id="form")
        cpu = request.cpu_target()
        self.choice = Choice(cpu)
        self._dtype: str | None = None
        """As chosen by hand; None is what suits the device."""
        self._listed: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
        """Choices of device and of data type: label and value."""
        self._kinds = [(kind, kind) for kind in KINDS]
        self._kind_field: Select[str] = Select(
            self._kinds,
            value=DEFAULT_KIND,
            id="kind",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        self._device_field: Select[str] = Select(
            _inert([(label(cpu), CPU)]),
            id="device",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        self._dtype_field: Select[str] = Select(
            _dtypes((cpu,), DEFAULT_KIND),
            id="dtype",
            compact=True,
            allow_blank=False,
            type_to_search=False,
        )
        # Far longer than any value: a character that is dropped would make another number.
        self._size_field = Field("auto", "0123456789auto", id="size", max_length=LONGEST_TEXT)
        self._seconds_field = Field(
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

    def offer(
        self, targets: tuple[Target, ...], refused: Mapping[str, Problem] | None = None
    ) -> None:
        """Offers these devices; the choice stays as it is.

        Of those that are there and cannot be tested, `refused` says why, by UUID.
        """
        self.choice.offer(targets, refused)
        self._show()

    def choose(self, uuid: str | None, kind: str | None = None) -> None:
        """Sets the device; if it is another one, the data type that suits it too. And the kind.

        Raises `ValueError` with what, why and the remedy where it is not on offer.
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
        """Sets the devices by their keys, and the data type that suits them."""
        self.choice.pick_several(keys)
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
        if self.choice.pick(key):
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
        """Those that the devices on offer can run."""
        pairs = self.choice.can_pair or self.kind == "pairs"
        return (*KINDS, "pairs") if pairs else KINDS

    @property
    def means_all(self) -> bool:
        """Whether it is all that can be used, and none by its name."""
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
        """What the fields say, for each device; raises `ValueError` with what, why, the remedy."""
        targets = self.choice.there(self.kind)
        dtype, *further = self._chosen_dtypes()
        sized = self.kind not in WITHOUT_SIZE
        size = request.parse_size(self._size_field.value) if sized else None
        seconds = request.parse_seconds(self._seconds_field.value)
        return [
            Request(target, dtype, size, seconds, python, self.kind, tuple(further))
            for target in targets
        ]

    def _chosen_dtypes(self) -> tuple[str, ...]:
        """The usual one first: a run that is stopped early has that."""
        usual = devices.common_dtype(self._targets)
        if self.kind in WITHOUT_TYPE:
            return (usual,)
        chosen = str(self._dtype_field.value)
        if chosen != ALL:
            return (chosen,)
        return tuple(dict.fromkeys((usual, *devices.shared_dtypes(self._targets))))


def _inert(options: Iterable[tuple[str, str]]) -> list[tuple[Content, str]]:
    """Names of devices as they are: a `str` would be taken for markup."""
    return [(Content(text), key) for text, key in options]


def _dtypes(targets: tuple[Target, ...], kind: str) -> list[tuple[str, str]]:
    """Of several devices one type: their lines are told apart by device."""
    names = [*devices.shared_dtypes(targets)]
    if kind == "sweep" and len(targets) == 1:
        names.append(ALL)
    return [(name, name) for name in names]
