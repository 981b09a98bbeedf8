"""Our frozen dataclasses are as the standard ones."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gputop import frozen


def point(define: Any) -> Any:
    """A class of each way to have a field."""

    @define(frozen=True, slots=True)
    class Point:
        """Somewhere."""

        x: float
        name: str = "origin"
        more: Mapping[str, int] = dataclasses.field(default_factory=dict)
        hidden: str = dataclasses.field(default="", repr=False)
        note: str = dataclasses.field(default="", compare=False)

        @property
        def far(self) -> bool:
            return self.x > 1

    return Point


@frozen.dataclass(frozen=True, slots=True)
class One:
    """A single field."""

    value: float


OURS, STANDARD = point(frozen.dataclass), point(dataclasses.dataclass)
USES: tuple[Callable[[Any], object], ...] = (
    lambda cls: repr(cls(1.0)),
    lambda cls: repr(cls(1.0, hidden="this", note="shown")),
    lambda cls: cls(1.0, note="one") == cls(1.0, note="other"),
    lambda cls: cls(1.0, hidden="one") == cls(1.0, hidden="other"),
    lambda cls: hash(cls(1.0, note="one", more=())) == hash(cls(1.0, note="other", more=())),
    lambda cls: repr(cls(1.0, name="there", more={"a": 1})),
    lambda cls: [(f.name, f.default, f.type) for f in dataclasses.fields(cls)],
    lambda cls: dataclasses.asdict(cls(1.0, "a", {"b": 2})),
    lambda cls: dataclasses.astuple(dataclasses.replace(cls(1.0), name="b")),
    lambda cls: cls.__match_args__,
    lambda cls: cls.__slots__,
    lambda cls: cls(2.0).far,
    lambda cls: (cls(1.0) == cls(1.0), cls(1.0) == cls(2.0), cls(1.0) == (1.0, "origin", {})),
    lambda cls: cls(1.0) != cls(1.0, more={"a": 1}),
    lambda cls: cls(1.0).more is cls(1.0).more,
    lambda cls: hash(cls(1.0, "a", ())) == hash(cls(1.0, more=(), name="a")),
    lambda cls: dataclasses.astuple(copy.copy(cls(1.0, "a"))),
    lambda cls: dataclasses.astuple(copy.deepcopy(cls(1.0, "a", {"b": 3}))),
    lambda cls: cls.__init__.__qualname__,
)
ERRORS: tuple[tuple[type[Exception], Callable[[Any], object]], ...] = (
    (dataclasses.FrozenInstanceError, lambda cls: setattr(cls(1.0), "x", 2.0)),
    (dataclasses.FrozenInstanceError, lambda cls: delattr(cls(1.0), "x")),
    (TypeError, lambda cls: cls()),
    (TypeError, lambda cls: cls(1.0, other=2)),
    (TypeError, lambda cls: hash(cls(1.0))),
)


@pytest.mark.parametrize("use", USES)
def test_they_do_what_the_standard_ones_do(use: Callable[[Any], object]) -> None:
    assert use(OURS) == use(STANDARD)


@pytest.mark.parametrize(("error", "use"), ERRORS)
def test_they_refuse_what_the_standard_ones_refuse(
    error: type[Exception], use: Callable[[Any], object]
) -> None:
    for cls in (OURS, STANDARD):
        with pytest.raises(error):
            use(cls)


def test_a_copy_has_other_values() -> None:
    mapping = {"a": 1}
    copied = frozen.replace(OURS(1.0, "here", mapping), name="there")
    assert copied == OURS(1.0, "there", mapping)
    assert copied.more is mapping
    with pytest.raises(TypeError, match="where"):
        frozen.replace(copied, where=1)


def test_a_single_field_is_no_special_case() -> None:
    assert One(float("nan")) != One(float("nan"))
    assert One(math.nan) == One(math.nan)  # the same one, as in the tuples of the standard ones
    assert len({One(1.0), One(1.0), One(2.0)}) == 2
    assert pickle.loads(pickle.dumps(One(2.0))) == One(2.0)  # noqa: S301


@pytest.mark.parametrize(
    "options", [{"frozen": False, "slots": True}, {"frozen": True, "slots": False}]
)
def test_it_is_for_one_kind_alone(options: dict[str, bool]) -> None:
    with pytest.raises(AssertionError):
        frozen.dataclass(**options)
