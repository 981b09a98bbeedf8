"""When findings began: what a range query says, what is asked, and what a flicker does not do."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.fleet.client import Client
from gputop.fleet.fleet_findings import LOOK_BACK_SECONDS, MOST_DATED, find_start
from gputop.fleet.parse import readings_over_time
from gputop.fleet.queries import MASKS, values_of
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import Refresher
from tests.prometheus import (
    NOW,
    FakePrometheus,
    Request,
    Response,
    Site,
    error,
    labels,
    matrix,
    uuid,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gputop.fleet.model import Fleet

END = NOW - 5
XID = {"__name__": "DCGM_FI_DEV_XID_ERRORS"}


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of who runs the tests."""
    monkeypatch.setenv("NETRC", "/dev/null")


HIGH = {"x": lambda value: value > 5}
HOURS = range(0, 7200, 60)


@pytest.mark.parametrize(
    ("high", "since"),
    [
        (lambda ago: ago <= 1800, 1800),
        (lambda ago: ago == 0, 0),
        (lambda ago: ago <= 600 or 1200 <= ago <= 3000, 3000),  # away for ten minutes
        (lambda ago: ago <= 600 or 1260 <= ago <= 3000, 600),  # for longer
        (lambda ago: ago <= 3000 and ago % 300 == 0, 3000),  # flickers
        (lambda _: True, None),  # from before the range
        (lambda _: False, None),
        (lambda ago: ago >= 1200, None),  # no longer
    ],
)
def test_when_a_condition_began(high: Any, since: float | None) -> None:
    points = {END - ago: {"x": 9.0 if high(ago) else 1.0} for ago in HOURS}
    found = find_start(points, HIGH, END - 7140, END)
    assert found == (None if since is None else END - since)


def test_what_was_not_scraped_proves_nothing() -> None:
    points = {END - ago: {"x": 9.0} for ago in HOURS if ago < 900 or ago > 3000}
    assert find_start(points, HIGH, END - 9999, END) == END - 840
    assert find_start({}, HIGH, END - 9999, END) is None
    assert find_start({END: {"y": 9.0}}, HIGH, END - 9999, END) is None


class Past(Site):
    """A site that answers range queries, too: GPU 3 has an Xid for 40 minutes."""

    def __init__(self, many: int, **changes: Any) -> None:
        super().__init__(many, xid=[({"UUID": uuid(3)}, 79)], **changes)
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Response:
        if not request.path.endswith("query_range"):
            return super().__call__(request)
        self.asked.append(request)
        points = [(END - ago, 79.0 if ago <= 2400 else 0.0) for ago in HOURS]
        return matrix([({**XID, "UUID": uuid(3)}, points)])


def began(fleet: Fleet) -> list[float | None]:
    return [wrong.since for wrong in fleet.findings if wrong.rule == "xid"]


def test_a_finding_that_was_there_before_is_dated_by_one_range_query() -> None:
    past = Past(8)
    with FakePrometheus(past) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        fleets = [asking.refresh() for _ in range(3)]
        asking.client.close()
    assert [began(fleet) for fleet in fleets] == [[END - 2400]] * 3
    (asked,) = past.asked
    assert uuid(3).replace("-", r"\\-") in asked.parameters["query"]
    assert uuid(2).replace("-", r"\\-") not in asked.parameters["query"]
    start, end = (float(asked.parameters[name]) for name in ("start", "end"))
    assert (end, end - start) == (END, LOOK_BACK_SECONDS)


def test_a_finding_that_flickers_keeps_its_beginning() -> None:
    past = Past(8)
    there = past.changes["xid"]
    found = []
    with FakePrometheus(past) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        for turn in range(6):
            past.changes["xid"] = there if turn % 2 == 0 else []
            found.append(began(asking.refresh()))
            past.now += 10
        past.changes["xid"] = []
        past.now += 700  # long enough to be over
        asking.refresh()
        past.changes["xid"] = there
        past.now += 10
        past.asked.clear()
        asking.refresh()
        asking.client.close()
    assert found == [[END - 2400], []] * 3
    assert len(past.asked) == 1


@pytest.mark.parametrize(
    "refusal", [error("execution", "too many samples", 422), Response(b"", 502), matrix(())]
)
def test_without_an_answer_only_what_is_new_has_a_beginning(refusal: Response) -> None:
    site = Site(8, xid=[({"UUID": uuid(3)}, 79)])
    with FakePrometheus(lambda r: refusal if r.path.endswith("range") else site(r)) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        first = asking.refresh()
        site.changes["xid"] = [({"UUID": uuid(3)}, 79), ({"UUID": uuid(5)}, 79)]
        site.now += 10
        second = asking.refresh()
        asking.client.close()
    assert first.fresh
    assert began(first) == [None]
    assert second.fresh
    assert began(second) == [None, NOW + 10 - 5]


def test_a_refresh_asks_once_for_a_bounded_number() -> None:
    many = 3 * MOST_DATED
    past = Past(many, names_0=[(labels(n), 1) for n in range(many)])
    past.changes["xid"] = [({"UUID": uuid(n)}, 79) for n in range(many)]
    with FakePrometheus(past) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "")
        for turn in range(5):  # the first screen waits for none
            assert len(past.asked) == max(0, turn - 1)
            asking.refresh()
        asking.client.close()
    assert len(past.asked) == 3
    # Each once for dcgm-exporter, and once for our own.
    assert {each.parameters["query"].count(r"GPU\\-") for each in past.asked} == {2 * MOST_DATED}


def test_one_of_our_own_exporter_says_itself_when_it_was() -> None:
    ours = {"uuid": uuid(0), "host": "node0", "index": "0", "name": "H100"}
    site = Site(1, names_1=[(ours, 1)], xid=[({"uuid": uuid(0), "code": "79"}, NOW - 1234)])
    with FakePrometheus(site) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        fleet = asking.refresh()
        asking.client.close()
    assert began(fleet) == [NOW - 1234]


def test_throttling_of_both_exporters() -> None:
    """The mask of one, and the word of the other."""
    ours = {"uuid": uuid(1), "host": "node0", "index": "1", "name": "H100"}
    site = Site(
        1,
        names_1=[(ours, 1)],
        beat=[({"UUID": uuid(0)}, NOW - 5), ({"uuid": uuid(1)}, NOW - 5)],
        mask=[({"UUID": uuid(0)}, 0x48), ({"uuid": uuid(1)}, 0x20)],
    )

    def respond(request: Request) -> Response:
        if not request.path.endswith("query_range"):
            return site(request)
        mask = {"__name__": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "UUID": uuid(0)}
        word = {"__name__": "gputop_clock_event_active", "uuid": uuid(1)}
        return matrix(
            [
                (mask, [(END - ago, 0x48 if ago <= 300 else 0x4) for ago in HOURS]),
                ({**word, "reason": "hw_thermal"}, [(END - ago, 0) for ago in HOURS]),
                ({**word, "reason": "sw_thermal"}, [(END - ago, int(ago <= 900)) for ago in HOURS]),
            ]
        )

    with FakePrometheus(respond) as fake:
        asking = Refresher(Client(PrometheusServer(fake.url)), "", at_once=True)
        fleet = asking.refresh()
        asking.client.close()
    assert {wrong.device_uuid: wrong.since for wrong in fleet.findings} == {
        uuid(0): END - 300,
        uuid(1): END - 900,
    }


def test_a_reason_that_both_exporters_report_is_one() -> None:
    bit = CLOCK_EVENT_BITS["hw_thermal"]
    theirs = {"__name__": MASKS[0], "UUID": "a"}
    ours = [
        {"__name__": "gputop_clock_event_active", "uuid": "a", "reason": reason}
        for reason in ("hw_thermal", "hw_slowdown")
    ]
    result = [
        {"metric": theirs, "values": [[60.0, str(bit)]]},
        *({"metric": each, "values": [[60.0, "1"]]} for each in ours),
    ]
    for order in (result, result[::-1]):
        found = readings_over_time(order, lambda row: row.get("UUID") or row["uuid"])
        assert found == {"a": {60.0: {"mask": float(bit | CLOCK_EVENT_BITS["hw_slowdown"])}}}


MEAN = next(query.text for query in values_of("") if query.name == "busy_mean")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool on the PATH")
@pytest.mark.parametrize(
    ("interval", "samples", "mean"),
    [
        ("15s", "0x30", 0.0),
        ("30s", "3x15", 3.0),
        ("60s", "3x8", 3.0),
        ("15s", "90x9 _x16 0x4", None),  # away for four minutes, and back for one
        ("15s", "0x20 _x9 0x0", None),  # away for two and a quarter
        ("15s", "0x25 _x3 0x0", 0.0),  # a few scrapes that failed
        ("15s", "_x26 0x3", None),  # there since a minute ago
        ("300s", "0x2", None),  # so seldom that two samples are all
    ],
)
def test_a_mean_is_one_of_a_window_that_was_scraped_throughout(
    tmp_path: Path, interval: str, samples: str, mean: float | None
) -> None:
    """Evaluated by Prometheus itself, seven and a half minutes after the first sample."""
    series = 'DCGM_FI_DEV_GPU_UTIL{UUID="g"}'
    expected = [] if mean is None else [{"labels": '{UUID="g"}', "value": mean}]
    test = {"expr": MEAN, "eval_time": "450s", "exp_samples": expected}
    tests = [
        {
            "interval": interval,
            "input_series": [{"series": series, "values": samples}],
            "promql_expr_test": [test],
        }
    ]
    file = tmp_path / "tests.json"  # JSON is YAML
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": tests}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)],  # noqa: S607
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_mean_is_guarded_by_a_count() -> None:
    assert MEAN.count("avg_over_time") == MEAN.count(">= 5") == MEAN.count("count_over_time")
    assert math.isclose(MEAN.count("avg_over_time"), 3)
