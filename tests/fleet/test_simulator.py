"""The simulated fleet: what its GPUs can read, what grows, what is planted, and that it repeats."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.demo_fleet.exporter import AWAY_AFTER_SECONDS, COUNTERS, ORIGIN, DcgmReadings, Simulator
from tests.demo_fleet.site import (
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

LATER = st.floats(0, 40e6)


def read(simulator: Simulator, after: float) -> list[tuple[SimulatedGpu, DcgmReadings]]:
    gpus = simulator.gpus
    return list(zip(gpus, simulator.readings(gpus, simulator.started + after), strict=True))


def of(flaw: Flaw | None, after: float = 60.0) -> list[tuple[SimulatedGpu, DcgmReadings]]:
    return [(gpu, reading) for gpu, reading in read(FLEET, after) if gpu.flaw is flaw]


@settings(max_examples=40)
@given(LATER)
def test_readings_are_within_what_the_gpu_can(after: float) -> None:
    for gpu, reading in read(FLEET, after):
        if gpu.flaw is Flaw.LOST:
            continue
        assert len(reading) == 24
        assert 0 < reading["DEV_POWER_USAGE"] <= gpu.model.limit_watts
        assert 300 < reading["DEV_SM_CLOCK"] <= gpu.model.sm_mhz
        assert 25 < reading["DEV_GPU_TEMP"] < 90
        assert reading["DEV_GPU_TEMP"] < reading["DEV_MEMORY_TEMP"] < 105
        ratios = (
            reading["PROF_GR_ENGINE_ACTIVE"],
            reading["PROF_SM_ACTIVE"],
            reading["PROF_PIPE_TENSOR_ACTIVE"],
        )
        assert all(0 <= (x or 0) <= 1 for x in (*ratios, reading["PROF_DRAM_ACTIVE"]))
        assert all(x in range(101) for x in (reading["DEV_GPU_UTIL"], reading["DEV_MEM_COPY_UTIL"]))
        parts = [reading[f"DEV_FB_{part}"] for part in ("FREE", "USED", "RESERVED")]
        assert sum(parts) == gpu.model.memory_mib
        assert min(parts) >= 0


@settings(max_examples=40)
@given(LATER, st.one_of(st.floats(0, 1e-3), st.floats(0, 100), st.floats(0, 1e6)))
def test_what_is_counted_never_falls(after: float, more: float) -> None:
    for (_, first), (_, then) in zip(read(FLEET, after), read(FLEET, after + more), strict=True):
        for name in COUNTERS:
            was, now = first.get(name), then.get(name)
            assert (was is None) == (now is None)
            assert was is None or now is None or 0 <= was <= now


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 99))
def test_a_load_is_a_share_and_its_mean_is_that_of_a_period(kind: JobKind, seed: int) -> None:
    wave = job_of(kind, Random(seed)).wave  # noqa: S311 - no secret
    levels = [wave.level(wave.period_seconds * n / 500) for n in range(500)]
    assert all(0 <= level <= 1 for level in levels)
    assert wave.mean == pytest.approx(sum(levels) / 500, abs=0.01)


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
    assert Counter(g.flaw for g in other.gpus) == Counter(g.flaw for g in FLEET.gpus)


@pytest.mark.parametrize("gpus", [64, 65, 512, 10_000])
def test_the_same_few_are_planted_in_any_fleet(gpus: int) -> None:
    planted = [g for g in Simulator(gpus, started=STARTED).gpus if g.flaw]
    assert [g.uuid for g in planted] == [g.uuid for g in FLEET.gpus if g.flaw]
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
    assert reading == {"DEV_XID_ERRORS": 79}


def test_the_one_with_errors_has_ever_more() -> None:
    ((_, first),), ((_, later),) = of(Flaw.ECC), of(Flaw.ECC, 660.0)
    assert (
        first["DEV_XID_ERRORS"],
        first["DEV_ECC_DBE_VOL_TOTAL"],
        first["DEV_ROW_REMAP_PENDING"],
    ) == (48, 3, 1)
    assert later["DEV_ECC_DBE_VOL_TOTAL"] == 8


def test_the_one_without_spare_rows() -> None:
    ((_, reading),) = of(Flaw.REMAP)
    assert reading["DEV_ROW_REMAP_FAILURE"] == 1


@settings(max_examples=30)
@given(LATER)
def test_the_hot_one_is_throttled_and_the_slow_one_lags_at_the_same_load(after: float) -> None:
    for flaw, reasons in ((Flaw.THERMAL, {0x48}), (Flaw.SLOW, {0})):
        ((gpu, reading),) = of(flaw, after)
        peers = [r for g, r in of(None, after) if g.job is gpu.job]
        assert len(peers) > 16
        clock = median(r["DEV_SM_CLOCK"] for r in peers)
        busy = median(r["DEV_GPU_UTIL"] for r in peers)
        assert reading["DEV_SM_CLOCK"] < 0.7 * clock
        assert abs(reading["DEV_GPU_UTIL"] - busy) <= 3
        assert reading["DEV_CLOCKS_EVENT_REASONS"] in reasons
        assert (reading["DEV_GPU_TEMP"] >= 87) == (flaw is Flaw.THERMAL)


@settings(max_examples=30)
@given(LATER)
def test_nobody_else_looks_as_if_something_were_wrong(after: float) -> None:
    """Of idle ones that hold memory there are others: but each does something within minutes."""
    idle = []
    for gpu, reading in of(None, after):
        assert (
            reading["DEV_XID_ERRORS"],
            reading["DEV_ECC_DBE_VOL_TOTAL"],
            reading["DEV_ROW_REMAP_FAILURE"],
        ) == (0, 0, 0)
        assert reading["DEV_ROW_REMAP_PENDING"] == 0
        assert int(reading["DEV_CLOCKS_EVENT_REASONS"]) & 0x48 == 0
        assert reading["DEV_GPU_TEMP"] < 80
        if reading["DEV_FB_USED"] > 1024 and not reading["DEV_GPU_UTIL"]:
            idle.append(gpu)
    times = [STARTED + after + 10 * n for n in range(31)]
    worked = {
        gpu
        for now in times
        for gpu, reading in zip(idle, FLEET.readings(idle, now), strict=True)
        if reading["DEV_GPU_UTIL"]
    }
    assert worked == {*idle}
    ((_, held),) = of(Flaw.IDLE_HELD, after)
    assert (held["DEV_GPU_UTIL"], held["PROF_GR_ENGINE_ACTIVE"]) == (0, 0)
    assert held["DEV_FB_USED"] > 40_000


def test_a_host_goes_away_after_a_while_and_no_other() -> None:
    def away(after: float) -> set[str]:
        return {host for host in FLEET.hosts if FLEET.is_away(host, STARTED + after)}

    assert away(AWAY_AFTER_SECONDS - 1) == set()
    gone = {gpu.host for gpu in FLEET.gpus if gpu.flaw is Flaw.AWAY}
    assert away(AWAY_AFTER_SECONDS) == away(1e6) == gone
    assert len(gone) == 1
    assert all(gpu.flaw is Flaw.AWAY for host in gone for gpu in FLEET.hosts[host])


def test_a_clock_that_is_far_back_counts_nothing_below_zero() -> None:
    fleet = Simulator(64, started=0.0)
    assert all(r.get("DEV_TOTAL_ENERGY_CONSUMPTION", 0) >= 0 for _, r in read(fleet, 0.0))
