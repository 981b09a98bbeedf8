import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gputop.fleet.builder import SETTLE_SECONDS
from gputop.fleet.client import Client
from gputop.fleet.model import Fleet
from gputop.fleet.server import PrometheusServer
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
    uuid,
    vector,
)

SELDOM = 6


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/dev/null")


def refreshed(
    respond: Callable[[Request], Response | None],
    turns: int = 1,
    between: Callable[[], None] = lambda: None,
) -> tuple[list[Fleet], list[list[Request]]]:
    fleets, requests = [], []
    with FakePrometheus(respond) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url), 5.0), "", 10.0)
        for _ in range(turns):
            before = len(fake.requests)
            fleets.append(asking.refresh())
            requests.append(fake.requests[before:])
            between()
        asking.client.close()
    return fleets, requests


def asked(respond: Callable[[Request], Response | None], turns: int = 1) -> Fleet:
    return refreshed(respond, turns)[0][-1]


def said(fleet: Fleet) -> str:
    return " / ".join(map(str, fleet.problems))


def test_the_number_of_requests_is_the_same_for_any_number_of_gpus() -> None:
    counts = []
    for many in (10, 2000):
        fleets, requests = refreshed(Site(many), 2 + SELDOM)
        assert len(fleets[-1].gpus) == many
        assert said(fleets[-1]) == ""
        counts.append([len(each) for each in requests])
    assert counts[0] == counts[1]
    assert counts[0][1] == min(counts[0]) == 11
    assert counts[0][SELDOM] == max(counts[0]) - 1 < 30  # those that are gone are asked for once


def test_a_token_is_read_again_for_each_refresh(tmp_path: Path) -> None:
    """Such tokens expire, and another program writes the next one into the file."""
    file = tmp_path / "token"
    sent = []
    with FakePrometheus(Site(1)) as fake:
        server = PrometheusServer(fake.url, token_file=file)
        asking = Refresher(Client(server, 5.0), "", 10.0)
        for token in ("first", "second"):
            file.write_text(token)
            asking.refresh()
            sent.append(fake.requests[-1].headers["Authorization"])
        asking.client.close()
    assert sent == ["Bearer first", "Bearer second"]


def test_both_exporters_and_what_only_one_of_them_says() -> None:
    ours = {"uuid": uuid(0), "host": "node0", "index": "0", "name": "H100"}
    fleet = asked(
        Site(
            2,
            names=[(labels(0), 1), (labels(1), 1), (ours, 1)],
            gpu_utilization_percent=[({"UUID": uuid(0)}, 10), ({"uuid": uuid(0)}, 20)],
            clock_event_reasons=[({"UUID": uuid(0)}, 64), ({"uuid": uuid(1)}, 5)],
            xid=[
                ({"uuid": uuid(1), "code": "79"}, NOW),
                ({"UUID": uuid(1)}, 31),
                ({"uuid": uuid(1), "code": "x"}, NOW + 9),
            ],
            state=[({"uuid": uuid(0), "state": "needs_reset"}, 1)],
        )
    )
    assert [gpu.gpu_utilization_percent for gpu in fleet.gpus] == [20, None]
    assert fleet.gpus[0].clock_event_reasons == ("hw_thermal",)
    assert fleet.gpus[1].clock_event_reasons == ("idle", "sw_power_cap")
    assert fleet.gpus[1].xid == 79
    assert [wrong.rule for wrong in fleet.findings] == ["xid", "state", "thermal"]
    assert not fleet.simulated
    assert asked(Site(1, names=[(labels(0, simulated="true"), 1)])).simulated


def test_what_is_no_number_is_missing_and_what_is_strange_is_inert() -> None:
    strange = 'a"\\\x1b[31m\n[bold]x[/]'
    rows: list[tuple[dict[str, Any], Any]] = [
        ({"UUID": uuid(0)}, math.nan),
        ({"UUID": uuid(1)}, math.inf),
        ({"UUID": uuid(2)}, "x"),
        ({"UUID": uuid(3)}, 1000),
        ({"UUID": uuid(4)}, 5),
        ({}, 7),
        ({"UUID": "GPU-nobody-knows"}, 8),
    ]
    names = [({"host": "a"}, 1), *((labels(n, pod=strange, job="other"), 1) for n in range(5))]
    used = [({"UUID": uuid(n)}, (89 << 30) - n if n == 4 else 1) for n in range(5)]
    fleet = asked(Site(5, names=names, temperature_celsius=rows, memory_used_bytes=used))
    assert [gpu.temperature_celsius for gpu in fleet.gpus] == [None, None, None, None, 5]
    assert [gpu.memory_used_bytes for gpu in fleet.gpus] == [1, 1, 1, 1, None]
    assert fleet.gpus[0].labels["pod"] == strange


def test_readings_that_nobody_scrapes_are_a_problem() -> None:
    fleet = asked(Site(2, power_watts=[]))
    assert said(fleet).startswith("Not scraped: power: it has no series")
    assert "DCGM_FI_DEV_POWER_USAGE" in said(fleet)


def test_warnings_and_one_question_that_fails_leave_the_rest() -> None:
    fleet = asked(
        Site(
            2,
            temperature_celsius=error("execution", "found duplicate series", 422),
            power_watts=vector([({"UUID": uuid(0)}, 5)], NOW, warnings=["1 of 2", *"abcdef"]),
        )
    )
    assert fleet.fresh
    assert fleet.gpus[0].power_watts == 5
    assert "found duplicate series" in said(fleet)
    assert "1 of 2" in said(fleet)
    assert len(fleet.problems) == 5


GOOD = Response(b"good")


def turns(name: str, *answers: Response) -> Callable[[Request], Response]:
    site, left = Site(2), iter(answers)

    def respond(request: Request) -> Response:
        answer = next(left, GOOD) if request.name == name else GOOD
        return site(request) if answer is GOOD else answer

    return respond


def test_a_question_that_fails_keeps_its_last_answer() -> None:
    name = "memory_total_bytes"
    site = turns(name, GOOD, error("execution", "x", 422))
    fleets, _ = refreshed(site, 3 * SELDOM)
    assert {fleet.gpus[0].memory_total_bytes for fleet in fleets} == {80 << 30}
    # The problem stays until the question is asked again.
    failed = [bool(fleet.problems) for fleet in fleets]
    assert failed == [False] * SELDOM + [True] * SELDOM + [False] * SELDOM


def test_an_answer_that_is_too_old_is_dropped() -> None:
    site = Site(1)

    def later() -> None:
        site.changes["power_watts"] = error("execution", "x", 422)
        site.now += 150

    fleets, _ = refreshed(site, 4, later)
    assert [fleet.gpus[0].power_watts for fleet in fleets] == [600.5, 600.5, 600.5, None]


def test_while_it_is_away_the_numbers_before_stay() -> None:
    away, back = refreshed(turns("beat", GOOD, Response(b"", 503)), 3)[0][1:]
    assert not away.fresh
    assert away.gpus[0].power_watts == 600.5
    assert len(away.problems) == 1
    assert back.fresh
    assert back.problems == ()


def test_a_gpu_that_is_gone_is_stale_and_comes_back() -> None:
    site = Site(3)
    with FakePrometheus(site) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "")
        asking.refresh()
        site.gone.add(1)
        site.now += 100
        for _ in range(SELDOM):  # labels are asked for in between
            fleet = asking.refresh()
        assert [gpu.age_seconds for gpu in fleet.gpus] == [5, 105, 5]
        (wrong,) = fleet.findings
        assert (wrong.device_uuid, wrong.rule) == (uuid(1), "stale")
        assert wrong.title == "No readings for 1:45: its series are gone"
        site.gone.clear()
        assert asking.refresh().findings == ()
        site.gone.add(1)
        site.now += 4000
        for _ in range(SELDOM + 1):
            fleet = asking.refresh()
        assert len(fleet.gpus) == 2  # taken away
        asking.client.close()


def test_one_that_was_gone_before_it_was_first_asked_is_there() -> None:
    gone = [
        (labels(8, rack="r1"), NOW - 700),
        (labels(0), NOW - 900),  # it is there, with other labels
    ]
    down = [
        ({"job": "dcgm", "instance": "node1:9400"}, 0),
        *(({"job": "dcgm", "instance": f"node{n}:9400"}, 0) for n in range(5, 10)),
        ({"job": "node", "instance": "node9:9100"}, 0),  # of another job, without any GPU
    ]
    fleet = asked(Site(2, gone=gone, down=down))
    assert [gpu.age_seconds for gpu in fleet.gpus] == [5, 5, 700]
    assert [wrong.title for wrong in fleet.findings] == ["No readings for 11:40: its scrape fails"]
    assert "are unknown: `up` is 0 for node5:9400, node6:9400, node7:9400 and 2 more" in said(fleet)


@pytest.mark.parametrize("response", [EMPTY, vector([({}, "NaN")]), vector([({}, 1e300)])])
def test_a_server_that_does_not_say_what_time_it_is(response: Response) -> None:
    site = Site(1)
    fleet = asked(lambda r: response if r.name == "clock" else site(r))
    assert not fleet.fresh
    assert "it does not report its time" in said(fleet)


def test_all_queries_of_a_refresh_have_the_same_time() -> None:
    """That of the server, or, as with VictoriaMetrics, an earlier one that it evaluates for."""
    site = Site(3, clock=vector([({}, NOW - 30)], NOW))
    fleets, requests = refreshed(site)
    moments = {each.parameters.get("time") for each in requests[0]}
    assert moments == {None, f"{NOW - 30:.3f}"}
    assert (fleets[0].moment, fleets[0].time) == (NOW - 30, NOW)
    assert asked(Site(3)).moment == NOW - SETTLE_SECONDS


async def test_nothing_waits_for_a_server_that_hangs() -> None:
    with FakePrometheus(lambda _: None) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), "", 10.0, seconds=0.2, refresh_seconds=0.3)
        async with aclosing(watch.fleets()) as fleets:
            fleet = await asyncio.wait_for(anext(fleets), 20)
    assert (fleet.fresh, fleet.gpus) == (False, ())
    assert fleet.problems[0].what == "Prometheus is slow"


async def test_a_watch_refreshes_when_it_is_asked_to() -> None:
    with FakePrometheus(Site(2)) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), "", 600.0)
        async with aclosing(watch.fleets()) as fleets:
            assert (await asyncio.wait_for(anext(fleets), 20)).gpus
            watch.refresh()
            assert (await asyncio.wait_for(anext(fleets), 20)).fresh
