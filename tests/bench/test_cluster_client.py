import json
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from gputop.agent.problem import ProblemError
from gputop.bench.cluster import relay, run
from gputop.bench.cluster.messages import Joined, Lent, Lost
from gputop.bench.cluster.node_actor import NodeAnswer
from gputop.bench.cluster.run import Cluster
from gputop.bench.plan.request import RunRefusedError
from tests.bench import commands
from tests.bench.commands import environment
from tests.bench.workers import fake_interpreter
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.pretender import worker

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.9.0
    Python: 3.10.4
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""
FAKE = """
import os, sys, threading, types
print("Ray prints this and that")
cloudpickle = types.SimpleNamespace()
__version__ = "9.9"
def init(**options):
    {init}
def nodes(): return [{{"Alive": True}}]
def cluster_resources(): return {{"GPU": 4.0}}
def available_resources(): return {{"GPU": {free}}}
"""
ACTORS = """
from concurrent.futures import ThreadPoolExecutor
import asyncio, itertools
cloudpickle.register_pickle_by_value = print
util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
exceptions = types.SimpleNamespace(OutOfMemoryError=MemoryError, RayActorError=KeyError)
class Answer:
    def __init__(self, future): self.future = lambda: future
    def __await__(self): return asyncio.wrap_future(self.future()).__await__()
class Method:
    def __init__(self, pool, call): self.remote = lambda *given: Answer(pool.submit(call, *given))
class Actor:
    def __init__(self, made): self.made, self.pool = made, ThreadPoolExecutor(4)
    def __getattr__(self, name): return Method(self.pool, getattr(self.made, name))
def put(code): return code
def remote(**options):
    return lambda kind: types.SimpleNamespace(remote=lambda *given: Actor(kind(*given)))
def kill(actor): actor.signal.remote(9)
numbers = itertools.count()
def get_gpu_ids(): return [next(numbers)]
def get_runtime_context(): return types.SimpleNamespace(get_node_id=lambda: "abc")
"""
"""Actors of a Ray that has only threads of the relay."""


def fake_ray(folder: Path, init: str = "pass", free: float = 4.0) -> str:
    """A folder with a module of that name, whose `init` does that."""
    (folder / "ray.py").write_text(FAKE.format(init=init, free=free) + ACTORS)
    return str(folder)


def ran(folder: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    path = f"{folder}:{environment()['PYTHONPATH']}"
    return commands.ran("--ray", *arguments, **changes | {"PYTHONPATH": path})


async def refused(address: str = "auto") -> str:
    with pytest.raises(ProblemError) as caught:
        await Cluster.join(address)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where Python looks for modules first, also in children."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{environment()['PYTHONPATH']}")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def children() -> list[psutil.Process]:
    own = psutil.Process().children()
    return [each for each in own if any(run.RELAY in word for word in each.cmdline())]


async def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find_spec", lambda _: None)
    assert await refused() == (
        f"Ray is not installed: {sys.executable} has no ray. "
        "Type `pip install '.[ray]'` in a checkout of gputop"
    )


def test_another_version_is_one_line(tmp_path: Path) -> None:
    fake_ray(tmp_path, f"raise RuntimeError({MISMATCH!r})")
    done = ran(tmp_path)
    assert done.returncode == 3
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gputop: error: The Ray cluster of this machine cannot be used: Version")
    assert "Ray: 2.9.0 Python: 3.10.4" in line
    assert line.endswith("Run gputop in the Python that the cluster was started with.")


async def test_one_that_does_not_answer_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ray(path, "threading.Event().wait()")
    monkeypatch.setattr(run, "CONNECT_SECONDS", 0.3)
    assert "at 10.0.0.1:6379 cannot be used: it did not answer within" in await refused(
        "10.0.0.1:6379"
    )
    assert children() == []


async def test_one_that_ends_the_process_is_one_line(path: Path) -> None:
    fake_ray(path, "print('GCS is gone', file=sys.stderr, flush=True); os._exit(1)")
    assert "the connection to Ray has ended: GCS is gone" in await refused()
    assert children() == []


@pytest.mark.parametrize(
    ("free", "arguments", "status", "said"),
    [
        (0, (), 3, "Only 0 of 4 GPUs are free, the others are in use by Ray."),
        (2, ("--devices", "3"), 3, "Only 2 of 4 GPUs are free"),
        (2, ("--devices", "5"), 2, "There are no 5 GPUs: the cluster has 4 on 1 node."),
    ],
)
def test_ray_gives_what_nobody_has(
    tmp_path: Path, free: float, arguments: tuple[str, ...], status: int, said: str
) -> None:
    fake_ray(tmp_path, free=free)
    done = ran(tmp_path, "auto", *arguments)
    assert done.returncode == status
    assert done.stderr.startswith(f"gputop: error: {said}")
    assert done.stderr.count("\n") == 1


def test_without_a_number_it_takes_what_is_free(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run._count(None, Joined(2, 8, 8)), run._count(1, Joined(2, 8, 1))) == (8, 1)
    assert capsys.readouterr().err == ""
    assert run._count(None, Joined(2, 8, 1)) == 1
    assert capsys.readouterr().err == "gputop: 7 of 8 GPUs are in use by Ray: left out\n"
    with pytest.raises(RunRefusedError, match="no GPU: the cluster has 0 on 2 nodes"):
        run._count(None, Joined(2, 0, 0))


def test_nodes_with_the_same_name_are_told_apart() -> None:
    nodes = ("a", "1234567"), ("a", "8888888"), ("b", "9999999"), ("b", "9999999")
    posts = {number: run.LentGpu(number, lambda _: None) for number in range(5)}
    for number, (host, node) in enumerate(nodes):
        answer = NodeAnswer(node, host, "a:1", ["0"], "python", None, False, None, [], "no driver")
        posts[number].handle(Lent(number, answer))
    cluster: Any = SimpleNamespace(_posts=posts)
    Cluster._tell_apart(cluster)
    assert [post.host for post in posts.values()] == ["a (123456)", "a (888888)", "b", "b", None]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (MemoryError(), "its node ran out of memory, and Ray ended it"),
        (KeyError(), "its node was lost, or Ray's process beside the worker died"),
        (ValueError("a traceback\n\n  its cause  \n"), "ValueError: its cause"),
        (ValueError(), "ValueError"),
        (None, "Ray assigned no GPU within 0 s"),
    ],
)
async def test_why_a_gpu_was_not_lent(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, why: str
) -> None:
    killed: list[object] = []
    sorts = SimpleNamespace(OutOfMemoryError=MemoryError, RayActorError=KeyError)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=sorts, kill=killed.append))
    monkeypatch.setattr(relay, "PLACE_SECONDS", 0.1)
    looking: Future[object] = Future()
    if error is not None:
        looking.set_exception(error)
    answer = SimpleNamespace(future=lambda: looking)
    actor = SimpleNamespace(look=SimpleNamespace(remote=lambda *_: answer))
    sent: list[object] = []
    monkeypatch.setattr(relay.Relay, "send", lambda _, report: sent.append(report))
    asked = relay.Relay(1)
    asked._actors[3] = actor
    await asked._look(3)
    assert sent == [Lost(3, why)]
    assert killed == ([] if error else [actor])


def test_a_run_goes_through_the_relay_to_workers_and_back(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, worker())
    fake_ray(tmp_path)
    trial = ("--device", "cpu", "--devices", "2", "--seconds", "0.5", "--python", python)
    done = ran(tmp_path, "auto", *trial, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(done.stdout)["results"]
    assert [each["stopped"] for each in results] == ["time", "time"]
    assert all(each["iterations"] > 0 for each in results)
    assert len({each["host"] for each in results}) == 1
    assert children() == []


IDLE = FakeDevice(memory_used_bytes=4 << 20, memory_reserved_bytes=0, clock_event_reasons=0x4)


@pytest.mark.driver
def test_gpus_that_are_slow_or_broken_or_in_use_are_named(
    tmp_path: Path, driver: FakeDriver
) -> None:
    driver.write(IDLE, IDLE, IDLE, replace(IDLE, processes=(FakeProcess(4242),)))
    python = fake_interpreter(tmp_path, worker(slow=1, broken=2, lag=140.0))
    fake_ray(tmp_path)
    asked = ("auto", "--seconds", "0.5", "--python", python, "--json")
    done = ran(tmp_path, *asked, **driver.environment())
    assert done.returncode == 3
    assert "GPU 3 is left out: it is in use by process 4242 (" in done.stderr
    odd = {each["place"]: each["reasons"][0] for each in json.loads(done.stdout)["outliers"]}
    assert set(odd) == {"GPU 1", "GPU 2", "GPU 3"}
    assert "% under the median of" in odd["GPU 1"]
    assert "too little is free" in odd["GPU 2"]


DIES = """
import os, pathlib, sys
other = pathlib.Path(sys.argv[0]).with_name("other")
try:
    other.mkdir()
except FileExistsError:
    os.kill(os.getpid(), 9)
"""
"""The second worker to start ends at once."""


def test_a_worker_that_is_killed_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    python = fake_interpreter(tmp_path, DIES + worker())
    fake_ray(tmp_path)
    trial = ("--device", "cpu", "--devices", "2", "--seconds", "0.5", "--python", python)
    done = ran(tmp_path, "auto", *trial, "--json")
    assert done.returncode == 3
    document = json.loads(done.stdout)
    (odd,) = document["outliers"]
    assert "it was ended by SIGKILL" in odd["reasons"][0]
    assert [each.get("stopped") for each in document["results"]].count("time") == 1
