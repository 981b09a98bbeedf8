import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import backends, formats, rows, step
from tests.bench.forked import load_torch
from tests.bench.workers import RecordedRun, needs_torch, request

pytestmark = needs_torch

BLOCK, SCALED = step.Block("tiny", 64, 4, 2, 96, 32), step.SCALED


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "SCALED", (BLOCK,))
    monkeypatch.setattr(step, "WAKE_SECONDS", 0.0)
    monkeypatch.setattr(rows, "LEAST_SECONDS", 0.0)
    # Of a minute, which no busy machine needs.
    defaults: Any = rows.Rows.time.__kwdefaults__
    monkeypatch.setitem(defaults, "at_most", 0.1)


def stepped(dtype: str = "float32", **changes: Any) -> tuple[RecordedRun, list[dict[str, Any]]]:
    asked = replace(worker_request(request(dtype, None, 60.0, "step")), **changes)
    run = RecordedRun(asked)
    step.step(backends.Cpu(load_torch(), threading.Event()), run)
    return run, run.sent


def test_float32_is_not_rounded_to_tf32() -> None:
    for dtype, precision in (("tf32", "high"), ("float32", "highest")):
        stepped(dtype)
        assert load_torch().get_float32_matmul_precision() == precision


def made(dtype: str = "float32") -> step.Step:
    torch = load_torch()
    torch.manual_seed(0)
    return step.Step(torch, BLOCK, getattr(torch, dtype), "cpu")


def test_products_are_counted_as_torch_counts_them() -> None:
    made_step = made()
    from torch.utils.flop_counter import FlopCounterMode

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
    assert seven.bytes_needed(2) == pytest.approx(3.55e9, rel=0.01)
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
    assert [bool(each["exp_avg"].any()) for each in one.optimizer.state.values()] == [True] * 9
    made_tensors = [one.output, *(each.grad for each in one.weights)]
    sizes = [each.double().square().mean().sqrt() for each in made_tensors]
    assert all(0.3 < float(size) < 2.0 for size in sizes), "float16 holds them"


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
