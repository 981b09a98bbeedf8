"""Summary of a verdict in plain English for the owner of a device, with advice. Pure.

Advice names the device, and never suggests a harmful action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop.bench.events import (
    DEGRADED,
    FAULTY,
    OK,
    UNWATCHED,
    Result,
    VerdictPart,
)
from gputop.bench.plan.kinds import kind_of
from gputop.bench.plan.peaks import AT_MAXIMUM_CLOCK, BANDWIDTH, DATASHEET
from gputop.bench.results import held_back
from gputop.schema.clock_events import BY_WORD
from gputop.text import count, duration, visible

COOL_CELSIUS = 75.0
"""Temperature below which the summary calls a device under full load cool."""
LOWER_POWER_SHARE = 0.85
"""Share of the power limit that the advice for a hot device suggests."""
STUCK_SHARE = 0.4
"""Share of the maximum clock up to which a low clock explains a slow device."""
LEAST_DROOP = 1.0
"""Least droop in percent that a summary mentions."""


CHECK_POWER = "Check the power cables, power supply and cooling of {it}."
SEE_WHY = "Run `gputop why` while {it} is busy to see what holds it back."


def summary(result: Result, parts: Sequence[VerdictPart]) -> str:
    """Return one to four short sentences about a result with these parts of a verdict."""
    found = {part.name: part for part in parts}
    states = {part.state for part in parts}
    if FAULTY in states:
        return _faulty(result, found)
    if result.stopped == UNWATCHED:
        return (
            "Not judged: gputop failed to watch the device, so it ended the test. "
            "Run the test again."
        )
    for name, sentences in DEGRADED_PARTS.items():
        if name in found and found[name].state == DEGRADED:
            why = found[name].why
            said = (
                sentences
                if isinstance(sentences, str)
                else sentences(result, why)
            )
            return _joined(_right(result), _filled(said, result, why))
    return _not_bad(result, found)


def _faulty(result: Result, found: dict[str, VerdictPart]) -> str:
    if found["results"].state == FAULTY:
        return f"Faulty: {_wrong(result)}"
    errors = result.known_conditions.memory_errors
    no_spares = errors.get("remap_failed")
    if no_spares and no_spares[-1]:
        return f"Faulty: its memory has no spare cells left. Have {_it(result)} replaced."
    return (
        "Faulty: its memory lost data during the test (uncorrectable errors). "
        f"{_reset(result)} Have it replaced if this happens again."
    )


def _wrong(result: Result) -> str:
    """Return a description of the wrong results, and the remedy."""
    elements = count(result.wrong_elements, "element")
    if result.kind == "collective":
        return (
            f"wrong results from collectives ({elements} wrong). Test each device alone "
            "with `gputop bench check`; if all are right, a link between them is bad."
        )
    if result.device_uuid is None:
        remedy = "Undo overclocking, and test the memory of this computer."
    else:
        remedy = f"Have {_it(result)} replaced."
    if result.kind == "memory":
        return f"its memory changed data ({elements} wrong). {remedy}"
    if kind_of(result.kind).moves_bytes:
        return f"copies changed data ({elements} wrong). {remedy}"
    products = sum(
        result.mismatches.get(each, 0) for each in ("wrong", "unexplained")
    )
    verified = result.verified_products
    if products and verified:
        what = f"wrong results in {products:,} of {count(verified, 'product')}"
    else:
        what = f"wrong results ({elements} wrong in {count(result.checks, 'check')})"
    return f"{what}. {remedy}"


def _memory(result: Result, _: str) -> str:
    errors = result.known_conditions.memory_errors
    pending = errors.get("remap_pending")
    if pending and pending[-1]:
        return f"Bad memory cells wait to be replaced by spare ones. {_reset(result)}"
    corrected = errors.get("ecc_corrected", ())
    if corrected and corrected[-1] > corrected[0]:
        many = count(int(corrected[-1] - corrected[0]), "error")
        what = f"Its memory corrected {many} during the test."
    else:
        what = "Its memory replaced bad cells by spare ones during the test."
    again = f"gputop bench memory --device {_number(result)}"
    return f"{what} Run `{again}`; have {_it(result)} replaced if it happens again."


def _throttling(result: Result, why: str) -> str:
    if result.stopped == "silent":
        return (
            "The driver did not answer for too long, so the test was ended. Look for Xid "
            f"errors of {_it(result)} with `sudo dmesg`, and run the test again."
        )
    seconds = result.known_conditions.clock_event_seconds
    held = [
        word for word in seconds if word in BY_WORD and BY_WORD[word].fault
    ]
    if result.stopped != "limit" and not any(
        BY_WORD[word].is_heat for word in held
    ):
        return f"Slowed down by its hardware: {why}. {CHECK_POWER}"
    return f"Too hot: {_how_hot(result)}. {_cooler(result)}"


def _how_hot(result: Result) -> str:
    if result.stopped == "limit":
        celsius = result.known_conditions.temperature_celsius_max
        at = "" if celsius is None else f" at {celsius:.0f}°C"
        return f"the test was ended{at} after {duration(result.seconds)}"
    droop, steady = result.droop_percent, result.time_to_steady_seconds
    if droop and droop >= LEAST_DROOP:
        after = "" if not steady else f" after {duration(steady)}"
        return f"{droop:.0f} % slower{after}"
    heat = [
        seconds
        for word, seconds in result.known_conditions.clock_event_seconds.items()
        if word in BY_WORD and BY_WORD[word].is_heat
    ]
    return f"slowed down for {max(heat):.0f} of {result.seconds:.0f} s"


def _cooler(result: Result) -> str:
    limit, gpu = result.known_conditions.power_limit_watts, _smi_id(result)
    if limit is None or gpu is None:
        return "Improve airflow."
    watts = round(LOWER_POWER_SHARE * limit, -1)
    return f"Improve airflow, or limit power with `sudo nvidia-smi -i {gpu} -pl {watts:.0f}`."


def _earlier_runs(result: Result, _: str) -> str:
    known = result.known_comparison
    under, runs = known.under_percent, known.runs
    what = "Slower than in its earlier runs"
    if under and runs and under >= LEAST_DROOP:
        what = f"{under:.0f} % slower than in its last {runs} runs"
    return f"{what}. Compare cooling, power limit and driver of {_it(result)} with then."


def _datasheet(result: Result, why: str) -> str:
    clock = result.known_conditions.sm_clock_mhz_mean
    most, gpu = result.known_conditions.sm_clock_max_mhz, _smi_id(result)
    if gpu is None or not clock or not most or clock > STUCK_SHARE * most:
        return f"Too slow: {why}. {SEE_WHY}"
    return (
        f"Too slow: its clock stays at {clock:.0f} of {most:.0f} MHz. Undo a limit of the clock "
        f"with `sudo nvidia-smi -i {gpu} -rgc`, and restart the computer if that changes nothing."
    )


def _droop(result: Result, _: str) -> str:
    steady = result.time_to_steady_seconds
    after = "" if not steady else f" after {duration(steady)}"
    slower = f"{result.droop_percent or 0.0:.0f} % slower{after}"
    return f"It got {slower}, not by heat or its power limit. {SEE_WHY}"


DEGRADED_PARTS: dict[str, str | Callable[[Result, str], str]] = {
    "memory": _memory,
    "throttling": _throttling,
    "links": (
        "Slow link to other GPUs: {why}. "
        "Check its links with `nvidia-smi nvlink --status -i {number}`."
    ),
    "PCIe": (
        "Slow PCIe link: {why}. "
        "Check that the slot of {it} has all its lanes, and reseat the card."
    ),
    "like devices": (
        "Slower than the others: {why}. "
        "Compare power limit, clock and temperature of {it} with theirs."
    ),
    "earlier runs": _earlier_runs,
    "datasheet": _datasheet,
    "droop": _droop,
    "steadiness": f"Its speed is uneven: {{why}}. {SEE_WHY}",
}
"""Sentences about degraded parts, in this order. The summary has only the first degraded part,
because it explains the others. For example, heat explains a droop."""


def _not_bad(result: Result, found: dict[str, VerdictPart]) -> str:
    """Return the summary of a device without a fault."""
    if found["results"].state != OK:
        return "Not judged: no result was verified. Run the test for longer."
    if result.stopped == "user":
        return f"Stopped after {duration(result.seconds)}. No fault found until then."
    unjudged = _why_no_speed(result, found)
    if unjudged:
        return _joined(_right(result), f"Speed was not judged: {unjudged}.")
    facts = [
        _right(result).rstrip("."),
        *_speed(result, found),
        *_heat(result, found),
    ]
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


def _why_no_speed(result: Result, found: dict[str, VerdictPart]) -> str:
    """Return why the speed was not judged; empty if it was judged or is not relevant."""
    load = result.known_conditions.other_load
    if load:
        who = "; ".join(visible(each, 60) for each in load)
        return f"others used the device ({who}). Run the test again when it is free"
    if "datasheet" in kind_of(result.kind).unjudged:
        return ""
    judged = ("datasheet", "like devices", "earlier runs")
    if any(found[name].state == OK for name in judged if name in found):
        return ""
    waited = held_back.host_wait_percent(result)
    if waited >= held_back.LONG_WAIT:
        return (
            f"the host kept it waiting for {waited:.0f} % of the time. "
            "Free the CPU, and run the test again"
        )
    if result.device_uuid is None:
        return "no reference for this CPU"
    if _percents(result):
        return found["datasheet"].why
    return "no reference for this GPU"


def _percents(result: Result) -> list[float]:
    """Return the percentages of the first known peak, one per data type."""
    known = result.known_conditions.percent_of_peak
    for peak in (DATASHEET, BANDWIDTH, AT_MAXIMUM_CLOCK):
        found = [known[name] for name in known if name.startswith(peak)]
        if found:
            return found
    return []


def _speed(result: Result, found: dict[str, VerdictPart]) -> list[str]:
    """Return facts about the speed, by the datasheet, earlier runs, or like devices."""
    facts = []
    if found["datasheet"].state == OK:
        facts.append(_share_of_peak(result))
        limit = result.known_conditions.power_limit_watts
        if limit is not None and held_back.is_capped(result):
            facts.append(f"at its power limit of {limit:.0f} W as usual")
    elif found["earlier runs"].state == OK:
        facts.append("as fast as in earlier runs")
    elif found["like devices"].state == OK:
        facts.append("as fast as the others")
    return facts


def _share_of_peak(result: Result) -> str:
    percents = _percents(result)
    share = f"{min(percents):.0f} %"
    if len(percents) > 1:
        share = f"{min(percents):.0f} to {max(percents):.0f} %"
    known = result.known_conditions.percent_of_peak
    if kind_of(result.kind).moves_bytes:
        return f"{share} of its datasheet's bandwidth"
    if any(name.startswith(DATASHEET) for name in known):
        return f"{share} of its datasheet"
    return f"{share} of its computed peak"


def _heat(result: Result, found: dict[str, VerdictPart]) -> list[str]:
    celsius = result.known_conditions.temperature_celsius_max
    if celsius is None or found["throttling"].state != OK:
        return []
    if celsius < COOL_CELSIUS:
        return ["cool"]
    return [f"not slowed by heat ({celsius:.0f}°C)"]


def _filled(
    sentences: str,
    result: Result,
    why: str,
) -> str:
    """Replace `{why}`, `{it}` and `{number}` in sentences by the reason and the device."""
    fields = {"{why}": why, "{it}": _it(result), "{number}": _number(result)}
    for name, text in fields.items():
        sentences = sentences.replace(name, text)
    return sentences


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _it(result: Result) -> str:
    """Return the name of the device within a sentence."""
    if result.device_uuid is None:
        return "this CPU"
    if result.device_index is None:
        return "the GPU"
    return f"GPU {result.device_index}"


def _number(result: Result) -> str:
    """Return the device's name for `--device`."""
    if result.device_uuid is None:
        return "cpu"
    if result.device_index is None:
        return visible(result.device_uuid, 60)
    return str(result.device_index)


def _smi_id(result: Result) -> str | None:
    """Return the device's name for `nvidia-smi -i`, or None for a CPU or a MIG instance."""
    uuid = result.device_uuid
    if uuid is None or uuid.startswith("MIG-"):
        return None
    return _number(result)


def _reset(result: Result) -> str:
    gpu = _smi_id(result)
    if gpu is None:
        return "Have its administrator reset the GPU when no program uses it."
    return (
        f"End the programs that use {_it(result)}, "
        f"then reset it with `sudo nvidia-smi --gpu-reset -i {gpu}`."
    )
