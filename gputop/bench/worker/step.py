"""`step`: the training step of a transformer block."""

from __future__ import annotations

import gc
import math
import time
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import RunError, is_memory, no_dtype
from .formats import Plain
from .needs import GIB
from .product import room_beside
from .rows import WAKE_SECONDS, Rows

if TYPE_CHECKING:
    from .main import WorkerRun

TRAINED = ("float32", "tf32", "float16", "bfloat16", "float64")
FIRST_STEP_SECONDS = 300.0
"""Longest first step. It loads the libraries' kernels, perhaps from a network file system, and a
step of 20 TFLOP takes ten seconds on a GPU with 2 TFLOP/s."""
REMEDY = "End other processes on the device, or choose another --device or --memory-share"


class Block(NamedTuple):
    """Shape of a transformer block and of its input, one sequence of `tokens` tokens."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    tokens: int = 4096

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the weights: norm, Q, K, V, output, norm, gate, up, down."""
        h, f, kv = (
            self.hidden,
            self.ffn,
            self.hidden // self.heads * self.kv_heads,
        )
        return (
            (h,),
            (h, h),
            (kv, h),
            (kv, h),
            (h, h),
            (h,),
            (f, h),
            (f, h),
            (h, f),
        )

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(map(math.prod, self.shapes))

    @property
    def flop(self) -> int:
        """FLOP of a step by the usual count: the forward pass, and twice as much backward.

        The forward pass has 2 FLOP for each weight and token, and 2·tokens²·hidden for attention:
        half (by the causal mask) of two products of tokens x tokens x hidden. Norms, SwiGLU,
        softmax, the optimizer, and recomputation in the backward pass are not counted.
        """
        multiplied = self.weights - 2 * self.hidden
        return 6 * self.tokens * (multiplied + self.tokens * self.hidden)

    def bytes_needed(self, each: int) -> int:
        """Return the approximate bytes of a step with `each` bytes per element.

        These are weights, gradients, two moments, temporary memory as large as the weights, and
        activations.
        """
        return each * (
            5 * self.weights + self.tokens * (24 * self.hidden + 8 * self.ffn)
        )

    def __str__(self) -> str:
        sides = (
            f"{name.replace('_', ' ')} {getattr(self, name)}"
            for name in self._fields[1:]
        )
        return f"{self.name}: {', '.join(sides)}"


BLOCKS = (Block("7B", 4096, 32, 32, 11008), Block("70B", 8192, 64, 8, 28672))
SCALED = (
    Block("7B/16", 256, 4, 4, 688, 256),
    Block("70B/16", 512, 8, 1, 1792, 256),
)
"""Blocks for CPUs: a 16th of hidden, ffn and tokens, and as many heads in proportion."""


def step(device: Any, run: WorkerRun) -> None:
    """Measure a row for each block."""
    torch, dtype = device.torch, run.request.dtype
    if dtype not in TRAINED:
        raise no_dtype(dtype, f"a step trains in {', '.join(TRAINED)}")
    # The first optimizer loads the compiler, which takes seconds.
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    torch.set_float32_matmul_precision(
        "high" if dtype == "tf32" else "highest"
    )
    form, blocks = Plain(torch, dtype, device.place), BLOCKS
    if device.place == "cpu":
        blocks = SCALED
        run.notes.append(
            "the blocks are scaled for a CPU: a 16th of hidden, ffn and tokens"
        )
    rows = Rows(device, run, len(blocks))
    rows.plan(
        dtype,
        "RMSNorm, QKV, causal scaled_dot_product_attention, output, RMSNorm, SwiGLU, residuals, no "
        "rotary embedding; forward, backward, fused AdamW (learning rate 0, so that each step has "
        "the same loss); weights, gradients and moments in "
        f"{dtype}, no float32 copy; {'; '.join(map(str, blocks))}; FLOP: 6 for each weight and "
        "token, 6·tokens²·hidden of attention (half the square, as it is causal), nothing else; "
        "wall time, without the first step, which loads kernels; medians",
        accumulate=form.accumulate,
        layout="one sequence",
        data="random normal",
    )
    for block in blocks:
        if rows.end_early():
            return
        _row(rows, block, form)
    if not rows.table.rows and not run.halt.is_set():
        raise RunError(
            "memory", "No training step could be run", run.notes[-1], REMEDY
        )


class Step:
    """A block with its weights, an input, and the gradient of a loss with respect to the output.

    The gradient is random, and the loss is the scalar product of gradient and output.
    """

    def __init__(
        self,
        torch: Any,
        block: Block,
        kind: Any,
        place: str,
    ) -> None:
        self.torch, self.weights = torch, []

        def normal(shape: tuple[int, ...], deviation: float = 1.0) -> Any:
            return torch.empty(shape, dtype=kind, device=place).normal_(
                0.0, deviation
            )

        for shape in block.shapes:
            deviation = shape[1] ** -0.5 if len(shape) > 1 else 1.0
            self.weights.append(normal(shape, deviation).requires_grad_())
        self.x = normal((block.tokens, block.hidden)).requires_grad_()
        self.upstream = normal(tuple(self.x.shape), block.tokens**-0.5)
        self.output: Any = None
        self.optimizer = torch.optim.AdamW(self.weights, lr=0.0, fused=True)
        heads = block.heads, block.kv_heads
        self.forward = partial(_forward, torch.nn.functional, *heads, self.x)

    def run(self, times: int) -> None:
        """Make training steps. They do not change the weights, and keep the last gradients."""
        for _ in repeat(None, times):
            self.optimizer.zero_grad(set_to_none=True)
            self.x.grad = None
            output = self.forward(*self.weights)
            output.backward(self.upstream)
            self.optimizer.step()
            self.output = output.detach()

    def figures(self) -> list[float]:
        """Return the loss in units of its standard deviation, and the norms of all gradients."""
        torch, double = self.torch, self.torch.float64
        wide = torch.promote_types(self.x.dtype, torch.float32)
        norm = partial(torch.linalg.vector_norm, dtype=double)
        loss = (self.output.to(wide) * self.upstream.to(wide)).sum(
            dtype=double
        )
        deviation = (
            norm(self.output)
            * norm(self.upstream)
            / self.output.numel() ** 0.5
        )
        gradients = [norm(each.grad) for each in (*self.weights, self.x)]
        found: list[float] = torch.stack(
            [loss / deviation, *gradients]
        ).tolist()
        return found


def _forward(
    functional: Any, heads: int, kv_heads: int, x: Any, *weights: Any
) -> Any:
    norm, q, k, v, out, second_norm, gate, up, down = weights
    linear, hidden = functional.linear, x.shape[1:]
    y = functional.rms_norm(x, hidden, norm)

    def of_heads(weight: Any, count: int) -> Any:
        split = (
            linear(y, weight)
            .view(len(x), count, -1)
            .transpose(0, 1)
            .unsqueeze(0)
        )
        return (
            split
            if count == heads
            else split.repeat_interleave(heads // count, 1)
        )

    operands = of_heads(q, heads), of_heads(k, kv_heads), of_heads(v, kv_heads)
    attended = functional.scaled_dot_product_attention(
        *operands, is_causal=True
    )
    x = x + linear(attended[0].transpose(0, 1).reshape(x.shape), out)
    y = functional.rms_norm(x, hidden, second_norm)
    return x + linear(functional.silu(linear(y, gate)) * linear(y, up), down)


def band(form: Plain) -> float:
    """Return the allowed relative error of a figure: one rounding of the data type, and more.

    In wide types the order of sums has more influence, hence 16 further roundings. On CPUs a
    repeated step has the same bits.
    """
    epsilon = 2.0**-10 if form.name == "tf32" else form.epsilon
    return epsilon + 16 * min(epsilon, 2.0**-23)


def differing(
    found: list[float],
    right: list[float],
    allowed: float,
) -> int:
    """Return the number of figures that are not finite, or differ by more than `allowed`."""
    pairs = zip(found, right)  # noqa: B905 - Python 3.9 has no `strict`
    return sum(
        not abs(one - other) <= allowed * max(1.0, abs(other))
        for one, other in pairs
    )


def _row(
    rows: Rows,
    block: Block,
    form: Plain,
) -> None:
    device, run, allowed = rows.device, rows.run, band(form)
    made = _begun(rows, block, form)
    if made is None:
        rows.to_come -= 1
        return
    first = made.figures()
    began, each = time.monotonic(), 0.0
    while not each or time.monotonic() - began < WAKE_SECONDS:
        each = device.wall(made.run, 1)
    run.verified(differing(made.figures(), first, allowed), 0)
    timed = rows.time(
        made.run,
        device.wall,
        each,
        flop=block.flop,
    )
    if timed is None:
        return
    run.verified(differing(made.figures(), first, allowed), 1)
    tflops = block.flop / timed.seconds / 1e12
    rows.table.best(tflops)
    rate = {
        "tflops": tflops,
        "tokens_per_second": block.tokens / timed.seconds,
    }
    rows.add(block.name, block.tokens, {**rate, **timed.values})


def _begun(
    rows: Rows,
    block: Block,
    form: Plain,
) -> Step | None:
    """Return a step after its first run. If it cannot run here, add a note and return None."""
    device, run, torch = rows.device, rows.run, rows.device.torch
    label = f"{block.name}: left out"
    gc.collect()  # a reference cycle may keep the previous step alive
    needed = block.bytes_needed(
        torch.empty((), dtype=form.operand).element_size()
    )
    if (room := room_beside(0, device, run.request)) < needed:
        has = f"{max(0, room) / GIB:.1f} GiB may be used"
        run.notes.append(
            f"{label}, it needs {needed / GIB:.1f} GiB, and {has}"
        )
        return None
    run.working(FIRST_STEP_SECONDS)
    began = time.monotonic()
    try:
        made = Step(
            torch,
            block,
            form.operand,
            device.place,
        )
        made.run(1)
        device.synchronize()
    except Exception as error:
        if not is_memory(error):
            raise
        run.notes.append(f"{label}, it does not fit after all")
        return None
    finally:
        rows.until += time.monotonic() - began
    return made
