"""Understand what users of nvidia-smi are used to type."""

from __future__ import annotations

from collections.abc import Collection, Sequence

QUERIES = {"--query-gpu", "--query-compute-apps"}
LOOPS = {"-l": 1, "--loop": 1, "-lms": 1000, "--loop-ms": 1000}
"""nvidia-smi's options for more than one sample, with their units in a second."""
OPTIONS = {"-f": "--output", "--filename": "--output"}


def translated(words: Sequence[str], commands: Collection[str]) -> Sequence[str]:
    """Return what they mean in gputop."""
    names = {word.partition("=")[0] for word in words}
    if not names.isdisjoint(commands):
        return words
    if QUERIES & names:
        return _query(words)
    return ["status", *words] if names & {"-L", "--list-gpus"} else words


def _query(words: Sequence[str]) -> list[str]:
    """Return a query of nvidia-smi as words of `gputop stream`: once, without a loop or count."""
    found, rest = ["stream"], list(words)
    while rest:
        name, given, value = rest.pop(0).partition("=")
        if name in LOOPS:
            if not given:  # nvidia-smi's default is 5 seconds
                value = rest.pop(0) if rest and rest[0].isdecimal() else f"{5 * LOOPS[name]}"
            seconds = f"{int(value) / LOOPS[name]:g}" if value.isdecimal() else value
            found += ["--interval", seconds]
        else:
            found.append(OPTIONS.get(name, name) + given + value)
    is_told = any(word.partition("=")[0] in ("--interval", "--count") for word in found)
    return found if is_told else [*found, "--count", "1"]
