"""What is installed, and by which words: nobody is told to install what others publish."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from hatch_build import LINK, package_page, project_urls

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REMEDY = "uv pip compile --universal --python-version 3.11 --no-annotate --generate-hashes "
REMEDY += "--extra exporter --extra fleet "
REMEDY += "-c constraints.txt -o requirements.txt pyproject.toml"
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


def test_no_text_tells_to_install_what_is_not_ours() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "gputop").rglob("*.py")]
    told = {str(file.relative_to(ROOT)): foreign(file.read_text()) for file in files}
    assert {file: names for file, names in told.items() if names} == {}
    assert len(told) > 200


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> dict[str, set[str]]:
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / file).read_text(), re.MULTILINE)
    versions: dict[str, set[str]] = {}
    for name, version in found:
        versions.setdefault(normal(name), set()).add(version)
    return versions


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


REPOSITORY = "https://example.org/gputop"


@pytest.mark.parametrize(
    ("repository", "page"),
    [
        (
            REPOSITORY,
            (
                f"[a page]({REPOSITORY}/blob/HEAD/docs/faq.md#x) "
                f"![a picture]({REPOSITORY}/raw/HEAD/a.png) [out](https://x.org) [here](#here)"
            ),
        ),
        ("", "a page  [out](https://x.org) [here](#here)"),
    ],
)
def test_the_package_page_has_absolute_links_alone(repository: str, page: str) -> None:
    text = "[a page](docs/faq.md#x) ![a picture](a.png) [out](https://x.org) [here](#here)"
    assert package_page(text, repository) == page
    assert not LINK.search(package_page((ROOT / "README.md").read_text(), repository))
    assert all(url.startswith(REPOSITORY) for url in project_urls(repository).values())
    assert bool(project_urls(repository)) == bool(repository)


def test_what_is_built_has_the_manual_page_and_the_pictures(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert any(name.endswith(".data/data/share/man/man1/gputop.1") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"gputop", "gputop_tui"}
    with tarfile.open(source) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    tracked = (
        "docs/reference.md",
        "screenshots/device.png",
        "tests/test_install.py",
        "SECURITY.md",
    )
    assert {*tracked, "hatch_build.py", "man/gputop.1"} <= {*names}


def test_the_first_commands_leave_every_other_environment_alone() -> None:
    """Each is one line that stands as it is, and installs into an environment of its own."""
    blocks = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    use, test = [block for block in blocks if "pip install" in block]
    steps = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt"
    assert use == f'{steps} ".[bench]" && .venv/bin/gputop'
    assert test == f'{steps} -e ".[bench,dev]" && .venv/bin/pytest'
    assert test in (ROOT / "CONTRIBUTING.md").read_text()


def test_ci_runs_the_test_command_as_it_stands() -> None:
    """It is cut out of the README by the words of `.ci/run`."""
    extraction = re.search(r"^tests=\$\((sed .*)\)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert extraction is not None
    command = subprocess.check_output(["/bin/bash", "-c", extraction[1]], cwd=ROOT, text=True)
    assert f"\n{command.strip()}\n" in (ROOT / "README.md").read_text()
    assert command.strip().endswith(".venv/bin/pytest")
