"""Replacements for what the standard library of Python 3.10, that of Ubuntu 22.04, lacks."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

__all__ = ["StrEnum", "module_command", "parse_toml", "timeout", "timeout_at"]

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration of texts, each of which is its value."""

        __str__ = str.__str__


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables and values of TOML text. Raises `ValueError`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    found: dict[str, Any] = tomllib.loads(text)
    return found


def timeout(seconds: float | None) -> AbstractAsyncContextManager[object]:
    """Return a context that raises `asyncio.TimeoutError` after so many seconds."""
    if sys.version_info >= (3, 11):
        import asyncio as library
    else:
        import async_timeout as library
    context: AbstractAsyncContextManager[object] = library.timeout(seconds)
    return context


def timeout_at(moment: float | None) -> AbstractAsyncContextManager[object]:
    """Return a context that raises `asyncio.TimeoutError` at a time of the event loop's clock."""
    import asyncio

    return timeout(None if moment is None else moment - asyncio.get_running_loop().time())


def module_command(module: str) -> list[str]:
    """Return the words that run a module in this interpreter, whatever is on the PATH.

    A file named msgspec.py in the working directory is not the one that is meant.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", module]
    run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"import sys; del sys.path[0]; import runpy; {run}"]
