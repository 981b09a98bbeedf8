"""Finding: one problem of a device, or one fact that explains its behaviour.

The dashboard, `gputop status`, `why` and `doctor`, the fleet and the exporter show findings of this
type, with one scale of severity. `BoundBy` is the bottleneck of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from itertools import groupby
from typing import NamedTuple

from gputop.schema.values import rate, span_text
from gputop.text import cells, number, percentage, quantity, size

_UNITS = {
    "_percent": "%",
    "_bytes_per_second": "B/s",
    "_bytes": "B",
    "_watts": "W",
    "_mhz": "MHz",
    "_celsius": "°C",
    "_seconds": "s",
}


_FORMS: Mapping[str, Callable[[float], str]] = {
    "B": size,
    "B/s": rate,
    "s": span_text,
    "%": percentage,
}


@cache
def unit_of(name: str) -> str:
    """Return the unit at the end of the reading's name; empty for a plain number."""
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return unit
    return ""


class Severity(IntEnum):
    """Severity of a finding, from least to most severe."""

    OK = 0
    """Checked and fine. Only doctor uses this."""
    INFORMATION = 1
    """Explains something normal, or says why a check was not possible."""
    WARNING = 2
    STALE = 3
    """Prometheus has no recent readings of the GPU. Only the fleet reports these."""
    FAULT = 4

    @property
    def word(self) -> str:
        """Name in JSON and in metric labels."""
        return self.name.lower()


class Bound(StrEnum):
    """Bottlenecks of a GPU."""

    COMPUTE = "compute"
    MEMORY = "memory"
    FP32 = "fp32"
    LATENCY = "latency"
    LAUNCHES = "launches"
    INPUT = "input"
    TRANSFERS = "transfers"
    PEERS = "peers"
    POWER = "power"
    HEAT = "heat"
    IDLE = "idle"
    UNKNOWN = "unknown"

    @property
    def known(self) -> str:
        """The word on screen, or nothing if the bottleneck is unknown."""
        return "" if self is Bound.UNKNOWN else self.shown

    @property
    def shown(self) -> str:
        """The word on screen."""
        return {Bound.FP32: "FP32", Bound.UNKNOWN: "cannot tell"}.get(
            self, self.value
        )


class Evidence(NamedTuple):
    """A number that supports a finding."""

    label: str
    """Text on screen, such as `SM clock, mean`."""
    reading: str
    """Field of the schema, or series of the history, with the number."""
    value: float
    unit: str = ""
    seconds: float | None = None
    """Time span of the number, up to now; None for a current value."""
    headline: str = ""
    """Template for the finding's line, such as `idle {}`; empty if the number is only listed."""

    @property
    def text(self) -> str:
        """The number with its unit: `1.45 GiB`, `37 %`, `12.0 s`."""
        form = _FORMS.get(self.unit)
        if form is not None:
            return form(self.value)
        if self.unit:
            space = "" if self.unit == "°C" else " "
            return quantity(self.value, f"{space}{self.unit}")
        return number(self.value, whole=self.value == round(self.value))


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition of a device or of its host.

    Rules and checks create it; their caller adds `rule` and, for rules, the device.
    """

    severity: Severity
    title: str
    """The condition, in words that can follow both `GPU 3: ` and `GPUs 0–6: `.

    It is lower case, has no full stop, and foreign text in it is made safe. Numbers that differ
    between devices belong in the evidence: devices with the same title share a line.
    """
    evidence: Sequence[Evidence] = ()
    remedy: str = ""
    """The remedy, as a sentence. `advice.INDEX` stands for the indices of the devices."""
    since: float | None = None
    """Unix time of its start, if known. Rules leave None for "now"."""
    rule: str = ""
    """Name of the rule or check. Together with the device, it identifies the finding over time."""
    device_uuid: str = ""
    """UUID of the device, or its key in a fleet. Empty for a finding about the host."""
    label: str = ""
    """Device label as on screen, or name of the host. Doctor leaves it empty."""
    rank: float = 0.0
    """Order within a severity: higher is worse."""
    cost_percent: float = 0.0
    """Share of the work that is lost, if known. It ranks the causes of slowness."""
    also: tuple[str, ...] = ()
    """Titles of findings that this one explains or that are about the same fault."""
    bound: Bound | None = None
    """Bottleneck that the finding shows, if it shows one."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identity while the finding lasts. Each Xid is a different finding."""
        news = self.since if self.rule == "xid" else None
        return self.device_uuid, self.label, self.rule, self.severity, news

    @property
    def line(self) -> str:
        """The finding in one line, without its device: title, numbers, and explained findings."""
        return phrase(self.title, headlines(self.evidence), self.also)


def headlines(evidence: Iterable[Evidence]) -> list[str]:
    """Return the numbers for a line, in their words."""
    return [
        each.headline.format(each.text) for each in evidence if each.headline
    ]


def phrase(
    title: str,
    numbers: Sequence[str] = (),
    also: Sequence[str] = (),
    room: int | None = None,
) -> str:
    """Return a title with its numbers and with other titles: `hot: 90 °C, lost 3.0 s; slow`.

    If it is longer than `room` cells, parts at the end are left out. The title stays.
    """
    text = title
    if numbers:
        text = f"{title}: {', '.join(numbers)}"
    text = "; ".join((text, *also))
    if room is None or cells(text) <= room or not (numbers or also):
        return text
    if also:
        return phrase(title, numbers, also[:-1], room)
    return phrase(title, numbers[:-1], (), room)


class BoundBy(NamedTuple):
    """Bottleneck of a device, and the reason."""

    bound: Bound
    text: str
    """The condition, or why the bottleneck is unknown."""
    numbers: Sequence[str] = ()

    @property
    def why(self) -> str:
        """The condition with its numbers."""
        return phrase(self.text, self.numbers)

    @property
    def plain(self) -> dict[str, str]:
        """The word and its reason for JSON."""
        return {"word": self.bound.value, "why": self.why}


def capitalized(text: str) -> str:
    """Return the text with a capital letter, except for names such as `PCIe link …`."""
    return text[:1].upper() + text[1:]


MOST_LISTED = 3
"""Most labels to list if they are not plain numbers. Longer lists end with a count."""


def name_devices(labels: Sequence[str]) -> str:
    """Return devices by their labels, in order: `GPU 3`, `GPUs 0–2, 5 and 7`.

    If labels are not plain numbers, as with several machines, only a few are listed.
    """
    if not all(label.isdecimal() for label in labels):
        return _name_all("GPU", labels)
    noun = "GPU" if len(labels) == 1 else "GPUs"
    return f"{noun} {listed_numbers(map(int, labels))}"


def name_hosts(labels: Sequence[str]) -> str:
    """Return hosts by their names: `host a`, `hosts a and b`, `5 hosts`."""
    return _name_all("host", labels)


def listed_numbers(numbers: Iterable[int]) -> str:
    """Return numbers in order: `0–2, 5 and 7`."""
    ranges: list[tuple[int, int]] = []
    for _, run in groupby(
        enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]
    ):
        near = [number for _, number in run]
        ranges.append((near[0], near[-1]))
    return listed_ranges(ranges)


def listed_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Return ranges of numbers, given by the first and the last one: `0–2, 5 and 7`."""
    parts: list[str] = []
    for first, last in ranges:
        if last - first > 1:
            parts.append(f"{first}–{last}")
        else:
            parts += dict.fromkeys((str(first), str(last)))
    return _listed(parts)


def _name_all(noun: str, labels: Sequence[str]) -> str:
    if len(labels) > MOST_LISTED:
        return f"{len(labels)} {noun}s"
    if len(labels) > 1:
        noun = f"{noun}s"
    return f"{noun} {_listed(labels)}"


def _listed(parts: Sequence[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
