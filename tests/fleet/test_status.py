"""`gputop status --prometheus`: a page, JSON, and what goes wrong in one line."""

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from gputop import cli
from gputop.fleet.findings import Known, find
from gputop.fleet.page import page
from gputop.stream.launch import module_command
from tests.e2e.shipped import run
from tests.fleets import fleet
from tests.prometheus import NOW, FakePrometheus, Request, Response, Site, labels, uuid

BOUND = 60.0
STRANGE = 'a\x1b[31m"\\\n[bold]翻訳'
SITE = Site(
    20,
    xid=[({"UUID": uuid(3)}, 79)],
    clock_event_reasons=[({"UUID": uuid(5)}, 64)],
    names=[(labels(n, rack="r1", pod=STRANGE, job="other"), 1) for n in range(20)],
    beat=[({"UUID": uuid(n)}, NOW - (400 if n >= 18 else 5)) for n in range(20)],
)


def test_the_page() -> None:
    with FakePrometheus(SITE) as fake:
        done = run("status", "--prometheus", fake.url)
        asked = len(fake.requests)
    assert done.stderr == ""
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{fake.url} · ")
    assert lines[1].startswith("20 GPUs · 3 hosts · 1 model · 1 fault · 2 stale · 1 warning · ")
    assert lines[1].endswith("median busy 90% · memory 1.17/1.56 TiB · power 12.0 kW")
    assert lines[2].startswith("FAULT    node0:3         Xid 79: the GPU has fallen off the bus")
    assert "H100 80GB HBM3 r1" in lines[2]
    assert lines[3].startswith("STALE    node2 (2 GPUs)  No readings for 6:40: its series are gone")
    assert lines[4].startswith("WARNING  node0:5         Throttled by heat (hardware), 60°C")
    assert len(lines) == 5
    assert "\x1b" not in done.stdout
    assert asked < 40


def test_forty_findings_are_listed_and_the_others_counted() -> None:
    gpus = [dataclasses.replace(gpu, xid=79, index="0:1") for gpu in fleet(400).gpus[::8]]
    shown = fleet(0, gpus=tuple(gpus), findings=find(gpus, Known()), fresh=False)
    first, counts, *rows, last = page(shown, "http://a", "", 120, colour=False).splitlines()
    assert first == "http://a · 2025-11-20 12:00:00 · OLD"
    assert counts.startswith("50 GPUs · 50 MIG instances · 50 hosts · 2 models · 50 faults · ")
    assert (len(rows), last) == (40, "– 10 more: --json has all")
    narrow = [page(shown, "", "", width, colour=False) for width in (82, 83)]
    assert ["H100" in each for each in narrow] == [False, True]
    far = dataclasses.replace(gpus[0], host="h" * 60)
    found = fleet(0, gpus=(far,), findings=find([far], Known()))
    assert f"  {'h' * 39}…  Xid" in page(found, "", "", None, colour=False)


def test_json_has_totals_and_where_each_finding_is() -> None:
    with FakePrometheus(SITE) as fake:
        done = run("status", "--prometheus", fake.url, "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    assert document["totals"] == {
        "gpus": 20,
        "instances": 0,
        "hosts": 3,
        "models": 1,
        "power_watts": 20 * 600.5,
        "memory_used_bytes": 20.0 * (60 << 30),
        "memory_total_bytes": 20.0 * (80 << 30),
        "gpus_with_findings": 4,
        "findings": {"fault": 1, "stale": 2, "warning": 1},
    }
    found = [(each["kind"], each["host"], each["index"]) for each in document["wrong"]]
    stale = [("stale", "node2", str(index)) for index in (2, 3)]
    assert found == [("xid", "node0", "3"), *stale, ("thermal", "node0", "5")]
    assert document["read_at"]["power_watts"] == NOW - 5


def test_it_goes_on_until_it_is_stopped() -> None:
    site = Site(2)

    def later(request: Request) -> Response:
        site.now += 10 if request.name == "clock" else 0
        return site(request)

    with FakePrometheus(later) as fake:
        command = [*module_command("gputop"), "status", "--prometheus", fake.url]
        with subprocess.Popen(
            [*command, "--watch", "1", "--json"], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            found = [json.loads(child.stdout.readline()) for _ in range(2)]
            child.send_signal(2)
            child.communicate(timeout=BOUND)
    assert child.returncode == 0
    assert found[1]["time"] > found[0]["time"]


@pytest.mark.parametrize(
    ("respond", "said"),
    [
        (Site(0), "no GPUs: Prometheus has no series of dcgm-exporter"),
        (lambda _: Response(b"", 401), "requires credentials"),
    ],
)
def test_a_fleet_that_cannot_be_read_is_one_line_with_status_3(respond: Any, said: str) -> None:
    with FakePrometheus(respond) as fake:
        done = run("status", "--prometheus", fake.url)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("gputop: error: ")
    assert said in line


def test_without_the_client_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    monkeypatch.delitem(sys.modules, "gputop.fleet.watch", raising=False)
    monkeypatch.delitem(sys.modules, "gputop.fleet.client", raising=False)
    with pytest.raises(SystemExit, match=r"^3$"):
        cli.main(["status", "--prometheus", "http://a"])
    assert capsys.readouterr().err == (
        "gputop: error: urllib3 is not installed. "
        "Type `pip install '.[fleet]'` in a checkout of gputop.\n"
    )
