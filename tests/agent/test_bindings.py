import importlib.util
import sys
import warnings
from pathlib import Path

import pynvml
import pytest

from gputop.agent.interface import DriverError
from gputop.agent.nvml import bindings

RIGHT = Path(pynvml.__file__).read_text(encoding="utf-8")
OLD = "class NVMLError(Exception): pass\n"
"""Lacks what gputop calls, as old bindings do."""
WARNS = f"import warnings\nwarnings.warn('It is deprecated.', FutureWarning)\n{RIGHT}"
MODULE, PACKAGE = "pynvml.py", "pynvml/__init__.py"
NVIDIA, PYNVML, PY3 = "nvidia-ml-py 13.615", "pynvml 11.5.3", "nvidia-ml-py3 7.352"


@pytest.fixture(autouse=True)
def _only_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standard = [folder for folder in sys.path if "site-packages" not in folder]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *standard])
    monkeypatch.delitem(sys.modules, "pynvml")
    importlib.invalidate_caches()


def install(folder: Path, distribution: str, name: str, text: str) -> None:
    project, version = distribution.split()
    metadata = folder / f"{project.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project}\nVersion: {version}\n")
    (metadata / "RECORD").write_text(f"{name},,\n")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "others",
    [
        [],
        [(PYNVML, PACKAGE, OLD)],
        [(PYNVML, PACKAGE, "print 'for Python 2'")],
        [("pynvml 13.0.1", PACKAGE, WARNS)],
    ],
    ids=["alone", "hidden", "hidden by a file that fails", "with a warning"],
)
def test_the_right_file_is_used_whatever_lies_beside_it(
    tmp_path: Path, others: list[tuple[str, str, str]]
) -> None:
    for each in [(NVIDIA, MODULE, RIGHT), *others]:
        install(tmp_path, *each)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hasattr(bindings._load(), bindings.NEWEST_FUNCTION)


@pytest.mark.parametrize(
    ("installed", "why"),
    [
        ([(NVIDIA, MODULE, RIGHT), (PY3, MODULE, OLD)], "nvidia-ml-py3 7.352 overwrote it"),
        ([(PYNVML, PACKAGE, OLD)], "pynvml 11.5.3 is there in its place"),
        ([("nvidia-ml-py 11.525.150", MODULE, OLD)], "11.525.150 is older than 12.570"),
        ([("nvidia-ml-py 4.304.4", MODULE, "print 'x'")], "4.304.4 is older than 12.570"),
        ([], "it is not installed"),
    ],
)
def test_without_the_right_file_it_says_why(
    tmp_path: Path, installed: list[tuple[str, str, str]], why: str
) -> None:
    for each in installed:
        install(tmp_path, *each)
    with pytest.raises(DriverError) as raised:
        bindings._load()
    assert str(raised.value.problem) == (
        f"No usable nvidia-ml-py: {why}. "
        "Try `pip install --force-reinstall .` in a checkout of gputop"
    )
