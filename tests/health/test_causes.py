"""What a hurried reader is told first: causes over all devices, one for each fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop.health.causes import Cause, find_causes
from gputop.health.findings import Evidence, Finding, Severity, name_devices, phrase
from gputop.health.judge import BY_NAME

LABELS = {str(n): str(n) for n in range(16)}


def found(
    rule: str, gpu: int, severity: Severity, title: str, remedy: str = "", *numbers: Evidence
) -> Finding:
    return Finding(severity, title, numbers, remedy, 1.0, rule, str(gpu), rank=BY_RANK[rule])


def cause_text(cause: Cause, labels: dict[str, str], room: int | None = None) -> str:
    who = name_devices([labels[each.device_uuid] for each in cause.findings])
    return phrase(f"{who}: {cause.title}", cause.numbers, cause.also, room)


BY_RANK = {name: float(-n) for n, name in enumerate(BY_NAME)}
STARVED = "may be waiting for input, a CPU core is full"


def starved(gpu: int, percent: float = 45, period: float | None = None) -> Finding:
    numbers = [Evidence("idle", "gpu_utilization_percent", percent, "%", headline="idle {}")]
    if period is not None:
        numbers.append(
            Evidence("gaps", "gpu_utilization_percent", period, "s", headline="every {}")
        )
    numbers.append(Evidence("CPU", "process_cpu_percent", 99, "%"))
    return found("input_bound", gpu, Severity.WARNING, STARVED, "", *numbers)


def test_slowness_comes_before_hardware_that_works_and_that_before_what_is_normal() -> None:
    findings = [
        found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors"),
        found("power_capped", 1, Severity.INFORMATION, "at the power limit"),
        starved(0),
        found("thermal", 7, Severity.WARNING, "throttled by heat"),
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
    heat = found("thermal", 7, Severity.WARNING, "throttled by heat")
    findings = [replace(heat, cost_percent=12.0), replace(starved(0), cost_percent=45.0)]
    assert [cause.findings[0].rule for cause in find_causes(findings)] == ["input_bound", "thermal"]


def test_devices_with_the_same_finding_share_a_line_with_the_lowest_and_highest_number() -> None:
    (cause,) = find_causes([starved(n, 40 + n) for n in range(7)])
    assert cause_text(cause, LABELS) == f"GPUs 0–6: {STARVED}: idle 40 % to 46 %"
    (cause,) = find_causes([starved(n) for n in range(7)])
    assert cause_text(cause, LABELS) == f"GPUs 0–6: {STARVED}: idle 45 %"


def test_devices_with_another_remedy_are_another_cause() -> None:
    """One line has one remedy, which is true for all of its devices."""
    here = found("power_capped", 0, Severity.WARNING, "held back", "Restore it")
    there = found("power_capped", 1, Severity.WARNING, "held back", "Restore it on node7")
    assert [len(cause.findings) for cause in find_causes([here, there])] == [1, 1]


def test_the_hardware_fault_of_a_device_is_one_story() -> None:
    (cause,) = find_causes(
        [
            found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors", "Restart the jobs"),
            found("remap", 5, Severity.WARNING, "a memory row to remap", "Reset it"),
            found("recovery", 5, Severity.FAULT, "needs a reset", "Drain it, then reset"),
            found("xid", 5, Severity.FAULT, "Xid 63: a bad row of memory was recorded"),
        ]
    )
    (story,) = cause.findings
    assert story.line == (
        "Xid 63: a bad row of memory was recorded; 3 uncorrected ECC errors; needs a reset; "
        "a memory row to remap"
    )
    assert story.remedy == "Restart the jobs"  # one remedy: that of the gravest
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
    delay = "may delay its job, SM clock below GPU 1"
    (cause,) = find_causes(
        [
            found("straggler", 5, Severity.WARNING, delay),
            found("thermal", 5, Severity.WARNING, "throttled by heat"),
        ]
    )
    assert cause_text(cause, LABELS) == f"GPU 5: throttled by heat; {delay}"
    (alone,) = find_causes([found("straggler", 5, Severity.WARNING, delay)])
    assert alone.slows


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
