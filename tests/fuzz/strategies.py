"""Machines that the decoder accepts, and nobody has: numbers and texts at their extremes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from gputop.agent.device import READINGS, DeviceState
from gputop.agent.lines import to_line
from gputop.agent.snapshot import Event, Inventory, Sample
from gputop.schema.decode import decode
from tests import streams

LARGEST = (1 << 63) - 1
WHOLE = (0, 1, -1, 7, 99, 100, 101, 1 << 31, 10**15, LARGEST, -LARGEST)
REAL = (0.0, -0.0, 0.001, 0.5, 7.0, -1.0, 99.999, 101.0, 1e3, 1e10, 1e15, 9.2e18, -9.2e18)
TEXTS = (
    "",
    " ",
    "a",
    "\0\x1b[2J\r\n",
    "\u202eevil",
    "名前" * 40,
    "x" * 5000,
    "\udc80\ud800",
    "e\u0301\u200b\u200d",
    "[red]markup[/] $bold",
    "👩\u200d👩\u200d👧\ufe0f",
    "a b " * 200,
    "GPU-1",
    "0.0",
)
MOST_CHANGES = 6
T = TypeVar("T")


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    """A value of that type hint of the schema, mostly one at its limits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        (inner,) = (a for a in arguments if a is not NoneType)
        return st.none() | value_of(inner)
    if origin is tuple:
        return st.lists(value_of(arguments[0]), max_size=4).map(tuple)
    if origin is Mapping:
        keys = st.sampled_from((*READINGS, *TEXTS[:6]))
        return st.dictionaries(keys, value_of(arguments[1]), max_size=4)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.sampled_from(WHOLE)
    if hint is float:
        return st.sampled_from(REAL)
    if hint is str:
        return st.sampled_from(TEXTS)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint)
    return st.builds(hint, **{f.name: value_of(hints[f.name]) for f in dataclasses.fields(hint)})


def _numbers(record: Any, value: int) -> dict[str, Any]:
    """All its readings at once at that value."""
    hints = get_type_hints(type(record))
    return {
        name: max(-9.2e18, min(float(value), 9.2e18)) if float in get_args(hint) else value
        for name, hint in hints.items()
        if {int, float} & {*get_args(hint)} and get_origin(hint) not in (tuple, Mapping)
    }


@st.composite
def altered(draw: st.DrawFn, record: T, keep: tuple[str, ...] = ()) -> T:
    """The record with some fields changed, at times all of its readings alike."""
    made: Any = record
    hints = get_type_hints(type(made))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.sampled_from(WHOLE))
        made = dataclasses.replace(made, **_numbers(made, at))
    names = [f.name for f in dataclasses.fields(made) if f.name not in keep]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=MOST_CHANGES))
    changes = {name: draw(value_of(hints[name])) for name in chosen}
    return dataclasses.replace(made, **changes)  # type: ignore[no-any-return]


@st.composite
def machines(draw: st.DrawFn, most: int = 9) -> list[Inventory | Sample]:
    """An inventory and a few samples of it, as the decoder hands them out."""
    many = draw(st.integers(0, most))
    one = draw(altered(streams.inventory(many), ("schema", "devices")))
    few = draw(st.sets(st.integers(0, max(0, many - 1)), max_size=3))
    devices = [
        draw(altered(each, ("uuid",))) if n in few else each
        for n, each in enumerate(streams.inventory(many).devices)
    ]
    records: list[Inventory | Sample] = [dataclasses.replace(one, devices=tuple(devices))]
    records += [draw(_sample(many, few, tick)) for tick in range(draw(st.integers(1, 3)))]
    return [decode(to_line(record)) for record in records]


@st.composite
def _sample(draw: st.DrawFn, many: int, few: set[int], tick: int) -> Sample:
    made = streams.sample(many)
    readings = [
        draw(altered(each, ("uuid",))) if n in few else each for n, each in enumerate(made.devices)
    ]
    processes = [
        draw(altered(each, ("device_uuid",))) if n in few else each
        for n, each in enumerate(made.processes)
    ]
    uuids = [each.uuid for each in made.devices]
    events = draw(st.lists(_events(uuids), max_size=3))
    host = draw(altered(made.host))
    time = draw(st.sampled_from((streams.NOW + tick, streams.NOW + tick, *REAL)))
    return Sample(time, host, tuple(readings), tuple(processes), tuple(events))


def _events(uuids: list[str]) -> st.SearchStrategy[Event]:
    return st.builds(
        Event,
        st.sampled_from((streams.NOW, *REAL)),
        st.none() | st.sampled_from([*uuids, "GPU-9"]),
        st.sampled_from(("xid", *DeviceState, *TEXTS)),
        st.none() | st.sampled_from((31, 79, *WHOLE)),
    )


SIZES = st.tuples(st.integers(1, 250), st.integers(1, 80)) | st.sampled_from(
    ((1, 1), (2, 2), (3, 80), (250, 1), (80, 24), (120, 40), (160, 50), (250, 80))
)
