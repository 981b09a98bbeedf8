"""The training step: what it counts, how it is verified, and what it leaves behind."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, formats, rows, step
from tests.bench.forked import load_torch
from tests.bench.workers import STOP_SECONDS, RawWorker, RecordedRun, needs_torch, request

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = needs_torch

BLOCK, SCALED = step.Block("tiny", 64, 4, 2, 96, 32), step.SCALED


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small block, and a compiler that does nothing."""
    monkeypatch.setattr(step, "SCALED", (BLOCK,))
    monkeypatch.setattr(step, "WAKE_SECONDS", 0.0)
    monkeypatch.setattr(rows, "LEAST_SECONDS", 0.0)
    # Of a minute, which no busy machine needs.
    defaults: Any = rows.Rows.time.__kwdefaults__
    monkeypatch.setitem(defaults, "at_most", 0.1)
    monkeypatch.setattr(step, "compile_apart", lambda _: None)
    monkeypatch.setattr(load_torch(), "compile", lambda forward, **_: forward)


def stepped(dtype: str = "float32", **changes: Any) -> tuple[RecordedRun, list[dict[str, Any]]]:
    """A run in this process, and what it has sent."""
    asked = replace(worker_request(request(dtype, None, 60.0, "step")), **changes)
    run = RecordedRun(asked)
    step.step(backends.Cpu(load_torch(), threading.Event()), run)
    return run, run.sent


def made(dtype: str = "float32") -> step.Step:
    torch = load_torch()
    return step.Step(torch, BLOCK, getattr(torch, dtype), "cpu", compiled=False)


def test_products_are_counted_as_torch_counts_them() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    made_step = made()
    with FlopCounterMode(display=False) as counted:
        made_step.run(1)
    by_name = {str(name): count for name, count in counted.get_flop_counts()["Global"].items()}
    attention = 3 * 2 * BLOCK.tokens**2 * BLOCK.hidden
    assert by_name["aten.mm"] == BLOCK.flop - attention
    ahead = by_name.get("aten._scaled_dot_product_flash_attention_for_cpu")
    assert ahead in (None, 2 * attention // 3), "torch counts the whole square, and we half of it"


def test_the_blocks_have_their_published_numbers_of_weights() -> None:
    seven, seventy = step.BLOCKS
    assert 32 * seven.weights == pytest.approx(6.74e9 - 2 * 32000 * 4096, rel=0.01)
    assert 80 * seventy.weights == pytest.approx(68.98e9 - 2 * 32000 * 8192, rel=0.01)
    for scaled, real in zip(SCALED, step.BLOCKS, strict=True):
        for side in ("hidden", "ffn", "tokens"):
            assert 16 * getattr(scaled, side) == getattr(real, side)
        assert scaled.heads / scaled.kv_heads == real.heads / real.kv_heads


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_a_step_is_the_same_each_time_and_leaves_the_weights(dtype: str) -> None:
    one, other = made(dtype), made(dtype)
    weights = [each.detach().clone() for each in one.weights]
    one.run(1)
    other.run(20)
    allowed = step.band(formats.Plain(load_torch(), dtype, "cpu"))
    assert step.differing(other.figures(), one.figures(), allowed) == 0
    pairs = zip(weights, one.weights, strict=True)
    assert all(load_torch().equal(before, after) for before, after in pairs)
    assert all(state["exp_avg"].any() for state in one.optimizer.state.values())


def broken(change: Callable[[step.Step], object], after: int) -> Callable[..., None]:
    """A `Step.run` that changes what it made from that call on."""
    run, calls = step.Step.run, [0]

    def failing(self: step.Step, times: int) -> None:
        run(self, times)
        calls[0] += 1
        if calls[0] > after:
            change(self)

    return failing


@pytest.mark.daily(1)
@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.weights[1].grad.mul_(1.001),
        lambda made: made.x.grad[0, 0].fill_(float("nan")),
        lambda made: made.output.add_(1e-3 * made.upstream),
    ],
    ids=["a gradient", "not a number", "the loss"],
)
def test_a_wrong_step_is_found(
    change: Callable[[step.Step], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step.Step, "run", broken(change, 3))
    run, _ = stepped()
    assert run.totals.wrong > 0


def test_a_compiled_step_has_the_loss_of_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(forward: Callable[..., Any], **_: object) -> Callable[..., Any]:
        return lambda *arguments: 1.001 * forward(*arguments)

    monkeypatch.setattr(load_torch(), "compile", wrong)
    run, sent = stepped()
    found = [event["wrong_elements"] for event in sent if event["event"] == "verify"]
    assert found[:2] == [0, 0]
    assert run.totals.wrong == found[-1] > 0


def test_the_telling_line_of_a_compiler_is_its_error() -> None:
    text = "C++ compile error\n\nCommand:\ng++ x\nOutput:\nx.cpp:5: fatal error: Python.h: No such"
    assert step.reason(RuntimeError(text)) == "x.cpp:5: fatal error: Python.h: No such"
    assert step.reason(RuntimeError("")) == "RuntimeError"


@pytest.mark.slow
def test_a_stop_while_it_compiles_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, compiler = tmp_path / "tmp", tmp_path / "c++"
    folder.mkdir()
    compiler.write_text("#!/bin/sh\nsleep 600\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("CXX", str(compiler))
    with RawWorker(request("float32", None, 60.0, "step")) as raw:
        compilers, pause = list[psutil.Process](), threading.Event()
        while len(compilers) < 2:  # the compiler, and what does its work
            assert raw.process.poll() is None
            compilers = psutil.Process(raw.process.pid).children(recursive=True)
            pause.wait(0.02)
        assert [each.name[:16] for each in folder.iterdir()] == ["gputop-compiled-"]
        began = time.monotonic()
        raw.tell("stop")
        done = raw.until("done")
        assert time.monotonic() - began < STOP_SECONDS
        raw.process.wait(STOP_SECONDS)
    assert done["stopped"] == "user"
    assert done["figures"]["iterations"] > 0
    assert list(folder.iterdir()) == []
    assert psutil.wait_procs(compilers, timeout=10)[1] == []
