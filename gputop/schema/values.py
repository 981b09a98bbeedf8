"""Text for values of the schema: how people read them, with their units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputop.frozen import dataclass
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import CLOCK_EVENTS
from gputop.text import duration, number, percentage, size, visible


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a reading since the start or the last reset, in the reading's unit."""

    minimum: float
    mean: float
    """Mean over time, not over samples, because the interval can change."""
    maximum: float
    count: int
    increase: float
    """Sum of all increases: what a counter counted, also after it went backwards."""


CAUSES: Mapping[str, str] = {event.word: event.label for event in CLOCK_EVENTS}
"""Labels of clock event reasons. Later drivers may have others."""
_NOW = {**CAUSES, "sw_power_cap": "power cap (normal at full load)"}


def _reasons(reasons: tuple[str, ...]) -> str:
    return ", ".join(_NOW.get(reason, visible(reason, 40)) for reason in reasons) or "nothing"


def _durations(seconds: Mapping[str, float]) -> str:
    """Return the causes with any time, longest first."""
    spent = sorted(((s, cause) for cause, s in seconds.items() if s > 0), reverse=True)
    texts = (f"{CAUSES.get(cause, visible(cause, 40))} {span_text(s)}" for s, cause in spent)
    return ", ".join(texts) or "none"


def span_text(seconds: float) -> str:
    """Return a time of any length: `4 ms`, `5.0 s`, `1:02:05`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else duration(seconds)


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _links(rates: tuple[int | None, ...]) -> str:
    """Return the rates, with adjacent equal ones merged: `0–17: 2.28 GiB/s`."""
    runs: list[tuple[int, int, str]] = []
    for link, rate in enumerate(rates):
        text = "down" if rate is None else _rate(rate)
        if runs and runs[-1][2] == text:
            runs[-1] = (runs[-1][0], link, text)
        else:
            runs.append((link, link, text))
    return ", ".join(
        f"{first}: {text}" if first == last else f"{first}–{last}: {text}"
        for first, last, text in runs
    )


def _energy(joules: float) -> str:
    for unit in ("J", "kJ", "MJ", "GJ"):
        if abs(joules) < 999.5 or unit == "GJ":
            break
        joules /= 1000
    return f"{number(joules)} {unit}"


def _words(word: str) -> str:
    return visible(word, 40).replace("_", " ")


_FORMS: Mapping[str, Callable[[Any], str]] = {
    "p_state": lambda state: f"P{state}",
    "reasons": _reasons,
    "durations": _durations,
    "percentages": lambda fans: ", ".join(map(percentage, fans)),
    "width": lambda width: f"×{width}",
    "links": _links,
    "remap_pending": lambda yes: "yes: a reset replaces the row" if yes else "no",
    "remap_failed": lambda yes: "yes: no spare row is left, have it replaced" if yes else "no",
    "shared": lambda yes: "the host's" if yes else "its own",
    "pci_device": lambda digits: f"0x{visible(digits, 40)}",
    "device_file": lambda minor: f"/dev/nvidia{minor}",
    "title": lambda word: _words(word).capitalize(),
    "words": _words,
    "enabled": lambda yes: "enabled" if yes else "disabled",
    "percent": lambda value: percentage(value, digits=1),
    "bytes": size,
    "bytes_per_second": _rate,
    "celsius": lambda value: f"{value:.0f}°C",
    "watts": lambda value: f"{number(value)} W",
    "joules": _energy,
    "mhz": lambda value: f"{value:.0f} MHz",
    "seconds": span_text,
    "": lambda value: visible(str(value), 200),
}
"""Functions that write a value, by the form or the unit in the catalogue."""


def value_text(name: str, value: Any) -> str:
    """Return the value of a field of a device with its unit, as people read it."""
    reading = CATALOGUE[name]
    if reading.form == "word" and reading.words is not None:
        return reading.words.get(value) or visible(value, 40)
    return _FORMS[reading.form or reading.unit](value)
