"""Parse `--host`: a host, a range, a file of hosts, or a pattern of ssh's configuration."""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from gputop.files import read_at_once
from gputop.stream.ssh import MOST_HOSTS, SHOWN, parse_host
from gputop.text import visible

MOST_BYTES = 1 << 20
"""Largest file of hosts or of ssh's configuration, in bytes."""
MOST_FILES = 64
"""Maximum number of files to read of ssh's configuration. A file can include itself."""
_BRACKETS = re.compile(r"\[([^\[\]:]*)\]")
"""A range in brackets. Brackets with a colon are an IPv6 address."""
_NUMBER = re.compile("[0-9]{1,9}")


def parse_hosts(text: str) -> list[str]:
    """Return the hosts of one `--host`.

    Raises `ValueError` with the problem, the reason and the remedy.
    """
    words = [text]
    if text.startswith("@"):
        # Path.expanduser raises an error if `~user` is unknown; this does not.
        words = _words_of(Path(os.path.expanduser(text[1:])))  # noqa: PTH111
    hosts: list[str] = []
    for word in words:
        for name in _expand(word):
            if "*" in name or "?" in name:
                hosts += _matching(name)
            else:
                hosts.append(parse_host(name))
            if len(hosts) > MOST_HOSTS:
                raise ValueError(
                    f"{visible(text, SHOWN)!r} names more than {MOST_HOSTS} hosts. "
                    "Watch fewer at a time, or use --prometheus for a fleet."
                )
    return hosts


def _words_of(path: Path) -> list[str]:
    """Return the hosts in a file: one on each line, with comments after `#`."""
    words = []
    for line in _lines(path):
        word = line.partition("#")[0].strip()
        if word:
            words.append(word)
    if not words:
        shown = visible(str(path))
        raise ValueError(f"{shown} contains no hosts. Write one per line.")
    return words


def _lines(path: Path) -> list[str]:
    try:
        data = read_at_once(path, MOST_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        raise ValueError(
            f"{visible(str(path))} cannot be read: {why}. "
            "Give a file with one host per line."
        ) from None
    return data.decode(errors="replace").splitlines()


def _expand(word: str) -> Iterator[str]:
    """Yield the names of a word such as `node[01-40,50]`. Leading zeros are kept."""
    pieces = []
    for number, piece in enumerate(_BRACKETS.split(word)):
        pieces.append(_numbers(word, piece) if number % 2 else [piece])
    return map("".join, itertools.product(*pieces))


def _numbers(word: str, ranges: str) -> list[str]:
    """Return the numbers of ranges such as `01-40,50`. Errors quote the whole `word`."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if (
            not _NUMBER.fullmatch(first)
            or not _NUMBER.fullmatch(last)
            or int(last) < int(first)
        ):
            raise ValueError(
                f"{visible(word, SHOWN)!r} is not a range of hosts. "
                "Write it as node[01-40] or node[1,3,5]."
            )
        end = min(int(last), int(first) + MOST_HOSTS)
        for number in range(int(first), end + 1):
            numbers.append(str(number).zfill(len(first)))
    return numbers


def _matching(pattern: str) -> list[str]:
    """Return the hosts of ssh's configuration that match a pattern such as `gpu-*`."""
    user, at, name = pattern.rpartition("@")
    names = [host for host in _configured() if fnmatchcase(host, name)]
    hosts = [parse_host(f"{user}{at}{host}") for host in names]
    if not hosts:
        config = visible(str(ssh_folder() / "config"))
        raise ValueError(
            f"{visible(pattern, SHOWN)!r} matches no Host of {config}. "
            "Add one there, or name the host itself."
        )
    return hosts


def ssh_folder() -> Path:
    """Return the folder of the user's ssh configuration. Like `ssh`, ignore HOME."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = os.path.expanduser("~")  # noqa: PTH111 - it never fails
    return Path(home) / ".ssh"


def _configured() -> list[str]:
    """Return the names after `Host` in ssh's configuration and in the files that it includes."""
    hosts: list[str] = []
    files = [ssh_folder() / "config"]
    # The loop appends included files.
    for path in files:
        if not path.is_file():
            continue
        for line in _lines(path):
            keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
            if keyword.lower() not in ("host", "include"):
                continue
            try:
                words = shlex.split(rest, comments=True)
            except ValueError:
                continue
            for word in words:
                if keyword.lower() == "include":
                    word = os.path.expanduser(word)  # noqa: PTH111, PLW2901
                    included = glob(str(ssh_folder() / word))  # noqa: PTH207
                    files += [Path(each) for each in sorted(included)]
                elif not set(word) & set("*?!"):
                    hosts.append(word)
        files[MOST_FILES:] = []
    return hosts
