"""Understand what users of nvidia-smi and gpustat are used to type."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from gputop.commands.arguments import fail
from gputop.console import USAGE

QUERIES = {"--query-gpu", "--query-compute-apps"}
LOOPS = {"-l": 1, "--loop": 1, "-lms": 1000, "--loop-ms": 1000}
"""nvidia-smi's options for more than one sample, with their units in a second."""
OPTIONS = {"-f": "--output", "--filename": "--output"}
INSTEAD = {
    **dict.fromkeys(("-q", "--query", "-x"), "`gputop status --json`"),
    "dmon": "`gputop stream --format csv`",
    "pmon": "`gputop stream --query-compute-apps pid,process_name,used_memory`",
    "daemon": "`gputop stream --output FILE`",
    "replay": "`gputop --replay FILE`",
    "nvlink": "`gputop topo`, or a GPU's page in the dashboard (Enter)",
    "mig": "`gputop status -L`, which lists the instances",
    **dict.fromkeys(("-r", "--gpu-reset", "-pm", "-pl", "-lgc"), "nvidia-smi: gputop sets nothing"),
}
"""Replacements in gputop for what only nvidia-smi has."""
GPUSTAT = re.compile(r"-[cf]*[up][cfupFP]+")
"""Its flags in one word. gputop reads `-cpu` as the process `u`."""


def translated(words: Sequence[str], commands: Collection[str]) -> Sequence[str]:
    """Return what they mean in gputop. Ends the program if that is only known to be elsewhere."""
    if flags := next(filter(GPUSTAT.fullmatch, words), None):
        fail(f"{flags} is gpustat's. `gputop status` shows users, pids and commands anyway.", USAGE)
    if any(word in commands for word in words):
        return words
    names = {word.partition("=")[0] for word in words}
    if QUERIES & names:
        return _query(words)
    if names & {"-L", "--list-gpus"}:
        return ["status", *words]
    for word in words:
        if word in INSTEAD and (word == words[0] or word.startswith("-")):
            fail(f"gputop has no {word}. Use {INSTEAD[word]}.", USAGE)
    return words


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
