"""Each rule: where it has to speak, where it must not, and where it has to say that it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.device import Absence
from gputop.agent.snapshot import Event, ProcessKind
from gputop.health.findings import Finding, Severity
from gputop.health.judge import BY_NAME, RULES, NoFinding
from tests.health.histories import (
    GPM_OFF,
    IDLE,
    NO_GPM,
    WORKING,
    Machine,
    device,
    finding,
    lacking,
    noise,
    one,
    saw,
    silent,
    trainer,
)
from tests.streams import GIB, NOW

WARNING, INFORMATION, FAULT = Severity.WARNING, Severity.INFORMATION, Severity.FAULT
UNSUPPORTED = Absence.NOT_SUPPORTED
STARVED = {"gpu_utilization_percent": saw(95, 0, 8, 3)}
FULL_CORE = trainer(cpu_percent=99.0)
MINUTE = GIB // 60


def without(*names: str, why: Absence = UNSUPPORTED, **machine: Any) -> Machine:
    """A device that lacks these readings, and is as it should be in all else."""
    changes: dict[str, Any] = dict.fromkeys(n for n in names if n in WORKING)
    return one(
        {**changes, **machine.pop("changes", {})}, absent=dict.fromkeys(names, why), **machine
    )


SHARED = (replace(device(), memory_is_shared=True),)
"""A device that uses the host's memory."""


def at(seconds: float, code: int | None) -> Event:
    return Event(NOW + seconds, device().uuid, "xid", code)


def growing(per_second: float, start: float = 40 * GIB) -> Mapping[str, Any]:
    def used(tick: int) -> float:
        return min(79.4 * GIB, start + tick * per_second)

    return {"memory_used_bytes": used, "memory_free_bytes": lambda tick: 79.5 * GIB - used(tick)}


def job(changes: Mapping[str, Any], many: int = 4, **process: Any) -> Machine:
    """Devices of one job, the first of which is another."""
    process = {"slurm_job": "7"} | process
    return Machine(
        devices=tuple(device(n) for n in range(many)),
        readings=({**WORKING, **changes}, *[WORKING] * (many - 1)),
        processes=tuple(trainer(n, **process) for n in range(many)),
    ).run(90)


SPEAKS: list[tuple[str, Callable[[], Machine], Severity, str]] = [
    ("input_bound", lambda: one(STARVED, process=FULL_CORE), WARNING, "idle 6"),
    ("input_bound", lambda: one(STARVED, process=FULL_CORE), WARNING, "every 8.0 s"),
    (
        "input_bound",
        lambda: one({"gpu_utilization_percent": noise(45, 6)}, process=FULL_CORE),
        WARNING,
        "may be waiting for input, a CPU core is full: idle 55 %",
    ),
    (
        "input_bound",
        lambda: one(STARVED, process=trainer(children_cpu_most_percent=97.0)),
        WARNING,
        "a CPU core is full",
    ),
    (
        "input_bound",
        lambda: one(STARVED, process=trainer(io_wait=lambda tick: tick % 2 == 0)),
        WARNING,
        "a process waits for storage",
    ),
    ("input_bound", lambda: one(STARVED, host_cpu=100.0), WARNING, "the host's CPU is full"),
    (
        "input_bound",  # nothing of the host is busy: it may have nothing to do
        lambda: one(STARVED),
        INFORMATION,
        "work has gaps, cause not seen: idle 64 %, every 8.0 s",
    ),
    (
        "input_bound",
        lambda: one(STARVED, process=trainer(cpu_percent=None, children_cpu_most_percent=None)),
        INFORMATION,
        "work has gaps, the CPU time of its processes is not known: idle 64 %",
    ),
    (
        "input_bound",  # a kernel that does not list child processes: workers may be full
        lambda: one(STARVED, process=trainer(children_cpu_most_percent=None)),
        INFORMATION,
        "the CPU time of its processes is not known",
    ),
    (
        "input_bound",  # a MIG instance has no *busy*
        lambda: without(
            "gpu_utilization_percent", changes={"sm_active_percent": 40.0}, process=FULL_CORE
        ),
        WARNING,
        "idle 60 %",
    ),
    (
        "not_working",
        lambda: one({"gpu_utilization_percent": 100, "sm_active_percent": 12.0}),
        WARNING,
        "busy, but few SMs work: busy 100 %, SM active 12 %",
    ),
    (
        "not_working",
        lambda: one({"gpu_utilization_percent": 100, "sm_active_percent": 0.7}),
        WARNING,
        "busy, but about one SM of 132 works: busy 100 %",
    ),
    (
        "not_working",
        lambda: without(*NO_GPM, why=Absence.DISABLED, changes={"power_watts": 130.0}),
        WARNING,
        "busy, but draws little power: busy 97 %, 19 % of the limit",
    ),
    ("no_tensor_cores", lambda: one({"tensor_active_percent": 0.0}), INFORMATION, "FP32"),
    (
        "memory_bound",
        lambda: one({"dram_active_percent": 86.0, "tensor_active_percent": 4.0}),
        INFORMATION,
        "limited by memory bandwidth: DRAM active 86 %, tensor active 4 %",
    ),
    (
        "pcie_bound",
        lambda: one({"pcie_rx_bytes_per_second": 50_000_000_000}),
        WARNING,
        "PCIe link nearly full, receives most: 79 % of 58.7 GiB/s",
    ),
    (
        "pcie_bound",
        lambda: one({"pcie_tx_bytes_per_second": 13_000_000_000, "pcie_generation": 3}),
        WARNING,
        "sends",
    ),
    (
        "link_degraded",
        lambda: one({"pcie_generation": 3, "pcie_width": 8}),
        WARNING,
        "gen 3 ×8 of gen 5 ×16",
    ),
    (
        "power_capped",
        lambda: one({"clock_event_reasons": ("sw_power_cap",)}),
        INFORMATION,
        "normal at full load",
    ),
    (
        "power_capped",
        lambda: one({"clock_event_reasons": ("sw_power_cap",), "power_limit_watts": 300.0}),
        WARNING,
        "power limit of 300 W, below its default of 700 W",
    ),
    (
        "thermal",
        lambda: one(
            {
                "clock_event_reasons": saw(("sw_thermal",), (), 40, 20),
                "sm_clock_mhz": saw(900, 1800, 40, 20),
            },
            seconds=121,
        ),
        WARNING,
        "of the time, lost 30.5 s in 2:00",
    ),
    (
        "thermal",
        lambda: one({"clock_event_reasons": ("hw_thermal", "hw_slowdown")}),
        WARNING,
        "throttled by heat: 100 % of the time",
    ),
    (
        "hardware_slowdown",
        lambda: one({"clock_event_reasons": ("hw_slowdown",)}),
        WARNING,
        "slowed down by hardware: 100 % of the time",
    ),
    (
        "hardware_slowdown",
        lambda: one({"clock_event_reasons": ("hw_slowdown", "hw_power_brake")}),
        WARNING,
        "braked by its power supply",
    ),
    (
        "clocks_low",
        lambda: one({"sm_clock_mhz": 1110}),
        WARNING,
        "clocks are low under load for no stated reason: 1110 MHz, of 1980 MHz",
    ),
    (
        "held_idle",
        lambda: one(
            {"memory_attributed_bytes": 18 * GIB},
            of=IDLE,
            process=trainer(user="bo", command="python -m ipykernel_launcher"),
            seconds=400,
        ),
        INFORMATION,
        "memory held while idle by bo (python -m ipykernel_launcher): 18.0 GiB, for 6:39",
    ),
    (
        "unattributed",
        lambda: one({"memory_unattributed_bytes": 9 * GIB}),
        WARNING,
        "memory in use that no listed process holds: 9.00 GiB",
    ),
    ("ghost_load", lambda: one(processes=()), WARNING, "busy without any listed process: 97 %"),
    (
        "almost_full",
        lambda: one({"memory_used_bytes": 79 * GIB, "memory_free_bytes": GIB}),
        WARNING,
        "almost out of memory: 99 % in use",
    ),
    (
        "almost_full",
        lambda: one(devices=SHARED, host_memory=(119 * GIB, GIB)),
        WARNING,
        "almost out of memory, which is the host's: 99 % in use",
    ),
    (
        "almost_full",
        lambda: one(growing(4 * MINUTE), seconds=400),
        WARNING,
        "may run out of memory: full in about 3:1",
    ),
    ("leak", lambda: one(growing(MINUTE), seconds=560), WARNING, "1.00 GiB a minute"),
    (
        "straggler",
        lambda: job({"sm_clock_mhz": 1500}),
        WARNING,
        "may delay its job, SM clock below the median of its 3 peers: by 15 %",
    ),
    ("straggler", lambda: job({"sm_clock_mhz": 1500}, 2), WARNING, "SM clock below GPU 1: by 15 %"),
    (
        "straggler",
        lambda: job({"sm_clock_mhz": 1500}, slurm_job=None, parent_pid=390),
        WARNING,
        "15 %",
    ),
    (
        "imbalance",
        lambda: job({"memory_used_bytes": 76 * GIB}),
        INFORMATION,
        "more memory in use than the median of its 3 peers: by 16.0 GiB",
    ),
    (
        "imbalance",
        lambda: job({"gpu_utilization_percent": 41}),
        INFORMATION,
        "less busy than the median of its 3 peers, work may be uneven: 41 %, they 97 %",
    ),
    (
        "xid",
        lambda: one(events=(at(10, 79), at(20, 31))),
        FAULT,
        "Xid 79: the GPU has fallen off the bus",
    ),
    ("xid", lambda: one(events=(at(20, 31),)), WARNING, "Xid 31"),
    ("xid", lambda: one(events=(at(20, None),)), FAULT, "does not say which"),
    ("ecc", lambda: one({"ecc_uncorrected": 2}), FAULT, "2 uncorrected ECC errors"),
    (
        "ecc",
        lambda: one({"ecc_corrected": lambda n: 3 + n // 40}),
        INFORMATION,
        "corrected ECC errors: 2 in 1:29",
    ),
    (
        "ecc",
        lambda: one({"ecc_corrected": lambda n: n}),
        WARNING,
        "corrected ECC errors: 89 in 1:29",
    ),
    ("remap", lambda: one({"remap_pending": True}), WARNING, "at the next reset"),
    ("remap", lambda: one({"remap_failed": True}), FAULT, "no spare memory rows"),
    ("recovery", lambda: one({"recovery_action": "gpu_reset"}), FAULT, "needs a reset"),
]


@pytest.mark.parametrize(("rule", "machine", "severity", "words"), SPEAKS)
def test_it_speaks(
    rule: str, machine: Callable[[], Machine], severity: Severity, words: str
) -> None:
    found = finding(machine(), rule)
    assert words in found.line
    assert found.severity is severity
    assert found.remedy
    assert found.evidence or rule in ("remap", "recovery")
    assert all(each.text for each in found.evidence)


def test_every_rule_is_seen_to_speak_to_be_silent_and_to_lack() -> None:
    assert {rule.name for rule in RULES} == {case[0] for case in SPEAKS}
    assert {rule.name for rule in RULES} == {case[0] for case in SILENT}
    assert {rule.name for rule in RULES} == {case[0] for case in LACKS} | {"xid"}


SILENT: list[tuple[str, Callable[[], Machine]]] = [
    *((rule.name, one) for rule in RULES if rule.name != "leak"),
    *((rule.name, lambda: one(of=IDLE, processes=())) for rule in RULES if rule.name != "leak"),
    ("input_bound", lambda: one(process=FULL_CORE)),
    ("input_bound", lambda: one(host_cpu=100.0)),
    ("input_bound", lambda: one(STARVED, host_cpu=100.0, processes=())),
    ("input_bound", lambda: one({"gpu_utilization_percent": 2}, process=FULL_CORE)),
    ("not_working", lambda: one({"gpu_utilization_percent": 60, "sm_active_percent": 5.0})),
    ("not_working", lambda: without(*NO_GPM)),
    ("no_tensor_cores", lambda: one({"tensor_active_percent": 0.0, "fp64_active_percent": 60.0})),
    (
        "no_tensor_cores",
        lambda: one({"tensor_active_percent": 0.0}, process=trainer(kind=ProcessKind.GRAPHICS)),
    ),
    (
        "no_tensor_cores",  # that is for the memory-bound rule
        lambda: one({"tensor_active_percent": 0.0, "dram_active_percent": 90.0}),
    ),
    ("memory_bound", lambda: one({"dram_active_percent": 86.0})),
    ("pcie_bound", lambda: one({"pcie_rx_bytes_per_second": 20_000_000_000})),
    (
        "pcie_bound",  # an idle link has slowed down: what it carried was little for what it can
        lambda: one(
            {
                "pcie_generation": lambda tick: 1 if tick % 9 == 8 else 5,
                "pcie_rx_bytes_per_second": 9_000_000_000,
            }
        ),
    ),
    ("link_degraded", lambda: one({"pcie_generation": 1}, of=IDLE)),
    ("link_degraded", lambda: one({"pcie_generation": saw(5, 1, 9, 2)})),
    ("link_degraded", lambda: one({"pcie_generation": 1, "performance_state": 5})),
    ("power_capped", lambda: one({"clock_event_reasons": saw(("sw_power_cap",), (), 30, 2)})),
    ("power_capped", lambda: one({"power_limit_watts": 300.0, "power_watts": 120.0})),
    ("thermal", lambda: one({"clock_event_reasons": saw(("sw_thermal",), (), 60, 1)})),
    # The bit of the hardware's slowdown comes with that of its heat.
    ("hardware_slowdown", lambda: one({"clock_event_reasons": ("hw_thermal", "hw_slowdown")})),
    ("clocks_low", lambda: one({"sm_clock_mhz": 1110, "clock_event_reasons": ("sw_power_cap",)})),
    ("clocks_low", lambda: one({"sm_clock_mhz": 345, "gpu_utilization_percent": 20})),
    (
        "held_idle",  # somebody works with it now and then
        lambda: one(
            {"memory_attributed_bytes": 18 * GIB, "gpu_utilization_percent": saw(80, 0, 120, 3)},
            of=IDLE,
            seconds=400,
        ),
    ),
    ("unattributed", lambda: one({"memory_unattributed_bytes": saw(9 * GIB, GIB, 20, 15)})),
    ("ghost_load", lambda: one({"gpu_utilization_percent": 3}, processes=())),
    (
        "almost_full",  # taken ahead by its allocator
        lambda: one({"memory_used_bytes": 75 * GIB, "memory_free_bytes": 5 * GIB}, seconds=400),
    ),
    ("almost_full", lambda: one(growing(MINUTE, GIB), seconds=400)),
    (
        "almost_full",  # a part of the host's memory that was set aside
        lambda: one(
            {"memory_used_bytes": 4 * GIB, "memory_free_bytes": 0},
            devices=SHARED,
            host_memory=(3 * GIB, 21 * GIB),
        ),
    ),
    ("link_degraded", lambda: one({"pcie_generation": 1, "pcie_width": 1}, devices=SHARED)),
    ("leak", lambda: one({"memory_used_bytes": noise(60 * GIB, GIB)}, seconds=560)),
    (
        "leak",  # it was loaded, and stays
        lambda: one({"memory_used_bytes": lambda t: min(60, 10 + t) * GIB}, seconds=560),
    ),
    ("straggler", lambda: job({"sm_clock_mhz": 1710})),
    ("straggler", lambda: job({"sm_clock_mhz": 1500}, slurm_job=None, parent_pid=1)),
    ("straggler", lambda: job({"sm_clock_mhz": 1500, "gpu_utilization_percent": 5})),
    ("imbalance", lambda: job({"memory_used_bytes": 66 * GIB})),
    ("xid", lambda: one(events=(at(-4000, 79),))),
    ("ecc", lambda: one({"ecc_corrected": 400})),
]


@pytest.mark.parametrize(("rule", "machine"), SILENT)
def test_it_is_silent(rule: str, machine: Callable[[], Machine]) -> None:
    made = machine()
    silent(made, rule)


LACKS: list[tuple[str, Callable[[], Machine], Mapping[str, Absence | None]]] = [
    (
        "input_bound",
        lambda: without("gpu_utilization_percent", *NO_GPM, process=FULL_CORE),
        {"gpu_utilization_percent": UNSUPPORTED},
    ),
    (
        "not_working",
        lambda: without(*NO_GPM, "power_watts", why=Absence.DISABLED),
        {"sm_active_percent": Absence.DISABLED, "power_watts": Absence.DISABLED},
    ),
    (
        "no_tensor_cores",
        lambda: without(*NO_GPM, why=Absence.DISABLED),
        {name: GPM_OFF[name] for name in ("sm_active_percent", "tensor_active_percent")},
    ),
    ("memory_bound", lambda: without("dram_active_percent"), {"dram_active_percent": UNSUPPORTED}),
    (
        "pcie_bound",
        lambda: without("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
        dict.fromkeys(("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"), UNSUPPORTED),
    ),
    ("pcie_bound", lambda: without("pcie_generation"), {"pcie_generation": UNSUPPORTED}),
    ("pcie_bound", lambda: one({"pcie_generation": 9}), {"pcie_generation": None}),
    ("link_degraded", lambda: without("pcie_width"), {"pcie_width": UNSUPPORTED}),
    *(
        (rule, lambda: without("clock_event_reasons"), {"slowdown_bits": UNSUPPORTED})
        for rule in ("power_capped", "thermal", "hardware_slowdown")
    ),
    (
        "clocks_low",
        lambda: without("clock_event_reasons", changes={"sm_clock_mhz": 1000}),
        {"slowdown_bits": UNSUPPORTED},
    ),
    ("clocks_low", lambda: without("sm_clock_mhz"), {"sm_clock_mhz": UNSUPPORTED}),
    (
        "held_idle",
        lambda: without("memory_attributed_bytes"),
        {"memory_attributed_bytes": UNSUPPORTED},
    ),
    (
        "held_idle",
        lambda: one({"memory_attributed_bytes": 18 * GIB}, of=IDLE, seconds=200),
        {"gpu_utilization_percent": None},
    ),
    (
        "unattributed",
        lambda: without("memory_unattributed_bytes"),
        {"memory_unattributed_bytes": UNSUPPORTED},
    ),
    (
        "ghost_load",
        lambda: without("processes", why=Absence.NO_PERMISSION, processes=()),
        {"process_count": Absence.NO_PERMISSION},
    ),
    ("almost_full", lambda: without("memory_used_bytes"), {"memory_used_bytes": UNSUPPORTED}),
    (
        "almost_full",
        lambda: without("memory_free_bytes", devices=SHARED),
        {"memory_free_bytes": UNSUPPORTED},
    ),
    ("leak", lambda: without("memory_used_bytes"), {"memory_used_bytes": UNSUPPORTED}),
    ("leak", one, {"memory_used_bytes": None}),
    ("straggler", lambda: job({"sm_clock_mhz": None}), {"sm_clock_mhz": None}),
    (
        "imbalance",
        lambda: job({"memory_used_bytes": None, "gpu_utilization_percent": None, **NO_GPM}),
        {"memory_used_bytes": None},
    ),
    ("ecc", lambda: without("ecc_corrected"), {"ecc_corrected": UNSUPPORTED}),
    ("ecc", lambda: without("ecc_uncorrected"), {"ecc_uncorrected": UNSUPPORTED}),
    ("remap", lambda: without("remap_pending"), {"remap_pending": UNSUPPORTED}),
    ("recovery", lambda: without("recovery_action"), {"recovery_action": UNSUPPORTED}),
]


@pytest.mark.parametrize(("rule", "machine", "missing"), LACKS)
def test_it_says_that_it_cannot_tell(
    rule: str, machine: Callable[[], Machine], missing: Mapping[str, Absence | None]
) -> None:
    assert lacking(machine(), rule).items() <= missing.items()


def test_advice_is_for_the_cause() -> None:
    def advice(**process: Any) -> str:
        return finding(one(STARVED, process=trainer(**process)), "input_bound").remedy

    assert "main thread" in advice(cpu_percent=99.0)
    assert "workers of its loader" in advice(children_cpu_most_percent=97.0)
    assert "Storage" in advice(io_wait=True)


def test_idle_clocks_are_not_low_clocks() -> None:
    """Between its steps a device lowers its clock, which says nothing about its work."""
    gaps = {"gpu_utilization_percent": saw(100, 30, 8, 6), "sm_clock_mhz": saw(1755, 345, 8, 6)}
    silent(one(gaps), "clocks_low")
    silent(job(gaps), "straggler")
    slow = {**gaps, "sm_clock_mhz": saw(1110, 345, 8, 6)}
    assert "1110 MHz" in finding(one(slow), "clocks_low").line
    assert "by 37 %" in finding(job(slow), "straggler").line


def test_a_device_that_waits_for_input_is_not_called_slow_or_uneven() -> None:
    gaps = {"gpu_utilization_percent": saw(100, 0, 9, 5), "sm_clock_mhz": 1500}
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
    machine = one({"memory_attributed_bytes": 9 * GIB}, of=IDLE, process=process, seconds=400)
    sentence = finding(machine, "held_idle").line
    assert sentence.isprintable()
    assert len(sentence) < 200


def test_evidence_has_its_number_its_unit_and_its_time() -> None:
    found = finding(one(STARVED, process=FULL_CORE), "input_bound")
    idle, period, cpu, io, host = found.evidence
    assert (idle.reading, idle.unit, idle.seconds) == ("gpu_utilization_percent", "%", 60)
    assert idle.text == "64 %"
    assert (period.text, period.unit) == ("8.0 s", "s")
    assert (cpu.value, cpu.text) == (99, "99 %")
    assert io.text == "0 %"
    assert host.text == "40 %"


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
        machine = job({"sm_clock_mhz": 1500})
        return replace(machine, **changes, said=[], ticks=0).run(90)

    others = tuple(trainer(n, slurm_job=str(n), parent_pid=1) for n in range(4))
    assert not isinstance(alone(processes=others).verdict("straggler"), Finding)
    mixed = (device(0, name="NVIDIA A100"), *(device(n) for n in range(1, 4)))
    assert not isinstance(alone(devices=mixed).verdict("straggler"), Finding)


def test_rules_have_names() -> None:
    assert len(BY_NAME) == len(RULES)
    assert all(rule.title and rule.judge.__doc__ for rule in RULES)
