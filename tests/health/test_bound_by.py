"""Bottlenecks: readings of real workloads, and the word for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.snapshot import Process, ProcessKind
from gputop.health.bound_by import CONDITIONS
from gputop.health.findings import Bound, BoundBy, Finding, Severity
from gputop.health.judge import judge_snapshot
from tests.health.histories import IDLE, NO_GPM, WORKING, Machine, device, saw, trainer

A100 = replace(device(), name="NVIDIA A100-SXM4-80GB", compute_capability="8.0", sm_count=108)
T4 = replace(device(), name="Tesla T4", compute_capability="7.5", sm_count=40)
RTX_4090 = replace(device(), name="NVIDIA GeForce RTX 4090", compute_capability="8.9")
VGPU = replace(device(), name="GRID A100X-10C", virtualization="vgpu")
MIG = replace(device(), name="NVIDIA H100 MIG 1g.10gb", mig_index=0, parent_uuid="GPU-p")
NO_COUNTERS = (*NO_GPM, "gpu_utilization_percent", "memory_utilization_percent")
UNSUPPORTED = Absence.NOT_SUPPORTED
NOBODY: tuple[Process, ...] = ()
GAME = (trainer(kind=ProcessKind.GRAPHICS, command="game"),)


class Case(NamedTuple):
    """Readings beside those of `WORKING`, or of `IDLE`, and what they mean."""

    what: str
    bound: Bound
    why: str
    changes: Mapping[str, Any]
    of: Mapping[str, Any] = WORKING
    gpu: Device = device()
    processes: Sequence[Process] = (trainer(),)
    without: Iterable[str] = ()
    absence: Absence = UNSUPPORTED
    state: DeviceState = DeviceState.OK


def gpm(sm: float, tensor: float, dram: float, fp32: float = 4.0, **more: Any) -> dict[str, Any]:
    return {
        "sm_active_percent": sm,
        "tensor_active_percent": tensor,
        "dram_active_percent": dram,
        "fp32_active_percent": fp32,
        **more,
    }


def nvml(busy: int, memory: int, watts: float, limit: float, **more: Any) -> dict[str, Any]:
    return {
        "gpu_utilization_percent": busy,
        "memory_utilization_percent": memory,
        "power_watts": watts,
        "power_limit_watts": limit,
        **more,
    }


HOT = {"clock_event_reasons": ("sw_thermal",), "sm_clock_mhz": 900}
CAPPED = {"clock_event_reasons": ("sw_power_cap",), "power_watts": 699.0}
LOADER = saw(96, 0, 8, 4)
CASES = [
    # Hopper and later, with GPM
    Case("training in bf16", Bound.COMPUTE, "tensor active 52 %, DRAM active 45 %", {}),
    Case("burn of 8192³ in bf16", Bound.COMPUTE, "tensor active 93 %", gpm(99, 93, 31)),
    Case("prefill of a long prompt", Bound.COMPUTE, "tensor active 41 %", gpm(95, 41, 72)),
    Case("decode of one sequence", Bound.MEMORY, "DRAM active 84 %", gpm(86, 4, 84)),
    Case("decode of a batch", Bound.MEMORY, "tensor active 22 %", gpm(92, 22, 78)),
    Case("optimizer step", Bound.MEMORY, "memory bandwidth", gpm(97, 0, 88, 12)),
    Case("training in FP32", Bound.FP32, "bf16 or TF32 would help", gpm(91, 0.2, 30, 71)),
    Case(
        "simulation in FP64",
        Bound.COMPUTE,
        "FP64 active 55 %",
        gpm(93, 0, 35, 3, fp64_active_percent=55.0),
    ),
    Case(
        "half precision without tensor cores",
        Bound.COMPUTE,
        "FP16 active 48 %",
        gpm(90, 0, 30, 8, fp16_active_percent=48.0),
    ),
    Case("game in FP32", Bound.COMPUTE, "FP32 active 62 %", gpm(88, 0, 41, 62), processes=GAME),
    Case("random access", Bound.LATENCY, "SMs are busy, units and", gpm(94, 0, 33, 6)),
    Case("small matmuls one after another", Bound.LATENCY, "tensor active 12 %", gpm(61, 12, 25)),
    Case("eager mode, tiny kernels", Bound.LAUNCHES, "SM active 21 %", gpm(21, 4, 9)),
    Case("one block", Bound.LAUNCHES, "SM active 1 %", gpm(0.7, 0, 0)),
    Case("half of the SMs", Bound.LAUNCHES, "half of the SMs are idle", gpm(41, 9, 22)),
    Case(
        "all-reduce over NVLink",
        Bound.TRANSFERS,
        "NVLink 186 GiB/s",
        gpm(17, 0, 24, nvlink_rx_bytes_per_second=200e9, nvlink_tx_bytes_per_second=200e9),
    ),
    Case("burn at the power limit", Bound.POWER, "by the power limit: 100 %", CAPPED),
    Case(
        "decode at the power limit: memory is no slower by it",
        Bound.MEMORY,
        "DRAM active 84 %",
        {**gpm(86, 4, 84), **CAPPED},
    ),
    Case("too hot", Bound.HEAT, "by heat: 100 % of the time", HOT),
    Case(
        "braked by its power supply",
        Bound.POWER,
        "by hardware: 100 % of the time",
        {"clock_event_reasons": ("hw_slowdown", "hw_power_brake")},
    ),
    # The rest of the machine
    Case(
        "loader with a slow disk",
        Bound.INPUT,
        "idle 51 %, every 8.0 s",
        {"gpu_utilization_percent": LOADER},
    ),
    Case("loader behind a full core", Bound.INPUT, "idle 45 %", {"gpu_utilization_percent": 55}),
    Case(
        "hot in between, but it waits",
        Bound.INPUT,
        "idle 45 %",
        {**HOT, "gpu_utilization_percent": 55},
    ),
    Case(
        "load of another container",
        Bound.UNKNOWN,
        "no process is listed: idle 45 %",
        {"gpu_utilization_percent": 55},
        processes=NOBODY,
    ),
    Case(
        "copies from the host, and no kernel",
        Bound.TRANSFERS,
        "nearly full: 81 % of 58.7 GiB/s",
        {
            "pcie_rx_bytes_per_second": 51_000_000_000,
            "gpu_utilization_percent": 2,
            "pcie_generation": 5,
        },
        of=IDLE,
    ),
    Case(
        "offload to the host's memory",
        Bound.TRANSFERS,
        "73 % of 58.7",
        {"pcie_tx_bytes_per_second": 46e9},
    ),
    Case("nobody", Bound.IDLE, "hardly any work: busy 0 %", {}, of=IDLE, processes=NOBODY),
    Case("notebook that was left open", Bound.IDLE, "busy 0 %", {}, of=IDLE),
    Case(
        "desktop", Bound.IDLE, "busy 6 %", {"gpu_utilization_percent": 6}, of=IDLE, processes=GAME
    ),
    # Ampere and older, and GeForce before the 50 series: no GPM
    Case(
        "A100, training",
        Bound.COMPUTE,
        "power 93 % of the limit",
        nvml(99, 41, 371, 400),
        gpu=A100,
        without=NO_GPM,
    ),
    Case(
        "A100, decode",
        Bound.MEMORY,
        "memory busy 88 %",
        nvml(100, 88, 262, 400),
        gpu=A100,
        without=NO_GPM,
    ),
    Case(
        "A100, something between",
        Bound.UNKNOWN,
        "needs GPM: Hopper or later",
        nvml(97, 38, 210, 400),
        gpu=A100,
        without=NO_GPM,
    ),
    Case(
        "A100, kernel of one SM",
        Bound.LAUNCHES,
        "19 % of the limit",
        nvml(100, 0, 75, 400),
        gpu=A100,
        without=NO_GPM,
    ),
    Case(
        "A100, loader", Bound.INPUT, "idle 52 %", nvml(48, 20, 190, 400), gpu=A100, without=NO_GPM
    ),
    Case(
        "A100, PCIe",
        Bound.TRANSFERS,
        "of 29.3 GiB/s",
        nvml(30, 25, 90, 400, pcie_rx_bytes_per_second=24e9, pcie_generation=4),
        gpu=A100,
        without=NO_GPM,
    ),
    Case(
        "T4 at its 70 W",
        Bound.POWER,
        "by the power limit",
        nvml(100, 61, 69.5, 70, clock_event_reasons=("sw_power_cap",)),
        gpu=T4,
        without=NO_GPM,
    ),
    Case(
        "T4 that is passively cooled by nobody",
        Bound.HEAT,
        "by heat",
        nvml(100, 61, 48, 70, **HOT),
        gpu=T4,
        without=NO_GPM,
    ),
    Case(
        "4090, diffusion",
        Bound.COMPUTE,
        "power 91 % of the limit",
        nvml(99, 52, 410, 450),
        gpu=RTX_4090,
        without=NO_GPM,
    ),
    Case(
        "4090, game with vsync",
        Bound.INPUT,
        "idle 40 %",
        nvml(60, 30, 220, 450),
        gpu=RTX_4090,
        without=NO_GPM,
        processes=GAME,
    ),
    # Readings that are missing
    Case(
        "H100 with --no-gpm",
        Bound.UNKNOWN,
        "GPM is off",
        nvml(99, 40, 400, 700),
        without=NO_GPM,
        absence=Absence.DISABLED,
    ),
    Case(
        "MIG instance",
        Bound.COMPUTE,
        "tensor active 52 %",
        {},
        gpu=MIG,
        without=("gpu_utilization_percent", "memory_utilization_percent"),
    ),
    Case(
        "MIG instance without counters",
        Bound.UNKNOWN,
        "no busy (counted for the whole GPU only",
        {"power_watts": None},
        gpu=MIG,
        without=NO_COUNTERS,
    ),
    Case(
        "vGPU, busy",
        Bound.UNKNOWN,
        "no SM active (needs GPM",
        nvml(97, 30, 0, 0),
        gpu=VGPU,
        without=(*NO_GPM, "power_watts", "power_limit_watts"),
    ),
    Case(
        "vGPU, idle",
        Bound.IDLE,
        "busy 3 %",
        nvml(3, 0, 0, 0),
        gpu=VGPU,
        without=(*NO_GPM, "power_watts", "power_limit_watts"),
    ),
    Case(
        "vGPU without utilization",
        Bound.UNKNOWN,
        "no busy (not supported",
        {},
        gpu=VGPU,
        without=NO_COUNTERS,
    ),
    Case("lost", Bound.UNKNOWN, "LOST: it no longer answers", {}, state=DeviceState.LOST),
    Case("hung", Bound.UNKNOWN, "NOT RESPONDING", {}, state=DeviceState.NOT_RESPONDING),
    Case("needs a reset", Bound.UNKNOWN, "NEEDS RESET", {}, state=DeviceState.NEEDS_RESET),
]


def made(case: Case, seconds: float = 40) -> Machine:
    """The readings for a while, judged at the end."""
    readings = {**case.of, **case.changes, **dict.fromkeys(case.without)}
    machine = Machine(
        devices=(case.gpu,),
        readings=(readings,),
        processes=case.processes,
        absent=dict.fromkeys(case.without, case.absence),
        state=case.state,
    )
    return machine.run(seconds, judged=False).run(1)


def bound(machine: Machine, index: int = 0) -> BoundBy:
    return machine.last.bound_by[machine.devices[index].uuid]


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_it_is_bound_by(case: Case) -> None:
    machine = made(case)
    found = bound(machine)
    assert found.bound is case.bound, found.why
    assert case.why in found.why
    agrees_with_the_rules(machine)


SAYS = {
    "input_bound": {Bound.INPUT, Bound.TRANSFERS},
    "pcie_bound": {Bound.TRANSFERS},
    "thermal": {Bound.HEAT, Bound.INPUT, Bound.TRANSFERS, Bound.IDLE},
    "not_working": {Bound.LAUNCHES, Bound.PEERS, Bound.TRANSFERS, Bound.HEAT, Bound.POWER},
    "memory_bound": {Bound.MEMORY, Bound.INPUT, Bound.TRANSFERS, Bound.HEAT, Bound.POWER},
}
"""Words that do not contradict a finding: its own, and those of what counts more."""


def agrees_with_the_rules(machine: Machine) -> None:
    word = bound(machine).bound
    found = {each.rule for each in machine.last.findings}
    for rule in found & SAYS.keys():
        assert word in SAYS[rule], (rule, word)
    if word is Bound.INPUT:
        assert "input_bound" in found
    if word is Bound.HEAT:
        assert "thermal" in found


def test_every_condition_is_seen() -> None:
    seen = {made(case).last.bound_by[case.gpu.uuid].why.partition(":")[0] for case in CASES}
    texts = {condition.text.partition(":")[0] for condition in CONDITIONS}
    assert texts - seen == {"few SMs work while others of its job do"}


PERCENT = st.none() | st.floats(0, 100)


@settings(deadline=None, max_examples=60)
@given(
    st.fixed_dictionaries(
        dict.fromkeys(("gpu_utilization_percent", "memory_utilization_percent", *NO_GPM), PERCENT)
    ),
    st.none() | st.floats(0, 800),
    st.sampled_from([(), ("sw_thermal",), ("sw_power_cap",), ("hw_slowdown",), ("idle",)]),
    st.none() | st.floats(0, 60e9),
    st.booleans(),
)
def test_it_agrees_with_the_rules(
    shares: dict[str, float | None],
    watts: float | None,
    reasons: tuple[str, ...],
    rate: float | None,
    alone: bool,
) -> None:
    changes = {
        **shares,
        "power_watts": watts,
        "clock_event_reasons": reasons,
        "pcie_rx_bytes_per_second": rate,
    }
    processes = () if alone else (trainer(),)
    machine = made(Case("", Bound.UNKNOWN, "", changes, processes=processes), 32)
    agrees_with_the_rules(machine)
    assert bound(machine).why


def ranks(*readings: Mapping[str, Any], absent: Iterable[str] = (), **process: Any) -> Machine:
    """GPUs of one job."""
    none = dict.fromkeys(absent)
    machine = Machine(
        devices=tuple(device(n) for n in range(len(readings))),
        readings=tuple({**WORKING, **each, **none} for each in readings),
        processes=tuple(trainer(n, **process) for n in range(len(readings))),
        absent=dict.fromkeys(absent, UNSUPPORTED),
    )
    return machine.run(40, judged=False).run(1)


def test_ranks_wait_for_the_slow_one() -> None:
    waiting = gpm(12, 0, 3, power_watts=190.0)
    machine = ranks(WORKING, waiting, waiting, waiting, slurm_job="7")
    words = [bound(machine, index).bound for index in range(4)]
    assert words == [Bound.COMPUTE, Bound.PEERS, Bound.PEERS, Bound.PEERS]
    assert bound(machine, 3).why == (
        "few SMs work while others of its job do: busy 97 %, SM active 12 %"
    )


def test_ranks_that_all_launch_small_kernels_wait_for_nobody() -> None:
    small = gpm(12, 0, 3)
    machine = ranks(small, small, slurm_job="7")
    assert [bound(machine, index).bound for index in range(2)] == [Bound.LAUNCHES] * 2


def test_it_takes_some_time_to_tell() -> None:
    assert bound(made(CASES[0], 3)).why == "not watched for long enough yet"


def test_one_sample_is_enough_for_a_page() -> None:
    for case in CASES:
        machine = made(case, 1)
        inventory = replace(machine.inventory, devices=(case.gpu,))
        found = judge_snapshot(inventory, machine.sample()).bound_by[case.gpu.uuid]
        if not callable(case.changes.get("gpu_utilization_percent")):
            assert found.bound is case.bound, (case.what, found)
        assert "of the time" not in found.why  # it is only a moment


def test_input_is_the_word_as_long_as_the_finding_stays() -> None:
    machine = made(CASES[0]._replace(changes={"gpu_utilization_percent": 78}))
    for busy in (83, 7, 78, 90):
        machine.readings = ({**machine.readings[0], "gpu_utilization_percent": busy},)
        machine.run(70, judged=False).run(1)
        finding = machine.verdict("input_bound")
        held = isinstance(finding, Finding) and finding.severity >= Severity.INFORMATION
        assert (bound(machine).bound is Bound.INPUT) == held
