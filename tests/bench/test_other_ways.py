"""Other ways in which `peak` makes the product of its best shape."""

from __future__ import annotations

from types import SimpleNamespace

from gputop.bench.worker import formats, shapes
from gputop.bench.worker.product import Product
from tests.bench.forked import load_torch
from tests.bench.test_worker import cpu
from tests.bench.workers import needs_torch

pytestmark = needs_torch


def made(dtype: str = "float32") -> Product:
    product = Product(load_torch(), dtype, (64, 64, 64), "cpu")
    product.fill()
    return product


def test_a_cpu_multiplies_zeros() -> None:
    product = made()
    ((name, change),) = shapes.other_ways(cpu(), product)
    assert name == "zeros"
    change()
    product.keep_first()
    assert not product.first.any()
    assert product.judge() == 0
    product.first[3, 5] = 1.0
    assert product.judge() > 0


def test_a_gpu_has_two_libraries_and_float8_two_sums() -> None:
    asked = ["default"]

    def preferred(name: str | None = None) -> str:
        asked.extend([name] if name else [])
        return asked[-1]

    torch = load_torch()
    backends = SimpleNamespace(cuda=SimpleNamespace(preferred_blas_library=preferred))
    device = SimpleNamespace(
        place="cuda", torch=SimpleNamespace(backends=backends, uint8=torch.uint8)
    )
    during = []
    for way, change in shapes.other_ways(device, made()):
        change()
        during.append((way, asked[-1]))
    assert during == [("cuBLAS", "cublas"), ("cuBLASLt", "cublaslt"), ("zeros", "default")]
    product = made()
    product.format = formats.Scaled.__new__(formats.Scaled)
    fast = []
    for way, change in shapes.other_ways(device, product):
        change()
        fast.append((way, product.format.fast))
    assert fast == [("fast accumulate", True), ("zeros", False)]
