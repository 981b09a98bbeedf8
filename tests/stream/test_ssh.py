import shlex
import subprocess
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.problem import Problem
from gputop.agent.process_limit import process_limit_problem
from gputop.stream.child import Interruption
from gputop.stream.launch import StreamOptions
from gputop.stream.ssh import explain_absence, parse_command, parse_host, ssh_command


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is empty"),
        ("-oProxyCommand=sh", "begins with `-`"),
        ("gpu-1\n", "spaces, or signs"),
        ("gpu\u31641", "spaces, or signs"),  # a letter to Unicode, and nothing to see
        ("$(reboot)", "spaces, or signs"),
        ("a" * 256, "longer than 255"),
    ],
)
def test_names_that_are_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match="is not a host: ") as raised:
        parse_host(name)
    assert why in str(raised.value)
    assert "Give a name or an alias of ssh" in str(raised.value)
    assert str(raised.value).isprintable()


@given(st.text(max_size=12))
def test_no_name_that_is_taken_can_be_an_option_or_a_command(text: str) -> None:
    try:
        name = parse_host(text)
    except ValueError:
        return
    assert name == text
    assert name
    assert not name.startswith("-")
    assert not set(name) & set(" \t\n'\"\\$`;&|<>(){}*?!#~^")
    assert not any(unicodedata.category(c).startswith(("C", "Z")) for c in name)
    assert shlex.split(name) == [name]


WORDS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)


@given(st.lists(WORDS, min_size=1))
def test_the_shell_over_there_gets_the_words_as_they_are(words: list[str]) -> None:
    line = ssh_command("gpu-1", ["printf", "%s\\0", *words])
    assert line[-3:-1] == ["--", "gpu-1"], "a host is never read as an option"
    assert {"BatchMode=yes", "Compression=yes"} <= {*line}
    done = subprocess.run(["/bin/sh", "-c", line[-1]], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gputop", ("gputop",)),
        ("~/venv/bin/gputop", ("./venv/bin/gputop",)),
        ("env CUDA=1 '/opt/my tools/gputop'", ("env", "CUDA=1", "/opt/my tools/gputop")),
        ("docker exec -i x gputop", ("docker", "exec", "-i", "x", "gputop")),
        ("gputop; reboot", ("gputop;", "reboot")),
    ],
)
def test_a_remote_command(text: str, words: tuple[str, ...]) -> None:
    assert parse_command(text) == words


@pytest.mark.parametrize("text", ["", "  ", "''", "'gputop"])
def test_what_is_no_remote_command(text: str) -> None:
    with pytest.raises(ValueError, match="is not a command"):
        parse_command(text)


def test_what_is_run_over_there() -> None:
    words = ["stream", "--interval", "0.25", "--control", "--no-gpm"]
    assert StreamOptions(0.25, control=True).words == words
    assert StreamOptions(1.0).words == ["stream", "--interval", "1"]
    assert StreamOptions(1.0, gpm=False).words[-1] == "--no-gpm"


def ended(errors: str, status: int | None = 255, why: str | None = None) -> Interruption:
    last = errors.splitlines()[-1] if errors else "it ended"
    problem = Problem("The sampler stopped", why or last, "")
    return Interruption(problem, status=status, errors=errors)


CHANGED = """\
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
Offending ED25519 key in /home/ada/.ssh/known_hosts:3
Host key verification failed."""
UNKNOWN = "No ED25519 host key is known for b.\nHost key verification failed."
JUMP = "connect to host jump port 22: Connection refused"
OLD_PYTHON = "gputop: error: python3 there is 3.6, which is too old. gputop needs ..."
NEWER = "the stream has schema 9, this reads up to 1: upgrade this gputop"
FORK = "bash: fork: retry: Resource temporarily unavailable"
LIMIT = f"gputop: error: {process_limit_problem('gputop cannot run')}."
SILENT = "it sent nothing for too long"
NO_SSH = "[Errno 2] No such file or directory: 'ssh'"
NO_HOST = "Could not resolve hostname b: Name or service not known"
REFUSED = "ada@b: Permission denied (publickey,password)."
NO_GPUTOP = ended("bash: line 1: gputop: command not found", 127)
NO_MODULE = ended("/usr/bin/python3: No module named gputop", 1)
OLD_GPUTOP = ended("gputop: error: unrecognized arguments: --control. Try ...", 2)
JUMP_REFUSED = ended(f"ssh: {JUMP}\nConnection closed by UNKNOWN port 65535")


AWAY = [
    *(ended(REFUSED), ended(CHANGED), ended(UNKNOWN), NO_GPUTOP, NO_MODULE),
    ended("bash: line 1: python3: command not found", 127),
    ended("python3: Command not found.", 1),
    ended("fish: Unknown command: python3", 127),
    *(ended(OLD_PYTHON, 3), JUMP_REFUSED, OLD_GPUTOP, ended(FORK, 254), ended(LIMIT, 3)),
    *(ended(f"ssh: {NO_HOST}"), ended("evil \x1b[2J\u202e words"), ended(""), ended("", 3)),
    ended("", 1),
    *(ended("", 0)._replace(printed="Bye"), ended("", -15, SILENT), ended("", None, NO_SSH)),
    ended("", -15, NEWER),
]


def test_why_a_host_is_away_and_what_to_do(snapshot: Any) -> None:
    told = [str(explain_absence("b", each)) for each in AWAY]
    told.append(str(explain_absence("localhost", ended("", 3))))
    assert all(text.isprintable() for text in told)
    assert "\n".join(told) == snapshot
    limit = process_limit_problem("b is unreachable")  # of `ssh` itself
    assert explain_absence("b", Interruption(process_limit_problem("It stopped"))) == limit
