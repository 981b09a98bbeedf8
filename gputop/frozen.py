"""A `dataclass(frozen=True, slots=True)` that is defined in a quarter of the time.

The standard one compiles six methods for each class, which took a twentieth of the time until the
first screen. Here only `__init__` is compiled; the others are shared.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool) -> Callable[[type], type]:
        """Make a dataclass whose fields are all arguments, compared, hashed and shown."""
        if not (frozen and slots):
            raise TypeError("only for classes with frozen=True, slots=True")
        return _made


def _made(plain: type) -> type:
    cls: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(plain)
    fields = dataclasses.fields(cls)
    cls.__init__ = _init(cls, fields)
    get = _values(tuple(each.name for each in fields))

    def equal(self: Any, other: object) -> bool:
        return get(self) == get(other) if other.__class__ is cls else NotImplemented

    cls.__eq__ = equal
    cls.__hash__ = lambda self: hash(get(self))
    cls.__reduce__ = lambda self: (cls, get(self))
    cls.__repr__ = _repr
    cls.__setattr__ = cls.__delattr__ = _refuse
    return cls  # type: ignore[no-any-return]


def _init(cls: Any, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    """Compile an `__init__` with the fields as arguments, in their order."""
    names: dict[str, Any] = {}
    arguments, lines = ["self"], ["pass"]
    for number, each in enumerate(fields):
        names[f"_set{number}"] = getattr(cls, each.name).__set__  # of the slot: nothing else may
        value = each.name
        if each.default_factory is not dataclasses.MISSING:
            names[f"_new{number}"] = each.default_factory
            value = f"_new{number}() if {each.name} is _missing else {each.name}"
            arguments.append(f"{each.name}=_missing")
        elif each.default is not dataclasses.MISSING:
            names[f"_default{number}"] = each.default
            arguments.append(f"{each.name}=_default{number}")
        else:
            arguments.append(each.name)
        lines.append(f"_set{number}(self, {value})")
    names["_missing"] = dataclasses.MISSING
    source = f"def __init__({', '.join(arguments)}):\n " + "\n ".join(lines)
    exec(source, names)  # noqa: S102 - made of the names of fields, as the standard one
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self))
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_: object, name: str, *__: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")
