from types import SimpleNamespace
from typing import Any

import pytest

from gputop.bench.plan.kinds import DTYPES
from gputop.bench.worker import formats, product
from gputop.bench.worker.errors import RunError
from tests.bench.forked import load_torch
from tests.bench.workers import needs_torch

pytestmark = needs_torch

ON_CPU = [name for name, dtype in DTYPES.items() if dtype.on_cpu]
SHAPE = (96, 160, 224)


def made(dtype: str, shape: tuple[int, int, int] = SHAPE, **how: bool) -> product.Product:
    torch = load_torch()
    torch.manual_seed(2)
    try:
        product.require(torch, dtype, "cpu")
    except RunError as refusal:
        pytest.skip(refusal.why)
    return product.Product(torch, dtype, shape, "cpu", **how)


@pytest.mark.parametrize("dtype", ON_CPU)
@pytest.mark.parametrize("column_major", [True, False])
@pytest.mark.parametrize("shape", [SHAPE, (5, 3, 7), (1, 1, 1), (32, 16, 17)])
def test_products_of_any_shape_are_exact_and_as_precise_as_the_type(
    dtype: str, column_major: bool, shape: tuple[int, int, int]
) -> None:
    it = made(dtype, shape, column_major=column_major)
    assert it.exact() == 0
    it.fill()
    it.keep_first()
    assert it.judge() == 0
    assert not it.check_precision()
    it.multiply(3)
    assert it.unexplained(it.c) == 0
    it.c[-1, -1] *= -1
    it.c[-1, -1] += 100  # also where it was zero
    assert it.unexplained(it.c) == 1
    it.first[0, 0] += int(it.first[:64, :64].double().norm()) + 1
    assert 1 <= it.judge() <= 1 + it.c.numel() // 2
    vars(it)["multiply"] = lambda: None
    assert it.exact() == it.c.numel(), "each element has to be written"


def test_the_error_grows_where_sums_are_in_float16_and_for_few_elements() -> None:
    def limits(dtype: str, k: int) -> tuple[float, float]:
        return formats.Plain(load_torch(), dtype, "cuda").errors(64, 64, k)

    assert limits("float16", 32) == limits("float16", 2048) == (5e-5, 6e-4)
    assert limits("float16", 31) == (0.0, 4 * 6e-4)
    assert limits("float16_acc16", 1024) == (5e-5, 6e-4 + 2.0**-6)
    assert limits("float16_acc16", 2048)[0] == 4e-4
    assert formats.Plain(load_torch(), "float16_acc16", "cuda").accumulate == "float16"
    assert "library" in formats.Plain(load_torch(), "bfloat16", "cpu").accumulate
    assert formats.Plain(load_torch(), "bfloat16", "cuda").accumulate == "float32"


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_have_the_size_that_the_plan_expects(dtype: str) -> None:
    it = product.Product(load_torch(), dtype, (16, 16, 16), "cpu")
    known = DTYPES[dtype]
    assert 8 * it.a.element_size() == known.operand_bits
    assert it.c.element_size() == known.result_bytes


@pytest.mark.parametrize("dtype", ON_CPU)
def test_operands_are_random_normal(dtype: str) -> None:
    it = made(dtype)
    it.fill()
    for operand in (it.a, it.stored_b):
        values = operand.double()
        unit = formats.SPREAD if dtype == "int8" else 1
        assert float(values.std()) == pytest.approx(unit, rel=0.05)
        assert abs(float(values.mean())) < 0.05 * unit


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`", True),
        ("torch._scaled_mm is only supported on CUDA devices", True),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_device_that_fails_is_not_taken_for_one_without_the_type(
    words: str, refused: bool
) -> None:
    def fail() -> None:
        raise RuntimeError(f"{words}\nadvice")

    nothing, first = lambda: None, {(0, 0): SimpleNamespace(item=fail)}
    failing: Any = SimpleNamespace(dtype="float8_e4m3", fill=nothing, multiply=nothing, c=first)
    expected = RunError if refused else RuntimeError
    with pytest.raises(expected, match="float8_e4m3" if refused else "illegal") as error:
        formats.try_product(failing)
    assert not refused or vars(error.value)["why"] == words


REDUCED = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")


def test_precision_is_set_by_one_switch_and_sums_stay_in_float32() -> None:
    def chosen(dtype: str) -> tuple[str, bool]:
        matmul = SimpleNamespace(
            fp32_precision="none", allow_fp16_accumulation=None, **dict.fromkeys(REDUCED, True)
        )
        formats.set_precision(matmul, dtype)
        assert not any(getattr(matmul, name) for name in REDUCED)
        assert not hasattr(matmul, "allow_tf32"), "to use both raises"
        return matmul.fp32_precision, bool(matmul.allow_fp16_accumulation)

    assert {name for name in DTYPES if chosen(name)[0] != "ieee"} == {"tf32"}
    assert [name for name in DTYPES if chosen(name)[1]] == ["float16_acc16"]
    old = SimpleNamespace(allow_tf32=True)
    formats.set_precision(old, "float16")
    assert old.allow_tf32 is False
    with pytest.raises(RunError, match="float16_acc16"):
        formats.set_precision(old, "float16_acc16")
