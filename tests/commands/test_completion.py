"""`gputop completion`: what the shells are given, and what they make of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import shtab

from gputop.commands.parser import parser
from gputop.stream.launch import module_command
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_gputop "$@"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(source: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    command = ["bash", "--norc", "-c", COMPLETE, "bash", str(source), "gputop", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script as the shipped command prints it."""
    needs("bash")
    file = tmp_path_factory.mktemp("completion") / "gputop"
    command = [*module_command("gputop"), "completion", "bash"]
    with file.open("w") as output:
        subprocess.run(command, check=True, stdout=output, timeout=60)
    return file


offers = pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("be",), {"bench"}),
        (("bench", "sw"), {"sweep"}),
        (("completion", "z"), {"zsh"}),
        (("bench", "--dt"), {"--dtype"}),
        (("--theme", "colour"), {"colour-blind", "colour-blind-light"}),
        (("--no-m",), {"--no-mouse"}),
        (("status", "--j"), {"--json"}),
        (("stream", "--format", "js"), {"jsonl"}),
    ],
    ids=lambda words: " ".join(sorted(words)),
)


@offers
def test_bash_offers_what_fits(bash: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert completed(bash, *words) == offered


@offers
def test_fish_offers_what_fits(tmp_path: Path, words: tuple[str, ...], offered: set[str]) -> None:
    needs("fish")
    assert offered_by_fish(tmp_path, *words) == offered


def offered_by_fish(tmp_path: Path, *words: str) -> set[str]:
    file = tmp_path / "gputop.fish"
    file.write_text(shtab.complete(parser(), "fish"))
    ask = "source $argv[1]; complete -C $argv[2]"
    command = ["fish", "--no-config", "-c", ask, str(file), " ".join(("gputop", *words))]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


def test_zsh_completes_what_is_typed(tmp_path: Path) -> None:
    needs("zsh")
    (tmp_path / "_gputop").write_text(shtab.complete(parser(), "zsh"))
    setup = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u; PS1=rea''dy; clear"
    env = {"HOME": str(tmp_path)}
    with Terminal(["zsh", "-f", "-i"], env, 200, 30) as terminal:
        terminal.send(f"{setup}\r")
        terminal.wait_for("ready")
        for typed, completed in {
            "be": "bench",
            "bench sw": "bench sweep",
            "bench --device 0 --dt": "bench --device 0 --dtype",
            "--host one sta": "--host one status",
            "--no-m": "--no-mouse",
        }.items():
            terminal.send(f"\x15gputop {typed}\t")
            terminal.wait_for(f"gputop {completed}")


def needs(shell: str) -> None:
    """Skip the test where the shell is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
