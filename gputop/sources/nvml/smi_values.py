"""Values under nvidia-smi's names that are no readings: asked only for who names them.

The questions stand in `schema/smi_fields.txt`. The texts are those that nvidia-smi prints, without
the unit.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from gputop.schema.device import Absence
from gputop.schema.smi_fields import NONE, SmiField, missing_text, smi_fields
from gputop.sources.nvml.device_queries import clock_event_times
from gputop.sources.nvml.fields import FieldKey, FieldValue, fetch
from gputop.sources.nvml.query import UNAVAILABLE, absence_of, nvml

PCI_DEVICES = Path("/sys/bus/pci/devices")
_ERRORS = {
    nvml.NVML_ERROR_DEPRECATED: "[Requested functionality has been deprecated]",
    nvml.NVML_ERROR_CORRUPTED_INFOROM: "invalid",
}
"""Texts for return codes that say more than that a value is missing."""
_QUESTION = re.compile(r"(\w+)(?:\(([\w,]+)\))?(?:\[(\d)\]|\.(\w+)(?::(\d+):(\d+))?)?")
_RECORDS = {
    "DeviceGetPciInfoExt": ("nvmlPciInfoExt_v1",),
    "DeviceGetSramEccErrorStatus": ("nvmlEccSramErrorStatus_v1",),
    "DeviceGetGpuFabricInfoV": ("nvmlGpuFabricInfo_v3", "nvmlGpuFabricInfo_v2"),
    "DeviceGetPlatformInfo": ("nvmlPlatformInfo_v2",),
}
"""Records that these functions fill in, the newest first."""
_RENUMBERED, _NUMBERED_AGAIN = 246, (580, 82)
"""First of the fields whose numbers hold only from that driver on."""
_WORDS: Mapping[str, Mapping[Any, str]] = {
    "enabled": {0: "Disabled", 1: "Enabled"},
    "yes": {0: "No", 1: "Yes"},
    "supported": {0: "Not Supported", 1: "Supported"},
    "valid": {None: "valid"},
    "addressing": {0: "None", 1: "HMM", 2: "ATS"},
    "driver_model": {0: "WDDM", 1: "TCC", 2: "MCDM"},
    "operation": {0: "All On", 1: "Compute", 2: "Low Double Precision"},
    "peer": {b"\0": "Direct Connected", b"\1": "Switch Connected"},
    "status": {0: "Success"},
    "fabric_state": {1: "Not Started", 2: "In Progress", 3: "Completed"},
    "summary": {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"},
    "bandwidth": {1: "Degraded", 2: "Full"},
    "true": {1: "True", 2: "False"},
    "configuration": {
        1: "None",
        2: "Incorrect SystemGuid",
        3: "Incorrect Chassis SN",
        4: "No Partition",
        5: "Insufficient Nvlinks",
        6: "Incompatible GPU Firmware",
        7: "Invalid Location",
    },
}
"""Words by number. A 0 without a word is "not supported"."""
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "": lambda value: _decoded(value) if isinstance(value, bytes) else f"{value}",
    "hex1": "0x{:X}".format,
    "hex2": "0x{:02X}".format,
    "hex4": "0x{:04X}".format,
    "hex8": "0x{:08X}".format,
    "hex16": "0x{:016X}".format,
    "hundredths": "{:.2f}".format,
    "milli": lambda value: f"{value / 1000:.2f}",
    "thousandth": lambda value: f"{value // 1000}",
    "mib": lambda value: f"{-(-value >> 20)}",
    "length": lambda value: f"{len(value)}",
    "byte": lambda value: f"{value[0]}",
    "guid": lambda value: f"0x{value[:8].hex().upper()}",
    "uuid": lambda value: f"{UUID(bytes=bytes(value))}",
}
_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""PCIe generation by the GT/s of a lane."""


def smi_values(handle: Any, names: Iterable[str], driver: tuple[int, ...]) -> dict[str, str]:
    """Return the text for each of these names that NVML can be asked for, one call for a question.

    `driver` is the driver's version. Raises `NVMLError` if the device is lost.
    """
    known = smi_fields()
    fields = [known[name] for name in names if name in known]
    fields = [field for field in fields if field.question not in ("", NONE)]
    questions = {field.name: _parsed(field.question) for field in fields}
    calls = {(word, arguments) for word, arguments, _ in questions.values()}
    numbered = {call: keys for call in calls if (keys := _keys(*call, driver)) is not None}
    numbers = tuple({key for keys in numbered.values() for key in keys})
    values = dict(zip(numbers, fetch(handle, numbers), strict=True))
    answers = {call: _first(values, keys) for call, keys in numbered.items()}
    answers |= {call: _ask(handle, *call) for call in calls - numbered.keys()}
    texts = {}
    for field in fields:
        word, arguments, value_in = questions[field.name]
        texts[field.name] = _text(field, answers[word, arguments], value_in)
    return texts


@cache
def _parsed(question: str) -> tuple[str, str, Callable[[Any], Any]]:
    """Return the function's name, its arguments, and what takes the value from its answer."""
    found = _QUESTION.fullmatch(question)
    assert found is not None, question
    word, arguments, item, attribute, shift, bits = found.groups()

    def value_in(answer: Any) -> Any:
        if item:
            return answer[int(item)]
        value = _attribute(answer, attribute) if attribute else answer
        return value >> int(shift) & (1 << int(bits)) - 1 if shift else value

    return word, arguments or "", value_in


def _attribute(record: Any, name: str) -> Any:
    """Return a field of a record; of characters all bytes: nvidia-ml-py makes texts of them."""
    kind: Any = dict(record._fields_).get(name)
    if kind is None:  # in an older one
        return Absence.NOT_SUPPORTED
    if kind is not ctypes.c_char and getattr(kind, "_type_", None) is not ctypes.c_char:
        return getattr(record, name)
    place = getattr(type(record), name)
    return bytes(record)[place.offset : place.offset + place.size]


def _keys(word: str, arguments: str, driver: tuple[int, ...]) -> tuple[FieldKey, ...] | None:
    """Return the field values that answer the question, the best first, or None if none does."""
    if word == "clock_event_time":
        return tuple(FieldKey(number) for number in clock_event_times(driver).get(arguments, ()))
    if word != "field":
        return None
    key = FieldKey(*map(int, arguments.split(",")))
    return () if key.field >= _RENUMBERED and driver < _NUMBERED_AGAIN else (key,)


def _first(values: Mapping[FieldKey, FieldValue | Absence], keys: tuple[FieldKey, ...]) -> Any:
    found = [values[key] for key in keys if values[key] is not Absence.NOT_SUPPORTED]
    value = found[0] if found else Absence.NOT_SUPPORTED
    return value.number if isinstance(value, FieldValue) else value


def _ask(handle: Any, word: str, arguments: str) -> Any:
    """Return the function's answer, an `Absence`, or the error.

    Raises `NVMLError` only if the device is lost.
    """
    given = [handle] if word.startswith("Device") else []
    given += [int(argument) for argument in arguments.split(",") if argument]
    try:
        if word == "deprecated":
            return nvml.NVMLError(nvml.NVML_ERROR_DEPRECATED)
        if word == "root_port_generation":
            return _root_port_generation(handle)
        function = getattr(nvml, f"nvml{word}", None)
        if function is None:  # with older bindings
            return Absence.NOT_SUPPORTED
        if word in _RECORDS:
            return _filled(function, _RECORDS[word], handle)
        return function(*given)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="replace")
    except nvml.NVMLError as error:
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return error


def _filled(function: Callable[..., Any], names: Iterable[str], handle: Any) -> Any:
    """Return the newest of these records that bindings and driver know, filled in."""
    refusal: Any = Absence.NOT_SUPPORTED
    for name in names:
        cls = getattr(nvml, f"c_{name}_t", None) or getattr(nvml, f"{name}_t", None)
        if cls is None:
            continue
        record = cls()
        record.version = getattr(nvml, name)
        try:
            function(handle, ctypes.byref(record))
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                raise
            refusal = error
        else:
            return record
    return refusal


def _root_port_generation(handle: Any) -> int | Absence:
    """Return the PCIe generation that the port of the processor can do: NVML does not tell."""
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    device = Path(PCI_DEVICES, f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0").resolve()
    ports = [
        folder for folder in device.parents if re.fullmatch(r"\w{4,}:\w\w:\w\w\.\w", folder.name)
    ]
    try:
        speed = (ports[-1] / "max_link_speed").read_text().partition(" ")[0]
    except (IndexError, OSError):  # a virtual machine has no port
        return Absence.NOT_SUPPORTED
    return _GENERATIONS.get(speed, Absence.NOT_SUPPORTED)


def _decoded(text: bytes) -> str:
    return text.partition(b"\0")[0].decode(errors="replace")


def _text(field: SmiField, answer: Any, value_in: Callable[[Any], Any]) -> str:
    """Return the text that nvidia-smi prints for the answer to the field's question."""
    if isinstance(answer, nvml.NVMLError):
        known = _ERRORS.get(answer.value)
        return known or missing_text(field.name, absence_of(answer.value))
    value = answer if isinstance(answer, Absence) else value_in(answer)
    if isinstance(value, int) and value in UNAVAILABLE:
        value = Absence.NOT_SUPPORTED
    if isinstance(value, Absence):
        return missing_text(field.name, value)
    if field.form in _FORMS:
        return _FORMS[field.form](value)
    word = _WORDS[field.form].get(value)
    if word is None and not value:
        return missing_text(field.name, Absence.NOT_SUPPORTED)
    return word or f"{value}"
