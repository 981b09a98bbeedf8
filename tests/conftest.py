"""What every test stands on: a neutral environment, and the fake driver where it can be built."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.driver import FakeDriver, build, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Textual and Rich read these at import, before any fixture runs. pytest-textual-snapshot hands its
# own variable to the workers of pytest-xdist.
for _name in [*os.environ]:
    if _name.startswith("TEXTUAL_SNAPSHOT"):
        continue
    if _name.startswith(("TEXTUAL", "FAKE_NVML")) or _name in (
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "COLUMNS",
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "FORCE_COLOR",
        "LINES",
        "NO_COLOR",
        "TTY_COMPATIBLE",
    ):
        del os.environ[_name]

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _own_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test or its children write lands in the user's home."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            environment.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        environment.setenv("XDG_RUNTIME_DIR", str(home))
        yield


@pytest.fixture(scope="session")
def build_driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the fake driver, `without` some functions; skips where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake driver needs a C compiler, and there is no cc on the PATH")
    directory = tmp_path_factory.mktemp("driver")
    return lambda *without: build(directory, compiler, without)


@pytest.fixture
def driver(build_driver: Callable[..., Path], tmp_path: Path) -> FakeDriver:
    """A fake driver for programs started with its `environment()`."""
    return FakeDriver(tmp_path, build_driver())


@pytest.fixture
def nvml(driver: FakeDriver) -> Iterator[FakeDriver]:
    """The fake driver, for `pynvml` in this process."""
    with loaded(driver):
        yield driver
