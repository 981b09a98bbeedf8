from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from gputop.agent.device import Absence
from gputop.agent.snapshot import Event, ProcessKind
from gputop.health.findings import Finding, Severity
from gputop.health.judge import RULES, NoFinding
from tests.health.histories import (
    BUSY,
    CLOCK,
    DRAM,
    FREE,
    GENERATION,
    HELD,
    IDLE,
    LIMIT,
    NO_GPM,
    REASONS,
    RX,
    SM,
    TENSOR,
    TX,
    UNATTRIBUTED,
    USED,
    WATTS,
    WIDTH,
    WORKING,
    Machine,
    device,
    finding,
    lacking,
    noise,
    one,
    saw,
    several,
    silent,
    trainer,
)
from tests.streams import GIB, NOW

WARNING, INFORMATION, FAULT = Severity.WARNING, Severity.INFORMATION, Severity.FAULT
UNSUPPORTED = Absence.NOT_SUPPORTED
HELD_BACK = ("power_capped", "thermal", "hardware_slowdown")
CAP, HEAT, HARDWARE_HEAT = ("sw_power_cap",), ("sw_thermal",), ("hw_thermal", "hw_slowdown")
STARVED = {BUSY: saw(95, 0, 8, 3)}
WAVES = {BUSY: noise(45, 6)}
QUIET = {WATTS: 130.0}
COPYING = {"memory_utilization_percent": 88}
SLOW = ("hw_slowdown",)
BRAKED = {REASONS: ("hw_slowdown", "hw_power_brake")}
HOT_AT_TIMES = {REASONS: saw(HEAT, (), 40, 20), CLOCK: saw(900, 1800, 40, 20)}
FULL_CORE, WAITS = trainer(cpu_percent=99.0), trainer(io_wait=lambda tick: tick % 2 == 0)
FULL_WORKER = trainer(children_cpu_most_percent=97.0)
NO_WORKERS = trainer(children_cpu_most_percent=None)
"""A kernel that does not list child processes: workers may be full."""
UNKNOWN = trainer(cpu_percent=None, children_cpu_most_percent=None)


def without(*names: str, why: Absence = UNSUPPORTED, **machine: Any) -> Machine:
    changes: dict[str, Any] = dict.fromkeys(n for n in names if n in WORKING)
    return one(
        {**changes, **machine.pop("changes", {})}, absent=dict.fromkeys(names, why), **machine
    )


SHARED = (replace(device(), memory_is_shared=True),)


def at(seconds: float, code: int | None) -> Event:
    return Event(NOW + seconds, device().uuid, "xid", code)


def left_open(seconds: float) -> Machine:
    process = trainer(user="bo", command="python -m notebook")
    return one({HELD: 18 * GIB}, of=IDLE, process=process, seconds=seconds)


def job(changes: Mapping[str, Any], many: int = 4, **process: Any) -> Machine:
    """Devices of one job, the first of which is another."""
    process = {"slurm_job": "7"} | process
    return several(changes, *[WORKING] * (many - 1), **process).watched(90)


def ranks(seconds: float = 90, **process: Any) -> Machine:
    waits = {BUSY: 100, SM: 12.0, TENSOR: 0.0}
    process = {"world_size": 3, "job_id": "node01:29500"} | process
    return several({}, waits, waits, **process).watched(seconds)


Case = tuple[str, Callable[[], Machine], Severity, str]


def says(
    rule: str, severity: Severity, words: str, make: Callable[..., Machine], *args: Any, **how: Any
) -> Case:
    return rule, partial(make, *args, **how), severity, words


def quiet(
    rule: str, make: Callable[..., Machine], *args: Any, **how: Any
) -> tuple[str, Callable[[], Machine]]:
    return rule, partial(make, *args, **how)


def lacks(
    rule: str,
    missing: str | tuple[str, ...] | Mapping[str, Absence | None],
    make: Callable[..., Machine],
    *args: Any,
    **how: Any,
) -> tuple[str, Callable[[], Machine], Mapping[str, Absence | None]]:
    """A missing reading is not supported, unless the reason is given."""
    if isinstance(missing, str):
        missing = (missing,)
    if isinstance(missing, tuple):
        missing = dict.fromkeys(missing, UNSUPPORTED)
    return rule, partial(make, *args, **how), missing


SPEAKS: list[Case] = [
    says("input_bound", WARNING, "idle 64 %, every 8.0 s", one, STARVED, process=FULL_CORE),
    says("input_bound", WARNING, "a CPU core is full: idle 55 %", one, WAVES, process=FULL_CORE),
    says("input_bound", WARNING, "a CPU core is full", one, STARVED, process=FULL_WORKER),
    says("input_bound", WARNING, "a process waits for storage", one, STARVED, process=WAITS),
    says("input_bound", WARNING, "the host's CPU is full", one, STARVED, host_cpu=100.0),
    # nothing of the host is busy: it may have nothing to do
    says("input_bound", INFORMATION, "gaps, cause not seen: idle 64 %, every 8.0 s", one, STARVED),
    says("input_bound", INFORMATION, "CPU time of its processes", one, STARVED, process=UNKNOWN),
    says("input_bound", INFORMATION, "CPU time of its processes", one, STARVED, process=NO_WORKERS),
    # a MIG instance has no *busy*
    says("input_bound", WARNING, "idle 60 %", without, BUSY, changes={SM: 40.0}, process=FULL_CORE),
    says("not_working", WARNING, "work: busy 100 %, SM active 12 %", one, {BUSY: 100, SM: 12.0}),
    says("not_working", WARNING, "one SM of 132 works: busy 100 %", one, {BUSY: 100, SM: 0.7}),
    says("not_working", WARNING, "busy 97 %, 19 % of the limit", without, *NO_GPM, changes=QUIET),
    says("no_tensor_cores", INFORMATION, "FP32", one, {TENSOR: 0.0}),
    says("memory_bound", INFORMATION, "active 86 %, tensor active 4 %", one, {DRAM: 86, TENSOR: 4}),
    says("memory_bound", INFORMATION, "busy: memory busy 88 %", without, *NO_GPM, changes=COPYING),
    says("pcie_bound", WARNING, "nearly full, receives most: 79 % of 58.7 GiB/s", one, {RX: 50e9}),
    says("pcie_bound", WARNING, "sends", one, {TX: 13e9, GENERATION: 3}),
    says("link_degraded", WARNING, "gen 3 ×8 of gen 5 ×16", one, {GENERATION: 3, WIDTH: 8}),
    says("power_capped", INFORMATION, "normal at full load", one, {REASONS: CAP}),
    says("power_capped", WARNING, "300 W, below its default", one, {REASONS: CAP, LIMIT: 300}),
    says("thermal", WARNING, "of the time, lost 30.5 s in 2:00", one, HOT_AT_TIMES, seconds=121),
    says("thermal", WARNING, "by heat: 100 % of the time", one, {REASONS: HARDWARE_HEAT}),
    says("hardware_slowdown", WARNING, "100 % of the time", one, {REASONS: ("hw_slowdown",)}),
    says("hardware_slowdown", WARNING, "braked by its power supply", one, BRAKED),
    says("clocks_low", WARNING, "for no stated reason: 1110 MHz, of 1980 MHz", one, {CLOCK: 1110}),
    says("held_idle", INFORMATION, "bo (python -m notebook): 18.0 GiB, for 6:39", left_open, 400),
    says("unattributed", WARNING, "listed process holds: 9.00 GiB", one, {UNATTRIBUTED: 9 * GIB}),
    says("ghost_load", WARNING, "busy without any listed process: 97 %", one, processes=()),
    says("almost_full", WARNING, "out of memory: 99 % in use", one, {USED: 79 * GIB, FREE: GIB}),
    says("almost_full", WARNING, "host's: 99 % in use", one, devices=SHARED, host_memory=(119, 1)),
    says("straggler", WARNING, "below the median of its 3 peers: by 15 %", job, {CLOCK: 1500}),
    says("straggler", WARNING, "SM clock below GPU 1: by 15 %", job, {CLOCK: 1500}, 2),
    says("straggler", WARNING, "15 %", job, {CLOCK: 1500}, slurm_job=None, parent_pid=390),
    says("straggler", WARNING, "rank 0 may delay", job, {CLOCK: 1500}, job_id="a", world_size=4),
    says("held_up", WARNING, "all ranks but 0 wait in a collective for rank 0", ranks),
    says("held_up", WARNING, "collective for rank 0 (pid 4000)", ranks, machine="node02"),
    says("imbalance", INFORMATION, "memory in use than the median of its 3", job, {USED: 76 * GIB}),
    says("imbalance", INFORMATION, "work may be uneven: 41 %, they 97 %", job, {BUSY: 41}),
    says("xid", FAULT, "Xid 79: the GPU has", one, events=(at(10, 79), at(20, 31))),
    says("xid", WARNING, "Xid 31", one, events=(at(20, 31),)),
    says("xid", FAULT, "without a number", one, events=(at(20, None),)),
    says("ecc", FAULT, "2 uncorrected ECC errors", one, {"ecc_uncorrected": 2}),
    says("ecc", INFORMATION, "errors: 2 in 1:29", one, {"ecc_corrected": lambda n: 3 + n // 40}),
    says("ecc", INFORMATION, "errors: 9 in", one, {"ecc_corrected": lambda n: 3 + min(n, 9)}),
    says("ecc", WARNING, "errors: 10 in", one, {"ecc_corrected": lambda n: 3 + min(n, 10)}),
    says("remap", WARNING, "at the next reset", one, {"remap_pending": True}),
    says("remap", FAULT, "no spare memory rows", one, {"remap_failed": True}),
    says("recovery", FAULT, "needs a reset", one, {"recovery_action": "gpu_reset"}),
]


@cache
def spoken(rule: str, machine: Callable[[], Machine]) -> Finding:
    return finding(machine(), rule)


@pytest.mark.parametrize(("rule", "machine", "severity", "words"), SPEAKS)
def test_it_speaks(
    rule: str, machine: Callable[[], Machine], severity: Severity, words: str
) -> None:
    found = spoken(rule, machine)
    assert words in found.line
    assert found.severity is severity


def test_every_finding_has_its_numbers_and_a_remedy(snapshot: Any) -> None:
    lines = []
    for rule, machine, *_ in SPEAKS:
        found = spoken(rule, machine)
        lines.append(f"{rule}, costs {found.cost_percent:.1f} %: {found.line}. {found.remedy}.")
        for each in found.evidence:
            lines.append(f"  {each.label} {each.text}: {each.reading} in {each.seconds} s")
    assert "\n".join(lines) == snapshot


def test_every_rule_is_seen_to_speak_and_to_lack() -> None:
    assert {rule.name for rule in RULES} == {case[0] for case in SPEAKS}
    assert {rule.name for rule in RULES} == {case[0] for case in LACKS} | {"xid"}


SILENT: list[tuple[str, Callable[[], Machine]]] = [
    quiet("input_bound", one, process=FULL_CORE),
    quiet("input_bound", one, host_cpu=100.0),
    quiet("input_bound", one, STARVED, host_cpu=100.0, processes=()),
    quiet("not_working", without, *NO_GPM),
    quiet("no_tensor_cores", one, {TENSOR: 0.0}, process=trainer(kind=ProcessKind.GRAPHICS)),
    # an idle link has slowed down: what it carried was little for what it can
    quiet("pcie_bound", one, {GENERATION: saw(5, 1, 9, 8), RX: 9e9}),
    quiet("link_degraded", one, {GENERATION: saw(5, 1, 9, 2)}),
    quiet("link_degraded", one, {GENERATION: 1, "performance_state": 5}),
    quiet("power_capped", one, {LIMIT: 300.0, WATTS: 120.0}),
    # The bit of the hardware's slowdown comes with that of its heat.
    quiet("hardware_slowdown", one, {REASONS: HARDWARE_HEAT}),
    quiet("clocks_low", one, {CLOCK: 1110, REASONS: CAP}),
    # somebody works with it now and then
    quiet("held_idle", one, {HELD: 18 * GIB, BUSY: saw(80, 0, 120, 3)}, of=IDLE, seconds=400),
    quiet("unattributed", one, {UNATTRIBUTED: saw(9 * GIB, GIB, 20, 15)}),
    # taken ahead by its allocator
    quiet("almost_full", one, {USED: 75 * GIB, FREE: 5 * GIB}),
    # a part of the host's memory that was set aside
    quiet("almost_full", one, {USED: 4 * GIB, FREE: 0}, devices=SHARED, host_memory=(3, 21)),
    quiet("link_degraded", one, {GENERATION: 1, WIDTH: 1}, devices=SHARED),
    quiet("straggler", job, {CLOCK: 1500}, slurm_job=None, parent_pid=1),
    quiet("xid", one, events=(at(-4000, 79),)),
    quiet("ecc", one, {"ecc_corrected": 400}),
]


@pytest.mark.parametrize(
    "machine",
    [one, partial(one, of=IDLE, processes=()), partial(job, {})],
    ids=("working", "idle", "job"),
)
def test_rules_are_silent_about_what_is_well(machine: Callable[[], Machine]) -> None:
    made = machine()
    for rule in RULES:
        silent(made, rule.name)


@pytest.mark.parametrize(("rule", "machine"), SILENT)
def test_it_is_silent(rule: str, machine: Callable[[], Machine]) -> None:
    made = machine()
    silent(made, rule)


LACKS: list[tuple[str, Callable[[], Machine], Mapping[str, Absence | None]]] = [
    lacks("input_bound", BUSY, without, BUSY, *NO_GPM, process=FULL_CORE),
    lacks("not_working", (SM, WATTS), without, *NO_GPM, WATTS),
    lacks("no_tensor_cores", (SM, TENSOR), without, *NO_GPM),
    lacks("memory_bound", DRAM, without, DRAM),
    lacks("pcie_bound", (RX, TX), without, RX, TX),
    lacks("pcie_bound", GENERATION, without, GENERATION),
    lacks("pcie_bound", {GENERATION: None}, one, {GENERATION: 9}),
    lacks("link_degraded", WIDTH, without, WIDTH),
    *(lacks(rule, "slowdown_bits", without, REASONS) for rule in HELD_BACK),
    lacks("clocks_low", "slowdown_bits", without, REASONS, changes={CLOCK: 1000}),
    lacks("clocks_low", CLOCK, without, CLOCK),
    lacks("held_idle", HELD, without, HELD),
    lacks("held_idle", {BUSY: None}, one, {HELD: 18 * GIB}, of=IDLE, seconds=200),
    lacks("unattributed", UNATTRIBUTED, without, UNATTRIBUTED),
    lacks("ghost_load", "process_count", without, "processes", processes=()),
    lacks("almost_full", USED, without, USED),
    lacks("almost_full", FREE, without, FREE, devices=SHARED),
    lacks("straggler", {CLOCK: None}, job, {CLOCK: None}),
    lacks("held_up", {BUSY: None}, ranks, 5),
    lacks("imbalance", {USED: None}, job, {USED: None, BUSY: None, **NO_GPM}),
    lacks("ecc", "ecc_corrected", without, "ecc_corrected"),
    lacks("ecc", "ecc_uncorrected", without, "ecc_uncorrected"),
    lacks("remap", "remap_pending", without, "remap_pending"),
    lacks("recovery", "recovery_action", without, "recovery_action"),
]


@pytest.mark.parametrize(("rule", "machine", "missing"), LACKS)
def test_it_says_that_it_cannot_tell(
    rule: str, machine: Callable[[], Machine], missing: Mapping[str, Absence | None]
) -> None:
    assert lacking(machine(), rule).items() <= missing.items()


def test_idle_clocks_are_not_low_clocks() -> None:
    gaps = {BUSY: saw(100, 30, 8, 6), CLOCK: saw(1755, 345, 8, 6)}
    silent(one(gaps), "clocks_low")
    silent(job(gaps), "straggler")
    slow = {**gaps, CLOCK: saw(1110, 345, 8, 6)}
    assert "1110 MHz" in finding(one(slow), "clocks_low").line
    assert "by 37 %" in finding(job(slow), "straggler").line


def test_a_device_that_waits_for_input_is_not_called_slow_or_uneven() -> None:
    gaps = {BUSY: saw(100, 0, 9, 5), CLOCK: 1500}
    waiting = job(gaps, cpu_percent=99.0)
    assert finding(waiting, "input_bound").severity is WARNING
    silent(waiting, "straggler")
    silent(waiting, "imbalance")
    unexplained = job(gaps)
    assert finding(unexplained, "input_bound").severity is INFORMATION
    assert "by 15 %" in finding(unexplained, "straggler").line
    assert "less busy" in finding(unexplained, "imbalance").line


def test_foreign_text_is_inert() -> None:
    process = trainer(user="\x1b[31m", command="a\x1b]0;owned\x07b " * 20)
    machine = one({HELD: 9 * GIB}, of=IDLE, process=process, seconds=400)
    sentence = finding(machine, "held_idle").line
    assert sentence.isprintable()
    assert len(sentence) < 200


def test_a_finding_says_since_when() -> None:
    machine = one(process=FULL_CORE, seconds=100)
    machine.readings = ({**WORKING, **STARVED},)
    found = finding(machine.run(200), "input_bound")
    assert found.since is not None
    assert NOW + 100 < found.since < NOW + 160
    assert finding(machine.run(50), "input_bound").since == found.since


def test_a_device_that_is_lost_is_asked_for_its_errors_only() -> None:
    machine = one(events=(at(10, 79),))
    machine.state = type(machine.state).LOST
    machine.run(1)
    assert [found.rule for found in machine.last.findings] == ["xid"]
    others = [each for each in machine.last.verdicts if isinstance(each, NoFinding)]
    assert all(each.missing for each in others)


def test_peers_are_of_the_same_kind_and_of_the_same_job() -> None:
    def alone(**changes: Any) -> Machine:
        machine = job({CLOCK: 1500})
        return replace(machine, **changes, said=[], ticks=0).watched(90)

    others = tuple(trainer(n, slurm_job=str(n), parent_pid=1) for n in range(4))
    assert not isinstance(alone(processes=others).verdict("straggler"), Finding)
    mixed = (device(0, name="NVIDIA A100"), *(device(n) for n in range(1, 4)))
    assert not isinstance(alone(devices=mixed).verdict("straggler"), Finding)


LINK = 63_015_384_615
"""Bytes per second of PCIe 5.0 with 16 lanes."""
BLIND_LOAD: dict[str, Any] = {**NO_GPM, LIMIT: 100}
Numbers = tuple[float, float, float, float]
LIMITS: list[tuple[str, Callable[[float], Mapping[str, Any]], Numbers]] = [
    ("input_bound", lambda n: {BUSY: n, "host_cpu": 100.0}, (81, 80, 85, 86)),
    ("input_bound", lambda n: {BUSY: n, "host_cpu": 100.0}, (9, 10, 5, 4)),
    ("input_bound", lambda n: {BUSY: 60, "host_cpu": n}, (94, 95, 90, 89)),
    ("input_bound", lambda n: {BUSY: 60, "processes": (trainer(cpu_percent=n),)}, (89, 90, 80, 79)),
    ("input_bound", lambda n: {BUSY: 60, "processes": (waits(n),)}, (18, 19, 13, 12)),
    ("not_working", lambda n: {BUSY: n, SM: 12}, (89, 90, 85, 84)),
    ("not_working", lambda n: {SM: n}, (31, 30, 40, 41)),
    ("not_working", lambda n: {**BLIND_LOAD, WATTS: n}, (29, 28, 33, 34)),
    ("no_tensor_cores", lambda n: {TENSOR: 0, SM: n}, (49, 50, 40, 39)),
    ("no_tensor_cores", lambda n: {TENSOR: n}, (1.1, 1, 2, 2.1)),
    ("no_tensor_cores", lambda n: {TENSOR: 0, "fp64_active_percent": n}, (10, 9, 9, 10)),
    ("no_tensor_cores", lambda n: {TENSOR: 0, DRAM: n}, (60, 59, 59, 60)),
    ("memory_bound", lambda n: {TENSOR: 4, DRAM: n}, (69, 70, 60, 59)),
    ("memory_bound", lambda n: {DRAM: 86, TENSOR: n}, (26, 25, 30, 31)),
    ("pcie_bound", lambda n: {RX: n / 100 * LINK}, (69, 70.1, 60.1, 59)),
    ("link_degraded", lambda n: {WIDTH: 8, BUSY: n}, (49, 50, 30, 29)),
    ("power_capped", lambda n: {REASONS: saw(CAP, (), 61, int(n))}, (18, 19, 10, 9)),
    ("thermal", lambda n: {REASONS: saw(HEAT, (), 61, int(n))}, (3, 4, 1, 0)),
    ("hardware_slowdown", lambda n: {REASONS: saw(SLOW, (), 61, int(n))}, (2, 3, 1, 0)),
    ("clocks_low", lambda n: {CLOCK: n / 100 * 1980}, (61, 60, 65, 66)),
    ("clocks_low", lambda n: {CLOCK: 990, BUSY: n}, (79, 80, 70, 69)),
    ("clocks_low", lambda n: {CLOCK: 990, REASONS: saw((), CAP, 61, int(n))}, (48, 49, 43, 42)),
    ("unattributed", lambda n: {UNATTRIBUTED: n * GIB}, (1.4, 1.5, 1.25, 1.2)),
    ("ghost_load", lambda n: {BUSY: n, "processes": ()}, (19, 20, 10, 9)),
    ("almost_full", lambda n: {USED: n, FREE: 100 - n}, (97.9, 98, 97, 96.9)),
    ("held_idle", lambda n: {**IDLE, HELD: n * GIB}, (0.9, 1, 0.75, 0.7)),
    ("held_idle", lambda n: {**IDLE, HELD: 2 * GIB, BUSY: n}, (2, 1, 3, 4)),
    ("straggler", lambda n: {CLOCK: n / 100 * 1755}, (92.1, 91.9, 94.9, 95.1)),
    ("straggler", lambda n: {CLOCK: 1500, BUSY: saw(100, 0, 61, int(n))}, (30, 31, 25, 24)),
    ("imbalance", lambda n: {USED: (60 + 0.8 * n) * GIB}, (14.9, 15.1, 12.1, 11.9)),
    ("imbalance", lambda n: {BUSY: 97 - n}, (24, 25, 20, 19)),
]
"""Rules with readings of which four numbers are without, with, still with and without a finding.

There are 61 samples in a minute.
"""


def waits(samples: float) -> Any:
    return trainer(io_wait=saw(True, False, 61, int(samples)))


@pytest.mark.parametrize(("rule", "readings", "numbers"), LIMITS)
def test_a_finding_begins_at_a_limit_and_ends_at_another(
    rule: str, readings: Callable[[float], Mapping[str, Any]], numbers: Numbers
) -> None:
    machine = job({}) if rule in ("straggler", "imbalance") else one(seconds=1)
    least = WARNING if rule == "input_bound" else INFORMATION
    found = []
    for number in numbers:
        changes = {**WORKING, **readings(number)}
        machine.host_cpu = changes.pop("host_cpu", 40.0)
        machine.processes = changes.pop("processes", machine.processes)
        machine.readings = (changes, *machine.readings[1:])
        verdict = machine.watched(302 if rule == "held_idle" else 62).verdict(rule)
        found.append(isinstance(verdict, Finding) and verdict.severity >= least)
    assert found == [False, True, True, False]
