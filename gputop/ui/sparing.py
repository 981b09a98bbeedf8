"""Loads Textual and asyncio without parts that nobody here uses and that take long to load.

Textual's command palette, which is off here, brings in a dozen widgets; asyncio brings in TLS. Both
are loaded as usual where somebody asks for them later. What the palette is in Textual is private:
where it cannot be left out, it is loaded.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PALETTE = "textual.command"


def load_asyncio() -> None:
    """asyncio without TLS, as it is where Python was built without."""
    with _in_place_of("ssl", None):
        import_module("asyncio")


def load_textual() -> None:
    """Textual's app, with empty classes for those of the command palette."""
    if PALETTE in sys.modules or "textual.app" in sys.modules:
        return
    before = set(sys.modules)
    try:
        with _in_place_of(PALETTE, _Empty(PALETTE)):
            import_module("textual.app")
    except Exception:  # noqa: BLE001 - whatever it is that another Textual does with them
        for name in {*sys.modules} - before:
            if name.startswith("textual"):
                del sys.modules[name]


class _Empty(ModuleType):
    """A module that has every name: each is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def _in_place_of(name: str, module: ModuleType | None) -> Iterator[None]:
    """Has imports of that name find this module, or none, unless it was loaded before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = module  # type: ignore[assignment] # None is what Python itself has there
    try:
        yield
    finally:
        del sys.modules[name]
