"""Tables on a fake GPU: small products of TF32, slow ones of float64, rows that fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.events import Done, Failed, Point
from gputop.bench.plan.request import Request, Target
from gputop.bench.run.session import Session
from tests.bench.test_faults import heard
from tests.bench.workers import QUICK, broken_worker, fake_interpreter, needs_torch
from tests.fake_cuda import PYTHON
from tests.fake_cuda.settings import Fault, Settings

if TYPE_CHECKING:
    from gputop.bench.events import Event, Result

pytestmark = [needs_torch, pytest.mark.slow]

GPU = Target("cuda", "GPU-0a1b", 0, "a GPU", "9.0", 8 << 30)
IN_FLOAT32 = "computed in float32, not in tf32"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a test on a GPU with these settings, and return its events.

    Unless `whole`, a row takes no longer than it must.
    """
    monkeypatch.setenv("FAKE_CUDA_PYTHON", sys.executable)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    quick = Path(fake_interpreter(tmp_path, broken_worker(QUICK)))
    quick.write_text(quick.read_text().replace(sys.executable, str(PYTHON)))

    async def run(
        kind: str,
        *dtypes: str,
        size: int | None = None,
        seconds: float = 30.0,
        whole: bool = False,
        **settings: Any,
    ) -> list[Event]:
        for name, value in Settings(**settings).environment().items():
            monkeypatch.setenv(name, value)
        first, *others = dtypes
        python = PYTHON if whole else quick
        asked = Request(GPU, first, size, seconds, str(python), kind, tuple(others))
        return await heard(Session(asked))

    return run


def result_of(events: list[Event]) -> Result:
    last = events[-1]
    assert isinstance(last, Done), last
    assert last.result.wrong_elements == 0
    return last.result


def rows_of(result: Result) -> list[tuple[str, float]]:
    return [(point.series, point.x) for point in result.points]


async def test_a_peak_of_tf32_tries_small_products_too(gpu: Any) -> None:
    result = result_of(await gpu("peak", "tf32", size=768, seconds=8.0, tf32_from=512))
    assert {256, 384, 512, 768} <= {round(point.x) for point in result.points}
    (note,) = (each for each in result.notes if IN_FLOAT32 in each)
    assert note.startswith("256×256, 384×384")


async def test_a_sweep_has_the_rows_of_both_types(gpu: Any) -> None:
    result = result_of(await gpu("sweep", "bfloat16", "tf32", size=512, tf32_from=512))
    sizes = {
        name: [x for series, x in rows_of(result) if series == name]
        for name in ("bfloat16", "tf32")
    }
    assert sizes["bfloat16"][-1] == sizes["tf32"][-1] == 512
    assert len(result.points) == len(sizes["bfloat16"]) + len(sizes["tf32"])
    (note,) = (each for each in result.notes if IN_FLOAT32 in each)
    assert note.startswith("32×32, 64×64, 96×96, 128×128, 192×192, 256×256, 384×384:")


async def test_latency_of_tf32_has_all_rows(gpu: Any) -> None:
    result = result_of(await gpu("latency", "tf32", tf32_from=512))
    assert len(result.points) == 18
    assert f"100×100: {IN_FLOAT32}" in result.notes


@pytest.mark.parametrize("rate", [1.29, 0.2])
async def test_latency_of_slow_products_keeps_to_its_time(gpu: Any, rate: float) -> None:
    """float64 on an L40S: 500 launches took 0.8 s, of which the clock saw 3 ms."""
    rates = {"float64": rate}
    result = result_of(await gpu("latency", "float64", seconds=12.0, whole=True, rates=rates))
    assert len(result.points) == 18, result.notes
    known = {point.series: point.values["seconds"] for point in result.points if point.x == 1000}
    assert known["eager"] > 1e-3 / rate
    assert known["launch alone"] < known["eager"] / 5
    assert known["CUDA graph"] > 1e-3 / rate


NOT_SUPPORTED = "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx`"


@pytest.mark.parametrize(
    ("exception", "message"), [("TypeError", "no"), ("RuntimeError", NOT_SUPPORTED)]
)
async def test_a_shape_that_fails_is_noted(gpu: Any, exception: str, message: str) -> None:
    fault = Fault("product", exception=exception, message=message, size=64)
    result = result_of(await gpu("sweep", "bfloat16", size=96, faults=(fault,)))
    assert [x for _, x in rows_of(result)] == [1, 2, 4, 8, 16, 32, 96]
    assert f"bfloat16 64×64: not measured, {exception}: {message}" in result.notes


async def test_a_type_that_fails_leaves_the_rows_of_another(gpu: Any) -> None:
    fault = Fault("product", message=NOT_SUPPORTED, kind="float64")
    result = result_of(await gpu("sweep", "float64", "bfloat16", size=32, faults=(fault,)))
    assert rows_of(result) == [("bfloat16", n) for n in (1, 2, 4, 8, 16, 32)]
    (note,) = result.notes
    assert note == (
        "float64 1024×1024 to wake the device, float64 1×1, float64 2×2, float64 4×4, "
        "float64 8×8, float64 16×16, float64 32×32: not measured, "
        f"RuntimeError: {NOT_SUPPORTED}"
    )


async def test_a_graph_that_cannot_be_captured_is_noted(gpu: Any) -> None:
    message = "CUDA error: operation not permitted when stream is capturing"
    fault = Fault("capture", message=message)
    result = result_of(await gpu("latency", "bfloat16", faults=(fault,)))
    assert len(result.points) == 15
    assert any(
        each.startswith("CUDA graph of 5×5, CUDA graph of 100×100, CUDA graph of 1000×1000: ")
        for each in result.notes
    )


async def test_a_library_that_cannot_be_chosen_is_noted(gpu: Any) -> None:
    fault = Fault("library", exception="TypeError", message="no such library", kind="cublaslt")
    result = result_of(await gpu("peak", "bfloat16", size=256, seconds=3.0, faults=(fault,)))
    assert any("with cuBLASLt: not measured, TypeError" in each for each in result.notes)
    assert any(each.startswith("that shape with zeros: ") for each in result.notes)


async def test_a_gpu_that_dies_in_a_table_is_faulty(gpu: Any) -> None:
    fault = Fault("product", "die", size=64)
    *events, last = await gpu("sweep", "bfloat16", size=96, faults=(fault,))
    assert isinstance(last, Failed)
    assert last.status == 1
    assert last.problem.what == "The device died"
    assert [event.x for event in events if isinstance(event, Point)] == [1, 2, 4, 8, 16, 32]


async def test_float8_runs_with_torch_2_4(gpu: Any) -> None:
    result = result_of(await gpu("soak", "float8_e4m3", size=512, seconds=1.0, torch="2.4"))
    assert result.iterations > 0


@pytest.mark.parametrize(("size", "fine"), [(256, True), (1024, False)])
async def test_a_soak_in_tf32_may_be_more_exact_only_if_small(
    gpu: Any, size: int, fine: bool
) -> None:
    last = (await gpu("soak", "tf32", size=size, seconds=1.0, tf32_from=4096))[-1]
    if fine:
        assert f"products of this size are {IN_FLOAT32}" in result_of([last]).notes
    else:
        assert isinstance(last, Failed)
        assert last.status == 3
        assert last.problem.what == "The tf32 product was not made in tf32"
