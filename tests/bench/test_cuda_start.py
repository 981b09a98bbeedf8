"""A fake CUDA that cannot be used from the start, and where the worker runs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.bench.cuda import MACHINE, Runs, target, with_faults
from tests.bench.workers import needs_torch
from tests.fake_cuda.settings import Fault, Settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_torch

BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
NOT_INITIALIZED = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized"
)
NO_ROOM = Fault("allocate", exception="OutOfMemoryError", message="CUDA out of memory.")
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"


@pytest.mark.daily(4)
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (with_faults(Fault("context", message=BUSY)), "busy or unavailable"),
        (with_faults(Fault("init", message=NOT_INITIALIZED)), "system not yet initialized"),
        (with_faults(Fault("product", message=NO_KERNEL)), "no kernel image"),
        (replace(MACHINE, archs="sm_50 sm_60"), "built for sm_50 sm_60"),
        (with_faults(NO_ROOM), "CUDA out of memory"),
        (with_faults(Fault("pin", message="no pinned memory")), "no pinned memory"),
    ],
)
async def test_a_device_that_cannot_be_used_is_not_called_faulty(
    runs: Runs, settings: Settings, says: str
) -> None:
    failed = (await runs.run("soak", settings=settings)).failed
    assert failed.status == 3
    assert says in failed.problem.why
    assert "\n" not in str(failed.problem)


async def test_a_torch_for_cpus_says_what_to_install(runs: Runs) -> None:
    fault = "import torch\ntorch.version.cuda = None\n"
    failed = (await runs.run("soak", fault=fault)).failed
    assert failed.status == 3
    assert failed.problem.what == "This torch has no CUDA support"


CUBLAS = """
int cublasGetProperty(int part, int *value) { *value = part == 0 ? 13 : part; return 0; }
"""


@pytest.fixture(params=[CUBLAS, "int nothing;"], ids=["known", "unknown"])
def cublas(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str | None]:
    """Compile a library, and return its version, which one of them does not know."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "cublas.c", tmp_path / "libcublas.so.13"
    source.write_text(request.param)
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    return library, "13.1.2" if request.param == CUBLAS else None


@pytest.mark.driver
async def test_the_version_of_cublas_is_that_of_the_loaded_library(
    runs: Runs, cublas: tuple[Path, str | None]
) -> None:
    library, version = cublas
    heard = await runs.run("soak", fault=f"import ctypes\nctypes.CDLL({str(library)!r})\n")
    assert heard.hello.cublas_version == version


async def test_the_memory_of_the_context_is_that_of_neither_torch_nor_others(runs: Runs) -> None:
    known = (await runs.run("soak", target=replace(target(), memory_share=1.0))).result
    assert known.context_bytes == 600 << 20
