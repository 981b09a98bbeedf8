"""nvidia-ml-py as `nvml`, and NVML's functions without its wrappers, where it lets one have them.

A wrapper of a call that fills an array looks at each field of each struct by name, in Python: that
takes many times what the driver does. This is the one place that knows how to do without.

Importing this raises `DriverError` if there is no usable nvidia-ml-py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.sources.nvml.bindings import load

if TYPE_CHECKING:
    from collections.abc import Callable

nvml: Any = load()


def function(name: str) -> Callable[..., int] | None:
    """The library's function, which returns its code; None where it cannot be had like this.

    Raises `NVMLError` where the library does not have it.
    """
    pointer = getattr(nvml, "_nvmlGetFunctionPointer", None)
    if pointer is None:
        return None
    found: Callable[..., int] = pointer(name)
    return found


def check(code: int) -> None:
    """Raises `NVMLError` for all but success."""
    if code != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(code)
