"""The simulated fleet: what its GPUs can read, what grows, what is planted, and that it repeats."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.fleet.demo.exporter import AWAY_AFTER_SECONDS, ORIGIN, DcgmReading, Simulator
from gputop.fleet.demo.site import (
    GPUS_OF_HOST,
    IDLE,
    INFERENCE,
    NOTEBOOK,
    STRANGE_POD,
    TRAINING,
    WIDE_POD,
    Flaw,
    JobKind,
    SimulatedGpu,
    job_of,
)

STARTED = ORIGIN + 40e6
"""More than a year after the drivers were loaded."""
FLEET = Simulator(512, started=STARTED)
KINDS = (TRAINING, INFERENCE, NOTEBOOK, IDLE)
COUNTERS = ("energy_millijoules", "pcie_replays", "ecc_corrected", "ecc_uncorrected")
LATER = st.floats(0, 40e6)


def read(simulator: Simulator, after: float) -> list[tuple[SimulatedGpu, DcgmReading]]:
    gpus = simulator.gpus
    return list(zip(gpus, simulator.readings(gpus, simulator.started + after), strict=True))


def of(flaw: Flaw | None, after: float = 60.0) -> list[tuple[SimulatedGpu, DcgmReading]]:
    return [(gpu, reading) for gpu, reading in read(FLEET, after) if gpu.flaw is flaw]


@settings(max_examples=40)
@given(LATER)
def test_readings_are_within_what_the_gpu_can(after: float) -> None:
    for gpu, reading in read(FLEET, after):
        if gpu.flaw is Flaw.LOST:
            continue
        assert None not in reading
        assert 0 < (reading.power_watts or 0) <= gpu.model.limit_watts
        assert 300 < (reading.sm_clock_mhz or 0) <= gpu.model.sm_mhz
        assert 25 < (reading.gpu_celsius or 0) < 90
        assert (reading.gpu_celsius or 0) < (reading.memory_celsius or 0) < 105
        ratios = (reading.engine_active, reading.sm_active, reading.tensor_active)
        assert all(0 <= (x or 0) <= 1 for x in (*ratios, reading.dram_active))
        assert all(x in range(101) for x in (reading.gpu_percent, reading.memory_percent))
        parts = (reading.memory_free_mib, reading.memory_used_mib, reading.memory_reserved_mib)
        assert sum(x or 0 for x in parts) == gpu.model.memory_mib
        assert min(x or 0 for x in parts) >= 0


@settings(max_examples=40)
@given(LATER, st.one_of(st.floats(0, 1e-3), st.floats(0, 100), st.floats(0, 1e6)))
def test_what_is_counted_never_falls(after: float, more: float) -> None:
    for (_, first), (_, then) in zip(read(FLEET, after), read(FLEET, after + more), strict=True):
        for name in COUNTERS:
            was, now = getattr(first, name), getattr(then, name)
            assert (was is None) == (now is None)
            assert was is None or 0 <= was <= now


def test_energy_is_what_the_power_adds_up_to() -> None:
    step, steps = 0.25, 400
    before, after = read(FLEET, 0.0), read(FLEET, step * steps)
    middles = [read(FLEET, step * (n + 0.5)) for n in range(steps)]
    for place in range(0, len(before), 5):
        first, last = before[place][1].energy_millijoules, after[place][1].energy_millijoules
        if first is not None and last is not None:
            joules = sum((each[place][1].power_watts or 0) * step for each in middles)
            assert (last - first) / 1000 == pytest.approx(joules, rel=0.002)


@settings(max_examples=60)
@given(st.sampled_from(KINDS), st.integers(0, 99), LATER, st.floats(0.01, 1e4))
def test_a_load_is_a_share_and_its_integral_is_its_own(
    kind: JobKind, seed: int, at: float, seconds: float
) -> None:
    wave = job_of(kind, Random(seed)).wave  # noqa: S311 - no secret
    assert 0 <= wave.level(at) <= 1
    n = 200
    summed = sum(wave.level(at + seconds * (i + 0.5) / n) for i in range(n)) * seconds / n
    difference = wave.integral(at + seconds) - wave.integral(at)
    assert -1e-6 <= difference <= seconds * 1.000001 + 1e-6
    if seconds < wave.period_seconds:
        assert difference == pytest.approx(summed, rel=0.03, abs=0.02 * seconds)


def facts(simulator: Simulator) -> list[tuple[object, ...]]:
    return [
        (g.host, g.index, g.uuid, g.model, g.rack, g.pod, g.job.name, g.flaw)
        for g in simulator.gpus
    ]


@settings(max_examples=20)
@given(st.integers(1, 600), st.integers(0, 3), LATER)
def test_the_same_seed_is_the_same_fleet_and_a_smaller_one_is_its_beginning(
    gpus: int, seed: int, after: float
) -> None:
    small = Simulator(gpus, started=STARTED, seed=seed)
    large = Simulator(600, started=STARTED, seed=seed)
    assert len(small.gpus) == gpus
    assert facts(small) == facts(large)[:gpus]
    now = STARTED + after
    assert small.readings(small.gpus, now) == large.readings(large.gpus, now)[:gpus]


def test_another_seed_is_another_fleet_with_the_same_kinds_of_flaws() -> None:
    other = Simulator(512, started=STARTED, seed=1)
    assert {g.uuid for g in other.gpus}.isdisjoint({g.uuid for g in FLEET.gpus})
    assert Counter(g.flaw for g in other.planted) == Counter(g.flaw for g in FLEET.planted)


@pytest.mark.parametrize("gpus", [64, 65, 512, 10_000])
def test_the_same_few_are_planted_in_any_fleet(gpus: int) -> None:
    planted = Simulator(gpus, started=STARTED).planted
    assert [g.uuid for g in planted] == [g.uuid for g in FLEET.planted]
    expected = dict.fromkeys(Flaw, 1) | {Flaw.AWAY: GPUS_OF_HOST}
    assert Counter(g.flaw for g in planted) == expected


def test_a_site_has_clusters_racks_models_and_jobs_over_many_hosts() -> None:
    gpus = Simulator(10_000, started=STARTED).gpus
    assert len({g.uuid for g in gpus}) == len({(g.host, g.index) for g in gpus}) == 10_000
    assert len({g.cluster for g in gpus}) == 2
    assert len({g.model.name for g in gpus}) == 4
    assert len({g.rack for g in gpus}) == 313
    hosts_of_job: dict[object, set[str]] = {}
    for gpu in gpus:
        hosts_of_job.setdefault(gpu.job, set()).add(gpu.host)
        assert bool(gpu.pod) == (gpu.job.kind is not IDLE)
    assert max(map(len, hosts_of_job.values())) == 32
    kinds = Counter(gpu.job.kind.container for gpu in gpus)
    assert min(kinds.values()) > 200
    assert kinds["trainer"] > 5000


def test_the_names_that_are_hard_to_show_are_there_in_a_small_fleet() -> None:
    pods = {gpu.pod for gpu in Simulator(64, started=STARTED).gpus}
    assert {STRANGE_POD, WIDE_POD} <= pods
    assert "\x1b" in STRANGE_POD
    assert "[bold]" in STRANGE_POD


def test_the_lost_one_has_its_xid_and_nothing_else() -> None:
    ((_, reading),) = of(Flaw.LOST)
    assert reading == DcgmReading(xid=79)


def test_the_one_with_errors_has_ever_more() -> None:
    ((_, first),), ((_, later),) = of(Flaw.ECC), of(Flaw.ECC, 660.0)
    assert (first.xid, first.ecc_uncorrected, first.remap_pending) == (48, 3, 1)
    assert later.ecc_uncorrected == 8


def test_the_one_without_spare_rows() -> None:
    ((_, reading),) = of(Flaw.REMAP)
    assert reading.remap_failed == 1


@settings(max_examples=30)
@given(LATER)
def test_the_hot_one_is_throttled_and_the_slow_one_lags_at_the_same_load(after: float) -> None:
    for flaw, reasons in ((Flaw.THERMAL, {0x48}), (Flaw.SLOW, {0})):
        ((gpu, reading),) = of(flaw, after)
        peers = [r for g, r in of(None, after) if g.job is gpu.job]
        assert len(peers) > 16
        clock = median(r.sm_clock_mhz or 0 for r in peers)
        busy = median(r.gpu_percent or 0 for r in peers)
        assert (reading.sm_clock_mhz or 0) < 0.7 * clock
        assert abs((reading.gpu_percent or 0) - busy) <= 3
        assert reading.clock_event_reasons in reasons
        assert ((reading.gpu_celsius or 0) >= 87) == (flaw is Flaw.THERMAL)


@settings(max_examples=30)
@given(LATER)
def test_nobody_else_looks_as_if_something_were_wrong(after: float) -> None:
    """Of idle ones that hold memory there are others: but each does something within minutes."""
    idle = []
    for gpu, reading in of(None, after):
        assert (reading.xid, reading.ecc_uncorrected, reading.remap_failed) == (0, 0, 0)
        assert reading.remap_pending == 0
        assert (reading.clock_event_reasons or 0) & 0x48 == 0
        assert (reading.gpu_celsius or 0) < 80
        if (reading.memory_used_mib or 0) > 1024 and not reading.gpu_percent:
            idle.append(gpu)
    times = [STARTED + after + 10 * n for n in range(31)]
    worked = {
        gpu
        for now in times
        for gpu, reading in zip(idle, FLEET.readings(idle, now), strict=True)
        if reading.gpu_percent
    }
    assert worked == {*idle}
    ((_, held),) = of(Flaw.IDLE_HELD, after)
    assert (held.gpu_percent, held.engine_active) == (0, 0)
    assert (held.memory_used_mib or 0) > 40_000


def test_a_host_goes_away_after_a_while_and_no_other() -> None:
    def away(after: float) -> set[str]:
        return {host for host in FLEET.hosts if FLEET.is_away(host, STARTED + after)}

    assert away(AWAY_AFTER_SECONDS - 1) == set()
    gone = {gpu.host for gpu in FLEET.planted if gpu.flaw is Flaw.AWAY}
    assert away(AWAY_AFTER_SECONDS) == away(1e6) == gone
    assert len(gone) == 1
    assert all(gpu.flaw is Flaw.AWAY for host in gone for gpu in FLEET.hosts[host])


def test_a_clock_that_is_far_back_counts_nothing_below_zero() -> None:
    fleet = Simulator(64, started=0.0)
    assert all((r.energy_millijoules or 0) >= 0 for _, r in read(fleet, 0.0))
