"""Texts and styles of a device that several views share."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

from gputop.agent.device import Device, DeviceSample
from gputop.health.findings import (
    Bound,
    BoundBy,
    Finding,
    Severity,
    capitalized,
)
from gputop.health.thresholds import FULL_MARK, HOT_MARGIN
from gputop.schema.clock_events import BY_WORD, CLOCK_EVENTS, gravity
from gputop.schema.derived import model_of
from gputop.schema.values import degrees_to_slowdown
from gputop.text import ABSENT, fit_columns, visible
from gputop.ui.drawing.cells import (
    Row,
    Span,
    cell,
    clip,
    clip_words,
    share_of,
    width_of,
)
from gputop.ui.drawing.palette import DIM, FAULT, STRONG, TEXT, TRACK, WARN

LONGEST_WORD = max(len(bound.shown) for bound in Bound)
LONGEST_LIMIT = max(len(event.short) for event in CLOCK_EVENTS)


def name_of(device: Device) -> str:
    """Return the short name of a device; for a MIG instance, its profile."""
    name = model_of(device)
    if device.parent_uuid is None:
        return name
    return f"└ MIG {name.rpartition(' MIG ')[2]}"


Part = tuple[str, Span]
"""A label, which may be empty, and a reading."""


def parts_in_line(parts: Sequence[Part], width: int) -> Row:
    """Return the parts in a row. The last ones are dropped if they do not fit."""
    drawn = []
    for label, value in parts:
        name = Span(f"{label} ".lstrip(), DIM)
        drawn.append([Span(" · ", TRACK), name, value])
    row: Row = []
    for part in fit_columns(drawn, width + len(" · "), width_of):
        row += part
    return row[1:]


def number(text: str, width: int = 5, style: Style = STRONG) -> Span:
    """Return a right-aligned span for a reading. A missing reading is dim."""
    return cell(text, width, DIM if text == ABSENT else style, right=True)


def bound_row(
    bound_by: BoundBy | None,
    finding: Finding | None,
    width: int,
) -> Row:
    """Draw the fixed row of a device: its bottleneck, and its finding or else the reason."""
    word = why = ""
    if bound_by is not None:
        word, why = bound_by.bound.known, bound_by.text
    row = [Span("bound by ", DIM), cell(word or ABSENT, LONGEST_WORD, STRONG)]
    room = width - width_of(row) - 2
    if finding is not None:
        sign = sign_of(finding.severity)
        text = clip_words(capitalized(finding.line), room - 2)
        return [*row, Span("  "), sign, Span(text, sign.style)]
    return [*row, Span("  "), Span(clip_words(why, room), DIM)]


def sign_of(severity: Severity) -> Span:
    """Return the sign of a finding, in its colour."""
    if severity is Severity.INFORMATION:
        return Span("· ", DIM)
    return Span("▲ ", FAULT if severity is Severity.FAULT else WARN)


def heat_style(device: Device, readings: DeviceSample) -> Style:
    """Return the style of a temperature, with a warning near the slowdown."""
    margin = degrees_to_slowdown(device, readings)
    return WARN if margin is not None and margin <= HOT_MARGIN else TEXT


def memory_style(used: int | None, total: int | None) -> Style:
    """Return the style of memory in use, with a warning if little is left."""
    return WARN if (share_of(used, total) or 0) >= FULL_MARK else STRONG


def limit_text(reason: str) -> tuple[str, Style]:
    """Return a clock event reason in a word or two, and its style; empty for idle."""
    event = BY_WORD.get(reason)
    if event is None:
        return clip(visible(reason, LONGEST_LIMIT), LONGEST_LIMIT), DIM
    return event.short, WARN if event.fault else DIM


def limited_by(readings: DeviceSample) -> tuple[str, Style]:
    """Return the most severe clock event reason and its style; empty if there is none."""
    return limit_text(
        min(readings.clock_event_reasons or ("idle",), key=gravity),
    )
