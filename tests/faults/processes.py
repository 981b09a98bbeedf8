"""Faults of processes: the sampler and the worker killed, stopped, failing, or talking nonsense."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
from typing import TYPE_CHECKING

from tests.bench.workers import broken_worker, fake_interpreter
from tests.e2e.pretender import worker
from tests.faults.scenario import KEYS, Key, Scenario, shows, three

if TYPE_CHECKING:
    from tests.driver import FakeDevice
    from tests.faults.scenario import Deed
    from tests.faults.stage import Stage

SAMPLER, WORKER = "gputop stream", "fake_worker"
RUNNING = "Running bfloat16"
START_SECONDS = 60.0
"""Until torch is there, on a machine that others use as well."""
HELP, CLOSED, _, _ = KEYS
ON_BENCHMARK = (
    HELP,
    CLOSED,
    Key("1", shows("44 %"), "the monitor"),
    Key("2", shows(" Kind "), "the benchmark again"),
)
"""Keys for what is said in the benchmark tab."""
WORKS = worker()


def free(pid: int) -> tuple[FakeDevice, ...]:
    """Three devices that nobody uses: a stress test begins without a question."""
    return tuple(dataclasses.replace(each, processes=()) for each in three(0))


def signalled(word: str, number: signal.Signals) -> Deed:
    """That signal for the process with that word in its command line."""

    def deed(stage: Stage) -> None:
        pid = stage.pid_of(word)
        stage.memory["pid"] = pid
        os.kill(pid, number)

    return deed


def goes_on(stage: Stage) -> None:
    """What was stopped, unless it was ended for that."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(stage.memory["pid"], signal.SIGCONT)


def with_worker(body: str) -> Deed:
    """A Python with torch, in which the worker does that."""

    def prepare(stage: Stage) -> None:
        stage.arguments += ["--python", fake_interpreter(stage.folder, body)]

    return prepare


def opened(stage: Stage) -> None:
    """The benchmark tab is there: to make it takes a moment that is not the fault's."""
    stage.terminal.send("2")
    stage.see(" Kind ")
    stage.terminal.send("1")
    stage.see("44 %")


def begun(stage: Stage) -> None:
    """The first device under stress."""
    opened(stage)
    stage.terminal.send("b")
    stage.terminal.wait_for(RUNNING, START_SECONDS)
    stage.until(lambda terminal: re.search(r"now +\d", terminal.text), "throughput")


def by_itself(stage: Stage) -> None:
    """What ends without anybody's doing."""


def of_a_run(name: str, body: str, says: tuple[str, ...], **more: object) -> Scenario:
    """A worker that breaks by itself, soon after it was started."""
    given: dict[str, object] = {
        "lead": opened,
        "fault": lambda stage: stage.terminal.send("b"),
        "prepare": with_worker(body),
        "devices": free,
        "alive": None,
        "keys": ON_BENCHMARK,
    }
    return Scenario(name=name, says=says, **{**given, **more})  # type: ignore[arg-type]


def with_torch(body: str) -> Deed:
    """A Python whose torch does that when it is imported; the worker is the real one."""

    def prepare(stage: Stage) -> None:
        (stage.folder / "torch.py").write_text(body)
        with_worker(broken_worker(""))(stage)

    return prepare


SAMPLERS = (
    Scenario(
        name="sampler killed",
        fault=signalled(SAMPLER, signal.SIGKILL),
        says=("it was ended by SIGKILL. Restarting the sampler",),
        passes=True,
        mend=by_itself,
        then=("44 %",),
        then_silent=("started again",),
    ),
    Scenario(
        name="sampler stopped, and continued",
        fault=signalled(SAMPLER, signal.SIGSTOP),
        says=("No data for ",),
        alive=None,
        mend=goes_on,
        then=("44 %",),
        then_silent=("No data for ",),
    ),
)
WORKERS = (
    of_a_run(
        "worker killed, as where memory runs out",
        WORKS,
        ("Ended after ", "it was ended by SIGKILL", "If memory ran out (`dmesg` says so)"),
        lead=begun,
        fault=signalled(WORKER, signal.SIGKILL),
        silent=("Running",),
    ),
    of_a_run(
        "worker stopped, and continued",
        WORKS,
        ("Silent for ", "x ends it", "now –"),
        lead=begun,
        fault=signalled(WORKER, signal.SIGSTOP),
        mend=goes_on,
        then=(RUNNING,),
        then_silent=("No word", "now –"),
    ),
)
TORCH = of_a_run(
    "torch cannot be imported",
    "",
    ("Not run: ", "ImportError: libcudart.so.12: cannot open", "Try another torch"),
    prepare=with_torch("raise ImportError('libcudart.so.12: cannot open shared object file')"),
)
SCENARIOS = (*SAMPLERS, *WORKERS, TORCH)
