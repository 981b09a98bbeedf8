"""Hosts and devices that do not answer, and several findings in one line."""

from __future__ import annotations

import dataclasses

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Machine, MachineState
from gputop.health.conditions import machine_findings, state_findings
from gputop.health.findings import Finding, Severity, summarize
from tests.streams import device, inventory, lost, sample

MISSING = ("0000:27:00.0", "0000:37:00.0")


def texts(findings: list[Finding]) -> list[str]:
    return [text for _, text in summarize(findings)]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (DeviceState.LOST, "GPUs 0–2: LOST"),
        (DeviceState.NEEDS_RESET, "GPUs 0–2: NEEDS RESET"),
        (DeviceState.NOT_RESPONDING, "GPUs 0–2: NOT RESPONDING"),
    ],
)
def test_devices_that_do_not_answer(state: DeviceState, words: str) -> None:
    gone = dataclasses.replace(sample(4), devices=tuple(lost(n, state) for n in range(4)))
    instance = device(3, parent_uuid="GPU-1", mig_index=2)  # its GPU has the finding
    assert texts(state_findings([*map(device, range(3)), instance], gone)) == [words]
    assert state_findings(map(device, range(4)), sample(4)) == []


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (MISSING[:1], "Host node07: a GPU that the driver does not list, 0000:27:00.0"),
        (MISSING, f"Host node07: 2 GPUs that the driver does not list, {', '.join(MISSING)}"),
    ],
)
def test_gpus_that_the_driver_does_not_list(addresses: tuple[str, ...], words: str) -> None:
    found = machine_findings(sample(1), inventory(1, unlisted_gpus=addresses))
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
    assert summarize(found) == [
        (Severity.FAULT, "Hosts c and d: unreachable"),
        (Severity.WARNING, "Host b: a GPU that the driver does not list, 0000:27:00.0"),
    ]
