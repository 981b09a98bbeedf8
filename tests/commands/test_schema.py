"""`gputop schema`: each document that is printed fits its schema, and a wrong one does not."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from gputop.commands import bench_results
from gputop.commands.schema import DOCUMENTS
from gputop.compat import module_command
from gputop.fleet.page import document as fleet_document
from gputop.schema.snapshot import encode
from tests import fleets, streams
from tests.output.test_metrics import EVERY
from tests.runs import gpu_run

BOUND = 150.0


@cache
def schema(name: str) -> Any:
    """The schema as it is printed. Another process makes it: msgspec keeps what it learns of a
    class, and the quick codec of this one would find it.
    """
    return json.loads(printed("schema", name))


def problem_of(name: str, document: Any) -> str | None:
    """What is wrong with the document by the schema."""
    error = best_match(Draft202012Validator(schema(name)).iter_errors(document))
    return None if error is None else f"{error.json_path}: {error.message}"


def printed(*words: str) -> str:
    done = subprocess.run(
        [*module_command("gputop"), *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=BOUND,
    )
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_prints_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert problem_of(name, {}) is not None
    assert problem_of(name, 1) is not None


def test_the_stream() -> None:
    lines = printed("stream", "--demo", "--count", "2", "--interval", "0.25").splitlines()
    lines += [encode(streams.inventory(3)), encode(EVERY), encode(streams.sample())]
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["soak", "copy", "sweep", "latency", "suite"])
def test_a_real_run(kind: str) -> None:
    pytest.importorskip("torch", reason="needs torch")
    words = ("bench", kind, "--device", "cpu", "--seconds", "1", "--json")
    assert problem_of("bench", json.loads(printed(*words))) is None


def test_a_fleet() -> None:
    document = json.loads(json.dumps(fleet_document(fleets.fleet(20))))
    assert document["gpus"]
    assert problem_of("fleet", document) is None
    del document["gpus"][0]["host"]
    assert problem_of("fleet", document) is not None
