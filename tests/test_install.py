"""What is installed, and by which words: nobody is told to install what others publish."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REMEDY = "uv pip compile --universal --python-version 3.11 --no-annotate --generate-hashes "
REMEDY += "--extra exporter --extra fleet -c constraints.txt -o requirements.txt pyproject.toml"
INSTALLS = re.compile(
    r"""(?:\bpipx?|\bconda|\buv\ tool|\buv)\ (?:install|add|inject)\b(?P<words>[^`\n&|;]*)
    | from_checkout\(f?(?P<quote>["'])(?P<what>.*?)(?P=quote)\)""",
    re.VERBOSE,
)


def foreign(text: str) -> list[str]:
    """What the text tells to install that is not a checkout: a name on an index."""
    found = []
    for told in INSTALLS.finditer(text):
        words = iter(re.findall(r"""[^\s"'\\]+""", told["words"] or told["what"]))
        for word in words:
            if word in ("-c", "-r", "--constraint", "--requirement"):
                next(words)
            elif not word.startswith(("-", ".", "{what}")):
                found.append(word)
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`pip install gputop`", ["gputop"]),
        ("Type `python -m pip install -U ray torch`.", ["ray", "torch"]),
        ("pipx install gputop-tui && gputop", ["gputop-tui"]),
        ("uv add gputop", ["gputop"]),
        ("from_checkout('--upgrade gputop')", ["gputop"]),
        ('pip install -c constraints.txt -e ".[bench]" && pytest', []),
        ("`pip install .`, `pip uninstall gputop`", []),
    ],
)
def test_the_sweep_finds_names(text: str, names: list[str]) -> None:
    assert foreign(text) == names


def test_no_text_tells_to_install_what_is_not_ours() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "gputop").rglob("*.py")]
    told = {str(file.relative_to(ROOT)): foreign(file.read_text()) for file in files}
    assert {file: names for file, names in told.items() if names} == {}
    assert len(told) > 200


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / file).read_text(), re.MULTILINE)
    return {normal(name): version for name, version in found}


def test_what_is_pinned_by_hashes_is_of_the_versions_that_were_tested() -> None:
    hashed, tested = pins("requirements.txt"), pins("constraints.txt")
    assert hashed == {name: tested.get(name) for name in hashed}, REMEDY


def test_all_of_the_run_time_set_is_pinned_by_hashes() -> None:
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["exporter"], *extras["fleet"]]
    names = {normal(re.split(r"[^\w.-]", each)[0]) for each in needed}
    assert names <= pins("requirements.txt").keys(), REMEDY
    assert "torch" not in pins("requirements.txt")
    requirements = (ROOT / "requirements.txt").read_text().replace("\\\n", "").splitlines()
    for line in requirements:
        assert line.startswith("#") or "--hash=sha256:" in line
    assert any(REMEDY in line for line in requirements)  # how to make it anew


def test_constraints_have_no_hashes() -> None:
    """With one hash, pip wants one of everything, also of the checkout, which has none."""
    assert "--hash" not in (ROOT / "constraints.txt").read_text()
