"""Number formats: making, reading and multiplying operands, and the expected error.

Only this module uses private or new functions of torch, and it tries them before a run. Each class
is one way to multiply; `TYPES` maps the data types to the classes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from .errors import first_line, is_death, is_memory, no_dtype

ROWS = 64
"""Rows compared in float64, or made in float32, at a time. All data types have products of this
size."""
SPREAD = 32
"""Standard deviation of int8 operands. The type's range is four standard deviations."""
SMALL = 32
"""Size below which a norm has too few elements to be reliable."""
ERRORS = {
    "float32": (0.0, 2e-5),
    "tf32": (5e-5, 1.5e-3),
    "bfloat16": (5e-4, 4e-3),
    "float16": (5e-5, 6e-4),
    "float16_acc16": (5e-5, 6e-4),
    "float64": (0.0, 1e-12),
    "float8_e4m3": (5e-4, 1e-2),
    "int8": (0.0, 1e-12),
}
"""Relative error of a product against float64, as (minimum, limit). It hardly depends on the size.

Measured: IEEE float32 up to 5e-6 at 65536, TF32 3e-4 (rounded) and 8e-4 (truncated), bfloat16
1.6e-3 to 2.4e-3, float16 2e-4, float64 1e-16; on CPUs float8 1.6e-3, which is the rounding of its
bfloat16 result, and int8 0. Derived: tensor cores of compute capability 9.0 add float8 products
with about 13 bits after the leading bit, which can multiply the error.
"""


class Plain:
    """`torch.mm`, for types that torch supports everywhere."""

    call = "torch.mm"
    column_major_only = False
    accumulate = "float32"
    data = "random normal"

    def __init__(
        self,
        torch: Any,
        name: str,
        place: str,
    ) -> None:
        self.torch, self.name, self.place = torch, name, place
        self.choose()

    def choose(self) -> None:
        """Set torch's types of the operands and of C; raise `RunError` if torch lacks one."""
        name = self.name
        known = {"tf32": "float32", "float16_acc16": "float16"}.get(name, name)
        self.operand = self.result = getattr(self.torch, known)
        if name == "float64":
            self.accumulate = "float64"
        elif name == "float16_acc16":
            self.accumulate = "float16"
        elif self.place == "cpu" and name in ("float16", "bfloat16"):
            self.accumulate = "as the CPU library does"

    @property
    def epsilon(self) -> float:
        """Machine epsilon of the result."""
        return float(self.torch.finfo(self.result).eps)

    @property
    def more_exact(self) -> str:
        """Explanation for products that are more exact than this type.

        On an H100, cuBLAS uses TF32 only from m = 16 and n = k = 512 on.
        """
        if self.name == "tf32":
            return "computed in float32, not in tf32"
        if self.name == "float16_acc16":
            return "summed in float32, not in float16"
        return f"more exact than {self.name} is"

    def fill(self, operand: Any) -> None:
        """Fill an operand with random normal numbers in place, since a cast needs a wider copy."""
        operand.normal_()

    def prepare(self, product: Any) -> None:
        """Prepare further arguments of the product, such as scales."""

    def single_product(self, product: Any) -> Callable[[], object]:
        """Return a call that makes one product, with as little Python around it as possible."""
        return partial(
            self.torch.mm,
            product.a,
            product.b,
            out=product.c,
        )

    def multiply(self, product: Any, times: int) -> None:
        """Make that many products."""
        once = self.single_product(product)
        for _ in repeat(None, times):
            once()

    def errors(
        self,
        m: int,
        n: int,
        k: int,
    ) -> tuple[float, float]:
        """Return the range of the expected relative error as (minimum, limit)."""
        low, high = ERRORS[self.name]
        in_place = self.name == "float16_acc16"
        if (self.place == "cpu" and self.epsilon > 2.0**-20) or in_place:
            # Some CPU libraries sum in the operands' own format. The rounding
            # errors of such sums are a random walk.
            high += 0.5 * self.epsilon * k**0.5
        if in_place and k >= 2048:
            # A sum in float32 has half of this error. A float16 sum of 128
            # rounded steps has four times this error.
            low = 4e-4
        return (low, high) if min(m, n, k) >= SMALL else (0.0, 4 * high)


class Scaled(Plain):
    """float8: `torch._scaled_mm`, B column-major, one scale per operand on the device."""

    call = "torch._scaled_mm"
    column_major_only = True
    fast = False
    """True to sum in the tensor cores' own, less exact format."""
    data = "random normal, cast"

    def choose(self) -> None:
        """Set torch's types of the operands and of C."""
        kind = getattr(self.torch, "float8_e4m3fn", None)
        if kind is None:
            raise no_dtype(self.name, "this torch has no float8_e4m3fn")
        self.operand = kind
        self.result = self.torch.bfloat16
        if self.place == "cuda":
            self.accumulate = "float32, no fast accumulate"

    def fill(self, operand: Any) -> None:
        """Fill with random normal numbers, cast a few rows at a time."""
        for rows in operand.split(ROWS):
            rows.copy_(self.torch.randn(rows.shape, device=self.place))

    def prepare(self, product: Any) -> None:
        """Set scales of one, which random normal numbers need."""
        one = self.torch.ones((), dtype=self.torch.float32, device=self.place)
        product.scales = one, one

    def single_product(self, product: Any) -> Callable[[], object]:
        """Return a call that makes one product."""
        first, second = product.scales
        out = product.c
        if re.match(r"2\.4(?!\d)", self.torch.__version__):
            # Before 2.5 the function also returned the result's greatest
            # absolute value.
            out = (
                out,
                self.torch.empty(
                    (), dtype=self.torch.float32, device=self.place
                ),
            )
        return partial(
            self.torch._scaled_mm,  # noqa: SLF001 - torch's only name for it with `out`
            product.a,
            product.b,
            scale_a=first,
            scale_b=second,
            out_dtype=self.result,
            out=out,
            **({"use_fast_accum": True} if self.fast else {}),
        )


class Integer(Plain):
    """int8: `torch._int_mm`, summed in int32, so that every bit of the result is predictable."""

    call = "torch._int_mm"
    column_major_only = True
    accumulate = "int32"
    data = f"random normal, rounded, standard deviation {SPREAD}"

    def choose(self) -> None:
        """Set torch's types of the operands and of C."""
        self.operand = self.torch.int8
        self.result = self.torch.int32

    @property
    def epsilon(self) -> float:
        """Zero: nothing is rounded."""
        return 0.0

    def fill(self, operand: Any) -> None:
        """Fill with rounded random normal numbers, cast a few rows at a time."""
        for rows in operand.split(ROWS):
            numbers = self.torch.randn(rows.shape, device=self.place).mul_(
                SPREAD
            )
            rows.copy_(numbers.round_().clamp_(-127, 127))

    def single_product(self, product: Any) -> Callable[[], object]:
        """Return a call that makes one product."""
        int_mm = self.torch._int_mm  # noqa: SLF001 - torch's only name for it
        return partial(
            int_mm,
            product.a,
            product.b,
            out=product.c,
        )


TYPES: dict[str, type[Plain]] = {
    "float8_e4m3": Scaled,
    "int8": Integer,
}
"""Data types that `torch.mm` does not multiply."""


def set_precision(matmul: Any, dtype: str) -> None:
    """Choose IEEE or TF32. torch raises if both the old and the new setting are used."""
    if hasattr(matmul, "fp32_precision"):  # torch 2.9
        matmul.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
    else:
        matmul.allow_tf32 = dtype == "tf32"
    # Keep sums in float32 when cuBLAS splits a product along k.
    for name in ("fp16", "bf16"):
        setting = f"allow_{name}_reduced_precision_reduction"
        if hasattr(matmul, setting):
            setattr(matmul, setting, False)
    if hasattr(matmul, "allow_fp16_accumulation"):
        matmul.allow_fp16_accumulation = dtype == "float16_acc16"
    elif dtype == "float16_acc16":
        raise no_dtype(
            dtype, "this torch has no allow_fp16_accumulation, which 2.7 has"
        )


def try_product(product: Any) -> None:
    """Make one small product; raise `RunError` with torch's message if that fails."""
    try:
        product.fill()
        product.multiply()
        product.c[0, 0].item()  # on a GPU this is where it fails
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        if is_memory(error) or is_death(error):
            raise  # the data type is not the cause
        why = first_line(error) or type(error).__name__
        raise no_dtype(product.dtype, why) from error
