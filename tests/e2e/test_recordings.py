"""Recordings and CSV by the shipped command: one schema all the way, and an end that is whole."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.device import Device, DeviceSample
from gputop.agent.lines import LEFT_OUT_IF_EMPTY, to_line
from gputop.agent.snapshot import SCHEMA, Host, Inventory, Process, Sample
from gputop.recording.reader import Recording
from gputop.schema.decode import decode
from gputop.text import moment
from gputop.ui.telemetry import Telemetry
from tests import recordings, streams
from tests.e2e.shipped import GPUTOP, SOON, children, dashboard, device, held_by, run, see

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver
    from tests.terminal import Terminal

BOUND = 60.0
FAST = ("--interval", "0.25")
RIGHT, SHIFT_LEFT = "\x1b[C", "\x1b[1;2D"


def names(cls: type) -> set[str]:
    return {field.name for field in fields(cls)}


@pytest.mark.driver
def test_one_schema_in_status_stream_recording_and_replay(
    driver: FakeDriver, tmp_path: Path
) -> None:
    """What each of them says are the fields of the schema, with the same values."""
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
    inventory, sample = (json.loads(line) for line in (_last(recorded, k) for k in KINDS))
    document = json.loads(status.stdout)
    assert document.pop("bound_by").keys() == {each["uuid"] for each in sample["devices"]}
    assert document == {
        "inventory": _without(inventory, "type"),
        "sample": _without(sample, "type"),
    }
    played = Telemetry()
    played.restart(Recording(path).records())
    assert played.inventory is not None
    assert played.sample is not None
    assert [json.loads(to_line(each)) for each in (played.inventory, played.sample)] == [
        inventory,
        sample,
    ]
    for document in (
        json.loads(status.stdout),
        json.loads(live.stdout),
        {kind: json.loads(_last(streamed, kind)) for kind in KINDS},
    ):
        _is_the_schema(document)


KINDS = ("inventory", "sample")


def _last(lines: list[str], kind: str) -> str:
    return [line for line in lines if line.startswith(f'{{"type":"{kind}"')][-1]


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


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
            _grown(path, 2000)
            process.send_signal(number)
            assert process.wait(BOUND) == 130
        finally:
            process.kill()
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()  # it has its trailer
    assert len(lines) >= 2
    assert all(decode(line) for line in lines)


def _grown(path: Path, size: int) -> None:
    """Waits until the file has grown to that size."""
    program = (
        "import os, sys, threading\n"
        "size = lambda: os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1])\n"
        "while size() < int(sys.argv[2]): threading.Event().wait(0.02)\n"
    )
    subprocess.run([sys.executable, "-c", program, path, str(size)], check=True, timeout=BOUND)


def test_one_line_says_where_it_is_damaged(tmp_path: Path) -> None:
    path = recordings.make(tmp_path / "a.jsonl", 5)
    path.write_bytes(path.read_bytes()[:-9])
    done = run("stream", "--replay", path)
    assert done.returncode == 0
    last = moment(streams.NOW + 3, "%Y-%m-%d %H:%M:%S")
    assert done.stderr == f"gputop: {path}: damaged at line 6; played up to {last}\n"
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.daily(1)
@pytest.mark.parametrize("columns", [80, 120])
def test_a_replay_in_a_terminal(tmp_path: Path, columns: int) -> None:
    path = recordings.make(tmp_path / "a.jsonl.gz", 600, 2)
    with dashboard("--replay", str(path), columns=columns, rows=24) as terminal:
        see(terminal, " REPLAY  2025-11-20 ", "×1", "node07", "H100 80GB HBM3")
        assert len(_gputops(terminal)) == 1  # there is nothing to sample
        terminal.send(" ")
        see(terminal, "paused", "Play")
        terminal.send(RIGHT * 12)
        see(terminal, "2:0", "of 9:59", without=("No data",))
        terminal.send(SHIFT_LEFT)
        see(terminal, "1:0")
        terminal.send("q")
        assert terminal.wait(SOON) == 0


def _gputops(terminal: Terminal) -> list[str]:
    return [command for command in terminal.processes().values() if "gputop" in command]
