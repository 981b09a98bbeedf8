"""The simulated fleet: what its GPUs can read, what grows, what is planted, and that it repeats."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.demo_fleet.exporter import AWAY_AFTER_SECONDS, ORIGIN, DcgmReadings, Simulator
from tests.demo_fleet.site import (
    GPUS_OF_HOST,
    IDLE,
    INFERENCE,
    NOTEBOOK,
    TRAINING,
    Flaw,
    SimulatedGpu,
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
