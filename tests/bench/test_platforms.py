"""`gputop bench` on machines as they are found: what is refused, and what the worker is given."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gputop.bench.worker import backends
from tests.bench.commands import ran
from tests.bench.workers import fake_interpreter
from tests.driver.platforms import a100_mig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver

TELLS = """
import json, os, sys
asked = json.loads(sys.stdin.readline())
what = f"{os.environ['CUDA_VISIBLE_DEVICES']} by {os.environ['CUDA_DEVICE_ORDER']}"
print(json.dumps(dict(event="error", kind="k", what=what, why="", remedy="")))
"""
"""A worker that says what it was given, and ends."""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "0:3"], "error: MIG-c7a4ad7e-57a9-5f8e-bb3e-7a1e4d2c8b33 by PCI_BUS_ID"),
        (["--ignore-busy"], "error: MIG-6f1c3b52-3d0e-5b1c-9f6a-0d8f0f6f5c11 by PCI_BUS_ID"),
    ],
)
def test_the_worker_gets_the_instance_and_nothing_else(
    driver: FakeDriver, tmp_path: Path, arguments: list[str], says: str
) -> None:
    driver.write(a100_mig())
    python = fake_interpreter(tmp_path, TELLS)
    ended = ran("--python", python, *arguments, **driver.environment())
    assert ended.returncode == 3
    (line,) = ended.stderr.splitlines()
    assert says in line


def fake_torch(*, integrated: bool) -> Any:
    """A torch whose device has 1 GiB free by CUDA's count."""
    properties = SimpleNamespace(is_integrated=integrated)
    cuda = SimpleNamespace(
        get_device_properties=lambda _: properties,
        empty_cache=lambda: None,
        mem_get_info=lambda: (1 << 30, 4 << 30),
    )
    return SimpleNamespace(cuda=cuda, int64=None, empty=lambda *_, **__: None)


@pytest.mark.parametrize(("integrated", "free"), [(False, 1 << 30), (True, 7 << 30)])
def test_the_worker_measures_shared_memory_on_the_host(
    monkeypatch: pytest.MonkeyPatch, integrated: bool, free: int
) -> None:
    """CUDA's own count leaves out what the kernel gives up when asked."""
    monkeypatch.setattr(backends, "host_available_bytes", lambda: 7 << 30)
    device = backends.Cuda(fake_torch(integrated=integrated), threading.Event())
    assert device.uses_host_memory is integrated
    assert device.free_bytes() == free
