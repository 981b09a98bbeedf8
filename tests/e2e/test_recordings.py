import gzip
import json
import signal
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.device import Device, DeviceSample
from gputop.agent.lines import LEFT_OUT_IF_EMPTY, to_line
from gputop.agent.snapshot import SCHEMA, Host, Inventory, Process, Sample
from gputop.recording.reader import Recording
from gputop.schema.decode import decode
from tests.driver import FakeDriver
from tests.e2e.shipped import GPUTOP, SOON, children, device, held_by, run
from tests.waiting import until

FAST = ("--interval", "0.25")


def names(cls: type) -> set[str]:
    return {field.name for field in fields(cls)}


@pytest.mark.driver
def test_one_schema_in_status_stream_recording_and_replay(
    driver: FakeDriver, tmp_path: Path
) -> None:
    with children("train") as processes:
        driver.write(device(0, processes=held_by(processes)), device(1))
        env = driver.environment()
        path = tmp_path / "a.jsonl.gz"
        done = run("stream", *FAST, "--count", "3", "--output", path, env=env)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == f"gputop: writing JSON lines to {path}\n"
        live = run("status", "--json", env=env)
        streamed = run("stream", *FAST, "--count", "1", env=env).stdout.splitlines()
    recorded = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert run("stream", "--replay", path).stdout.splitlines() == recorded
    records = [decode(line) for line in recorded]
    assert [to_line(record) for record in records] == recorded
    assert list(Recording(path).records()) == records

    status = run("status", "--replay", path, "--json")
    assert (status.returncode, status.stderr) == (0, "")
    inventory, sample = (json.loads(_last(recorded, kind)) for kind in KINDS)
    replayed = json.loads(status.stdout)
    assert replayed["bound_by"].keys() == {each["uuid"] for each in sample["devices"]}
    assert replayed["inventory"] | {"type": "inventory"} == inventory
    assert replayed["sample"] | {"type": "sample"} == sample
    for document in (
        replayed,
        json.loads(live.stdout),
        {kind: json.loads(_last(streamed, kind)) for kind in KINDS},
    ):
        _is_the_schema(document)


KINDS = ("inventory", "sample")


def _last(lines: list[str], kind: str) -> str:
    return [line for line in lines if line.startswith(f'{{"type":"{kind}"')][-1]


def _is_the_schema(document: dict[str, Any]) -> None:
    inventory, sample = document["inventory"], document["sample"]
    assert inventory["schema"] == SCHEMA
    for found, cls in (
        (inventory, Inventory),
        (inventory["devices"][0], Device),
        (sample, Sample),
        (sample["host"], Host),
        (sample["devices"][0], DeviceSample),
        (sample["processes"][0], Process),
    ):
        assert {*found} - {*LEFT_OUT_IF_EMPTY, "type"} == names(cls) - LEFT_OUT_IF_EMPTY


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_file_whole(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "a.jsonl.gz"
    arguments = [*GPUTOP, "stream", "--demo", *FAST, "--output", str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            process.stderr.readline()
            until(lambda: path.exists() and path.stat().st_size > 2000, 2 * SOON)
            process.send_signal(number)
            assert process.wait(2 * SOON) == 130
        finally:
            process.kill()
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()  # it has its trailer
    assert len(lines) >= 2
    assert all(decode(line) for line in lines)
