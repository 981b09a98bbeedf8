import time
from typing import Any

import pytest

from gputop.bench.cluster import relay
from gputop.bench.cluster.messages import Lent, from_line, to_line
from gputop.bench.cluster.node_actor import NodeActor, NodeAnswer
from gputop.bench.cluster.node_facts import node_facts
from gputop.bench.plan.request import Target
from tests.driver import GPU_IS_LOST, FakeDevice, FakeDriver, FakeInstance

SLEEPER = b"import sys; print('{\"event\": 1}', flush=True); sys.stdin.readline(); sys.stdin.read()"
"""Says a word, and ends with its input."""


def heard(post: NodeActor) -> list[Any]:
    """What is said until there is something."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if found := post.read(1.0, 0.05):
            return list(found)
    return []


def last_of(post: NodeActor) -> Any:
    while True:
        *_, last = heard(post)
        if isinstance(last, tuple):
            return last


ECHO = b"""
import os, sys
order, word = sys.stdin.readline(), sys.stdin.readline()
print(os.environ["CUDA_VISIBLE_DEVICES"], order + word, flush=True)
sys.stdin.read()
"""


def test_it_has_its_gpu_alone_and_what_is_written_before_it_runs() -> None:
    post = NodeActor(ECHO, None, cpu=False)
    post.start(b"{}\n", "GPU-4f2a")
    post.write(b"go\n")
    said: list[Any] = []
    while len(said) < 2:
        said += heard(post)
    assert said[:2] == [b"GPU-4f2a {}\n", b"go\n"]
    post.signal(9)
    assert last_of(post)[0] == -9


def test_a_signal_reaches_a_worker_that_is_about_to_start() -> None:
    post = NodeActor(SLEEPER, None, cpu=True)
    post.start(b"{}\n", None)
    post.signal(9)
    assert last_of(post)[0] == -9


@pytest.mark.driver
def test_its_facts_are_what_the_agent_reads_there(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    mig = FakeDevice(mig_mode=1, instances=(FakeInstance(),))
    driver.write(FakeDevice(), mig, FakeDevice(code=GPU_IS_LOST))
    for name, value in driver.environment().items():
        monkeypatch.setenv(name, value)
    archive = relay.worker_archive()

    def facts(gpu: Any, *, cpu: bool = False) -> tuple[Target, str | None]:
        post = NodeActor(archive, None, cpu=cpu)
        said = post.look(lambda: ("abc", "10.1.2.3", [gpu]), lambda: 8 << 30)
        lent = from_line(to_line(Lent(0, NodeAnswer(**said))))
        assert isinstance(lent, Lent)
        host, _, port = lent.answer.address.partition(":")
        assert (host, int(port) > 1023) == ("10.1.2.3", True)
        return node_facts(lent.answer, "n7", beside=2)

    whole, held = facts(0)
    assert (whole.host, whole.index) == ("n7", 0)
    assert (held or "").startswith("in use: 24.0 GiB of its memory are held")
    assert whole.memory_free_bytes
    assert whole.torch != "of unknown version", "it is this Python's"
    with pytest.raises(ValueError, match="its state is lost"):
        facts(2)
    with pytest.raises(ValueError, match="7"):
        facts(7)
    cpu, _ = facts(3, cpu=True)
    assert (cpu.kind, cpu.index, cpu.memory_free_bytes) == ("cpu", 3, 4 << 30)


def test_an_agent_that_says_nothing_is_the_reason() -> None:
    post = NodeActor(b"import sys; sys.exit('no driver here')", None, cpu=False)
    with pytest.raises(ValueError, match="no driver here"):
        node_facts(NodeAnswer(**post.look(lambda: ("abc", "10.1.2.3", [3]), lambda: None)), "n7", 1)


def test_one_that_cannot_be_started_says_so() -> None:
    post = NodeActor(SLEEPER, "/nowhere/python", cpu=True)
    post.start(b"{}\n", None)
    status, errors = last_of(post)
    assert status == 127
    assert errors == b"/nowhere/python: No such file or directory"
