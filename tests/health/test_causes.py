"""What a hurried reader is told first: causes over all devices, one for each fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.health.findings import (
    Finding,
    Severity,
    alerts_beside,
    cause_text,
    find_causes,
    name_devices,
    shorten,
)
from gputop.health.judge import BY_NAME

LABELS = {str(n): str(n) for n in range(16)}


def found(rule: str, gpu: int, severity: Severity, sentence: str, advice: str = "") -> Finding:
    return Finding(severity, sentence, (), advice, 1.0, rule, str(gpu), rank=BY_RANK[rule])


BY_RANK = {name: float(-n) for n, name in enumerate(BY_NAME)}
STARVED = "May be waiting for its input: idle {} % of the time, a CPU core is full"


def starved(gpu: int, percent: int = 45) -> Finding:
    return found("input_bound", gpu, Severity.WARNING, STARVED.format(percent))


def test_slowness_comes_before_hardware_that_works_and_that_before_what_is_normal() -> None:
    findings = [
        found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors"),
        found("power_capped", 1, Severity.INFORMATION, "At its power limit"),
        starved(0),
        found("thermal", 7, Severity.WARNING, "Throttled by heat 90 % of the time"),
    ]
    causes = find_causes(findings)
    assert [cause.findings[0].rule for cause in causes] == [
        "thermal",
        "input_bound",
        "ecc",
        "power_capped",
    ]
    assert [cause.slows for cause in causes] == [True, True, False, False]


def test_of_what_slows_the_work_the_dearest_is_first() -> None:
    heat = found("thermal", 7, Severity.WARNING, "Throttled by heat 90 % of the time")
    findings = [replace(heat, cost_percent=12.0), replace(starved(0), cost_percent=45.0)]
    assert [cause.findings[0].rule for cause in find_causes(findings)] == ["input_bound", "thermal"]


def test_devices_with_the_same_finding_share_a_cause() -> None:
    (cause,) = find_causes([starved(n, 40 + n) for n in range(7)])
    text = cause_text(cause, LABELS)
    assert text == "GPUs 0–6: may be waiting for their input"
    (cause,) = find_causes([starved(n) for n in range(7)])
    text = cause_text(cause, LABELS)
    assert text == f"GPUs 0–6: {STARVED.format(45)}".replace("its", "their").replace("May", "may")


def test_numbers_that_differ_at_once_are_those_of_the_gravest() -> None:
    heat = "Throttled by heat {} % of the time: 9 s lost"
    (cause,) = find_causes(
        [found("thermal", n, Severity.WARNING, heat.format(90 - n)) for n in range(3)]
    )
    assert (
        cause_text(cause, LABELS)
        == "GPU 0: throttled by heat 90 % of the time: 9 s lost, and others"
    )


def test_the_hardware_fault_of_a_device_is_one_story() -> None:
    (cause,) = find_causes(
        [
            found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors", "Restart the jobs"),
            found("remap", 5, Severity.WARNING, "Remaps a row at its next reset", "Reset it"),
            found("recovery", 5, Severity.FAULT, "Needs a reset", "Drain it, then reset"),
            found("xid", 5, Severity.FAULT, "Xid 63: a bad row of memory was recorded"),
        ]
    )
    (story,) = cause.findings
    assert story.sentence == (
        "Xid 63: a bad row of memory was recorded; 3 uncorrected ECC errors; needs a reset; "
        "remaps a row at its next reset"
    )
    assert story.advice == "Restart the jobs"  # one remedy: that of the gravest
    assert story.severity is Severity.FAULT


def test_the_xid_of_a_program_is_not_the_hardwares() -> None:
    causes = find_causes(
        [
            found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors"),
            found("xid", 5, Severity.WARNING, "Xid 31: a program touched memory"),
        ]
    )
    assert len(causes) == 2


def test_what_comes_of_low_clocks_is_told_with_what_lowers_them() -> None:
    (cause,) = find_causes(
        [
            found("straggler", 5, Severity.WARNING, "May delay its job: its clock is 9 % below"),
            found("thermal", 5, Severity.WARNING, "Throttled by heat all the time"),
        ]
    )
    assert cause_text(cause, LABELS) == "GPU 5: throttled by heat all the time; may delay its job"
    (alone,) = find_causes([found("straggler", 5, Severity.WARNING, "May delay its job: why")])
    assert alone.slows


def test_alerts_tell_each_fault_once() -> None:
    alerts = [
        found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors"),
        Finding(Severity.FAULT, "Needs a reset", rule="recovery", device_uuid="5", label="5"),
        Finding(Severity.WARNING, "Throttled by heat", rule="thermal", device_uuid="7"),
        Finding(Severity.FAULT, "Needs a reset", rule="recovery", device_uuid="6", label="6"),
    ]
    (heat,) = find_causes([found("thermal", 7, Severity.WARNING, "Throttled by heat 90 %")])
    said = [(each.device_uuid, each.sentence) for each in alerts_beside(alerts, heat)]
    assert said == [("5", "3 uncorrected ECC errors; needs a reset"), ("6", "Needs a reset")]
    assert len(alerts_beside(alerts, None)) == 3


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (["3"], "GPU 3"),
        (["0", "1"], "GPUs 0 and 1"),
        (["2", "0", "1", "7", "5"], "GPUs 0–2, 5 and 7"),
        ([str(n) for n in range(8)], "GPUs 0–7"),
        (["0:1", "0:2"], "GPUs 0:1 and 0:2"),
        ([f"node{n}:0" for n in range(5)], "5 GPUs"),
    ],
)
def test_names_of_devices(labels: list[str], text: str) -> None:
    assert name_devices(labels) == text


@given(st.sets(st.integers(0, 70), min_size=1))
def test_names_lose_no_device(indices: set[int]) -> None:
    text = name_devices([str(n) for n in indices])
    named: set[int] = set()
    for part in text.split(" ", 1)[1].replace(" and ", ", ").split(", "):
        first, _, last = part.partition("–")
        named |= {*range(int(first), int(last or first) + 1)}
    assert named == indices


@given(st.integers(10, 120))
def test_a_clause_is_never_cut(width: int) -> None:
    text = f"GPU 3: {STARVED.format(45)}"
    short = shorten(text, width)
    assert text.startswith(short)
    assert text[len(short) :][:1] in {"", ",", ":", ";"}
    assert len(short) <= max(width, len("GPU 3: May be waiting for its input"))
