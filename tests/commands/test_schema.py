import json

import pytest
from jsonschema import Draft202012Validator

from gputop.agent.lines import to_line
from gputop.commands import bench_results
from gputop.commands.schema import DOCUMENTS
from gputop.fleet.page import document as fleet_document
from tests import fleets, streams
from tests.output.test_metrics import EVERY
from tests.runs import gpu_run
from tests.schemas import printed, problem_of, schema


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_prints_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert problem_of(name, {}) is not None
    assert problem_of(name, 1) is not None


def test_the_stream() -> None:
    lines = printed("stream", "--demo", "--count", "2", "--interval", "0.25").splitlines()
    assert json.loads(lines[0])["interval_seconds"] == 0.25
    assert json.loads(lines[-1])["devices"][0]["sm_active_percent"] is not None
    lines += [to_line(streams.inventory(3)), to_line(EVERY), to_line(streams.sample())]
    assert {json.loads(line)["type"] for line in lines} == {"inventory", "sample"}
    for line in lines:
        assert problem_of("stream", json.loads(line)) is None
    line = json.loads(lines[-1])
    assert problem_of("stream", {**line, "processes": [{"device_uuid": "GPU-1"}]}) is not None
    assert problem_of("stream", {**line, "type": "inventory"}) is not None
    assert problem_of("stream", {**line, "time": "now"}) is not None


@pytest.mark.parametrize(
    "words", [("--demo",), ("--host", "localhost"), ("--host", "localhost", "--host", "no.invalid")]
)
def test_the_status(words: tuple[str, ...]) -> None:
    assert problem_of("status", json.loads(printed("status", "--json", *words))) is None


@pytest.mark.parametrize("words", [("--demo",), ("--host", "localhost", "--host", "no.invalid")])
def test_totals_of_users(words: tuple[str, ...]) -> None:
    document = json.loads(printed("status", "--by-user", "--json", *words))
    assert problem_of("users", document) is None
    if "--demo" in words:
        document["users"][0]["devices"] = 2
        assert problem_of("users", document) is not None


def test_a_run_of_a_gpu() -> None:
    run = gpu_run(30, 30, ended=True)
    document = json.loads(json.dumps(bench_results._document(run)))
    assert len(document["series"]["progress"]) > 10
    assert document["series"]["readings"]["power_watts"]
    assert problem_of("bench", document) is None
    failed = {"device": "GPU", "problem": {"what": "a", "why": "b", "remedy": "c"}, "status": 1}
    assert problem_of("bench", [document, failed]) is None
    document["series"]["progress"][0]["elapsed_seconds"] = "1 s"
    assert problem_of("bench", document) is not None


def test_a_fleet() -> None:
    document = json.loads(json.dumps(fleet_document(fleets.fleet(20))))
    assert document["gpus"]
    assert problem_of("fleet", document) is None
    del document["gpus"][0]["host"]
    assert problem_of("fleet", document) is not None
