"""What runs on a node, without a cluster around it: the worker as it is sent, and nvidia-smi."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gputop.bench.cluster import relay
from gputop.bench.cluster.node_actor import NodeActor
from gputop.bench.plan.memory_limit import available_bytes
from gputop.bench.plan.request import Request
from gputop.bench.run.session import worker_request
from tests.bench.workers import CPU, needs_torch
from tests.clusters import executable

SMI = Path(__file__).with_name("cluster_smi.py")
SLEEPER = b"import sys; print('{\"event\": 1}', flush=True); sys.stdin.readline(); sys.stdin.read()"
"""Says a word, and ends with its input."""


def heard(post: NodeActor, *until: str) -> dict[str, list[Any]]:
    """What is said until there is something of each kind."""
    found: dict[str, list[Any]] = {}
    end = time.monotonic() + 60
    while not set(until) <= set(found) and time.monotonic() < end:
        for kind, what in post.read(1.0, 0.05):
            found.setdefault(kind, []).append(what)
    return found


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the GPUs that nvidia-smi has."""
    executable(tmp_path / "nvidia-smi", f'#!/bin/sh\nexec "{sys.executable}" -S "{SMI}" "$@"\n')
    gpus = tmp_path / "gpus.json"
    gpus.write_text("{}")
    monkeypatch.setenv("FAKE_GPUS", str(gpus))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return gpus


def own() -> tuple[str, str, list[Any]]:
    return "abc", "10.1.2.3", [3]


@pytest.mark.slow
@needs_torch
def test_the_worker_that_is_sent_runs_as_it_does_here() -> None:
    post = NodeActor(relay.worker_archive(), None, cpu=True)
    assert post.facts(own, available_bytes)["torch"] == version("torch")
    order = worker_request(Request(CPU, "float32", 64, 0.5)).to_line()
    post.start(order)
    found = heard(post, "ended")
    events = [json.loads(line)["event"] for line in found["line"]]
    assert events[:2] == ["hello", "plan"]
    assert events[-1] == "done"
    assert found["ended"][0][0] == 0


def test_a_node_without_a_gpu_has_the_memory_that_its_control_groups_leave() -> None:
    assert NodeActor(b"", None, cpu=True).facts(own, lambda: 5)["free_bytes"] == 5


def test_it_has_its_gpu_alone(smi: Path) -> None:
    program = b"import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n" + SLEEPER
    post = NodeActor(program, None, cpu=False)
    found = post.facts(own, available_bytes)
    assert found["gpu"]["uuid"] == "GPU-0000-3"
    host, _, port = found["address"].partition(":")
    assert (host, int(port) > 1023) == ("10.1.2.3", True)
    assert found["apps"] == "\n"
    assert found["heat"] == "GPU Slowdown T.Limit Temp : -2 C\n"
    post.start(b"{}\n")
    assert heard(post, "line")["line"][0] == b"GPU-0000-3\n"
    post.signal(9)
    assert heard(post, "ended")["ended"][0][0] == -9


def test_one_that_cannot_be_started_says_so() -> None:
    post = NodeActor(SLEEPER, "/nowhere/python", cpu=True)
    post.start(b"{}\n")
    ((status, errors),) = heard(post, "ended")["ended"]
    assert status == 127
    assert errors == b"/nowhere/python: No such file or directory"


def test_the_end_of_standard_error_comes_with_the_end() -> None:
    post = NodeActor(
        b"import sys; sys.stderr.write('x' * 9000 + 'why'); sys.exit(5)", None, cpu=True
    )
    post.start(b"{}\n")
    ((status, errors),) = heard(post, "ended")["ended"]
    assert status == 5
    assert len(errors) == 4096
    assert errors.endswith(b"why")
