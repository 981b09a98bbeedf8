"""Bounds of what a Prometheus server answers: bytes, values, series, GPUs and plausible numbers."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import Absence
from gputop.fleet import builder, client, host_stream, watch
from gputop.fleet.builder import FleetBuilder
from gputop.fleet.client import JSON_VALUES, SERIES, AskError, Client
from gputop.fleet.parse import (
    RefreshMoment,
    moment_of,
    readings_of,
    readings_over_time,
    rows_of,
    values_by,
    xids_of,
)
from gputop.fleet.queries import ALWAYS, LIMITS, NUMBERS, READ_AS
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import Refresher
from tests.prometheus import (
    EMPTY,
    NOW,
    FakePrometheus,
    Request,
    Response,
    Site,
    labels,
    uuid,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gputop.fleet.model import Fleet

CLIENT = Client(PrometheusServer("http://x"))
START = b'{"status":"success","data":{"resultType":"vector","result":['
ROW = b'{"metric":{"UUID":"GPU-%08d"},"value":[1763640000.0,"90"]},'
PEAK = """
import pathlib, sys
from gputop.fleet.watch import Refresher
from gputop.fleet.client import Client
from gputop.fleet.server import PrometheusServer
client = Client(PrometheusServer(sys.argv[1]), 60)
asking = Refresher(client, "", 60)
asking.refresh()
fleet = asking.refresh()
print(*fleet.problems, sep="|")
client.close()
print(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


def zipped(parts: Any, **headers: str) -> Response:
    """Return a response of many equal parts, which are never in memory together."""
    compress = gzip.zlib.compressobj(1, wbits=31)  # type: ignore[attr-defined]
    body = b"".join([*map(compress.compress, parts), compress.flush()])
    return Response(body, 200, {"Content-Encoding": "gzip", "Content-Length": f"{len(body)}"})


def answered(response: Response) -> AskError:
    with FakePrometheus(lambda _: response) as fake:
        asked = Client(PrometheusServer(fake.url))
        with pytest.raises(AskError) as found:
            asked.ask("query", {"query": "up"})
        asked.close()
    return found.value


def refreshed(site: Any, turns: int = 2, seconds: float = 20.0) -> Fleet:
    with FakePrometheus(site) as fake:
        asked = Client(PrometheusServer(fake.url))
        fleets = Refresher(asked, "", seconds)
        for _ in range(turns):
            fleet = fleets.refresh()
        asked.close()
    return fleet


def zipped_twice() -> Response:
    body = gzip.compress(gzip.compress(b"\n" * 100_000_000, 9), 9)
    return Response(body, 200, {"Content-Encoding": "gzip, gzip"})


# Made where they are used: every process collects this file.
@pytest.mark.parametrize(
    ("respond", "said"),
    [
        (lambda: zipped(repeat(b"\n" * 1_000_000, 200)), "larger than 64 MiB"),
        (zipped_twice, "compressed more than once"),
        (
            lambda: Response(START + b"[]," * JSON_VALUES + b"[]]}}"),
            f"more than {JSON_VALUES} values",
        ),
        (lambda: Response(b'{"status":"success","data":' + b"[" * 20_000_000), "values"),
        (lambda: Response(START + b"{}," * SERIES + b"{}]}}"), f"more than {SERIES} series"),
    ],
    ids=["bytes", "twice", "values", "nested", "series"],
)
def test_an_answer_beyond_a_bound_is_one_line(respond: Callable[[], Response], said: str) -> None:
    found = answered(respond())
    assert str(found).startswith("An answer of Prometheus was left out: it ")
    assert said in str(found)
    assert "\n" not in str(found)
    assert not found.whole


def test_an_answer_without_end_is_given_up() -> None:
    with FakePrometheus(lambda _: Response(b"", 200, {"Transfer-Encoding": "chunked"})) as fake:
        endless = repeat(b"10000\r\n" + b" " * 65536 + b"\r\n")
        fake.after = endless
        asked = Client(PrometheusServer(fake.url), 30)
        with pytest.raises(AskError, match="larger than 64 MiB"):
            asked.ask("query", {"query": "up"})
        asked.close()


@pytest.mark.slow
@pytest.mark.parametrize("all_of_them", [False, True], ids=["the first five", "all"])
def test_answers_of_100_mb_take_little_memory(all_of_them: bool) -> None:
    """Five took 2.2 GiB: each was unpacked while the others were, and an error kept its answer."""
    rows = (ROW % number for number in range(100_000_000 // len(ROW)))
    big = zipped(chain([START], rows, [b"{}]}}"]))
    well = Site(0)

    def respond(request: Request) -> Response:
        is_big = request.name in {*names(), ALWAYS[0]} or all_of_them
        return big if is_big and request.name != "clock" else well(request)

    with FakePrometheus(respond) as fake:
        command = [sys.executable, "-c", PEAK, fake.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    problems, peak = done.stdout.splitlines()
    assert "left out: it is larger than 25 MiB" in problems
    assert int(peak) >> 10 < 500  # urllib3 before 2.6 unpacks in larger pieces


def names() -> list[str]:
    return [f"names_{shard}" for shard in range(4)]


def test_answers_at_the_same_time_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "ANSWERS_BYTES", 5 << 20)
    spaces = Response(EMPTY.body + b" " * (2 << 20))
    fleet = refreshed(Site(8, names_3=spaces), turns=1)
    assert "it is larger than 1 MiB" in str(fleet.problems[0])
    assert len(fleet.gpus) == 8  # of the answers that are not


def test_gpus_beyond_the_bound_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "SERIES", 40)
    more = [(labels(number), 1) for number in range(1000, 1020)]
    fleet = refreshed(Site(32, names_2=more), turns=1)
    assert len(fleet.gpus) == 40
    said = " ".join(map(str, fleet.problems))
    assert "12 GPUs are left out: there are more than 40. Ask for fewer" in said


def test_gpus_that_come_and_go_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "SERIES", 100)
    known = FleetBuilder()
    for turn in range(50):
        now = NOW + 10 * turn
        known.moment = RefreshMoment(now, now)
        each = range(100 * turn, 100 * turn + 60)
        known.add_answer("names_0", data_of((labels(n), 1) for n in each))
        known.update_identities()
        known.add_answer("beat", data_of(({"UUID": uuid(n)}, now) for n in each))
        assert len(known.identities.all) <= 100
        assert len(known._beats) <= 200


def data_of(rows: Any) -> Any:
    return CLIENT.parse_answer(vector(rows).body)[0]


@pytest.mark.parametrize("digits", [400, 4000, 1_000_000])
@pytest.mark.parametrize("place", ["time", "value"])
def test_a_number_of_many_digits_is_none(digits: int, place: str) -> None:
    long = "1" * digits
    row = f'["{long}","1"]' if place == "time" else f'[1,"{long}"]'
    bare = row.replace('"', "")
    for text in (row, bare):
        body = START + b'{"metric":{"UUID":"a"},"value":%s}]}}' % text.encode()
        data, _ = CLIENT.parse_answer(body)
        assert [*rows_of(data["result"])] == []
        if place == "value":
            assert values_by(data["result"], key_of) == {}


def test_an_error_that_is_no_text_is_one_line() -> None:
    depth = 600
    deep = b'{"status":"error","error":' + b"[" * depth + b"]" * depth + b',"warnings":[[],1]}'
    with pytest.raises(AskError, match="Prometheus could not answer"):
        CLIENT.parse_answer(deep)


BAD = {
    "gpu_utilization_percent": ["-1", "250", "1e308", "NaN", "Inf", "-Inf"],
    "temperature_celsius": ["-300", "1000"],
    "power_watts": ["-1", "1e308"],
    "sm_clock_mhz": ["-1", "1e9"],
    "memory_used_bytes": ["-1", "1e300", str((80 << 30) * 10)],
    "memory_total_bytes": ["-5"],
    "sm_active_percent": ["101.5"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(n, text) for n, all_of in BAD.items() for text in all_of]
)
def test_an_impossible_value_is_absent(name: str, text: str) -> None:
    wrong = [({"UUID": uuid(n)}, text if n == 3 else 50) for n in range(8)]
    fleet = refreshed(Site(8, **{name: wrong}))
    values = [getattr(gpu, name) for gpu in fleet.gpus]
    assert values == [50, 50, 50, None, 50, 50, 50, 50]
    said = [str(problem) for problem in fleet.problems]
    if name in ALWAYS and math.isfinite(float(text)) and float(text) != (80 << 30) * 10:
        assert len(said) == 1
        assert said[0].startswith("Impossible ")
        assert "1 of 8 GPUs have none within" in said[0]
        assert "exporter on node0" in said[0]


def key_of(row: Mapping[str, str]) -> str:
    return row.get("UUID") or row.get("uuid", "")


NUMBER = st.one_of(
    st.floats().map(str), st.integers().map(str), st.text(max_size=9), st.floats(), st.integers()
)
READINGS = sorted(READ_AS)


@given(st.sampled_from(READINGS), st.lists(NUMBER, min_size=1, max_size=4), st.data())
def test_every_value_that_is_taken_in_is_plausible(
    reading: str, numbers: list[Any], data: st.DataObject
) -> None:
    low, high = LIMITS[reading]
    metric = data.draw(st.sampled_from(READ_AS[reading]))
    row = {"__name__": metric.name, "UUID": "a"}
    points = [[NOW + at, number] for at, number in enumerate(numbers)]
    instant = [{"metric": row, "value": points[0]}]
    ranged = [{"metric": row, "values": points}]
    for each in values_by(instant, key_of, LIMITS[reading]).values():
        assert each is None or low <= each <= high
    details = readings_of(instant, key_of).get("a", {})
    for each in details.values():
        assert each is None or low <= each <= high
    for moment in readings_over_time(ranged, key_of).get("a", {}).values():
        assert low <= moment[reading] <= high
    shown = host_stream._read("a", details, {})
    value = getattr(shown, reading)
    assert value is None or low <= value <= high
    if details.get(reading, 0.0) is None:
        assert shown.absent[reading] is Absence.ERROR
    assert all(
        isinstance(xid, int) and 0 < xid < 1e5 for xid, _ in xids_of(instant, key_of).values()
    )


@given(NUMBER, NUMBER)
def test_the_time_of_a_server_is_one_of_a_calendar(time: Any, value: Any) -> None:
    data = {"resultType": "vector", "result": [{"metric": {}, "value": [time, value]}]}
    moment = moment_of(data)
    assert moment is None or 0 <= moment.now <= 1e11


def test_every_reading_has_limits() -> None:
    assert NUMBERS.keys() <= LIMITS.keys()
    assert LIMITS["pcie_rx_bytes_per_second"][1] > LIMITS["power_watts"][1]
    assert client.FEWER in str(answered(Response(START + b"[]," * JSON_VALUES)))
