"""Whole runs, word for word, on a clock that goes on only by what they do."""

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from gputop.bench.events import Done, Failed, Planned, Point, Progress
from tests.bench import cuda
from tests.bench.cuda import Heard, Runs, target
from tests.bench.workers import CPU, needs_torch
from tests.fake_cuda.settings import RATES, Fault, Settings

pytestmark = needs_torch

CLOCK = """
import itertools, torch
from tests.fake_cuda import clock
runs, begin, jitter = [], main.WorkerRun.__init__, itertools.cycle((1.0, 1.0, 1.02, 0.99, 1.0, 1.3))
def begin_watched(self, *arguments):
    begin(self, *arguments)
    runs.append(self)
def watch():
    if runs and (late := runs[0]._overdue()):
        runs[0].fail(late)
main.WorkerRun.__init__ = begin_watched
clock.install(watch)
rows.MOST_NAMED = 3
def uneven(a, b, *, out, multiply=torch.mm):
    torch.cuda._sleep(2e9 * next(jitter) * out.numel() * a.shape[1] / 1e10)
    return multiply(a, b, out=out)
torch.mm = uneven
def takes(seconds, work):
    def slow(*arguments, **options):
        main.time.sleep(next(jitter) * seconds(*arguments, **options))
        return work(*arguments, **options)
    return slow
operations = collective.Message.operations.fget
connecting = itertools.chain((100.0,), itertools.repeat(0.0))
def in_stream(message, work):
    def slow():
        main.time.sleep(next(connecting))
        torch.cuda._sleep(2e9 * next(jitter) * (0.01 + message.bytes / 2e5))
        work()
        message.full[7] += message._ranks.rank
    return slow
collective.Message.operations = property(
    lambda self: {name: in_stream(self, work) for name, work in operations(self).items()}
)
"""
NOT_TF32 = "product.set_precision = lambda *_: None\n"
ON_CPU = """
torch.set_num_threads(2)
torch.mm = takes(lambda a, b, out: 2 * out.numel() * a.shape[1] / 1e9, torch.mm)
torch.bitwise_xor = takes(lambda *_, out: out.nbytes / 1e8, torch.bitwise_xor)
torch.equal = takes(lambda one, _: one.nbytes / 1e8, torch.equal)
torch.Tensor.copy_ = takes(
    lambda to, *_, **__: to.nbytes / 1e9 / torch.get_num_threads(), torch.Tensor.copy_
)
run, burn.Traffic._copy_on = step.Step.run, lambda self: None
def run_once(self, times):
    main.time.sleep(200.0 if self.output is None else 0.03 * times)
    if self.x.shape[1] == 512:
        raise RuntimeError("not today")
    if self.output is None:
        run(self, 1)
step.Step.run = run_once
"""

NO_FLOAT32 = Fault("product", kind="float32", exception="TypeError", message="not today")
FULL = Fault("product", exception="OutOfMemoryError", message="CUDA out of memory.", size=32)
NOT_PINNED = Fault("pin", after=2, message="CUDA error: OS call failed")
BUSY = Fault("context", message="CUDA error: CUDA-capable device(s) is/are busy or unavailable")
NO_KERNEL = Fault("product", message="CUDA error: no kernel image is available for execution")
NO_LIBRARY = Fault("library", exception="TypeError", message="no such one", kind="cublaslt")
OLD = Settings(memory_gib=2.0, capability="8.0")
"""A GPU without float8, of which NVML says that it has it."""


def asked(
    kind: str,
    size: int | None = None,
    seconds: float = 2.6,
    rate: float = 0.002,
    gib: float = 2.0,
    faults: tuple[Fault, ...] = (),
    **further: Any,
) -> dict[str, Any]:
    """Return a run on a GPU of that TFLOP/s and memory."""
    machine = Settings(memory_gib=gib, rates=dict.fromkeys(RATES, rate), faults=faults)
    known = {"kind": kind, "size": size, "seconds": seconds, "settings": machine}
    return known | {"fault": CLOCK, "hertz": 0.0} | further


def on_cpu(kind: str, size: int | None = None, seconds: float = 2.6) -> dict[str, Any]:
    small = replace(CPU, memory_free_bytes=1 << 30)
    return asked(kind, size, seconds, target=small, dtype="float32", fault=CLOCK + ON_CPU)


CASES = {
    "soak": asked("soak", 128),
    "soak of auto size": asked("soak", rate=0.06),
    "soak of a slow device": asked("soak", 256, 250.0, rate=6e-7),
    "soak of float32 for tf32": asked("soak", 256, dtype="tf32", fault=CLOCK + NOT_TF32),
    "large float32 for tf32": asked("soak", 1024, rate=0.1, dtype="tf32", fault=CLOCK + NOT_TF32),
    "sweep of float32 for tf32": asked("sweep", 64, dtype="tf32", fault=CLOCK + NOT_TF32),
    "soak of a hopeless device": asked("soak", 1280, rate=1e-3),
    "soak, each product verified": asked("soak", 256, dtype="tf32", verify_all=True),
    "pulse": asked("pulse", 128, hertz=0.7),
    "pulse too fast": asked("pulse", 256, hertz=20.0),
    "sweep": asked("sweep", seconds=60.0, dtype="bfloat16,float32"),
    "sweep of a slow device": asked("sweep", 512, 200.0, rate=2.7e-5),
    "short sweep": asked("sweep", 128),
    "peak": asked("peak", 512, 40.0, rate=0.02),
    "peak of float8": asked("peak", 256, 20.0, dtype="float8_e4m3"),
    "float8 of an old GPU": asked("soak", 256, dtype="float8_e4m3", settings=OLD, target=target()),
    "bfloat16 beside float8 of an old GPU": asked(
        "sweep", 64, dtype="bfloat16,float8_e4m3", settings=OLD, target=target()
    ),
    "float16_acc16 of an old torch": asked(
        "sweep", 8, dtype="bfloat16,float16_acc16", settings=Settings(torch="2.4.1")
    ),
    "rows that fail": asked("sweep", 32, dtype="bfloat16,float32", faults=(NO_FLOAT32,)),
    "a row that does not fit": asked("sweep", 64, faults=(FULL,)),
    "no pinned memory": asked("copy", gib=1.25, faults=(NOT_PINNED,)),
    "a GPU that dies": asked("sweep", 8, faults=(Fault("product", "die", size=4),)),
    "a wrong GPU": asked("soak", 256, faults=(Fault("product", "wrong"),)),
    "no row": asked("sweep", 8, faults=(replace(NO_FLOAT32, kind=None),)),
    "a step of int8": asked("step", dtype="int8"),
    "a GPU that is busy": asked("soak", 256, faults=(BUSY,)),
    "no room": asked("soak", 256, faults=(replace(FULL, at="allocate", size=None),)),
    "no pinned counters": asked("soak", 256, faults=(replace(NOT_PINNED, after=0),)),
    "no kernel": asked("soak", 256, faults=(NO_KERNEL,)),
    "an older torch": asked("soak", 256, settings=Settings(archs="sm_50 sm_60")),
    "a torch for CPUs": asked("soak", 256, fault=f"{CLOCK}torch.version.cuda = None\n"),
    "no cuBLASLt": asked("peak", 256, faults=(NO_LIBRARY,)),
    "copy": asked("copy", seconds=60.0, gib=1.25),
    "step": asked("step", seconds=20.0),
    "soak of a CPU": on_cpu("soak", 128),
    "sweep of a CPU": on_cpu("sweep", 128),
    "burn of a CPU": on_cpu("burn", 128),
    "copy of a CPU": on_cpu("copy"),
    "step of a CPU": on_cpu("step"),
    "memory of a CPU": on_cpu("memory", seconds=8.0),
}
LEFT_OUT = {
    *("points", "conditions", "started_at"),
    *("host", "python", "torch_version", "gputop_version"),
}

VARIES = rf"(?<=relative error is )[-.\de]+|(?<=torch )\d\S+|{re.escape(sys.executable)}"


def shown(value: object) -> str:
    """Return a value with three digits, and of a mapping what is neither empty nor zero."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, tuple | list):
        return "×".join(map(shown, value))
    if isinstance(value, dict):
        known = {name: each for name, each in value.items() if each and name not in LEFT_OUT}
        return ", ".join(f"{name} {shown(each)}" for name, each in known.items())
    return str(value)


def described(heard: Heard) -> Iterator[str]:
    """Yield a line for each thing that a user sees, without what differs from run to run."""
    for event in heard.events:
        if isinstance(event, Done):
            yield f"Done: {shown(asdict(replace(event.result, method='', notes=())))}"
            yield from event.result.notes
        elif isinstance(event, Planned | Point | Progress | Failed):
            said = asdict(event)
            said["relative_error"] = said.get("relative_error", 0.0) > 0
            text = f"{type(event).__name__}: {shown(said)}"
            yield re.sub(VARIES, "…", text)


@pytest.fixture(autouse=True)
def _real_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "SMALL", "")


@pytest.mark.parametrize("case", CASES)
async def test_a_run_is_what_it_was(runs: Runs, case: str, snapshot: SnapshotAssertion) -> None:
    assert "\n".join(described(await runs.run(**CASES[case]))) == snapshot


@pytest.mark.parametrize(
    ("kind", "machine"),
    [
        ("copy", Settings(memory_gib=1.25)),
        ("copy", Settings(memory_gib=1.25, peer_access=False)),
        ("collective", Settings(memory_gib=0.64)),
    ],
)
async def test_a_run_of_two_is_what_it_was(
    runs: Runs, kind: str, machine: Settings, snapshot: SnapshotAssertion
) -> None:
    heard, other = await runs.together(kind, 2, 900.0, settings=machine, fault=CLOCK)
    assert "\n".join(described(heard)) == snapshot
    assert other.result.iterations == heard.result.iterations
    wrong = sum(row.values.get("wrong", 0) for row in heard.rows)
    assert (heard.result.wrong_elements, other.result.wrong_elements) == (0, wrong)
