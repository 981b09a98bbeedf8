"""Streams over the system's `ssh`: hosts, command lines, and the reasons for failures."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gputop import FROM_CHECKOUT
from gputop.agent.device import THIS_MACHINE
from gputop.agent.problem import Problem
from gputop.agent.process_limit import says_process_limit
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.stream.child import Interruption

CONNECT_SECONDS = 8
OPTIONS = (
    # A prompt would appear on the dashboard's screen.
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_SECONDS}",
    # A dead link is detected after 30 s, or earlier because the stream is
    # silent. The limit is not lower, because sending the agent at 8 kB/s
    # delays answers for this long.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=5",
    # Use an existing master. A new one would outlive gputop.
    "ControlMaster=no",
    # Compression makes JSON 12 times smaller and costs 1 ms per sample.
    "Compression=yes",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    # The last line gives the reason for a failure.
    "LogLevel=INFO",
)
"""Options that override the user's configuration.

They include Compression, because a user's `no` cannot be distinguished from OpenSSH's default. An
existing connection (ControlPath) is used as it is, compressed or not.
"""
MOST_HOSTS = 256
"""Maximum number of hosts at a time. Each needs an `ssh` process."""
LONGEST_NAME = 255
SHOWN = 64
"""Characters shown of a name or a command that is refused."""
REASON_CHARACTERS = 300
_NAME = r"[\w.@:%/\[\]+-]+"
"""Letters and digits of any script, and the punctuation of names, addresses and `ssh://`.

Nothing else is allowed, because `ssh` may put the name into shell commands (ProxyCommand, Match
exec).
"""


def parse_host(text: str) -> str:
    """Check a host for `ssh`. Raises `ValueError` with the problem, the reason and the remedy."""
    if not text:
        why = "it is empty"
    elif any(part.startswith("-") for part in re.split("[@/]", text)):
        why = "it begins with `-`, as an option does"
    elif len(text) > LONGEST_NAME:
        why = f"it is longer than {LONGEST_NAME} characters"
    elif not re.fullmatch(_NAME, text) or visible(text) != text:
        why = "it has spaces, or signs that names do not have"
    else:
        return text
    raise ValueError(
        f"{visible(text, SHOWN)!r} is not a host: {why}. "
        "Give a name or an alias of ssh, such as gpu-1 or ada@gpu-1."
    )


def parse_command(text: str) -> tuple[str, ...]:
    """Split `--remote-command` into words. Raises `ValueError` with problem, reason and remedy.

    `~/` at the start of a word becomes `./`, because `ssh` starts the command in the home folder.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(
            f"{visible(text, SHOWN)!r} is not a command: {error}. Quote it as in a shell."
        ) from None
    if not words or not words[0]:
        raise ValueError(
            "'' is not a command. Give one such as ~/venv/bin/gputop."
        )
    return tuple(
        f".{word[1:]}" if word.startswith("~/") else word for word in words
    )


def ssh_command(host: str, words: Sequence[str]) -> list[str]:
    """Return the command line that runs `words` on the host, quoted for its login shell."""
    options = [part for option in OPTIONS for part in ("-o", option)]
    return ["ssh", *options, "--", host, shlex.join(words)]


STARTUP_FILE = "Start-up files there (such as ~/.bashrc) should print and prompt only in terminals"
_UPGRADE_THERE = (
    f"Upgrade it: {FROM_CHECKOUT} there, or leave out --remote-command"
)
_NO_PYTHON = (
    r"(?i)python3: (command not found|not found|no such file)"
    r"|(command not found|unknown command): ?python3"
)
"""Messages of bash, dash, csh and fish."""


class _Rule(NamedTuple):
    """Meaning of the last output of `ssh`."""

    pattern: str
    why: str
    """Reason in words. It may contain groups of the pattern, such as {0}."""
    remedy: str
    status: int | None = None
    """Required exit status; None for any."""


_RULES = (
    _Rule(
        r"(?:ssh: )?([^\n]*)(?s:.*)UNKNOWN port 65535",
        "its jump host refused the connection: {0}",
        "Try `ssh` with the jump host alone",
    ),
    _Rule(
        _NO_PYTHON, "there is no python3", "Install Python 3.9 or later there"
    ),
    _Rule(
        r"python3 there is ([\d.]+)",
        "its python3 is {0}, and 3.9 or later is needed",
        "Install a newer python3 there, or gputop with --remote-command",
    ),
    _Rule(
        "No module named '?gputop",
        "gputop is not found there",
        "Leave out --remote-command, or give the path of gputop there",
    ),
    _Rule(
        "",
        "its command is not found there",
        "Leave out --remote-command, or give the path of gputop there",
        status=127,
    ),
    _Rule(
        r"Permission denied \(",
        "it needs a password or another key",
        "`ssh-copy-id {host}`, or `ssh-add` the key",
    ),
    _Rule(
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "Find out why, then `ssh-keygen -R {host}`",
    ),
    _Rule(
        "Host key verification failed",
        "its host key is not known",
        "Check it with `ssh {host}` once",
    ),
    _Rule(
        "(Could not resolve hostname [^\n]*)",
        "{0}",
        "Correct the name, or add it to ~/.ssh/config with its HostName",
    ),
    _Rule(
        r"((?:connect to host [^\n]*|Connection )timed out[^\n]*|No route to host|Network is \w+)",
        "{0}",
        "See whether the machine is on, and whether `ssh {host}` reaches it",
    ),
    _Rule(
        "unrecognized arguments|invalid choice|is (?:not known|unknown). Did you mean|` has no --",
        "its gputop is too old, or is another program",
        _UPGRADE_THERE,
        status=2,
    ),
    _Rule(
        "upgrade this gputop",
        "its gputop is newer than this one",
        f"Upgrade this one: {FROM_CHECKOUT}",
    ),
    _Rule(
        "No such file or directory: 'ssh'",
        "`ssh` is not installed here",
        "Install OpenSSH's client",
    ),
)


def explain_absence(host: str, interruption: Interruption) -> Problem:
    """Return why a host is unreachable and the remedy, from its last output and exit status."""
    what = f"{host} is unreachable"
    status = interruption.status
    said = f"{interruption.errors}\n{interruption.problem.why}"
    if says_process_limit(said):
        # Without error output, `ssh` itself did not start: this machine's
        # limit was reached.
        if host == THIS_MACHINE or not interruption.errors:
            return replace(interruption.problem, what=what)
        why = "no more threads or processes can be started there"
        return Problem(
            what, why, "Raise `ulimit -u` or pids.max of its cgroup there"
        )
    for rule in _RULES:
        found = re.search(rule.pattern, said)
        if found and rule.status in (None, status):
            why = visible(rule.why.format(*found.groups()), REASON_CHARACTERS)
            return Problem(what, why, rule.remedy.format(host=host))
    if (
        interruption.printed
        and not interruption.errors
        and host != THIS_MACHINE
    ):
        return after_output(host, _end(interruption), interruption.printed)
    remedy = (
        "gputop tries again"
        if host == THIS_MACHINE
        else f"`ssh {host}` may say more"
    )
    return Problem(
        what, visible(_end(interruption), REASON_CHARACTERS), remedy
    )


def _end(interruption: Interruption) -> str:
    """Return the reason that the stream gave for its end, or else one from its exit status."""
    status, why = interruption.status, interruption.problem.why
    if interruption.errors or status is None or why != "it ended":
        return why.removeprefix("ssh: ").rstrip(".")
    # 255 is an error of `ssh` itself.
    if status <= 0 or status == 255:
        return "the connection ended"
    return f"gputop there ended with status {status}"


def after_output(
    host: str,
    why: str,
    printed: str,
) -> Problem:
    """Return the problem of a host that printed other text instead of a stream."""
    return Problem(
        f"{host} is unreachable",
        f"{why}, after it printed '{printed}'",
        STARTUP_FILE,
    )
