"""Other distributions that install a `pynvml`, beside gputop in one environment."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

import gputop
from gputop.console import COULD_NOT_RUN
from tests.driver import FakeDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver

RIGHT = Path(pynvml.__file__).read_text(encoding="utf-8")
OLD = "class NVMLError(Exception): pass\nNVML_SUCCESS = 0\nnvmlInit = None\n"
"""Lacks most of what gputop calls, as old bindings do."""
PYTHON_2 = "print 'bindings for Python 2'\n"
WARNS = """
import sys, warnings

class Finder:
    def find_spec(self, name, *_):
        if name == "pynvml":
            warnings.warn("The pynvml package is deprecated.", FutureWarning, stacklevel=2)

sys.meta_path.insert(0, Finder())
"""
REMEDY = "Try `pip install --force-reinstall .` in a checkout of gputop"

Files = dict[str, str]


def distribution(name: str, version: str, files: Files) -> Files:
    """Return the files of a distribution as pip installs them, with its metadata."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    return {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/RECORD": "".join(f"{path},,\n" for path in files),
    }


NVIDIA = distribution("nvidia-ml-py", "13.615.71", {"pynvml.py": RIGHT})
OLD_PYNVML = distribution(
    "pynvml", "11.5.3", {"pynvml/__init__.py": "from .nvml import *\n", "pynvml/nvml.py": OLD}
)
"""A package: it wins the import over a module of the same name beside it."""
NEW_PYNVML = distribution(
    "pynvml", "13.0.1", {"_redirector.pth": "import _redirector", "_redirector.py": WARNS}
)
ML_PY3 = distribution("nvidia-ml-py3", "7.352.0", {"pynvml.py": OLD})
OLD_NVIDIA = distribution("nvidia-ml-py", "11.525.150", {"pynvml.py": OLD})
PYTHON_2_NVIDIA = distribution("nvidia-ml-py", "4.304.4", {"pynvml.py": PYTHON_2})

USABLE: dict[str, tuple[Files, str | None]] = {
    "alone": (NVIDIA, None),
    "pynvml 11": (NVIDIA | OLD_PYNVML, "pynvml 11.5.3"),
    "pynvml 13": (NVIDIA | NEW_PYNVML, None),
    "nvidia-ml-py3, overwritten": (ML_PY3 | NVIDIA, "nvidia-ml-py3 7.352.0"),
}
"""Layouts that have the right file, and what doctor names beside it."""
UNUSABLE: dict[str, tuple[Files, str]] = {
    "nvidia-ml-py3": (NVIDIA | ML_PY3, "nvidia-ml-py3 7.352.0 overwrote it"),
    "pynvml alone": (OLD_PYNVML, "pynvml 11.5.3 is there in its place"),
    "too old": (OLD_NVIDIA, "11.525.150 is older than 12.570"),
    "Python 2": (PYTHON_2_NVIDIA, "4.304.4 is older than 12.570"),
    "nothing": ({}, "it is not installed"),
}
"""Layouts that do not, and why."""


def environment(folder: Path, files: Mapping[str, str]) -> Path:
    """Make a virtual environment with gputop, its dependencies, and these for bindings.

    Returns its interpreter. The dependencies are those of this interpreter, by links.
    """
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for found in (path for entry in sys.path for path in sorted(Path(entry).glob("*"))):
        ours = found.parent.name == "site-packages"
        others = found.name.startswith(("pynvml", "nvidia_ml_py", "torch", "_editable"))
        link = site / found.name
        if ours and not others and found.suffix != ".pth" and not link.exists():
            link.symlink_to(found)
    (site / "gputop").symlink_to(Path(gputop.__file__).parent)
    for name, text in files.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def run(python: Path, driver: FakeDriver, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "gputop", *words],
        env={"HOME": "/", "PATH": "/usr/bin:/bin", **driver.environment()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def bindings(python: Path, driver: FakeDriver) -> dict[str, Any]:
    """Return what doctor says of them."""
    done = run(python, driver, "doctor", "--json", "--python", str(python))
    (found,) = [c for c in json.loads(done.stdout)["checks"] if c["check"] == "bindings"]
    return dict(found)


@pytest.mark.daily(1)
@pytest.mark.parametrize("layout", USABLE)
def test_the_right_file_is_used_whatever_lies_beside_it(
    driver: FakeDriver, tmp_path: Path, layout: str
) -> None:
    files, other = USABLE[layout]
    python = environment(tmp_path / "env", files)
    driver.write(FakeDevice(), FakeDevice(power_milliwatts=612_000))
    done = run(python, driver, "stream", "--count", "1")
    assert (done.returncode, done.stderr) == (0, "")
    inventory, sample = map(json.loads, done.stdout.splitlines()[-2:])
    assert inventory["driver_state"] == "ok"
    assert sample["devices"][1]["power_watts"] == 612
    said = bindings(python, driver)
    assert said["finding"].startswith("nvidia-ml-py 13.615.71")
    assert said["status"] == ("note" if other else "ok")
    assert (other or "") in said["finding"]


@pytest.mark.daily(1)
@pytest.mark.parametrize("layout", UNUSABLE)
def test_without_the_right_file_every_command_says_so_in_a_line(
    driver: FakeDriver, tmp_path: Path, layout: str
) -> None:
    files, why = UNUSABLE[layout]
    python = environment(tmp_path / "env", files)
    driver.write(FakeDevice())
    line = f"No usable nvidia-ml-py: {why}. {REMEDY}"
    for words in (("status",), ("pick",), ("stream", "--count", "1", "--format", "csv")):
        done = run(python, driver, *words)
        assert line in done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == COULD_NOT_RUN
    said = bindings(python, driver)
    assert said["status"] == "problem"
    assert said["finding"] == f"No usable nvidia-ml-py: {why}"
    assert said["remedy"] == REMEDY
