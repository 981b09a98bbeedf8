import compileall
import itertools
import os
import pwd
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import gputop
from tests.driver import FakeDriver, build, loaded

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

os.environ["TZ"] = "UTC"
time.tzset()

# Hundreds of tests start gputop, which would be compiled anew each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# As many threads of torch in each of several processes as there are processors spend most of
# their time waiting for each other. Two are enough for what differs from one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("few-examples", settings.get_profile("any machine"), max_examples=10)
settings.load_profile("any machine")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of processes of `-n auto`; None leaves it to pytest-xdist.

    It is more than there are processors, since many tests wait for other processes. A few tests
    that are named one by one run in this process, which starts sooner.
    """
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    if config.args and all("::" in argument for argument in config.args):
        return 0
    return 2 * len(os.sched_getaffinity(0)) + 2


def pytest_configure(config: pytest.Config) -> None:
    """Compile gputop once, before each process of pytest-xdist would compile all of it."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(gputop.__file__).parent, quiet=2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a slow test where only those are wanted: it takes seconds to read."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if not is_test or config.option.markexpr != "slow":
        return None
    return None if re.search(r"mark\.(slow|daily)", collection_path.read_text()) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but so many of a table's tests as slow, spread over it, where `daily(N)` says so."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("daily") and not item.get_closest_marker("slow"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for table in tables.values():
        marker = table[0].get_closest_marker("daily")
        assert marker is not None
        kept = {number * len(table) // marker.args[0] for number in range(marker.args[0])}
        for number, item in enumerate(table):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _signals_of_a_terminal() -> None:
    """Undo what `nohup` and background jobs of a shell ignore, which children would inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders. `mktemp` would read the names of all that there are already, for every test."""
    folder = tmp_path_factory.mktemp("homes", numbered=False)
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_directories(_homes: Iterator[Path]) -> Iterator[None]:
    home = next(_homes)
    home.mkdir()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(home))
        for kind in ("CACHE", "CONFIG", "DATA", "STATE"):
            environment.setenv(f"XDG_{kind}_HOME", str(home / kind.lower()))
        environment.setenv("XDG_RUNTIME_DIR", str(home))
        yield


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with the number of a user that it does not know."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def build_driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the fake driver, `without` some functions; skips where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake driver needs a C compiler, and there is no cc on the PATH")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all processes of this run
    directory = folder / "driver"
    return lambda *without: build(directory, compiler, without)


@pytest.fixture
def driver(build_driver: Callable[..., Path], tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path, build_driver())


@pytest.fixture
def nvml(driver: FakeDriver) -> Iterator[FakeDriver]:
    with loaded(driver):
        yield driver
