import dataclasses
from dataclasses import replace

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Machine, MachineState
from gputop.health.causes import Cause, find_causes, place_of, shared_numbers, title_of
from gputop.health.conditions import machine_findings, state_findings
from gputop.health.findings import Evidence, Finding, Severity, name_devices, phrase
from gputop.health.judge import RULES
from tests.streams import NO_DRIVER, device, inventory, lost, sample

BY_RANK = {rule.name: float(-n) for n, rule in enumerate(RULES)}


def found(
    rule: str, gpu: int, severity: Severity, title: str, remedy: str = "", *numbers: Evidence
) -> Finding:
    return Finding(severity, title, numbers, remedy, 1.0, rule, str(gpu), rank=BY_RANK[rule])


def rules_of(causes: list[Cause]) -> list[str]:
    return [cause[0].rule for cause in causes]


def texts(findings: list[Finding]) -> list[str]:
    return [title_of(cause) for cause in find_causes(findings)]


def starved(gpu: int, percent: float = 45) -> Finding:
    numbers = (
        Evidence("idle", "gpu_utilization_percent", percent, "%", headline="idle {}"),
        Evidence("CPU", "process_cpu_percent", 99, "%"),
    )
    return found("input_bound", gpu, Severity.WARNING, "a CPU core is full", "", *numbers)


HEAT = found("thermal", 7, Severity.WARNING, "throttled by heat")
ECC = found("ecc", 5, Severity.FAULT, "3 uncorrected ECC errors", "Restart the jobs")


def test_slowness_comes_before_hardware_that_works_and_that_before_what_is_normal() -> None:
    normal = found("power_capped", 1, Severity.INFORMATION, "at the power limit")
    causes = find_causes([ECC, normal, starved(0), HEAT])
    assert rules_of(causes) == ["thermal", "input_bound", "ecc", "power_capped"]
    assert [place_of(cause[0]) for cause in causes] == [1, 1, 2, 3]
    assert place_of(replace(ECC, rule="state")) == 0
    dearer = replace(starved(0), cost_percent=45.0)
    assert rules_of(find_causes([replace(HEAT, cost_percent=12.0), dearer])) == [
        "input_bound",
        "thermal",
    ]


def test_devices_with_the_same_finding_share_the_lowest_and_the_highest_number() -> None:
    (cause,) = find_causes([starved(n, 40 + n) for n in range(7)])
    assert shared_numbers(cause) == ["idle 40 % to 46 %"]
    (cause,) = find_causes([starved(n) for n in range(7)])
    assert shared_numbers(cause) == ["idle 45 %"]


def test_devices_with_another_remedy_are_another_cause() -> None:
    here = found("power_capped", 0, Severity.WARNING, "held back", "Restore it")
    there = found("power_capped", 1, Severity.WARNING, "held back", "Restore it on node7")
    assert [len(cause) for cause in find_causes([here, there])] == [1, 1]


def test_the_hardware_fault_of_a_device_is_one_story() -> None:
    ((story,),) = find_causes(
        [
            ECC,
            found("remap", 5, Severity.WARNING, "a memory row to remap", "Reset it"),
            found("recovery", 5, Severity.FAULT, "needs a reset", "Drain it, then reset"),
            found("xid", 5, Severity.FAULT, "Xid 63: a bad row of memory was recorded"),
        ]
    )
    assert story.line == (
        "Xid 63: a bad row of memory was recorded; 3 uncorrected ECC errors; needs a reset; "
        "a memory row to remap"
    )
    assert story.remedy == "Restart the jobs"  # one remedy: that of the gravest
    assert (story.severity, story.since) == (Severity.FAULT, 1.0)
    program = found("xid", 5, Severity.WARNING, "Xid 31: a program touched memory")
    assert len(find_causes([ECC, program])) == 2, "it is not the hardware's"


def test_what_comes_of_low_clocks_is_told_with_what_lowers_them() -> None:
    delay = found("straggler", 7, Severity.WARNING, "may delay its job")
    ((both,),) = find_causes([delay, HEAT])
    assert both.line == "throttled by heat; may delay its job"


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


MISSING = ("0000:27:00.0", "0000:37:00.0", "0000:47:00.0", "0000:57:00.0")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (DeviceState.LOST, "GPUs 0–2: LOST: it no longer answers on its bus"),
        (DeviceState.NOT_RESPONDING, "GPUs 0–2: NOT RESPONDING for 12 s: a driver call hangs"),
    ],
)
def test_devices_that_do_not_answer(state: DeviceState, words: str) -> None:
    gone = dataclasses.replace(sample(4), devices=tuple(lost(n, state) for n in range(4)))
    instance = device(3, parent_uuid="GPU-1", mig_index=2)  # its GPU has the finding
    assert texts(state_findings([*map(device, range(3)), instance], gone)) == [words]
    assert state_findings(map(device, range(4)), sample(4)) == []


def test_gpus_that_the_driver_does_not_list() -> None:
    found = machine_findings(sample(1), inventory(1, unlisted_gpus=MISSING))
    words = (
        f"Host node07: 4 GPUs that the driver does not list, {', '.join(MISSING[:3])} and 1 more"
    )
    assert texts(found) == [words]
    assert "dmesg" in found[0].remedy
    assert machine_findings(sample(1), inventory(1)) == []


def test_each_of_several_machines_has_its_own_findings() -> None:
    machines = (
        Machine("a", MachineState.OK),
        Machine("b", unlisted_gpus=MISSING[:1]),
        Machine("c", MachineState.AWAY),
        Machine("d", MachineState.AWAY),
    )
    found = machine_findings(dataclasses.replace(sample(1), machines=machines), inventory(1))
    assert texts(found) == [
        "Hosts c and d: unreachable",
        "Host b: a GPU that the driver does not list, 0000:27:00.0",
    ]
    part = dataclasses.replace(sample(1), problem=NO_DRIVER)
    found = machine_findings(part, inventory(1))
    assert texts(found) == [f"Host node07: shown only in part, {NO_DRIVER.why}"]


def test_a_line_that_is_too_long_loses_its_last_parts() -> None:
    parts = ("hot", ["90 °C", "lost 3 s"], ["slow", "old"])
    assert [phrase(*parts, room) for room in (31, 30, 25, 19, 9)] == [
        "hot: 90 °C, lost 3 s; slow; old",
        "hot: 90 °C, lost 3 s; slow",
        "hot: 90 °C, lost 3 s",
        "hot: 90 °C",
        "hot",
    ]
