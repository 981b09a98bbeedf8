from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from gputop.agent.device import Absence, Device, DeviceState
from gputop.agent.snapshot import Process, ProcessKind
from gputop.health.findings import Bound, BoundBy
from gputop.health.judge import judge_snapshot
from tests.health.histories import (
    BUSY,
    IDLE,
    NO_GPM,
    REASONS,
    RX,
    WORKING,
    Machine,
    device,
    saw,
    several,
    trainer,
)

A100 = replace(device(), name="NVIDIA A100-SXM4-80GB", compute_capability="8.0", sm_count=108)
VGPU = replace(device(), name="GRID A100X-10C", virtualization="vgpu")
MIG = replace(device(), name="NVIDIA H100 MIG 1g.10gb", mig_index=0, parent_uuid="GPU-p")
NO_BUSY = ("gpu_utilization_percent", "memory_utilization_percent")
NO_WATTS = (*NO_GPM, "power_watts", "power_limit_watts")
NO_COUNTERS = (*NO_GPM, *NO_BUSY)
NO_POWER = (*NO_COUNTERS, "power_watts")
OFF = Absence.DISABLED
UNSUPPORTED = Absence.NOT_SUPPORTED
NOBODY: tuple[Process, ...] = ()
GAME = (trainer(kind=ProcessKind.GRAPHICS, command="game"),)


class Case(NamedTuple):
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


NVLINK = {"nvlink_rx_bytes_per_second": 200e9, "nvlink_tx_bytes_per_second": 150e9}
HOT = {REASONS: ("sw_thermal",), "sm_clock_mhz": 900}
CAPPED: dict[str, Any] = {REASONS: ("sw_power_cap",), "power_watts": 699.0}
BRAKED = {REASONS: ("hw_slowdown", "hw_power_brake")}
IN_FP64 = gpm(93, 0, 35, 3, fp64_active_percent=55.0)
COPIES = {RX: 51e9, BUSY: 2, "pcie_generation": 5}
OLDER_COPIES = nvml(30, 25, 90, 400, pcie_rx_bytes_per_second=24e9, pcie_generation=4)
LOADER = saw(96, 0, 8, 4)


def without_gpm(
    gpu: Device, what: str, word: Bound, why: str, changes: Mapping[str, Any], **more: Any
) -> Case:
    return Case(what, word, why, changes, gpu=gpu, without=NO_GPM, **more)


COMPUTE, MEMORY, FP32, LATENCY = Bound.COMPUTE, Bound.MEMORY, Bound.FP32, Bound.LATENCY
LAUNCHES, TRANSFERS, PEERS = Bound.LAUNCHES, Bound.TRANSFERS, Bound.PEERS
INPUT, POWER, HEAT, IDLES = Bound.INPUT, Bound.POWER, Bound.HEAT, Bound.IDLE
UNKNOWN = Bound.UNKNOWN
CASES = [
    # Hopper and later, with GPM
    Case("training in bf16", COMPUTE, "tensor active 52 %, DRAM active 45 %", {}),
    Case("prefill of a long prompt", COMPUTE, "tensor active 41 %", gpm(95, 41, 72)),
    Case("decode of one sequence", MEMORY, "DRAM active 84 %", gpm(86, 4, 84)),
    Case("training in FP32", FP32, "may run in FP32: SM active 91 %", gpm(91, 0.2, 30, 71)),
    Case("simulation in FP64", COMPUTE, "FP64 active 55 %", IN_FP64),
    Case("game in FP32", COMPUTE, "FP32 active 62 %", gpm(88, 0, 41, 62), processes=GAME),
    Case("random access", LATENCY, "SMs are busy, units and", gpm(94, 0, 33, 6)),
    Case("one block", LAUNCHES, "SM active 1 %", gpm(0.7, 0, 0)),
    Case("half of the SMs", LAUNCHES, "half of the SMs are idle", gpm(41, 9, 22)),
    Case("all-reduce over NVLink", TRANSFERS, "NVLink 186 GiB/s", {**gpm(17, 0, 24), **NVLINK}),
    Case("burn at the power limit", POWER, "normal at full load: 100 % of", CAPPED),
    Case("decode at the power limit", MEMORY, "DRAM active 84 %", gpm(86, 4, 84, **CAPPED)),
    Case("too hot", HEAT, "by heat: 100 % of the time", HOT),
    Case("braked by its power supply", POWER, "by its power supply: 100 % of the time", BRAKED),
    # The rest of the machine
    Case("loader with a slow disk", INPUT, "idle 51 %, every 8.0 s", {BUSY: LOADER}),
    Case("loader behind a full core", INPUT, "idle 45 %", {BUSY: 55}),
    Case("hot in between, but it waits", INPUT, "idle 45 %", {**HOT, BUSY: 55}),
    Case("load of a container", UNKNOWN, "is listed: idle 45 %", {BUSY: 55}, processes=NOBODY),
    Case("copies without a kernel", TRANSFERS, "receives most: 81 % of 58.7", COPIES, of=IDLE),
    Case("nobody", IDLES, "hardly any work: busy 0 %", {}, of=IDLE, processes=NOBODY),
    Case("desktop", IDLES, "busy 6 %", {BUSY: 6}, of=IDLE, processes=GAME),
    # Ampere and older, and GeForce before the 50 series: no GPM
    without_gpm(A100, "A100, training", COMPUTE, "power 93 % of the limit", nvml(99, 41, 371, 400)),
    without_gpm(A100, "A100, decode", MEMORY, "memory busy 88 %", nvml(100, 88, 262, 400)),
    without_gpm(A100, "A100, between", UNKNOWN, "needs GPM: Hopper", nvml(97, 38, 210, 400)),
    without_gpm(A100, "kernel of one SM", LAUNCHES, "19 % of the limit", nvml(100, 0, 75, 400)),
    without_gpm(A100, "A100, PCIe", TRANSFERS, "of 29.3 GiB/s", OLDER_COPIES),
    # Readings that are missing
    without_gpm(device(), "--no-gpm", UNKNOWN, "GPM is off", nvml(99, 40, 400, 700), absence=OFF),
    Case("MIG", COMPUTE, "tensor active 52 %", {}, gpu=MIG, without=NO_BUSY),
    Case("MIG alone", UNKNOWN, "no busy (counted for the whole", {}, gpu=MIG, without=NO_POWER),
    Case("vGPU, busy", UNKNOWN, "(needs GPM", nvml(97, 30, 0, 0), gpu=VGPU, without=NO_WATTS),
    Case("vGPU, idle", IDLES, "busy 3 %", nvml(3, 0, 0, 0), gpu=VGPU, without=NO_WATTS),
    Case("vGPU alone", UNKNOWN, "no busy (not supported", {}, gpu=VGPU, without=NO_COUNTERS),
    Case("lost", UNKNOWN, "LOST: it no longer answers", {}, state=DeviceState.LOST),
    Case("needs a reset", UNKNOWN, "NEEDS RESET", {}, state=DeviceState.NEEDS_RESET),
]


def made(case: Case, seconds: float = 40) -> Machine:
    readings = {**case.of, **case.changes, **dict.fromkeys(case.without)}
    machine = Machine(
        devices=(case.gpu,),
        readings=(readings,),
        processes=case.processes,
        absent=dict.fromkeys(case.without, case.absence),
        state=case.state,
    )
    return machine.watched(seconds + 1)


def bound(machine: Machine, index: int = 0) -> BoundBy:
    return machine.last.bound_by[machine.devices[index].uuid]


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_it_is_bound_by(case: Case) -> None:
    found = bound(made(case))
    assert found.bound is case.bound, found.why
    assert case.why in found.why


def test_ranks_wait_for_the_slow_one() -> None:
    waiting = gpm(12, 0, 3, power_watts=190.0)
    machine = several(WORKING, waiting, waiting, waiting, slurm_job="7").watched(41)
    words = [bound(machine, index).bound for index in range(4)]
    assert words == [Bound.COMPUTE, Bound.PEERS, Bound.PEERS, Bound.PEERS]
    inventory = replace(machine.inventory, devices=tuple(machine.devices))
    at_once = judge_snapshot(inventory, machine.sample()).bound_by
    assert [at_once[each.uuid].bound for each in machine.devices] == words
    assert bound(machine, 3).why == (
        "few SMs work, it waits for another GPU of its job: busy 97 %, SM active 12 %"
    )


def test_ranks_that_all_launch_small_kernels_wait_for_nobody() -> None:
    small = gpm(12, 0, 3)
    machine = several(small, small, slurm_job="7").watched(41)
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


@pytest.mark.parametrize(
    ("word", "readings", "numbers"),
    [
        (IDLES, lambda n: {BUSY: n}, (10, 4, 9, 10)),
        (COMPUTE, lambda n: gpm(90, n, 30), (24, 25, 20, 19)),
        (COMPUTE, lambda n: gpm(90, 0, 30, fp64_active_percent=n), (39, 40, 35, 34)),
        (COMPUTE, lambda n: gpm(90, 0, 30, fp16_active_percent=n), (39, 40, 35, 34)),
        (COMPUTE, lambda n: {**NO_GPM, **nvml(97, 20, n, 100)}, (69, 70, 65, 64)),
        (MEMORY, lambda n: {**NO_GPM, **nvml(97, n, 50, 100)}, (74, 75, 65, 64)),
        (LAUNCHES, lambda n: gpm(n, 10, 20), (51, 50, 60, 61)),
        (TRANSFERS, lambda n: gpm(17, 0, 24) | dict.fromkeys(NVLINK, n), (19e9, 20e9, 1e10, 9e9)),
    ],
)
def test_a_word_begins_at_a_limit_and_ends_at_another(
    word: Bound, readings: Callable[[float], dict[str, Any]], numbers: tuple[float, ...]
) -> None:
    machine = Machine(absent=dict.fromkeys(NO_GPM, UNSUPPORTED)).run(1)
    found = []
    for number in numbers:
        machine.readings = ({**WORKING, **readings(number)},)
        found.append(bound(machine.watched(62)).bound is word)
    assert found == [False, True, True, False]
