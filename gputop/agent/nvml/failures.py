"""Errors of the driver itself, as problems for the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gputop.agent.device import Absence
from gputop.agent.interface import DriverError
from gputop.agent.linux.driver_files import System, inspect_system, loaded_stub
from gputop.agent.nvml import diagnosis
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.values import absence_of
from gputop.agent.problem import Problem

_DIAGNOSES = {
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: diagnosis.no_library,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: diagnosis.not_loaded,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: diagnosis.mismatch,
    nvml.NVML_ERROR_NO_PERMISSION: diagnosis.no_permission,
    nvml.NVML_ERROR_FUNCTION_NOT_FOUND: diagnosis.too_old,
    nvml.NVML_ERROR_UNINITIALIZED: diagnosis.gone,
}
DRIVER_IS_GONE = {
    nvml.NVML_ERROR_UNINITIALIZED,
    nvml.NVML_ERROR_DRIVER_NOT_LOADED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
"""Error codes of a device that may mean that the driver was unloaded or replaced."""


def driver_error(error: Any) -> DriverError:
    words = " ".join(str(error).split())[:45].rstrip(".")
    other = partial(diagnosis.other, words=f"{words} (code {error.value})")
    problem = diagnose(_DIAGNOSES.get(error.value, other))
    mismatch = error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    return DriverError(problem, mismatch=mismatch)


def diagnose(diagnosis_of: Callable[[System], Problem]) -> Problem:
    """Return the problem. If the stub is loaded instead of the driver's library, that is the
    problem."""
    system = inspect_system()
    stub = loaded_stub()
    if stub:
        return diagnosis.stub(system, stub)
    return diagnosis_of(system)


def driver_says(call: Callable[[], Any]) -> Any:
    """Return the driver's answer about itself, or None if it has none. Raises `DriverError`."""
    try:
        return call()
    except nvml.NVMLError as error:
        if absence_of(error.value) is Absence.NOT_SUPPORTED:
            return None
        raise driver_error(error) from None


def check_driver() -> None:
    """Raise `DriverError` if a device fails because the driver itself is gone."""
    driver_says(nvml.nvmlSystemGetDriverVersion)
    driver_says(nvml.nvmlDeviceGetCount)
