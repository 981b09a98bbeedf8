"""Summary of a verdict in plain English for the owner of a device, with advice. Pure.

Advice names the device, and never suggests a harmful action.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputop.bench.events import DEGRADED, FAULTY, OK, UNWATCHED, Result
from gputop.text import duration, visible

SPEEDS = ("datasheet", "earlier runs", "like devices")
"""Parts about the speed. The summary has the first of them that is ok."""


class Judged(NamedTuple):
    """A part of a verdict."""

    state: str
    why: str
    """The reason, with its numbers."""
    said: str = ""
    """Words for the summary: what is wrong and the remedy if the part is bad, else a phrase."""


def summary(result: Result, parts: Mapping[str, Judged]) -> str:
    """Return one to four short sentences about a result with these parts of a verdict.

    It has only the first bad part, which explains the others: heat explains a droop.
    """
    for part in parts.values():
        if part.state == FAULTY:
            return f"Faulty: {part.said}"
    if result.stopped == UNWATCHED:
        return (
            "Not judged: gputop failed to watch the device, so it ended the test. "
            "Run the test again."
        )
    right = _right(result)
    for part in parts.values():
        if part.state == DEGRADED:
            return f"{right} {part.said}".lstrip()
    if not right:
        return "Not judged: no result was verified. Run the test for longer."
    if result.stopped == "user":
        return f"Stopped after {duration(result.seconds)}. No fault found until then."
    speeds = [parts[name].said for name in SPEEDS if parts[name].state == OK]
    unjudged = parts["datasheet"].said
    if not speeds and unjudged:
        return f"{right} Speed was not judged: {unjudged}."
    facts = [right.rstrip("."), *speeds[:1], parts["throttling"].said]
    return f"No fault found. {', '.join(filter(None, facts))}."


def _right(result: Result) -> str:
    """Return a sentence about correct results, or an empty text if no result was verified."""
    if not result.checks:
        return ""
    if result.kind == "memory":
        return "Memory keeps its data."
    if result.kind == "copy":
        return "Copies data correctly."
    return "Computes correctly."


def it(result: Result) -> str:
    """Return the name of the device within a sentence."""
    if result.device_uuid is None:
        return "this CPU"
    if result.device_index is None:
        return "the GPU"
    return f"GPU {result.device_index}"


def number(result: Result) -> str:
    """Return the device's name for `--device`."""
    if result.device_uuid is None:
        return "cpu"
    if result.device_index is None:
        return visible(result.device_uuid, 60)
    return str(result.device_index)


def smi_id(result: Result) -> str | None:
    """Return the device's name for `nvidia-smi -i`, or None for a CPU or a MIG instance."""
    uuid = result.device_uuid
    if uuid is None or uuid.startswith("MIG-"):
        return None
    return number(result)


def see_why(result: Result) -> str:
    """Return how to find out what slows the device down."""
    return f"Run `gputop why` while {it(result)} is busy to see what holds it back."


def reset(result: Result) -> str:
    """Return how to reset the device."""
    gpu = smi_id(result)
    if gpu is None:
        return "Have its administrator reset the GPU when no program uses it."
    return (
        f"End the programs that use {it(result)}, "
        f"then reset it with `sudo nvidia-smi --gpu-reset -i {gpu}`."
    )
