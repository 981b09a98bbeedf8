"""The shipped command on a real Ray of eight logical GPUs: nodes with workers that can go wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.bench.commands import COMMAND, environment
from tests.bench.workers import fake_interpreter, needs_torch
from tests.clusters import RayCluster
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.pretender import worker
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

BOUND = 120
"""Seconds in which all of it has come, on a machine that others use as well."""


NO_GPUTOP = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, *_):
        sent = any(entry.startswith("/proc/self/fd/") for entry in sys.path)
        if name == "gputop" and not sent:
            raise ModuleNotFoundError("nodes have no gputop")
sys.meta_path.insert(0, Finder)
"""
"""Ray has nodes look for modules where the command does: here that is the same machine."""


IDLE = FakeDevice(memory_used_bytes=4 << 20, memory_reserved_bytes=0, clock_event_reasons=0x4)


def uuid(index: int) -> str:
    """The UUID of a GPU of the driver."""
    return f"GPU-{index:08x}-fa4e-4dcf-8a3b-{index:012x}"


@dataclass
class Nodes:
    """The cluster, and the driver of its nodes."""

    ray: RayCluster
    driver: FakeDriver
    folder: Path

    def bench(self, *arguments: str) -> list[str]:
        return [*COMMAND, "--ray", self.ray.address, *arguments]

    def environment(self) -> dict[str, str]:
        return {**environment(), "XDG_DATA_HOME": str(self.folder / "kept")}

    def change(self, **changes: FakeDevice) -> None:
        """What is not usual about GPUs: `g3=replace(IDLE, temperature_celsius=95)`."""
        gpus = [changes.get(f"g{n}", IDLE) for n in range(8)]
        self.driver.write(*gpus)

    def ran(self, *arguments: str) -> tuple[int, Any, str]:
        """Its exit status, its document and what it said."""
        with self.begin(*arguments) as process:
            out, err = process.communicate(timeout=BOUND)
        return process.returncode, json.loads(out or "{}"), err

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """The command, without a terminal."""
        return subprocess.Popen(
            self.bench("--json", *arguments),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_free(self) -> None:
        """Until nothing of a run is left on the nodes."""
        left = [*self.ray.workers(), *self.ray.posts()]
        _, alive = psutil.wait_procs(left, timeout=10)
        assert alive == []


@pytest.fixture(scope="module")
def ray(
    tmp_path_factory: pytest.TempPathFactory, build_driver: Callable[..., Path]
) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("nodes")
    driver = FakeDriver(folder, build_driver())
    without = folder / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(NO_GPUTOP)
    known = {**driver.environment(), "PYTHONPATH": str(without)}
    with RayCluster(8, known) as cluster:
        yield Nodes(cluster, driver, folder)


@pytest.fixture
def nodes(ray: Nodes, tmp_path: Path) -> Iterator[Nodes]:
    """The cluster of the module, with nothing of another test in it, and nothing left in it."""
    found = Nodes(ray.ray, ray.driver, tmp_path)
    found.change()
    yield found
    found.wait_until_free()


def pretending(folder: Path, slow: int = -1, broken: int = -1) -> tuple[str, str]:
    return "--python", fake_interpreter(folder, worker(slow, broken, lag=140.0))


def by_place(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["place"]: each for each in document["outliers"]}


def until_running(nodes: Nodes, count: int) -> list[psutil.Process]:
    """Waits until so many workers run."""
    until = time.monotonic() + BOUND
    while time.monotonic() < until:
        found = nodes.ray.workers()
        if len(found) >= count:
            return found
        time.sleep(0.1)  # another process starts them
    raise TimeoutError(f"{len(nodes.ray.workers())} of {count} workers")


def test_the_distribution_is_shown_live_and_outliers_by_host_and_uuid(
    nodes: Nodes, tmp_path: Path
) -> None:
    argv = nodes.bench("--seconds", "4", *pretending(tmp_path, slow=2, broken=6))
    with Terminal(argv, env=nodes.environment(), columns=100, rows=45) as terminal:
        terminal.wait_for("7 running, 1 failed", timeout=BOUND)
        terminal.wait_for(
            lambda t: re.search(r"\d{3} \(\d{3} to \d{3}\) TFLOP/s", t.text) is not None,
            timeout=BOUND,
        )
        behind = re.compile(r"GPU 2 (1[789]|2[012]) % behind")  # it differs from window to window
        terminal.wait_for(lambda t: behind.search(t.text) is not None, timeout=BOUND)
        terminal.wait_for("like devices: ", timeout=BOUND)
        assert terminal.wait() == 3
        text = terminal.text
    assert "8 devices on 1 host" in text
    assert re.search(r"7 devices of NVIDIA H100 80GB HBM3, bfloat16: median \d{3}", text)
    assert "GPU 6: The products do not fit: too little is free" in text
    assert re.search(r"GPU 2: like devices: \d+\.\d % under the median", text)


def test_a_gpu_in_use_is_left_out_unless_asked_for(nodes: Nodes, tmp_path: Path) -> None:
    nodes.change(
        g3=replace(IDLE, processes=(FakeProcess(4242),)),
        g7=replace(IDLE, memory_used_bytes=70000 << 20),
    )
    status, document, err = nodes.ran("--seconds", "1", *pretending(tmp_path))
    assert status == 3
    assert "GPU 3 is left out: it is in use by process 4242 (" in err
    odd = by_place(document)
    assert set(odd) == {"GPU 3", "GPU 7"}
    assert "68.4 GiB of its memory" in odd["GPU 7"]["reasons"][0]
    status, document, _ = nodes.ran("--seconds", "1", "--ignore-busy", *pretending(tmp_path))
    assert status == 0
    assert document["outliers"] == []


def test_who_dies_is_named_and_the_rest_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    process = nodes.begin("--seconds", "8", *pretending(tmp_path))
    workers = {each.environ()["CUDA_VISIBLE_DEVICES"]: each for each in until_running(nodes, 8)}
    workers[uuid(1)].kill()
    parent = workers[uuid(4)].parent()
    assert parent is not None
    parent.kill()
    out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 3, err
    document = json.loads(out)
    odd = by_place(document)
    assert set(odd) == {"GPU 1", "GPU 4"}
    assert odd["GPU 1"]["reasons"][0].endswith("it was ended by SIGKILL")
    assert odd["GPU 4"]["reasons"][0].endswith("Ray's process beside the worker died")
    done = [each for each in document["results"] if each.get("stopped") == "time"]
    assert len(done) == 6


@needs_torch
def test_ranks_on_the_nodes_of_the_cluster(nodes: Nodes) -> None:
    other = nodes.ray.add_node(1)
    try:
        ranks = ("collective", "--device", "cpu", "--seconds", "30")
        status, documents, err = nodes.ran(*ranks, "--devices", "9")
    finally:
        nodes.ray.kill_node(other)
    assert (status, err) == (0, "")
    assert len({each["host"] for each in documents}) == 2
    first, *others = documents
    assert [each["points"] for each in others] == [first["points"]] * 8
    assert {each["wrong_elements"] for each in documents} == {0}
    assert (first["layout"], first["stopped"]) == ("9 ranks, gloo", "time")
    assert first["method"].startswith("torch.distributed across nodes; ")
