"""Values of the schema as people read them, with their units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gputop.frozen import dataclass
from gputop.schema.clock_events import CLOCK_EVENTS
from gputop.text import duration, number, percentage, size, visible


@dataclass(frozen=True, slots=True)
class Statistics:
    """A reading since the start, or since it was reset; in the reading's unit."""

    minimum: float
    mean: float
    """Over time, not over samples: the interval can be changed while it runs."""
    maximum: float
    count: int
    """Samples that had the reading."""
    increase: float
    """How much it went up in all: of a counter, what it counted.

    One that goes backwards goes on from there: what it counted meanwhile is not known.
    """


CAUSES: Mapping[str, str] = {event.word: event.label for event in CLOCK_EVENTS}
"""Why clocks are not higher; of later drivers there may be others."""
_NOW = {**CAUSES, "sw_power_cap": "power cap (normal at full load)"}
_RECOVERIES = {
    "none": "nothing to do",
    "gpu_reset": "reset it: end its processes, then `nvidia-smi --gpu-reset`",
    "node_reboot": "reboot the machine",
    "system_reboot": "reboot the machine",
    "bus_reset": "reset its bus, or reboot the machine",
    "drain_p2p": "end the processes that use peer-to-peer traffic, then look here again",
    "drain_and_reset": "start nothing more on it, then reset it",
    "recover_imex_domain": "recover its IMEX domain",
}
_VIRTUALIZATIONS = {
    "none": "none",
    "passthrough": "passed through to this guest",
    "vgpu": "a virtual GPU in a guest",
    "host_vgpu": "host of virtual GPUs",
    "host_vsga": "host of shared graphics",
}


def _reasons(reasons: tuple[str, ...]) -> str:
    return ", ".join(_NOW.get(reason, visible(reason, 40)) for reason in reasons) or "nothing"


def _times(seconds: Mapping[str, float]) -> str:
    """The longest first; those without any are left out."""
    spent = sorted(((s, cause) for cause, s in seconds.items() if s > 0), reverse=True)
    return ", ".join(f"{_cause(cause)} {span_text(s)}" for s, cause in spent) or "none"


def _cause(cause: str) -> str:
    return CAUSES.get(cause, visible(cause, 40))


def span_text(seconds: float) -> str:
    """A time of any length: `4 ms`, `5.0 s`, `1:02:05`."""
    if seconds < 0.9995:
        return f"{max(1, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else duration(seconds)


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _links(rates: tuple[int | None, ...]) -> str:
    """Links with the same rate together: `0–17: 2.28 GiB/s`."""
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


def _word(words: Mapping[str, str]) -> Callable[[str], str]:
    return lambda word: words.get(word, visible(word, 40))


def _plain(word: str) -> str:
    return visible(word, 40).replace("_", " ")


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "performance_state": lambda state: f"P{state}",
    "clock_event_reasons": _reasons,
    "clock_event_seconds": _times,
    "fans_percent": lambda fans: ", ".join(map(percentage, fans)),
    "pcie_width": lambda width: f"×{width}",
    "pcie_width_max": lambda width: f"×{width}",
    "nvlink_link_rx_bytes_per_second": _links,
    "nvlink_link_tx_bytes_per_second": _links,
    "remap_pending": lambda yes: "yes: a reset replaces the row" if yes else "no",
    "remap_failed": lambda yes: "yes: no spare row is left, have it replaced" if yes else "no",
    "recovery_action": _word(_RECOVERIES),
    "memory_is_shared": lambda yes: "the host's" if yes else "its own",
    "pci_device_id": lambda digits: f"0x{visible(digits, 40)}",
    "minor_number": lambda minor: f"/dev/nvidia{minor}",
    "architecture": lambda word: _plain(word).capitalize(),
    "compute_mode": _plain,
    "ecc_enabled": lambda yes: "enabled" if yes else "disabled",
    "virtualization": _word(_VIRTUALIZATIONS),
}
_UNITS: Mapping[str, Callable[[Any], str]] = {
    "_percent": lambda value: percentage(value, digits=1),
    "_bytes": size,
    "_bytes_per_second": _rate,
    "_celsius": lambda value: f"{value:.0f}°C",
    "_watts": lambda value: f"{number(value)} W",
    "_joules": _energy,
    "_mhz": lambda value: f"{value:.0f} MHz",
}


def value_text(name: str, value: Any) -> str:
    """The value of that field of the schema with its unit, as people read it."""
    text = _TEXTS.get(name)
    if text is not None:
        return text(value)
    for ending, with_unit in _UNITS.items():
        if name.endswith(ending):
            return with_unit(value)
    return visible(str(value), 200)
