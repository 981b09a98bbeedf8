"""`nvml` is nvidia-ml-py's module.

Other distributions also install a `pynvml` and hide or overwrite its file. Importing this module
raises `DriverError` if there is no usable nvidia-ml-py.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gputop.agent.interface import DriverError
from gputop.agent.nvml.diagnosis import diagnose_bindings

NEWEST_FUNCTION = "nvmlDeviceGetMarginTemperature"
"""The newest of the functions that gputop calls: nvidia-ml-py 12.570 added it."""


def _load() -> Any:
    """Return nvidia-ml-py's module from anywhere on `sys.path`.

    Raises `DriverError` if none is found or all are too old.
    """
    for module in _modules():
        if hasattr(module, NEWEST_FUNCTION):
            return module
    raise DriverError(diagnose_bindings())


def _modules() -> Iterator[Any]:
    """Yield the module that an import finds, then every file of that name.

    pynvml before 12 is a package, which hides nvidia-ml-py's file in the same directory.
    """
    # An unrelated file may raise anything.
    with contextlib.suppress(Exception):
        with warnings.catch_warnings():
            # pynvml 13 warns at every import, even if the imported file is
            # nvidia-ml-py's.
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml
        yield pynvml
    for folder in sys.path:
        file = Path(folder, "pynvml.py")
        if file.is_file():
            from importlib.util import (
                module_from_spec,
                spec_from_file_location,
            )

            with contextlib.suppress(Exception):
                spec = spec_from_file_location("pynvml", file)
                assert spec is not None
                assert spec.loader is not None
                # The module looks itself up under that name while it is
                # loaded.
                module = sys.modules["pynvml"] = module_from_spec(spec)
                spec.loader.exec_module(module)
                yield module


nvml: Any = _load()

read_field = object.__getattribute__
"""Reads a field of a struct. nvidia-ml-py's own attribute access takes four times as long."""
