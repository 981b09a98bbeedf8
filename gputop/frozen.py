"""`dataclass(frozen=True, slots=True)`, defined in a third of the time and made in two thirds.

The standard one compiles six methods for each class: a tenth of the sampler's time until there are
numbers. Here only `__init__` is compiled; all classes share the others.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, asdict, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

T = TypeVar("T")
_standard: Any = dataclass
if not TYPE_CHECKING:

    def dataclass(*, frozen: bool, slots: bool) -> Any:
        """Return the decorator, for classes whose fields are all arguments."""
        assert frozen and slots  # noqa: PT018
        return _made


def replace(record: T, **changes: Any) -> T:
    """Return a copy of a record of such a class with other values, as `dataclasses.replace`."""
    cls: Any = record.__class__
    _, values = cls.__reduce__(record)
    return cls(**dict(zip(cls.__match_args__, values, strict=True)) | changes)  # type: ignore[no-any-return]


def _made(plain: type) -> Any:
    cls: Any = _standard(init=False, repr=False, eq=False, slots=True)(plain)
    values = attrgetter("__class__", *cls.__match_args__)
    key = attrgetter("__class__", *(each.name for each in fields(cls) if each.compare))

    def equal(self: Any, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is cls else NotImplemented

    cls.__init__, cls.__eq__ = _init(cls), equal
    cls.__hash__ = lambda self: hash(key(self))
    cls.__reduce__ = lambda self: (cls, values(self)[1:])
    cls.__repr__, cls.__setattr__, cls.__delattr__ = _repr, _refuse, _refuse
    return cls


def _init(cls: Any) -> Any:
    scope: dict[str, Any] = {"_missing": MISSING}
    lines, defaults = [], []
    for each in fields(cls):
        name, default = each.name, each.default
        scope[f"_set_{name}"] = getattr(cls, name).__set__  # of the slot: nothing else may
        if each.default_factory is not MISSING:
            scope[f"_new_{name}"] = each.default_factory
            lines.append(f"if {name} is _missing: {name} = _new_{name}()")
        if default is not MISSING or f"_new_{name}" in scope:
            defaults.append(default)
        lines.append(f"_set_{name}(self, {name})")
    source = f"def __init__(self, {', '.join(cls.__match_args__)}):\n " + "\n ".join(lines)
    exec(source, scope)  # noqa: S102 - made of the names of fields, as the standard one
    init: Any = scope["__init__"]
    init.__defaults__, init.__qualname__ = tuple(defaults), f"{cls.__qualname__}.__init__"
    return init


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_: object, name: str, *__: object) -> None:
    raise FrozenInstanceError(f"cannot change field {name!r}")
