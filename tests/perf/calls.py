"""What a monitor asks the driver: calls of NVML by class of function, and gputop's by turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.agent.test_nvml import ASKED_EVERY_10_SECONDS, ASKED_EVERY_SECOND, ASKED_EVERY_TICK

if TYPE_CHECKING:
    from collections.abc import Mapping

TURNS = {
    "at every tick": ASKED_EVERY_TICK,
    "every second": ASKED_EVERY_SECOND,
    "every 10 seconds": ASKED_EVERY_10_SECONDS,
}
"""How often gputop asks what."""
CLASSES = (
    ("processes", r"Process"),
    ("utilization", r"Utilization|Samples"),
    ("memory", r"MemoryInfo"),
    ("power and energy", r"Power(Usage|Management|.*Limit)|EnforcedPower|Energy"),
    ("temperature and fans", r"Temperature|Fan"),
    ("clocks", r"Clock"),
    ("PCIe throughput", r"PcieThroughput"),
    ("PCIe link", r"Pcie"),
    ("GetFieldValues", r"FieldValues"),
    ("GPM", r"Gpm"),
    ("events", r"Event"),
    ("modes, ECC, P-state", r"Mode|Ecc|Performance|PowerState|Mig"),
    ("who it is, start and end", r""),
)
"""Classes of functions of NVML, by patterns of their names; the first that fits."""


def by_class(calls: Mapping[str, float]) -> dict[str, float]:
    """The calls by class of function."""
    found = dict.fromkeys((kind for kind, _ in CLASSES), 0.0)
    for name, count in calls.items():
        found[next(kind for kind, pattern in CLASSES if re.search(pattern, name))] += count
    return found


def by_turn(calls: Mapping[str, float]) -> dict[str, float]:
    """gputop's calls by how often it asks."""
    found = {
        turn: sum(n for name, n in calls.items() if name in names) for turn, names in TURNS.items()
    }
    return {**found, "in several of them": sum(calls.values()) - sum(found.values())}


def table_of_calls(scene: str, calls: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Calls a second, of all devices together, of monitors by name; empty if none were counted."""
    found = {name.split()[0]: by_class(each) for name, each in calls.items() if each}
    if not found:
        return []
    lines = [f"calls of NVML a second, {scene}", f"{'':28}" + "".join(f"{n:>10}" for n in found)]
    lines += [
        f"{kind:28}" + "".join(f"{each[kind]:10.1f}" for each in found.values())
        for kind, _ in CLASSES
    ]
    lines.append(f"{'all':28}" + "".join(f"{sum(e.values()):10.1f}" for e in found.values()))
    own = next((each for name, each in calls.items() if name.startswith("gputop")), {})
    if own:
        turns = (f"{n:.1f} {turn}" for turn, n in by_turn(own).items())
        lines.append(f"gputop's: {', '.join(turns)}")
    return lines
