"""Rules about clocks: what holds them down, and how much is lost by it."""

from __future__ import annotations

from itertools import compress, repeat
from typing import TYPE_CHECKING

from gputop.health import thresholds as t
from gputop.health.alerts import Severity
from gputop.health.device_view import Look, now
from gputop.health.findings import Evidence, Said
from gputop.schema.clock_events import BITS, mask_of
from gputop.schema.derived import SLOWDOWN_BITS
from gputop.schema.values import span_text
from gputop.text import duration, percentage

if TYPE_CHECKING:
    from collections.abc import Sequence

BUSY, CLOCK, POWER = "gpu_utilization_percent", "sm_clock_mhz", "power_watts"
REASONS = "clock_event_reasons"
MOST_POINTS = 60
"""Of ten minutes: more would be more exact than one can use."""


def power_capped(look: Look) -> Said | None:
    """The power limit holds the clocks down: normal at full load, unless somebody lowered it."""
    share = look.slowed("sw_power_cap")
    if not look.passes(t.POWER_CAP, share):
        return None
    evidence = [_share("at the power limit", share, look), *look.means("power", POWER)]
    limit, default = look.sample.power_limit_watts, look.device.power_limit_default_watts
    if limit is not None:
        evidence.append(now("power limit", "power_limit_watts", limit))
    evidence += _clock(look)
    lowered = lowered_limit(limit, default, str(look.device.index))
    if lowered is not None and default is not None:
        evidence.append(now("its default", "power_limit_default_watts", default))
        what, advice = lowered
        return Said(Severity.WARNING, f"Held back by a power limit of {what}", evidence, advice)
    return Said(
        Severity.INFORMATION,
        f"At its power limit {percentage(share)} of the time: normal at full load",
        evidence,
        "Nothing to do: it is as fast as its power allows",
    )


def lowered_limit(limit: float | None, default: float | None, index: str) -> tuple[str, str] | None:
    """Which limit it is and what to do, where somebody has lowered it, of the device `index`."""
    if limit is None or not default or limit >= t.LIMIT_LOWERED * default:
        return None
    back = f"`sudo nvidia-smi -i {index} -pl {default:.0f}`"
    return (
        f"{limit:.0f} W, below its default of {default:.0f} W",
        f"If nobody meant it: {back}, if power supply and cooling allow it",
    )


def thermal(look: Look) -> Said | None:
    """Heat holds the clocks down."""
    share = look.slowed("sw_thermal", "hw_thermal")
    if not look.passes(t.HEAT, share):
        return None
    evidence = [_share("slowed by heat", share, look), *_lost(look, ("sw_thermal", "hw_thermal"))]
    evidence += look.means("temperature", "temperature_celsius")
    slowdown = look.device.temperature_slowdown_celsius
    if slowdown is not None:
        evidence.append(now("slows down at", "temperature_slowdown_celsius", slowdown))
    return Said(
        Severity.WARNING,
        f"Throttled by heat {_when(share, look)}{_loss_text(evidence)}",
        [*evidence, *_clock(look)],
        "Look at fans, dust, airflow and what is next to it; a lower power limit costs less "
        "than throttling does",
    )


def hardware_slowdown(look: Look) -> Said | None:
    """A slowdown by hardware that is not heat: mostly the power supply."""
    causes = ("hw_power_brake", "hw_slowdown")
    share = look.slowed(*causes, without="hw_thermal")
    if not look.passes(t.HARDWARE, share):
        return None
    brake = look.slowed("hw_power_brake") > 0
    evidence = [_share("slowed by hardware", share, look), *_lost(look, causes)]
    what = "Braked by its power supply" if brake else "Slowed down by hardware"
    return Said(
        Severity.WARNING,
        f"{what} {_when(max(1, share), look)}{_loss_text(evidence)}",
        [*evidence, *look.means("power", POWER), *_clock(look)],
        "Look at power cables and supply, and at what else draws from it; `dmesg` may say more",
    )


def clocks_low(look: Look) -> Said | None:
    """The clocks are low under load, and the driver does not say why."""
    if not look.passes(t.CLOCK_LOAD, look.mean(look.activity)):
        return None
    clock, maximum = look.mean(CLOCK), look.reading("sm_clock_max_mhz")
    if maximum <= 0 or not look.passes(t.LOW_CLOCK, 100 * clock / maximum):
        return None
    unslowed = look.unslowed()
    if not look.passes(t.NO_REASON, unslowed):
        return None
    evidence = [*_clock(look), _share("without a reason", unslowed, look)]
    return Said(
        Severity.WARNING,
        f"Clocks are low for no stated reason: {clock:.0f} of {maximum:.0f} MHz under load",
        [*evidence, *look.means("power", POWER), *look.means("busy", look.activity)],
        "They may be locked: `nvidia-smi -q -d CLOCK` shows it, `nvidia-smi -rgc` as root undoes "
        "it; on a laptop look at its power mode",
    )


def _when(share: float, look: Look) -> str:
    return "now" if look.axis.momentary else f"{percentage(share)} of the time"


def _share(label: str, share: float, look: Look) -> Evidence:
    return Evidence(label, REASONS, share, "%", look.span(t.WINDOW_SECONDS))


def _clock(look: Look) -> list[Evidence]:
    found = look.means("SM clock", CLOCK)
    maximum = look.device.sm_clock_max_mhz
    return [*found, now("its maximum", "sm_clock_max_mhz", maximum)] if found and maximum else found


def _lost(look: Look, causes: Sequence[str]) -> list[Evidence]:
    """For how long it was slowed in the last minutes, and how much work that is.

    A slowed second counts by how far its clock is below that of the other busy ones.
    """
    window = look.axis.within(t.LONG_SECONDS)
    if "clocks" not in look.memo:
        many, history, uuid = window.many, look.axis.history, look.device.uuid
        step = max(1, many // MOST_POINTS)
        masks = history.last(uuid, SLOWDOWN_BITS, many)[::step]
        clocks = history.last(uuid, CLOCK, many)[::step]
        there = [m + c == m + c for m, c in zip(masks, clocks, strict=True)]  # none is NaN
        look.memo["clocks"] = [*map(int, compress(masks, there))], [*compress(clocks, there)]
    masks_there, clocks_there = look.memo["clocks"]
    bits = mask_of(causes)
    slow = [*compress(clocks_there, (mask & bits for mask in masks_there))]
    not_free = bits | BITS["idle"]
    free = [*compress(clocks_there, (not mask & not_free for mask in masks_there))]
    full = sum(free) / len(free) if free else float(look.device.sm_clock_max_mhz or 0)
    each = window.span / max(1, len(clocks_there))
    evidence = [Evidence("slowed for", REASONS, len(slow) * each, "s", window.span)]
    if full > 0:
        lost = (len(slow) - sum(map(min, slow, repeat(full))) / full) * each
        evidence.append(Evidence(LOST, CLOCK, lost, "s", window.span))
    return evidence


LOST = "work lost by it, as time"


def _loss_text(evidence: Sequence[Evidence]) -> str:
    lost = next((e for e in evidence if e.label == LOST), None)
    if lost is None or not lost.value or not lost.seconds:
        return ""
    return f": about {span_text(lost.value)} of work lost in {duration(lost.seconds)}"
