"""The hosts that `--host` names: one, a range, a file, or a pattern of ssh's configuration."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from gputop.stream.ssh import MOST_HOSTS, parse_host
from gputop.text import visible

MOST_BYTES = 1 << 20
"""Bytes that are read of a file of hosts or of ssh's configuration."""
MOST_FILES = 64
"""Files that are read of ssh's configuration. One may include itself."""
_BRACKETS = re.compile(r"\[([^\[\]:]*)\]")
"""A range; an IPv6 address has colons."""
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse_hosts(text: str) -> list[str]:
    """Return the hosts that one `--host` names.

    Raises `ValueError` with the problem, the reason and the remedy.
    """
    if text.startswith("@"):
        hosts = _hosts_in_file(Path(text[1:]).expanduser())
    else:
        hosts = _hosts_of_word(text)
    if len(hosts) > MOST_HOSTS:
        raise ValueError(
            f"{visible(text, 64)!r} names more than {MOST_HOSTS} hosts. "
            "Watch fewer at a time, or use --prometheus for a fleet."
        )
    return hosts


def _hosts_of_word(word: str) -> list[str]:
    hosts = []
    for name in _expand(word):
        if "*" in name or "?" in name:
            hosts += _matching(name)
        else:
            hosts.append(parse_host(name))
        if len(hosts) > MOST_HOSTS:
            break
    return hosts


def _hosts_in_file(path: Path) -> list[str]:
    """Return the hosts of a file with one on each line; `#` begins a comment."""
    hosts: list[str] = []
    for line in _lines(path):
        word = line.partition("#")[0].strip()
        if word and len(hosts) <= MOST_HOSTS:
            hosts += _hosts_of_word(word)
    if not hosts:
        shown = visible(str(path), 300)
        raise ValueError(f"{shown} names no hosts. Write one on each line.")
    return hosts


def _lines(path: Path) -> list[str]:
    shown = visible(str(path), 300)
    try:
        if not path.is_file():
            raise FileNotFoundError(2, "it is no file")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(
            f"{shown} cannot be read: {why}. Name a file with one host on each line."
        ) from None
    if len(data) > MOST_BYTES:
        raise ValueError(f"{shown} is larger than 1 MiB. Name a file of hosts.")
    return data.decode(errors="replace").splitlines()


def _expand(word: str) -> Iterator[str]:
    """Yield the names of `node[01-40,50]`, with zeros in front as they are written."""
    found = _BRACKETS.search(word)
    if found is None:
        yield word
        return
    before, after = word[: found.start()], word[found.end() :]
    for part in found[1].split(","):
        limits = _PART.fullmatch(part.strip())
        if limits is None or int(limits[2] or limits[1]) < int(limits[1]):
            raise ValueError(
                f"{visible(word, 64)!r} is not a range of hosts. "
                "Write it as node[01-40] or node[1,3,5]."
            )
        for number in range(int(limits[1]), int(limits[2] or limits[1]) + 1):
            yield from _expand(f"{before}{number:0{len(limits[1])}}{after}")


def _matching(pattern: str) -> list[str]:
    """Return the hosts of ssh's configuration that match a pattern such as `gpu-*`."""
    user, at, name = pattern.rpartition("@")
    names = [host for host in _configured() if fnmatchcase(host, name)]
    hosts = [parse_host(f"{user}{at}{host}") for host in names]
    if not hosts:
        config = visible(str(ssh_folder() / "config"), 300)
        raise ValueError(
            f"{visible(pattern, 64)!r} matches no Host of {config}. "
            "Add one there, or name the host itself."
        )
    return hosts


def ssh_folder() -> Path:
    """Return the folder of the user's configuration, which `ssh` finds without HOME."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = os.path.expanduser("~")  # noqa: PTH111 - it never fails
    return Path(home) / ".ssh"


def _configured() -> list[str]:
    """Return the names after `Host` in ssh's configuration and in the files that it includes."""
    hosts: list[str] = []
    files = [ssh_folder() / "config"]
    for path in files:  # it grows meanwhile
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
