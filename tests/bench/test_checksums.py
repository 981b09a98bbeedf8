from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.worker import loads, throughput
from gputop.bench.worker.checksums import Checksums
from gputop.bench.worker.product import NOT_REPEATABLE, REPEATS, Product
from tests.bench.forked import load_torch
from tests.bench.test_worker import cpu, paced, run_in_process
from tests.bench.workers import needs_torch

pytestmark = needs_torch

ON_CPU = [name for name, dtype in DTYPES.items() if dtype.on_cpu]
RIGHT = [0, 0, 0]


@pytest.fixture(autouse=True)
def _quick_float8(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep oneDNN out of float8: with AMX it takes its reference, which needs 1 s a product."""
    with pytest.MonkeyPatch.context() as patch:
        if "[float8" in request.node.name:
            patch.setattr(load_torch().backends.mkldnn, "enabled", False)
        yield


class Injected(Product):
    """A product whose result is changed by `faults`, by the number of the product."""

    made = 0
    faults: dict[int, Callable[[Any], None]]

    def multiply(self, times: int = 1) -> None:
        for _ in range(times):
            super().multiply()
            self.made += 1
            if fault := self.faults.get(self.made):
                fault(self.c)


def verified(dtype: str, m: int, n: int, k: int, **how: bool) -> tuple[Injected, Checksums]:
    torch = load_torch()
    product = Injected(torch, dtype, (m, n, k), "cpu", **how)
    product.faults = {}
    product.fill()
    product.keep_first()
    assert product.judge() == 0
    product.sums = Checksums(product)
    product.made = 0
    return product, product.sums


def one_sigma(c: Any) -> None:
    """Adds as much to an element as elements usually are, in any type."""
    row, column = c.shape[0] // 3, c.shape[1] - 2
    c[row, column] += c.double().square().mean().sqrt().to(c.dtype)


def not_a_number(c: Any) -> None:
    c[1, 2] = float("nan") if c.is_floating_point() else -(2**31)


@pytest.mark.daily(2)
@pytest.mark.parametrize("fault", [one_sigma, not_a_number])
@pytest.mark.parametrize("dtype", ON_CPU)
def test_one_wrong_element_in_one_of_500_products_is_found(
    dtype: str, fault: Callable[[Any], None]
) -> None:
    product, sums = verified(dtype, 32, 528, 32)  # two sums in each row, the second of 16 columns
    product.faults = {377: fault}
    sums.multiply(376)
    assert sums.take().tolist() == RIGHT
    sums.multiply(124)
    assert sums.take().tolist() == [1, 1, 0]
    assert sums.repeat() == NOT_REPEATABLE


@pytest.mark.parametrize("dtype", ON_CPU)
def test_a_high_bit_of_an_element_is_found(dtype: str) -> None:
    """As a cell or a line would lose it: the top of the exponent."""
    product, sums = verified(dtype, 64, 512, 32)
    wide = {"float64": "torch.float64", "int8": "torch.int32"}.get(dtype, "torch.float32")
    assert str(sums.right.dtype) == wide
    bits = 8 * product.c.element_size()
    size = product.c.double().abs()
    usual = (size > size.square().mean().sqrt()).nonzero().tolist()
    for bit in (1 << bits - 2, 1 << bits - 3):
        for row, column in (usual[0], usual[-1]):

            def flip(_: Any, bit: int = bit, at: tuple[int, int] = (row, column)) -> None:
                product.c_bits[at] ^= bit

            product.made, product.faults = 0, {2: flip}
            sums.multiply(3)
            assert sums.take().tolist() == [1, 1, 0]


def round_otherwise(c: Any) -> None:
    c.view(load_torch().int16)[3, 4] ^= 1


def test_other_bits_of_the_right_value_are_counted_and_not_wrong() -> None:
    product, sums = verified("bfloat16", 64, 512, 64)
    product.faults = {2: round_otherwise, 5: round_otherwise}
    sums.multiply(6)
    assert sums.take().tolist() == [0, 0, 2]
    one_sigma(product.first)
    assert Checksums(product).take().tolist() == [1, 1, 0], "also the first product is verified"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(range(1, 9), "wrong"), (range(1, 2), "not repeatable"), (range(1, 3), "unexplained")],
)
def test_a_mismatch_is_repeated_and_told_apart(wrong: range, kind: str) -> None:
    product, sums = verified("float32", 64, 64, 64)
    product.faults = dict.fromkeys(wrong, one_sigma)
    sums.multiply()
    assert sums.take().tolist() == [1, 1, 0]
    assert sums.repeat() == kind
    assert sums.take().tolist() == RIGHT, "the repetitions are not counted"


SIDES = st.sampled_from((1, 2, 7, 16, 48, 64, 130, 512, 520, 1030))
INNER = st.sampled_from((48, 64, 130, 512, 520, 1030))
"""Sizes begin at 64. With one term the band is too narrow for a float16 product in thousands."""


def accused(dtype: str, m: int, n: int, k: int, column_major: bool) -> list[int]:
    """What is found in a right product of that shape, or of the next one that the type has."""
    if dtype == "int8" or dtype.startswith("float8"):
        m, n, k = (max(32, -(-side // 16) * 16) for side in (m, n, k))
    product, sums = verified(dtype, m, n, k, column_major=column_major)
    sums.multiply()
    found: list[int] = sums.take().tolist()
    # The same sums in another order, as another library would have them.
    a, b = (each.double() for each in (product.a, product.stored_b))
    b = b.t() if product.column_major else b
    wide = a.dtype if dtype == "float64" else load_torch().float32
    step = max(1, k // 8)
    parts = [slice(at, at + step) for at in range(0, k, step)]
    other = sum(a[:, part].to(wide) @ b[part].to(wide) for part in parts)
    product.faults = {2: lambda c: c.copy_(other)}
    if dtype != "int8":  # float32 does not hold its sums
        sums.multiply()
    return found[:2] + [each + more for each, more in zip(found, sums.take().tolist(), strict=True)]


@pytest.mark.daily(2)
@pytest.mark.parametrize("dtype", ON_CPU)
@settings(max_examples=40, deadline=None)
@given(m=SIDES, n=SIDES, k=INNER, column_major=st.booleans())
def test_right_products_are_not_accused(
    dtype: str, m: int, n: int, k: int, column_major: bool
) -> None:
    assert accused(dtype, m, n, min(k, 130), column_major)[:4] == [0, 0, 0, 0]


def test_the_run_counts_every_product(monkeypatch: pytest.MonkeyPatch) -> None:
    product, _ = verified("float32", 192, 192, 192)
    run = run_in_process(0.3)
    totals = run.totals = throughput.SoakTotals(product.flop)
    monkeypatch.setattr(product, "exact", lambda: 0)
    product.faults = {30: one_sigma}
    device = cpu()
    loads.measure(device, run, product, paced(device, 20))
    assert totals.verified == totals.iterations > 30
    assert totals.wrong == 1
    assert totals.mismatches == {"not repeatable": 1}
    assert product.made == totals.iterations + REPEATS
