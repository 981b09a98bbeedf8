"""Texts for values with their units, and for the reasons why values are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from gputop.agent.device import GPM_READINGS, Absence, Device, DeviceSample
from gputop.agent.snapshot import Host, Process
from gputop.schema.advice import fill_index, shared_command
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import CLOCK_EVENTS
from gputop.text import (
    ABSENT,
    duration,
    number,
    percentage,
    size,
    used_of,
    visible,
)

LANE_BYTES = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
"""Bytes/s of a PCIe lane by generation, after line coding and before headers (PCI-SIG)."""


CAUSES: Mapping[str, str] = {event.word: event.label for event in CLOCK_EVENTS}
"""Labels of clock event reasons. Later drivers may have more reasons."""


def cause_text(word: str) -> str:
    """Return the label of a clock event reason, or the word itself if it is unknown."""
    return CAUSES.get(word) or visible(word, 40)


def _reasons(words: tuple[str, ...]) -> str:
    texts = []
    for word in words:
        if word == "sw_power_cap":
            texts.append("power cap (normal at full load)")
        else:
            texts.append(cause_text(word))
    return ", ".join(texts) or "nothing"


def _durations(seconds: Mapping[str, float]) -> str:
    """Return the causes with more than 0 s, longest first."""
    texts = []
    for word, spent in sorted(
        seconds.items(), key=itemgetter(1, 0), reverse=True
    ):
        if spent > 0:
            texts.append(f"{cause_text(word)} {span_text(spent)}")
    return ", ".join(texts) or "none"


def span_text(seconds: float) -> str:
    """Return a duration as text: `4 ms`, `5.0 s`, `1:02:05`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    return duration(seconds)


def degrees_to_slowdown(device: Device, readings: DeviceSample) -> int | None:
    """Return the distance in °C to the slowdown threshold, or None if unknown."""
    threshold = device.temperature_slowdown_celsius
    celsius = readings.temperature_celsius
    if threshold is not None and celsius is not None:
        return threshold - celsius
    if readings.temperature_margin_celsius is None:
        return None
    slowdown_margin = device.temperature_slowdown_margin_celsius or 0
    return readings.temperature_margin_celsius - slowdown_margin


def rate(bytes_per_second: float | None) -> str:
    """Return a rate as text: `2.64 GiB/s`."""
    if bytes_per_second is None:
        return ABSENT
    return f"{size(bytes_per_second)}/s"


def _links(rates: tuple[int | None, ...]) -> str:
    """Return the rates of links, with adjacent equal rates merged: `0–17: 2.28 GiB/s`."""
    texts = []
    first = 0
    for each, run in groupby(rates, key=_link):
        last = first + len(list(run)) - 1
        links = str(first)
        if last > first:
            links = f"{first}–{last}"
        texts.append(f"{links}: {each}")
        first = last + 1
    return ", ".join(texts)


def _link(bytes_per_second: int | None) -> str:
    if bytes_per_second is None:
        return "down"
    return rate(bytes_per_second)


def _energy(joules: float) -> str:
    for unit in ("J", "kJ", "MJ", "GJ"):
        if abs(joules) < 999.5 or unit == "GJ":
            break
        joules /= 1000
    return f"{number(joules)} {unit}"


def _words(word: str) -> str:
    return visible(word, 40).replace("_", " ")


def _either(true: str, false: str) -> Callable[[Any], str]:
    """Return a function from a value to one of two texts."""

    def text(value: Any) -> str:
        if value:
            return true
        return false

    return text


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "p_state": lambda state: f"P{state}",
    "reasons": _reasons,
    "durations": _durations,
    "percentages": lambda fans: ", ".join(map(percentage, fans)),
    "width": lambda width: f"×{width}",
    "links": _links,
    "remap_pending": _either("yes: a reset replaces the row", "no"),
    "remap_failed": _either(
        "yes: no spare row is left, have it replaced", "no"
    ),
    "shared": _either("the host's", "its own"),
    "pci_device": lambda digits: f"0x{visible(digits, 40)}",
    "device_file": lambda minor: f"/dev/nvidia{minor}",
    "title": lambda word: _words(word).capitalize(),
    "words": _words,
    "enabled": _either("enabled", "disabled"),
    "percent": lambda value: percentage(value, digits=1),
    "bytes": size,
    "bytes_per_second": rate,
    "celsius": lambda value: f"{value:.0f}°C",
    "watts": lambda value: f"{number(value)} W",
    "joules": _energy,
    "mhz": lambda value: f"{value:.0f} MHz",
    "seconds": span_text,
    "": lambda value: visible(str(value), 200),
}
"""Functions that format a value, by the form or the unit in the catalogue."""


def value_text(name: str, value: Any) -> str:
    """Return a value of a device's field as text with its unit."""
    reading = CATALOGUE[name]
    if reading.form == "word" and reading.words is not None:
        return reading.words.get(value) or visible(value, 40)
    return _FORMS[reading.form or reading.unit](value)


UNSEEN = {
    Absence.LOST: "gone, or in another namespace: try --pid=host",
    Absence.NO_PERMISSION: "no permission: run as its user or as root",
    Absence.TIMED_OUT: "the host was too slow: wait for the next sample",
    Absence.NO_DATA_YET: "not looked up yet: wait for the next sample",
}
"""Reason and remedy for a process if only its pid is known."""
UNSEEN_BRIEFLY = {
    Absence.LOST: "gone, or elsewhere: --pid=host",
    Absence.NO_PERMISSION: "no permission: needs root",
}

_ALWAYS = {
    Absence.NO_PERMISSION: "no permission: run as root",
    Absence.LOST: "the device is lost or needs a reset: `dmesg` has the Xid",
    Absence.TIMED_OUT: "timed out: the driver did not answer, gputop asks again",
    Absence.UNREACHABLE: "its host is unreachable: the monitor says why",
    Absence.ERROR: "the driver failed: `nvidia-smi -q` may say more",
}
"""Texts for reasons that need no other details."""


def absence_text(
    name: str, absence: Absence, device: Device, host: Host | None = None
) -> str:
    """Return why the field is missing, and the remedy, in a short sentence."""
    match absence:
        case Absence.NOT_SUPPORTED:
            return _not_supported(name, device, host)
        case Absence.DISABLED:
            return _disabled(name, device)
        case Absence.NO_DATA_YET:
            if name.endswith("_bytes_per_second"):
                return "no data yet: needs two comparable readings"
            return "no data yet: comes with the next reading"
    return _ALWAYS[absence]


def _not_supported(
    name: str,
    device: Device,
    host: Host | None,
) -> str:
    if (
        name.startswith("memory_")
        and "_bytes" in name
        and device.memory_is_shared
    ):
        text = "shares the host's memory"
        if host is None or host.memory_used_bytes is None:
            return text
        used = used_of(host.memory_used_bytes, host.memory_total_bytes, " of ")
        return f"{text}: {used} in use there"
    if name.endswith("_utilization_percent"):
        if device.mig_index is not None:
            return "counted for the whole GPU only: see SM active"
        if device.mig_mode == "enabled":
            return "not counted while MIG is on: see its instances"
    if name in GPM_READINGS:
        return "needs GPM: Hopper or later, GeForce from the 50 series"
    # The list of processes is not in the catalogue.
    reading = CATALOGUE.get(name)
    if reading is not None and reading.not_supported:
        return reading.not_supported
    if name.startswith("nvlink_"):
        return "no NVLink, or no link that is up"
    if name.startswith("pcie_") and device.virtualization == "vgpu":
        return "not passed on to virtual GPUs: the host has it"
    return "not supported by this device or its driver"


def enable_ecc(device: Device) -> str:
    """Return the remedy for disabled ECC, for this device or several: see `fill_index`."""
    return f"{shared_command('-e 1', device)} and a reboot enable it"


def _disabled(name: str, device: Device) -> str:
    if name in GPM_READINGS:
        return "GPM is off by --no-gpm, or not sampled yet"
    if name.startswith("ecc_"):
        return f"disabled: {fill_index(enable_ecc(device), [device])}"
    return "switched off: see `nvidia-smi -q`"


def link_bytes(generation: float, width: float) -> float | None:
    """Return the link's bandwidth per direction in bytes/s, or None if unknown."""
    lane = LANE_BYTES.get(int(generation))
    if lane is None or width <= 0:
        return None
    return lane * width


def unseen(process: Process, room: int | None = None) -> str:
    """Return why a process has no command, and the remedy; in short form if `room` is small."""
    reason = process.absent.get("command", Absence.LOST)
    text = UNSEEN.get(reason, "the host does not name it")
    if room is not None and len(text) > room:
        return UNSEEN_BRIEFLY.get(reason, text)
    return text
