"""All readings of a refresh are of one moment of the server's time, or say that they are older."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.snapshot import Sample
from gputop.fleet.client import Client
from gputop.fleet.host_stream import HostStream
from gputop.fleet.parse import SETTLE_SECONDS, RefreshMoment, moment_of
from gputop.fleet.queries import SELDOM
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import FleetWatch, Refresher
from tests.demo_fleet.exporter import Simulator
from tests.fleet.moments import contradictions
from tests.prometheus import EMPTY, NOW, FakePrometheus, Request, Response, Site, uuid, vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.fleet.model import Fleet


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of who runs the tests."""
    monkeypatch.setenv("NETRC", "/dev/null")


def refreshed(
    respond: Callable[[Request], Response | None],
    turns: int,
    between: Callable[[], None] = lambda: None,
    **options: Any,
) -> tuple[list[Fleet], list[list[Request]]]:
    """The fleets of so many refreshes, and the requests of each."""
    fleets, requests = [], []
    with FakePrometheus(respond) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url), 5.0), "", 10.0, **options)
        for _ in range(turns):
            before = len(fake.requests)
            fleets.append(asking.refresh())
            requests.append(fake.requests[before:])
            between()
        asking.client.close()
    return fleets, requests


def test_all_queries_of_a_refresh_have_the_same_time() -> None:
    """That of the server, which is another than that of this machine."""
    site = Site(3, xid=[({"UUID": uuid(0)}, 79)])

    def later() -> None:
        site.now += 10

    fleets, requests = refreshed(site, 2 + 2 * SELDOM, later)
    for turn, (fleet, asked) in enumerate(zip(fleets, requests, strict=True)):
        clock, *others = asked
        assert (clock.name, clock.parameters.get("time")) == ("clock", None)
        moment = NOW + 10 * turn - SETTLE_SECONDS
        instant = [each for each in others if each.path.endswith("query")]
        assert len(instant) >= 9
        assert {each.parameters.get("time") for each in instant} == {f"{moment:.3f}"}
        ranges = [each for each in others if each.path.endswith("query_range")]
        assert {each.parameters["end"] for each in ranges} <= {f"{moment:.3f}"}
        assert fleet.moment == moment
        assert fleet.time == NOW + 10 * turn


class Moving:
    """A simulated fleet on a server whose clock goes on by half a second with each request."""

    def __init__(self, gpus: int) -> None:
        self.simulator = Simulator(gpus, started=NOW - 3600)
        self.now = NOW

    def __call__(self, request: Request) -> Response:
        self.now += 0.5
        at = float(request.parameters.get("time", self.now))
        name = request.name
        if name == "clock":
            return vector([({}, self.now)], self.now)
        gpus = self.simulator.gpus
        if name == "names_0":
            names = [
                {"UUID": gpu.uuid, "Hostname": gpu.host, "gpu": str(gpu.index)} for gpu in gpus
            ]
            return vector([(each, 1) for each in names], at)
        readings = self.simulator.readings(gpus, at)
        columns: dict[str, list[float | None]] = {
            "beat": [at - 1 for _ in readings],
            "gpu_utilization_percent": [each.get("DEV_GPU_UTIL") for each in readings],
            "power_watts": [each.get("DEV_POWER_USAGE") for each in readings],
            "sm_clock_mhz": [each.get("DEV_SM_CLOCK") for each in readings],
            "sm_active_percent": [_percent(each.get("PROF_SM_ACTIVE")) for each in readings],
            "tensor_active_percent": [
                _percent(each.get("PROF_PIPE_TENSOR_ACTIVE")) for each in readings
            ],
            "dram_active_percent": [_percent(each.get("PROF_DRAM_ACTIVE")) for each in readings],
        }
        values = columns.get(name, [])
        known = zip(gpus, values, strict=False)
        return vector([({"UUID": gpu.uuid}, each) for gpu, each in known if each is not None], at)


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * ratio


def test_no_row_contradicts_itself_while_time_goes_on() -> None:
    moving = Moving(256)
    fleets, _ = refreshed(moving, 10)
    for fleet in fleets[1:]:
        assert fleet.gpus[0].sm_active_percent is not None
    assert [len(contradictions(fleet, moving.simulator)) for fleet in fleets] == [0] * 10


def test_the_check_finds_rows_that_mix_two_moments() -> None:
    moving = Moving(256)

    def unpinned(request: Request) -> Response:
        kept = {name: text for name, text in request.parameters.items() if name != "time"}
        return moving(request._replace(parameters=kept))

    fleets, _ = refreshed(unpinned, 3)
    assert len(contradictions(fleets[-1], moving.simulator)) > 50


def test_what_is_asked_seldom_says_how_much_older_it_is() -> None:
    site = Site(1)

    def later() -> None:
        site.now += 10

    fleets, _ = refreshed(site, 1 + SELDOM, later, at_once=True)
    assert {fleets[0].lag_seconds(name) for name in fleets[0].read_at} == {0.0}
    lags = [fleet.lag_seconds("sm_active_percent") for fleet in fleets]
    assert lags == [0, 10, 20, 30, 0, 10, 20]
    for fleet in fleets:
        assert fleet.lag_seconds("power_watts") == fleet.lag_seconds("sm_clock_mhz") == 0
        assert fleet.lag_seconds("tensor_active_percent") == fleet.lag_seconds("sm_active_percent")


def test_a_reading_whose_query_fails_is_older_than_the_rest() -> None:
    site = Site(8)
    broken: list[str] = []

    def respond(request: Request) -> Response:
        if request.name in broken:
            return Response(b'{"status":"error","errorType":"execution","error":"x"}', 422)
        return site(request)

    def later() -> None:
        site.now += 10
        broken[:] = ["sm_clock_mhz"]

    fleets, _ = refreshed(respond, 3, later, at_once=True)
    assert [fleet.lag_seconds("sm_clock_mhz") for fleet in fleets] == [0, 10, 20]
    assert fleets[2].gpus[0].sm_clock_mhz == 1900


@pytest.mark.parametrize(
    ("row", "moment"),
    [
        ([NOW, str(NOW)], RefreshMoment(NOW, NOW - 5)),
        # VictoriaMetrics: half a minute ago, so that ingestion has come to its end.
        ([NOW, str(NOW - 30)], RefreshMoment(NOW, NOW - 30)),
        ([NOW, "NaN"], None),
        ([], None),
    ],
)
def test_the_moment_of_a_refresh(row: list[Any], moment: RefreshMoment | None) -> None:
    assert moment_of({"resultType": "vector", "result": [{"metric": {}, "value": row}]}) == moment


@pytest.mark.parametrize("response", [EMPTY, Response(b'{"status":"success","data":null}')])
def test_a_server_that_does_not_say_what_time_it_is(response: Response) -> None:
    site = Site(1)
    fleets, _ = refreshed(lambda r: response if r.name == "clock" else site(r), 1)
    assert not fleets[0].fresh
    assert "it does not tell its time" in str(fleets[0].problems[0])


async def test_what_a_host_shows_besides_is_of_the_moment_of_the_fleet() -> None:
    with FakePrometheus(Site(8)) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), interval=600.0, at_once=True)
        stream = HostStream(watch, "node0").records()
        _, sample = await anext(stream), await anext(stream)
        await stream.aclose()
        await watch.close()
    assert watch.fleet is not None
    assert isinstance(sample, Sample)
    assert sample.time == watch.fleet.time
    details = fake.requests[-1]
    assert details.name == ""
    assert details.parameters["time"] == f"{watch.fleet.moment:.3f}"
