import dataclasses
import sys
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import Metric, generate_latest

from gputop.agent.device import DeviceSample
from gputop.agent.problem import Problem
from gputop.agent.snapshot import DriverState, Event, Record, Sample
from gputop.fleet.queries import BEATS, MASKS, READ_AS, XID
from gputop.health.judge import RULES
from gputop.output.prometheus.metrics import families
from gputop.output.prometheus.scrape import registry_of
from gputop.output.prometheus.state import ExporterState
from gputop.stream.child import Interruption
from tests import streams
from tests.output.test_public_output import FULL as EVERY_READING

NOW = 100.0


def found_in(*records: Record | Interruption, waited: float = 0.0, **options: Any) -> list[Metric]:
    times = [NOW]
    follower = ExporterState(clock=lambda: times[-1])
    for record in records:
        follower.add_record(record)
    times.append(NOW + waited)
    return families(follower, **options)


def named(found: Iterable[Metric], name: str) -> list[tuple[dict[str, str], float]]:
    samples = [sample for each in found for sample in each.samples]
    return [(sample.labels, sample.value) for sample in samples if sample.name == name]


def by(found: Iterable[Metric], name: str, label: str) -> dict[str, float]:
    series = named(found, name)
    numbers = {labels[label]: value for labels, value in series}
    assert len(numbers) == len(series)
    return numbers


def text_of(found: list[Metric]) -> str:
    return generate_latest(registry_of(lambda: found)).decode()


def sample_of(*devices: DeviceSample, **changes: Any) -> Sample:
    return dataclasses.replace(streams.sample(processes=()), devices=devices, **changes)


FULL = dataclasses.replace(EVERY_READING, uuid=streams.device(0).uuid)
EVERY = sample_of(
    FULL, events=(Event(50.0, FULL.uuid, "xid", 79),), processes=tuple(streams.crowd(3, 1))
)


FULL_NOW = {"memory_used_bytes": 80 << 30, "memory_free_bytes": 0}


def begun(*records: Record | Interruption) -> dict[tuple[str, str], float]:
    found = named(found_in(*records), "gputop_findings_total")
    assert len(found) % len(RULES) == 0
    return {(k["index"], k["rule"]): v for k, v in found if v}


def active(*records: Record | Interruption) -> set[tuple[str, str, str]]:
    found = named(found_in(*records), "gputop_finding_active")
    assert {value for _, value in found} <= {1.0}
    return {(k["index"], k["rule"], k["severity"]) for k, _ in found}


def test_findings_are_there_while_they_stand_and_counted_when_they_begin() -> None:
    well = sample_of(streams.readings(0), streams.readings(1))
    sick = sample_of(streams.readings(0, **FULL_NOW), streams.readings(1, remap_pending=True))
    stands = {("0", "almost_full", "warning"), ("1", "remap", "warning")}
    records: list[Record] = [streams.inventory(2)]
    for sample, times in ((well, 0), (sick, 1), (sick, 1), (well, 1), (sick, 2)):
        records.append(dataclasses.replace(sample, time=streams.NOW + 20 * len(records)))
        assert active(*records) == (stands if sample is sick else set())
        assert begun(*records) == {(k, rule): times for k, rule, _ in stands if times}


def bound_by(*records: Record | Interruption) -> dict[str, str]:
    found = named(found_in(*records), "gputop_bound_by")
    assert {value for _, value in found} <= {1.0}
    return {labels["index"]: labels["bound_by"] for labels, _ in found}


def test_what_a_device_is_bound_by_has_a_series_once_it_can_be_told() -> None:
    decodes = streams.readings(
        0,
        gpu_utilization_percent=99,
        sm_active_percent=90.0,
        dram_active_percent=86.0,
        tensor_active_percent=4.0,
    )
    made = [decodes, streams.readings(1, gpu_utilization_percent=0), streams.lost(2)]
    samples = [sample_of(*made, time=streams.NOW + second) for second in range(40)]
    assert bound_by(streams.inventory(3), *samples[:10]) == {}
    for_job = streams.process(7, 0)
    busy = [dataclasses.replace(each, processes=(for_job,)) for each in samples]
    assert bound_by(streams.inventory(3), *busy) == {"0": "memory", "1": "idle"}


@pytest.mark.parametrize("dcgm_names", [False, True])
def test_of_a_stream_that_is_silent_only_that(dcgm_names: bool) -> None:
    records = streams.inventory(1), streams.sample(1), Interruption(Problem("a", "b", "c"))
    recent = found_in(*records, waited=3.0, dcgm=dcgm_names, processes=True)
    assert named(recent, "gputop_up") == [({}, 1.0)]
    assert len(recent) > 2
    silent = found_in(*records, waited=3.1, dcgm=dcgm_names, processes=True)
    assert {sample.name: sample.value for each in silent for sample in each.samples} == {
        "gputop_up": 0.0,
        "gputop_interruptions_total": 1.0,
    }


@pytest.mark.parametrize("state", [DriverState.STARTING, DriverState.UNAVAILABLE])
def test_without_a_driver_it_is_not_up(state: DriverState) -> None:
    inventory = dataclasses.replace(streams.no_driver(), driver_state=state)
    found = found_in(inventory, streams.sample())
    assert named(found, "gputop_up") == [({}, 0.0)]
    expected = {"host": "node07", "source": "nvml", "version": "0.1.0"}
    assert named(found, "gputop_info") == [(expected, 1.0)]


def test_readings_age_while_they_wait() -> None:
    sample = sample_of(streams.readings(0, age_seconds=0.5))
    found = found_in(streams.inventory(1), sample, waited=2)
    assert [value for _, value in named(found, "gputop_reading_age_seconds")] == [2.5]
    assert named(found, "gputop_slow_reading_age_seconds") == []
    sample = sample_of(streams.readings(0, age_seconds=0.5, slow_age_seconds=4.0))
    found = found_in(streams.inventory(1), sample, waited=2)
    assert [value for _, value in named(found, "gputop_slow_reading_age_seconds")] == [6.0]


def xids(*events: tuple[float, int | None, int | None]) -> Sample:
    reported = (
        Event(time, None if index is None else streams.device(index).uuid, "xid", code)
        for time, index, code in events
    )
    return streams.sample(2, events=tuple(reported))


def test_xids_are_counted_over_the_stream_by_code() -> None:
    records = (
        streams.inventory(2),
        xids((10.0, 0, 31), (11.0, 0, 31), (12.0, 1, None)),
        xids((20.0, 0, 79), (21.0, None, 48), (22.0, 7, 13)),
        xids((15.0, 0, 31)),
        streams.sample(2, events=(Event(30.0, streams.device(0).uuid, "other", 1),)),
    )
    found = found_in(*records)
    counts = {(k.get("index"), k["code"]): v for k, v in named(found, "gputop_xid_errors_total")}
    assert counts == {("0", "31"): 3, ("0", "79"): 1, ("1", "unknown"): 1, (None, "48"): 1}
    times = {
        (k.get("index"), k["code"]): v for k, v in named(found, "gputop_xid_last_timestamp_seconds")
    }
    assert times == {("0", "31"): 15, ("0", "79"): 20, ("1", "unknown"): 12, (None, "48"): 21}
    last = by(found_in(*records, dcgm=True), "DCGM_FI_DEV_XID_ERRORS", "gpu")
    assert last == {"0": 79, "1": 0}


def test_what_the_fleet_asks_of_dcgm_exporter_is_there_under_its_names() -> None:
    found = {each.name for each in found_in(streams.inventory(1), EVERY, dcgm=True)}
    asked = {metric.name for metrics in READ_AS.values() for metric in metrics}
    asked |= {*BEATS, XID, MASKS[-1]}
    absent = {name for name in asked if name.startswith("DCGM_FI_")} - found
    assert absent == {"DCGM_FI_DEV_FB_TOTAL"}  # the fleet adds up its parts


def test_processes_are_those_with_the_most_memory_and_only_when_asked_for() -> None:
    count = 40
    command = "/opt/bin/python train.py --token hunter2"
    listed = [
        streams.process(n, 0, memory_used_bytes=n << 20, command=command, user="u" * 65)
        for n in range(1, count + 1)
    ]
    records = streams.inventory(1), streams.sample(1, listed)
    quiet = found_in(*records)
    assert [v for _, v in named(quiet, "gputop_processes")] == [count]
    assert not any(each.name.startswith("gputop_process_") for each in quiet)
    found = found_in(*records, processes=True)
    held = by(found, "gputop_process_memory_used_bytes", "pid")
    assert held == {str(n): float(n << 20) for n in range(9, count + 1)}
    assert {k["program"] for k, _ in named(found, "gputop_process_memory_used_bytes")} == {"python"}
    assert "hunter2" not in text_of(found)
    assert "u" * 64 in text_of(found)
    assert "u" * 65 not in text_of(found)


def test_a_problem_is_told_once_until_the_driver_answers() -> None:
    told: list[str] = []
    watch = ExporterState(lambda problem: told.append(problem.what))
    stopped = Interruption(Problem("stopped", "b", "c"))
    missing, starting = streams.no_driver(), streams.no_driver()
    starting = dataclasses.replace(starting, driver_state=DriverState.STARTING, problem=None)
    for record in (starting, streams.sample(), missing, streams.sample(), starting, missing):
        watch.add_record(record)
    assert told == ["No NVIDIA driver"]
    for again in (stopped, starting, stopped, streams.inventory(1), stopped):
        watch.add_record(again)
    assert told == ["No NVIDIA driver", "stopped", "stopped"]
    assert watch.interruptions == 3


def test_a_scrape_while_records_arrive_is_of_one_moment() -> None:
    follower = ExporterState()
    follower.add_record(streams.inventory(1))
    samples = []
    for count in range(1, 200):
        made = streams.readings(0, power_watts=float(count))
        samples.append(sample_of(made, time=streams.NOW + count, events=EVERY.events))
    follower.add_record(samples[0])
    thread = threading.Thread(target=lambda: [*map(follower.add_record, samples[1:])])
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    while thread.is_alive():
        found = families(follower)
        ((_, power),) = named(found, "gputop_power_watts")
        ((_, xids_counted),) = named(found, "gputop_xid_errors_total")
        assert power == xids_counted
    sys.setswitchinterval(before)
    thread.join()
