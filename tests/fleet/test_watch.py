"""A fleet watched: what is asked how often, what is remembered, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.fleet.builder import FleetBuilder
from gputop.fleet.client import AskError, Client
from gputop.fleet.parse import RefreshMoment
from gputop.fleet.queries import SELDOM, names_of, values_of
from gputop.fleet.server import PrometheusServer, quoted
from gputop.fleet.watch import FleetWatch, Refresher
from tests.prometheus import (
    EMPTY,
    NOW,
    FakePrometheus,
    Request,
    Response,
    Site,
    error,
    labels,
    matrix,
    uuid,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.fleet.model import Fleet


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of who runs the tests."""
    monkeypatch.setenv("NETRC", "/dev/null")


async def first_of(watch: FleetWatch, many: int = 1) -> list[Fleet]:
    """So many fleets that are whole; it is closed then."""
    found: list[Fleet] = []
    async with aclosing(watch.fleets()) as fleets:
        async for fleet in fleets:
            found.append(fleet)
            if len(found) == many:
                break
            watch.refresh()
    await watch.close()
    return found


def asked(respond: Callable[[Request], Response | None], turns: int = 1) -> Fleet:
    """The fleet after so many refreshes."""
    with FakePrometheus(respond) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url), 5.0), "", 10.0, at_once=True)
        for _ in range(turns):
            fleet = asking.refresh()
        asking.client.close()
    return fleet


@pytest.mark.slow
async def test_the_number_of_requests_is_the_same_for_any_number_of_gpus() -> None:
    counts = []
    for many in (10, 10_000):
        with FakePrometheus(Site(many)) as fake:
            asking = Refresher(Client(PrometheusServer(fake.url)), "")
            numbers = []
            for _ in range(8):
                before = len(fake.requests)
                fleet = asking.refresh()
                numbers.append(len(fake.requests) - before)
            asking.client.close()
        assert len(fleet.gpus) == many
        assert fleet.problems == ()
        counts.append(numbers)
    assert counts[0] == counts[1]
    assert max(counts[0][2:]) < 20


def test_readings_come_together() -> None:
    fleet = asked(Site(3))
    assert fleet.fresh
    assert fleet.took_seconds is not None
    gpu = fleet.gpus[2]
    assert (gpu.key, gpu.host, gpu.index) == (uuid(2), "node0", "2")
    assert (gpu.gpu_utilization_percent, gpu.sm_active_percent) == (90, 80)
    assert gpu.memory_used_percent == 75
    assert (gpu.power_watts, gpu.power_limit_watts, gpu.remap_failed) == (600.5, None, None)
    assert (gpu.age_seconds, gpu.xid, gpu.clock_event_reasons) == (5, None, None)
    assert fleet.findings == ()


def test_both_exporters_and_what_only_one_of_them_says() -> None:
    ours = {"uuid": uuid(0), "host": "node0", "index": "0", "name": "H100"}
    fleet = asked(
        Site(
            2,
            names_1=[(ours, 1)],
            gpu_utilization_percent=[({"UUID": uuid(0)}, 10), ({"uuid": uuid(0)}, 20)],
            mask=[({"UUID": uuid(0)}, 64), ({"uuid": uuid(1)}, 5)],
            xid=[
                ({"uuid": uuid(1), "code": "31"}, NOW - 9),
                ({"uuid": uuid(1), "code": "79"}, NOW),
            ],
            state=[({"uuid": uuid(0), "state": "needs_reset"}, 1)],
        )
    )
    assert [gpu.gpu_utilization_percent for gpu in fleet.gpus] == [20, None]
    assert fleet.gpus[0].clock_event_reasons == ("hw_thermal",)
    assert fleet.gpus[1].clock_event_reasons == ("idle", "sw_power_cap")
    assert fleet.gpus[1].xid == 79
    assert [wrong.rule for wrong in fleet.findings] == ["xid", "state", "thermal"]


def test_what_is_no_number_is_missing_and_what_is_strange_is_inert() -> None:
    strange = 'a"\\\x1b[31m\n[bold]x[/]'
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"UUID": uuid(0)}, math.nan),
        ({"UUID": uuid(1)}, math.inf),
        ({"UUID": uuid(2)}, "-Inf"),
        ({"UUID": uuid(3)}, "x"),
        ({"UUID": uuid(4)}, 5),
        ({"UUID": uuid(4)}, 6),
        ({}, 7),
        ({"UUID": "GPU-nobody-knows"}, 8),
    ]
    names = [(labels(n, pod=strange, job="other"), 1) for n in range(5)]
    fleet = asked(Site(5, names_0=names, temperature_celsius=rows))
    assert [gpu.temperature_celsius for gpu in fleet.gpus] == [None, None, None, None, 5]
    assert fleet.gpus[0].labels["pod"] == strange
    assert fleet.fresh


def test_metrics_that_nobody_scrapes_are_named() -> None:
    fleet = asked(Site(2, power_watts=EMPTY, sm_clock_mhz=EMPTY, beat=EMPTY))
    assert fleet.gpus[0].power_watts is None
    (problem,) = fleet.problems
    assert problem.what == "Nobody scrapes power, SM clock"
    assert "DCGM_FI_DEV_POWER_USAGE, DCGM_FI_DEV_SM_CLOCK" in problem.remedy


def test_readings_of_the_future_are_a_problem() -> None:
    fleet = asked(Site(2, beat=[({"UUID": uuid(n)}, NOW + 600) for n in range(2)]))
    assert [gpu.age_seconds for gpu in fleet.gpus] == [0, 0]
    assert [problem.what for problem in fleet.problems] == ["Readings are from the future"]


def test_warnings_and_one_question_that_fails_leave_the_rest() -> None:
    site = Site(
        2,
        temperature_celsius=error("execution", "found duplicate series", 422),
        power_watts=vector([({"UUID": uuid(0)}, 5)], NOW, warnings=["remote read: 1 of 2 stores"]),
        sm_clock_mhz=matrix(()),
    )
    fleet = asked(site)
    assert fleet.fresh
    assert fleet.gpus[0].power_watts == 5
    said = " / ".join(str(problem) for problem in fleet.problems)
    assert "found duplicate series" in said
    assert "1 of 2 stores" in said
    assert "the form of Prometheus" in said


class Turns:
    """A site whose answers to one of the questions depend on how often it was asked."""

    def __init__(self, site: Site, name: str, *answers: Response | None) -> None:
        self.site = site
        self.name = name
        self.answers = list(answers)

    def __call__(self, request: Request) -> Response | None:
        if request.name == self.name and self.answers:
            first = self.answers.pop(0)
            return self.site(request) if first is GOOD else first
        return self.site(request)


GOOD = Response(b"good")


def test_a_question_that_fails_keeps_its_last_answer() -> None:
    name = "memory_total_bytes"
    site = Turns(Site(2), name, GOOD, error("execution", "x", 422))
    with FakePrometheus(site) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        fleets = [asking.refresh() for _ in range(14)]
        asking.client.close()
    assert [fleet.gpus[0].memory_total_bytes for fleet in fleets] == [80 << 30] * 14
    said = [[problem.why for problem in fleet.problems] for fleet in fleets]
    failed = said.index(["execution: x"])
    # It stays until the question is asked again, and does not come and go with each refresh.
    assert said == [[]] * failed + [["execution: x"]] * SELDOM + [[]] * (14 - failed - SELDOM)


@pytest.mark.parametrize(
    "broken",
    [
        Response(b"", 401),
        Response(b"", 503),
        Response(b"<html>", 200),
        Response(b'{"status":"succ', 200),
        error("timeout", "too long", 503),
        Response(b"", 302, {"Location": "/login"}),
    ],
)
def test_while_it_is_away_the_numbers_before_stay(broken: Response) -> None:
    away = asked(Turns(Site(2), "beat", GOOD, broken), 2)
    assert not away.fresh
    assert len(away.gpus) == 2
    assert away.gpus[0].power_watts == 600.5
    assert len(away.problems) == 1
    back = asked(Turns(Site(2), "beat", GOOD, broken), 3)
    assert back.fresh
    assert back.problems == ()


def test_a_gpu_that_is_gone_is_stale_and_comes_back() -> None:
    site = Site(3)
    with FakePrometheus(site) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        asking.refresh()
        site.now += 15
        asking.refresh()
        site.gone.add(1)
        site.now += 100
        for _ in range(6):  # those that are there are asked for in between
            fleet = asking.refresh()
        assert [gpu.key for gpu in fleet.gpus] == [uuid(0), uuid(1), uuid(2)]
        assert [gpu.age_seconds for gpu in fleet.gpus] == [5, 105, 5]
        (wrong,) = fleet.findings
        assert (wrong.device_uuid, wrong.rule) == (uuid(1), "stale")
        assert wrong.title == "No readings for 1:45: its series are gone"
        site.gone.clear()
        assert asking.refresh().findings == ()
        site.gone.add(1)
        site.now += 4000
        for _ in range(7):
            fleet = asking.refresh()
        assert len(fleet.gpus) == 2  # taken away
        asking.client.close()


def test_one_that_was_gone_before_it_was_first_asked_is_there() -> None:
    gone = [
        (labels(8, rack="r1"), NOW - 700),
        (labels(8, rack="r1", pod="old"), NOW - 900),
        (labels(0), NOW - 900),  # it is there, with other labels
    ]
    fleet = asked(Site(2, gone=gone, down=[({"job": "dcgm", "instance": "node1:9400"}, 0)]))
    assert [gpu.age_seconds for gpu in fleet.gpus] == [5, 5, 700]
    assert "pod" not in fleet.gpus[2].labels
    assert [wrong.title for wrong in fleet.findings] == ["No readings for 11:40: its scrape fails"]


def test_an_exporter_that_was_away_from_the_start_is_named() -> None:
    down = [
        ({"job": "dcgm", "instance": "node9:9400"}, 0),
        ({"job": "node", "instance": "node9:9100"}, 0),  # of another job, without any GPU
    ]
    (problem,) = asked(Site(16, down=down)).problems
    assert problem.why == "`up` is 0 for node9:9400"
    assert problem.what == "Exporters that cannot be scraped, and whose GPUs are unknown"
    assert asked(Site(16)).problems == ()


def test_stale_is_what_has_missed_three_scrapes() -> None:
    builder = FleetBuilder()
    assert builder.stale_after == 60
    for time in (0, 30, 60):
        builder.moment = RefreshMoment(NOW + time, NOW + time)
        builder.add_answer("beat", _data(vector([({"UUID": "a"}, NOW + time)], NOW + time)))
    assert builder.stale_after == 90


@pytest.mark.parametrize(("interval", "until"), [(10.0, 300.0), (60.0, 900.0), (600.0, 9000.0)])
def test_what_is_asked_seldom_counts_until_it_is_asked_again(interval: float, until: float) -> None:
    builder = FleetBuilder(interval)
    builder.add_answer("names_0", _data(vector([(labels(0), 1)], NOW)))
    builder.update_identities()
    builder.add_answer("ecc_uncorrected", _data(vector([({"UUID": uuid(0)}, 3)], NOW)))
    found = []
    for time in (until, until + 1):
        builder.moment = RefreshMoment(time, time)
        found += [gpu.ecc_uncorrected for gpu in builder.build().gpus]
    assert found == [3, None]


def test_a_new_gpu_is_named_at_the_next_refresh() -> None:
    site = Site(1)
    with FakePrometheus(site) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        asking.refresh()
        site.many = 2
        assert len(asking.refresh().gpus) == 1
        assert len(asking.refresh().gpus) == 2
        asking.client.close()


def _data(response: Response) -> Any:
    return json.loads(response.body)["data"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["metric", "value", "UUID", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)
ROWS = st.lists(
    JSON
    | st.fixed_dictionaries(
        {
            "metric": st.dictionaries(
                st.sampled_from(["UUID", "uuid", "gpu", "Hostname", "code", "state", "job"]), JSON
            ),
            "value": st.tuples(JSON, JSON) | st.tuples(st.floats(), st.floats().map(str)),
        }
    ),
    max_size=5,
)
QUERIES = [query.name for query in (*names_of(""), *values_of(""))] + ["gone"]


@given(st.lists(st.tuples(st.sampled_from(QUERIES), JSON | ROWS), max_size=8))
def test_whatever_is_answered_makes_a_fleet(answers: list[tuple[str, Any]]) -> None:
    builder = FleetBuilder()
    for name, result in answers:
        try:
            builder.add_answer(name, {"resultType": "vector", "result": result})
        except AskError:
            assert not isinstance(result, list)
        builder.update_identities()
    fleet = builder.build()
    for gpu in fleet.gpus:
        assert gpu.age_seconds is None or math.isfinite(gpu.age_seconds)


def test_the_first_fleet_comes_as_soon_as_there_is_something_to_see() -> None:
    """With its names and what a map shows first; what is wrong, when all is known for that."""
    told: list[tuple[int, Fleet]] = []
    with FakePrometheus(Site(2, xid=[({"UUID": uuid(0)}, 79)])) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "")
        whole = asking.refresh(lambda fleet: told.append((len(fake.requests), fleet)))
        asking.refresh(lambda fleet: told.append((len(fake.requests), fleet)))
        assert asking.is_complete
        asking.client.close()
    ((requests, first),) = told
    assert requests == 6
    assert [gpu.gpu_utilization_percent for gpu in first.gpus] == [90, 90]
    assert (first.findings, first.took_seconds) == ((), None)
    assert [wrong.rule for wrong in whole.findings] == ["xid"]


def test_what_is_seen_first_stays_where_the_rest_does_not_come() -> None:
    with FakePrometheus(Turns(Site(2), "beat", Response(b"", 503))) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "")
        fleet = asking.refresh(lambda _: None)
        asking.client.close()
    assert (len(fleet.gpus), fleet.fresh) == (2, False)


async def test_nothing_waits_for_a_server_that_hangs() -> None:
    with FakePrometheus(lambda _: None) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), seconds=0.2, refresh_seconds=0.3)
        (fleet,) = await asyncio.wait_for(first_of(watch), 20)
    assert not fleet.fresh
    assert fleet.gpus == ()
    assert fleet.problems[0].what == "Prometheus is slow"


async def test_a_watch_ends_while_it_is_asking() -> None:
    asked_once = threading.Event()
    with FakePrometheus(lambda _: asked_once.set()) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), seconds=60)

        async def read() -> int:
            return len([fleet async for fleet in watch.fleets()])

        reading = asyncio.create_task(read())
        assert await asyncio.to_thread(asked_once.wait, 20)
        await watch.close()
        assert await asyncio.wait_for(reading, 20) == 0
        assert watch._thread is not None
        watch._thread.join(20)
        assert not watch._thread.is_alive()


async def test_two_read_the_same_watch() -> None:
    with FakePrometheus(Site(2)) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), interval=600.0)
        async with aclosing(watch.fleets()) as one, aclosing(watch.fleets()) as other:
            first = await asyncio.wait_for(anext(one), 20)
            assert first.gpus
            assert (await asyncio.wait_for(anext(other), 20)).gpus
        await watch.close()


async def test_the_history_of_a_gpu_is_one_question() -> None:
    def respond(request: Request) -> Response:
        if not request.path.endswith("query_range"):
            return Site(2)(request)
        assert f'UUID="{uuid(1)}"' in request.parameters["query"]
        return matrix(
            [
                ({"__name__": "DCGM_FI_DEV_FB_USED", "UUID": uuid(1)}, [(1, 5.0), (2, math.nan)]),
                ({"__name__": "gputop_power_watts", "uuid": uuid(1)}, [(1, 7.0)]),
                ({"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": uuid(1)}, [(1, 8.0)]),
                ({"__name__": "something", "UUID": uuid(1)}, [(1, 8.0)]),
            ]
        )

    with FakePrometheus(respond) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), interval=600.0)
        async with aclosing(watch.fleets()) as fleets:
            fleet = await anext(fleets)
        found = await watch.ranges(f"={quoted(fleet.gpus[1].uuid)}", 600)
        ranges = [request for request in fake.requests if request.path.endswith("query_range")]
        await watch.close()
    assert len(ranges) == 1
    assert found == {uuid(1): {1.0: {"memory_used_bytes": 5.0 * (1 << 20), "power_watts": 7.0}}}
