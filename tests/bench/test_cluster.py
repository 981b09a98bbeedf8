"""The shipped command on a real Ray of eight logical GPUs: nodes with workers that can go wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.bench.commands import COMMAND, environment
from tests.bench.workers import fake_interpreter, needs_torch
from tests.clusters import RayCluster, executable
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.pretender import worker
from tests.fake_cuda import PYTHON
from tests.fake_cuda.settings import Settings
from tests.schemas import problem_of
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
FAULTS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import os
from gputop_worker import backends, main, product, loads
slot, Product = os.environ["CUDA_VISIBLE_DEVICES"], product.Product
multiply, measure = Product.multiply, loads.measure
backends.Cpu.least_interval, backends.Cpu.share_of_checks = 0.0, 1e9
def slow(self, times=1):
    for _ in range(times):
        multiply(self)
        time.sleep(0.01)
def wrong(self, times=1):
    multiply(self, times)
    self.c[3, 5] = -1e6
def measured(*arguments):
    Product.multiply = {"2": slow, "5": wrong}.get(slot, multiply)
    measure(*arguments)
loads.measure = measured
main.main()
"""
"""The worker that was sent there, in which two of the devices fail once the run begins."""


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

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """The command, without a terminal."""
        return subprocess.Popen(
            self.bench(*arguments),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ran(self, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Its exit status, its document and what it said."""
        process = self.begin("--json", *arguments)
        out, err = process.communicate(timeout=BOUND)
        return process.returncode, json.loads(out or "{}"), err

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
    cuda = {**Settings(memory_gib=4).environment(), "FAKE_CUDA_PYTHON": sys.executable}
    known = {**driver.environment(), **cuda, "PYTHONPATH": str(without)}
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


def faulty_python(folder: Path) -> str:
    """An interpreter whose worker has the faults."""
    body = folder / "faults.py"
    body.write_text(FAULTS)
    return executable(folder / "py", f'#!/bin/sh\nexec "{sys.executable}" "{body}" "$@"\n')


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


def until_measuring(nodes: Nodes) -> None:
    """Wait until a worker has had its processor for seconds: torch is imported, and it works."""
    (worker, *_) = until_running(nodes, 1)
    until = time.monotonic() + BOUND
    while worker.cpu_times().user < 8.0:
        assert time.monotonic() < until
        time.sleep(0.1)  # nothing can be awaited: another process reads what it says


@needs_torch
def test_real_workers_and_who_is_slow_or_wrong_is_named(nodes: Nodes, tmp_path: Path) -> None:
    python = faulty_python(tmp_path)
    arguments = ("--device", "cpu", "--size", "128", "--seconds", "3", "--python", python)
    status, document, err = nodes.ran(*arguments)
    assert status == 1, err
    assert len(document["results"]) == 8
    odd = by_place(document)
    assert re.search(r"computed wrong results: \d+ elements", odd["CPU 5"]["reasons"][0])
    assert odd["CPU 5"]["status"] == 1
    assert odd["CPU 2"]["reasons"][0].startswith("like devices: ")
    assert document["outliers"][0]["place"] == "CPU 5", "the gravest is first"
    (among,) = document["distributions"]
    assert among["count"] == 7, "what is wrong says nothing about the others"
    assert among["least"] == pytest.approx(odd["CPU 2"]["score"])


@pytest.mark.slow
@needs_torch
def test_a_suite_is_interrupted_and_names_who_is_slow_or_wrong(
    nodes: Nodes, tmp_path: Path
) -> None:
    report = tmp_path / "suite.html"
    places = ("check", "--device", "cpu", "--devices", "6", "--python", faulty_python(tmp_path))
    arguments = (*places, "--seconds", "9")
    with Terminal(nodes.bench(*arguments), env=nodes.environment(), columns=150) as terminal:
        running = re.compile("2/6 latency .* 6 running")
        terminal.wait_for(lambda t: running.search(t.text) is not None, timeout=BOUND)
        terminal.send("\x03")
        assert terminal.wait() == 130
        terminal.wait_for("2 of 6 parts")
        terminal.wait_until_gone()
    status, document, err = nodes.ran(*arguments, "--report", str(report))
    assert status == 1, err
    assert "4/6 soak  faulty" in err
    assert problem_of("bench", document) is None
    parts = {part["name"]: part["members"] for part in document["parts"]}
    assert {name: len(members) for name, members in parts.items()} == dict.fromkeys(
        ("copy", "latency", "memory", "soak", "burn", "collective"), 6
    )
    page = report.read_text()
    host = document["parts"][0]["members"][0]["host"]
    assert re.search(rf"<p>soak, {host}, CPU 5: results: the device computed wrong", page)
    assert re.search(rf"<p>soak, {host}, CPU 2: like devices: \S+ % under the median", page)


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


@needs_torch
def test_a_hot_gpu_ends_its_run_and_the_result_is_kept(nodes: Nodes) -> None:
    """The real worker on a fake CUDA, with its guard. Ray chooses which GPU it is."""
    nodes.change(**{f"g{n}": replace(IDLE, temperature_celsius=70) for n in range(8)})
    arguments = ("--devices", "1", "--size", "128", "--seconds", "600", "--python", str(PYTHON))
    process = nodes.begin("--json", *arguments)
    until_measuring(nodes)
    nodes.change(**{f"g{n}": replace(IDLE, temperature_celsius=90) for n in range(8)})
    out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 4, err
    assert "it reached 90°C, and its limit is 86°C (slowdown at 89°C)" in err
    document = json.loads(out)
    (result,) = document.get("results", [document])
    assert result["stopped"] == "limit"
    assert result["conditions"]["driver_version"] == "580.95.05"
    assert result["conditions"]["temperature_celsius_max"] == 90
    done = subprocess.run(
        [*COMMAND, "--history", "--json"],
        env=nodes.environment(),
        capture_output=True,
        check=True,
        timeout=BOUND,
    )
    (kept,) = json.loads(done.stdout)
    assert (kept["host"], kept["stopped"]) == (result["host"], "limit")


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
    process = nodes.begin("--seconds", "8", "--json", *pretending(tmp_path))
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
    assert odd["GPU 4"]["reasons"][0].endswith("the process that Ray ran beside it has died")
    done = [each for each in document["results"] if each.get("stopped") == "time"]
    assert len(done) == 6


def test_a_stop_reaches_every_worker(nodes: Nodes, tmp_path: Path) -> None:
    argv = nodes.bench("--seconds", "600", *pretending(tmp_path))
    with Terminal(argv, env=nodes.environment()) as terminal:
        terminal.wait_for("8 running", timeout=BOUND)
        workers = nodes.ray.workers()
        terminal.send("\x03")
        _, alive = psutil.wait_procs(workers, timeout=2)
        assert alive == []
        terminal.wait_for("VERDICT", timeout=BOUND)
        assert terminal.wait() == 130
        assert terminal.text.count(" stopped") == 8
        terminal.wait_until_gone()
    assert len(workers) == 8


def test_nothing_is_left_where_the_command_is_killed(nodes: Nodes, tmp_path: Path) -> None:
    process = nodes.begin("--seconds", "600", *pretending(tmp_path))
    workers = until_running(nodes, 8)
    process.kill()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    process.communicate(timeout=BOUND)


def test_the_end_of_the_connection_is_no_fault_of_a_device(nodes: Nodes, tmp_path: Path) -> None:
    process = nodes.begin("--seconds", "600", "--json", "--devices", "2", *pretending(tmp_path))
    workers = until_running(nodes, 2)
    (relay,) = psutil.Process(process.pid).children()
    relay.kill()
    out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 3, err
    why = {each["reasons"][0].rpartition(": ")[2] for each in json.loads(out)["outliers"]}
    assert why == {"the connection to Ray has ended"}
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []


RANKS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from gputop_worker import collective, main
collective.SIZES, collective.ROW_SECONDS = (1 << 10, 1 << 14), 0.1
send, operations = main.Run.write, collective.Message.operations
FAULT
main.main()
"""
DIES = """
def failing(self, event, **fields):
    send(self, event, **fields)
    if event == "verify" and self.request.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
main.Run.write = failing
"""
ONE_MORE = """
def wrong(self):
    found = operations.fget(self)
    def one_more():
        found["all-reduce"]()
        self.full[7] += 1
    return {**found, "all-reduce": one_more} if self._ranks.rank == 1 else found
collective.Message.operations = property(wrong)
"""


def ranks(folder: Path, fault: str = "") -> tuple[str, ...]:
    """The arguments of a collective whose worker has that fault."""
    body = folder / "ranks.py"
    body.write_text(RANKS.replace("FAULT", fault))
    python = executable(folder / "py", f'#!/bin/sh\nexec "{sys.executable}" "{body}" "$@"\n')
    return "collective", "--device", "cpu", "--seconds", "30", "--python", python


@needs_torch
def test_ranks_on_the_nodes_of_the_cluster(nodes: Nodes, tmp_path: Path) -> None:
    other = nodes.ray.add_node(1)
    try:
        process = nodes.begin("--devices", "9", "--json", *ranks(tmp_path))
        out, err = process.communicate(timeout=BOUND)
    finally:
        nodes.ray.kill_node(other)
    assert (process.returncode, err) == (0, "")
    documents = json.loads(out)
    assert len({each["host"] for each in documents}) == 2
    first, *others = documents
    assert [each["points"] for each in others] == [first["points"]] * 8
    assert {(each["wrong_elements"], each["checks"]) for each in documents} == {(0, 6)}
    assert (first["layout"], first["stopped"]) == ("9 ranks, gloo", "time")
    assert first["method"].startswith("torch.distributed across nodes; ")


@needs_torch
@pytest.mark.parametrize(
    ("fault", "statuses", "says"),
    [
        (DIES, {3}, r", CPU 1, .*: it (was ended by SIGKILL|does not answer any more)"),
        (ONE_MORE, {1}, r", CPU 1, .* computed wrong results: 4 elements in 6 checks"),
    ],
    ids=["dies", "wrong"],
)
def test_one_line_names_the_rank_that_failed(
    nodes: Nodes, tmp_path: Path, fault: str, statuses: set[int], says: str
) -> None:
    process = nodes.begin("--devices", "3", *ranks(tmp_path, fault))
    _, err = process.communicate(timeout=BOUND)
    assert process.returncode in statuses, err
    (line,) = err.splitlines()
    assert re.search(says, line)


def test_a_node_that_is_gone_is_named_and_the_rest_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    other = nodes.ray.add_node(2)
    process = nodes.begin("--seconds", "20", "--json", "--device", "cpu", *pretending(tmp_path))
    until_running(nodes, 10)
    nodes.ray.kill_node(other)
    out, err = process.communicate(timeout=BOUND)
    assert process.returncode == 3, err
    document = json.loads(out)
    gone = [each for each in document["outliers"] if each["status"] == 3]
    assert len(gone) == 2
    assert {each["reasons"][0].rpartition(": ")[2] for each in gone} == {
        "its node is gone, or the process that Ray ran beside it has died"
    }
    assert len({each["host"] for each in gone}) == 1
    assert len([each for each in document["results"] if "stopped" in each]) == 8
