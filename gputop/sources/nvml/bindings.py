"""Find nvidia-ml-py: other distributions install a `pynvml` too, and hide or overwrite its file."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gputop import from_checkout
from gputop.problem import Problem
from gputop.sources.interface import DriverError

NAME, OLDEST = "nvidia-ml-py", "12.570"
NEWEST_FUNCTION = "nvmlDeviceGetMarginTemperature"
"""The function that came last among those that gputop calls: with `OLDEST`."""
_INSTALLS_IT = re.compile(r"^pynvml(?:\.py,|/__init__\.py,|$)", re.MULTILINE)
"""A line of a distribution's RECORD or top_level.txt."""


def load() -> Any:
    """Return nvidia-ml-py's module, wherever on `sys.path` it is.

    Raises `DriverError` if there is none, or none that is new enough.
    """
    for module in _modules():
        if hasattr(module, NEWEST_FUNCTION):
            return module
    raise DriverError(
        Problem(
            f"No usable {NAME}",
            _why_not(installed()),
            f"Try {from_checkout('--force-reinstall .')}",
            "bindings",
        )
    )


def _modules() -> Iterator[Any]:
    """The module that an import finds, then every file of that name.

    pynvml before 12 is a package, which hides nvidia-ml-py's file in the same directory.
    """
    with contextlib.suppress(Exception):  # a stranger's file may raise anything
        yield _imported()
    for folder in sys.path:
        file = Path(folder, "pynvml.py")
        if file.is_file():
            with contextlib.suppress(Exception):
                yield _loaded(file)


def _imported() -> Any:
    with warnings.catch_warnings():
        # pynvml 13 warns at every import, also where nvidia-ml-py's file is the one imported.
        warnings.simplefilter("ignore", FutureWarning)
        import pynvml
    return pynvml


def _loaded(file: Path) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("pynvml", file)
    assert spec is not None
    assert spec.loader is not None
    # It looks itself up under that name while it is loaded.
    module = sys.modules["pynvml"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed() -> dict[str, str]:
    """Return the versions of all distributions that install a `pynvml`, by name."""
    from importlib.metadata import distributions

    return {
        each.name: each.version
        for each in reversed([*distributions()])  # the first on the path counts
        if _INSTALLS_IT.search(
            f"{each.read_text('RECORD') or ''}\n{each.read_text('top_level.txt') or ''}"
        )
    }


def others(found: Mapping[str, str]) -> str:
    """Name those that are not nvidia-ml-py."""
    return " and ".join(f"{name} {found[name]}" for name in sorted({*found} - {NAME}))


def _why_not(found: Mapping[str, str]) -> str:
    version, instead = found.get(NAME), others(found)
    if version is None:
        return f"{instead} is there in its place" if instead else "it is not installed"
    if _numbers(version) < _numbers(OLDEST):
        return f"{version} is older than {OLDEST}"
    return f"{instead} overwrote it" if instead else f"the file of {version} is damaged"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2] if part.isdecimal()]
