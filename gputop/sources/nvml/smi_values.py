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
from gputop.sources.nvml.fields import FieldKey, fetch, first_value
from gputop.sources.nvml.query import UNAVAILABLE, absence_of, absence_or_lost, nvml

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
_FORMS: Mapping[str, Callable[[Any], str]] = {
    "": lambda value: _decoded(value) if isinstance(value, bytes) else f"{value}",
    **{f"hex{digits}": f"0x{{:0{digits}X}}".format for digits in (1, 2, 4, 8, 16)},
    "hundredths": "{:.2f}".format,
    "milli": lambda value: f"{value / 1000:.2f}",
    "thousandth": lambda value: f"{value // 1000}",
    "mib": lambda value: f"{-(-value >> 20)}",
    "length": lambda value: f"{len(value)}",
    "valid": lambda _: "valid",
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
    keys = tuple(sorted({key for keys in numbered.values() for key in keys}))
    try:
        values: Mapping[FieldKey, Any] = dict(zip(keys, fetch(handle, keys), strict=True))
    except nvml.NVMLError as error:
        values = dict.fromkeys(keys, absence_or_lost(error.value))
    answers = {call: first_value(values, keys) for call, keys in numbered.items()}
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
    """Return a field of a record; of characters all bytes, or the number of a single one."""
    kind: Any = dict(record._fields_).get(name)
    if kind is None:  # in an older one
        return Absence.NOT_SUPPORTED
    if kind is not ctypes.c_char and getattr(kind, "_type_", None) is not ctypes.c_char:
        return getattr(record, name)
    place = getattr(type(record), name)  # its value would be a text that ends at the first zero
    raw = bytes(record)[place.offset : place.offset + place.size]
    return raw[0] if kind is ctypes.c_char else raw


def _keys(word: str, arguments: str, driver: tuple[int, ...]) -> tuple[FieldKey, ...] | None:
    """Return the field values that answer the question, the best first, or None if none does."""
    if word == "clock_event_time":
        return tuple(FieldKey(number) for number in clock_event_times(driver).get(arguments, ()))
    if word != "field":
        return None
    key = FieldKey(*map(int, arguments.split(",")))
    return () if key.field >= _RENUMBERED and driver < _NUMBERED_AGAIN else (key,)


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
        return _ERRORS.get(answer.value) or missing_text(field.name, absence_of(answer.value))
    value = answer if isinstance(answer, Absence) else value_in(answer)
    if isinstance(value, int) and value in UNAVAILABLE:
        value = Absence.NOT_SUPPORTED
    if isinstance(value, Absence):
        return missing_text(field.name, value)
    if not field.words:
        return _FORMS[field.form](value)
    word = field.words[value] if value < len(field.words) else f"{value}"
    return word or missing_text(field.name, Absence.NOT_SUPPORTED)
