"""`nvml` is nvidia-ml-py's module.

Other distributions install a `pynvml` too, and hide or overwrite its file: importing this module
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
"""The most recently added of the functions that gputop calls: version 12.570 has it."""


def _load() -> Any:
    """Return nvidia-ml-py's module, wherever on `sys.path` it is.

    Raises `DriverError` if there is none, or none that is new enough.
    """
    for module in _modules():
        if hasattr(module, NEWEST_FUNCTION):
            return module
    raise DriverError(diagnose_bindings())


def _modules() -> Iterator[Any]:
    """Yield the module that an import finds, then every file of that name.

    pynvml before 12 is a package, which hides nvidia-ml-py's file in the same directory.
    """
    # A stranger's file may raise anything
    with contextlib.suppress(Exception):
        with warnings.catch_warnings():
            # pynvml 13 warns at every import, also where nvidia-ml-py's file is the one imported.
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
                # It looks itself up under that name while it is loaded.
                module = sys.modules["pynvml"] = module_from_spec(spec)
                spec.loader.exec_module(module)
                yield module


nvml: Any = _load()
