"""Products that are more exact than their data type, as small ones of TF32 are on an H100.

A CPU has no TF32: its products of that name are made in float32, whatever their size.
"""

from __future__ import annotations

from typing import Any

import pytest

from gputop.bench.worker.errors import RunError
from gputop.bench.worker.product import Product, Shape
from tests.bench.forked import load_torch
from tests.bench.test_kinds import one_thread
from tests.bench.workers import QUICK, RawWorker, needs_torch, request

pytestmark = needs_torch
__all__ = ["one_thread"]  # a fixture of these tests, too

IN_FLOAT32 = "computed in float32, not in tf32"


def last_of(kind: str, size: int | None, *dtypes: str, seconds: float = 3.0) -> dict[str, Any]:
    first, *others = dtypes
    with RawWorker(request(first, size, seconds, kind, *others), QUICK) as raw:
        *_, last = raw.events()
    return last


@pytest.mark.parametrize(
    ("kind", "size", "named"),
    [
        ("sweep", 96, "32×32, 64×64, 96×96"),
        ("peak", 256, "256×256"),
        ("latency", None, "100×100, 1000×1000"),
    ],
)
def test_a_row_that_is_more_exact_is_named_in_one_note(kind: str, size: int, named: str) -> None:
    done = last_of(kind, size, "tf32")
    assert done["event"] == "done", done
    notes = [note for note in done["notes"] if IN_FLOAT32 in note]
    assert len(notes) == 1
    assert notes[0].startswith(named)
    assert notes[0].endswith(f": {IN_FLOAT32}")


def test_a_sweep_keeps_the_rows_of_its_other_types() -> None:
    with RawWorker(request("float32", 64, 20.0, "sweep", "tf32"), QUICK) as raw:
        events = list(raw.events())
    rows = [(event["series"], event["x"]) for event in events if event["event"] == "point"]
    sizes = [1, 2, 4, 8, 16, 32, 64]
    assert rows == [(name, size) for name in ("float32", "tf32") for size in sizes]
    assert events[-1]["notes"] == [f"32×32, 64×64: {IN_FLOAT32}"]


def test_small_products_of_a_soak_may_be_more_exact() -> None:
    done = last_of("soak", 128, "tf32", seconds=0.3)
    assert done["event"] == "done", done
    assert done["notes"] == [f"products of this size are {IN_FLOAT32}"]


def test_large_products_of_a_soak_may_not() -> None:
    error = last_of("soak", 1024, "tf32", seconds=0.3)
    assert error["event"] == "error", error
    assert error["kind"] == "precision"
    assert error["what"] == "The tf32 product was not made in tf32"


@pytest.mark.parametrize(
    ("dtype", "shape", "error", "label"),
    [
        ("tf32", (512, 512, 512), 3e-4, ""),
        ("tf32", (512, 512, 512), 2e-7, IN_FLOAT32),
        ("float16_acc16", (32, 32, 2048), 2e-4, "summed in float32, not in float16"),
        ("float16_acc16", (32, 32, 2048), 8e-4, ""),
        ("float16_acc16", (32, 32, 1024), 2e-4, ""),
        ("bfloat16", (64, 64, 64), 1e-6, "more exact than bfloat16 is"),
    ],
)
def test_how_a_product_was_made_is_seen_by_its_error(
    dtype: str, shape: Shape, error: float, label: str
) -> None:
    product = Product(load_torch(), dtype, shape, "cpu")
    product.relative_error = error
    assert product.check_precision() == label


@pytest.mark.parametrize(("dtype", "error"), [("tf32", 2e-3), ("float64", 1e-7)])
def test_a_product_that_is_less_exact_is_an_error(dtype: str, error: float) -> None:
    product = Product(load_torch(), dtype, (64, 64, 64), "cpu")
    product.relative_error = error
    with pytest.raises(RunError, match="was not made in"):
        product.check_precision()
