import shutil
import subprocess
from pathlib import Path

import pytest
import shtab

from gputop.commands.parser import parser
from tests.e2e.shipped import run

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_gputop "$@"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(source: Path, *words: str) -> set[str]:
    command = ["bash", "--norc", "-c", COMPLETE, "bash", str(source), "gputop", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "gputop"
    file.write_text(run("completion", "bash").stdout)
    return file


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("be",), {"bench"}),
        (("bench", "sw"), {"sweep"}),
        (("completion", "z"), {"zsh"}),
        (("bench", "--dt"), {"--dtype"}),
        (("--theme", "colour"), {"colour-blind", "colour-blind-light"}),
        (("--no-m",), {"--no-mouse"}),
        (("stream", "--format", "js"), {"jsonl"}),
    ],
)
def test_bash_offers_what_fits(bash: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert completed(bash, *words) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(shell: str, tmp_path: Path) -> None:
    script = shtab.complete(parser(), shell)
    assert all(word in script for word in ("sweep", "dtype", "colour-blind-light", "no-mouse"))
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, timeout=60)
