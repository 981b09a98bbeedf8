import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.plan import request
from gputop.bench.plan.kinds import DTYPES, DeviceKind
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.worker_order import worker_request

GIB = 1 << 30
CPU = Target("cpu", None, None, "a CPU", None, 16 * GIB)


def gpu(capability: str | None, free: int = GIB, name: str = "a GPU") -> Target:
    return Target("cuda", "GPU-0a", 0, name, capability, free)


V100, T4, A100 = gpu("7.0"), gpu("7.5", name="Tesla T4"), gpu("8.0")


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (CPU, {"float32", "float16", "bfloat16", "float64", "float8_e4m3", "int8"}),
        (gpu("5.2"), {"float32", "float64"}),
        (gpu("5.3"), {"float32", "float16", "float64"}),
        (V100, {"float32", "float16", "float16_acc16", "float64"}),
        (T4, {"float32", "float16", "float16_acc16", "float64", "int8"}),
        (A100, set(DTYPES) - {"float8_e4m3"}),
        (gpu("8.9"), set(DTYPES)),
        (gpu(None), set(DTYPES)),
    ],
)
def test_a_device_is_offered_what_it_has(target: Target, names: set[str]) -> None:
    assert set(request.offered_dtypes(target)) == names
    assert all(request.why_missing(DTYPES[name], target) for name in set(DTYPES) - names)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        (CPU, "float32"),
        (gpu("6.1"), "float32"),
        (V100, "float16"),
        (gpu("7.5", name="NVIDIA TITAN RTX"), "float16"),
        (gpu("7.5", name="NVIDIA GeForce GTX 1660 Ti"), "float32"),  # without tensor cores
        (A100, "bfloat16"),
        (gpu(None), "float32"),
    ],
)
def test_the_default_is_what_people_train_with(target: Target, dtype: str) -> None:
    assert request.default_dtype(target) == dtype
    assert dtype in request.offered_dtypes(target)


DTYPE = st.sampled_from(sorted(DTYPES))


@pytest.mark.parametrize(
    ("dtype", "size", "usable"),
    [
        ("float8_e4m3", 1000, 1008),
        ("int8", 1001, 1008),
        ("int8", 64, None),
        ("float32", 77, None),
    ],
)
def test_a_size_that_the_type_cannot_have_is_refused_with_the_next_that_it_can(
    dtype: str, size: int, usable: int | None
) -> None:
    problem = request.check_request(Request(gpu("10.0", free=8 * GIB), dtype, size, 10.0))
    assert (problem is None) is (usable is None)
    assert problem is None or problem.remedy == f"Choose --size {usable}"
    assert request.check_request(Request(CPU, "float32", size, 10.0)) is None


def test_a_size_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    target = gpu("8.0", free=8 * GIB)
    problem = request.check_request(Request(target, "float32", 65536, 10.0))
    assert problem is not None
    largest = request.largest_size(int(0.9 * 8 * GIB), "float32", "cuda")
    assert f"--size {largest} or smaller" in problem.remedy
    assert "68.8 GiB" in problem.why
    assert "8.00 GiB are free, 90 % of that may be used" in problem.why
    assert request.check_request(Request(target, "float32", largest, 10.0)) is None
    assert request.check_request(Request(target, "float32", largest + 64, 10.0)) is not None


def test_unknown_free_memory_is_left_to_the_worker() -> None:
    target = Target("cuda", "GPU-0a", 0, "a GPU", "8.0", None)
    assert request.check_request(Request(target, "float32", 1 << 20, 10.0)) is None
    sizes = {name: request.auto_limit(target, name) for name in DTYPES}
    assert sizes == dict.fromkeys(DTYPES, 8192) | {"float8_e4m3": 16384}
    assert request.largest_fitting_size(target, "float32") == 16384
    assert worker_request(Request(target, "tf32", None, 1.0)).dtypes[0].largest == 8192
    every = Request(target, "tf32", None, 1.0, verify_all=True)
    assert worker_request(every).dtypes[0].largest == 16384, "what fits, and not 4 times as much"
    room = dataclasses.replace(target, memory_free_bytes=80 * GIB)
    assert worker_request(dataclasses.replace(every, target=room)).dtypes[0].largest == 32768


def test_the_memory_that_products_of_size_1024_need() -> None:
    fixed: dict[DeviceKind, int] = {"cpu": 384, "cuda": 576}
    each = {"float32": 17, "float16": 9, "float64": 33, "float8_e4m3": 7, "int8": 11}
    for name, mib in each.items():
        for device, more in fixed.items():
            library = 20 if (name, device) == ("float8_e4m3", "cpu") else 0
            needed = request.memory_needed(1024, name, device)
            assert needed == (more + mib + library + 4) << 20, (name, device)


@given(st.integers(0, 1 << 42), st.floats(0.001, 1), DTYPE, st.integers(1, 1 << 14))
def test_a_run_never_takes_more_than_its_share(
    free: int, share: float, dtype: str, steps: int
) -> None:
    target = dataclasses.replace(gpu("10.0", free=free), memory_share=share)
    n = max(64 * steps, DTYPES[dtype].least)
    need = request.memory_needed(n, dtype, "cuda")
    fits = request.check_request(Request(target, dtype, n, 10.0)) is None
    assert fits == (need <= int(share * free))
    auto = request.auto_limit(target, dtype)
    assert auto == 0 or request.memory_needed(auto, dtype, "cuda") <= share * free


def test_a_data_type_that_is_not_there_is_refused_with_the_reason() -> None:
    problem = request.check_request(Request(CPU, "tf32", 1024, 10.0))
    assert problem is not None
    assert "compute capability 8.0" in problem.why
    assert "float32" in problem.remedy
    assert "tf32" not in problem.remedy


WORDS: dict[Any, tuple[str, dict[str, float | None], tuple[str, ...]]] = {
    request.parse_size: (
        r"is not a size: .*Give a whole number",
        {"auto": None, "AUTO": None, "4096": 4096, "64": 64, "1048576": 1 << 20},
        ("", "7x", "0", "63", "1048577", "-4096", "4_096", "4096.5", "٤٠٩٦", "9" * 40),
    ),
    request.parse_seconds: (
        r"is not a duration: .*Give a number",
        {"5": 5.0, "0.5": 0.5, "604800": 604800.0},
        ("", "0", "0.49", "604801", "-1", "nan", "inf", "5s"),
    ),
    request.parse_hertz: (
        "is not a frequency: it is from 0.1 to 20 Hz",
        {"0.1": 0.1, "20": 20.0},
        ("0.09", "20.1"),
    ),
    request.parse_percent: ("is not a percentage", {"0": 0.0, "100": 100.0}, ("-1", "101")),
    request.parse_share: (
        "is not a share of the free memory",
        {"1": 1.0, ".25": 0.25},
        ("0", "-0.5", "1.01", "nan", "inf", "half", "", "90 %"),
    ),
}


@pytest.mark.parametrize("parse", WORDS)
def test_sizes_durations_and_shares(parse: Any) -> None:
    says, good, bad = WORDS[parse]
    assert {text: parse(text) for text in good} == good
    for text in bad:
        with pytest.raises(ValueError, match=says):
            parse(text)
