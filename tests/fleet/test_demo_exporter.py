"""The page of a simulated fleet: the format's rules, dcgm-exporter's names, who is on it."""

from __future__ import annotations

import json
import time
from wsgiref.util import setup_testing_defaults

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.demo_fleet.exporter import AWAY_AFTER_SECONDS, Simulator, page, site
from tests.demo_fleet.site import STRANGE_POD, WIDE_POD, Flaw
from tests.output.test_metrics import findings

STARTED = 1_800_000_000.0
FLEET = Simulator(64, started=STARTED)
LABELS = {
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION"),
    *("container", "namespace", "pod", "cluster", "rack", "simulated"),
}


def text_of(simulator: Simulator, after: float = 1.0) -> str:
    return b"".join(page(simulator, simulator.hosts, simulator.started + after)).decode()


PAGE = text_of(FLEET)
NAMES = [f"DCGM_FI_{name}" for name in FLEET.readings(FLEET.gpus[1:2], STARTED)[0]]
LOST = next(gpu for gpu in FLEET.gpus if gpu.flaw is Flaw.LOST)


def test_a_page_is_as_prometheus_wants_it() -> None:
    parsed = list(parse(PAGE))
    assert [each.name for each in parsed] == NAMES
    for each in parsed:
        # The names, and that counters do not end in `_total`, are dcgm-exporter's.
        known = {"counter without _total", "not snake case"}
        assert set(findings(each.name, each.type, each.documentation)) <= known
        assert len({tuple(sample.labels.items()) for sample in each.samples}) == len(each.samples)
        # The parser gives a counter its `_total`, also where the text has none.
        assert {sample.name.removesuffix("_total") for sample in each.samples} == {each.name}
    assert sum(len(each.samples) for each in parsed) == 64 * len(NAMES) - (len(NAMES) - 1)


def test_labels_are_those_of_dcgm_exporter_and_come_through_as_they_are() -> None:
    samples = {each.name: each.samples for each in parse(PAGE)}
    power = samples["DCGM_FI_DEV_POWER_USAGE"]
    assert all(set(sample.labels) == LABELS for sample in power)
    assert {STRANGE_POD, WIDE_POD} <= {sample.labels["pod"] for sample in power}
    first = power[0].labels
    assert first["pci_bus_id"] == "00000000:1A:00.0"
    assert (first["gpu"], first["device"], first["Hostname"]) == ("0", "nvidia0", "oslo-r01-n1")
    assert first["simulated"] == "true"
    xids = samples["DCGM_FI_DEV_XID_ERRORS"]
    assert all(set(sample.labels) == LABELS | {"err_code", "err_msg"} for sample in xids)
    assert {(s.value, s.labels["err_code"], s.labels["err_msg"]) for s in xids} == {
        (0, "0", "No Error"),
        (48, "48", "Double Bit ECC Error"),
        (79, "79", "GPU has fallen off the bus"),
    }


def ask(path: str, query: str = "", *, started: float = 0.0, **more: str) -> tuple[str, bytes]:
    """The status and the body of an answer of a fleet that began so many seconds ago."""
    environ = {"PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": "sim:1", **more}
    setup_testing_defaults(environ)
    said: list[str] = []
    fleet = Simulator(64, started=time.time() - started)
    answer = site(fleet)[path](environ, lambda status, *_: said.append(status))  # type: ignore[arg-type]
    return said[0][:3], b"".join(answer)


def hosts_on(body: bytes) -> set[str]:
    return {sample.labels["Hostname"] for each in parse(body.decode()) for sample in each.samples}


AWAY = next(gpu.host for gpu in FLEET.gpus if gpu.flaw is Flaw.AWAY)


def test_the_host_that_goes_away_refuses_and_is_on_no_page() -> None:
    long = AWAY_AFTER_SECONDS + 1
    assert ask("/metrics", f"host={AWAY}", started=long)[0] == "503"
    status, body = ask("/metrics", started=long)
    assert (status, hosts_on(body)) == ("200", {*FLEET.hosts} - {AWAY})
    listed = json.loads(ask("/sd", started=long)[1])
    assert AWAY in {each["labels"]["__param_host"] for each in listed}
