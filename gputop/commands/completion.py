"""`gputop completion SHELL`: print the shell's completion script."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from gputop.commands.arguments import print_text
from gputop.console import FINE

SHELLS = ("bash", "zsh", "fish")
WHERE = """\
bash: gputop completion bash > ~/.local/share/bash-completion/completions/gputop
zsh:  gputop completion zsh > DIRECTORY/_gputop, where DIRECTORY is one of $fpath
fish: gputop completion fish > ~/.config/fish/completions/gputop.fish"""
DEVICES = "ls /proc/driver/nvidia/gpus 2>/dev/null | awk '{print NR - 1}'"
HOSTS = (
    "sed -n 's/^[[:space:]]*[Hh][Oo][Ss][Tt][[:space:]=]//p' ~/.ssh/config 2>/dev/null"
    " | tr -s '[:space:]=' '\\n' | grep -xE '[A-Za-z0-9_.@-]+'"
)
"""Shell commands that print the GPUs of this machine, and the hosts of ssh without patterns.

They contain no double quote and no dollar sign, because shtab puts them between double quotes.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument `SHELL`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"New shells have completion after\n\n{WHERE}"
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS)
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from gputop.commands.parser import parser

    print_text(script(parser(), arguments.shell))
    return FINE


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script, generated from the parser of the command line."""
    import shtab

    from gputop.bench.plan.kinds import DTYPES
    from gputop.output.status_page import NAMES

    values = {
        "--dtype": tuple(DTYPES),
        "--columns": tuple(NAMES),
    }
    commands = {"--id": DEVICES, "--device": DEVICES, "--host": HOSTS}
    for action in actions_of(top):
        name = action.option_strings[0] if action.option_strings else ""
        if name in values:
            action.choices = values[name]
        elif name in commands:
            complete(action, shtab.cmd(commands[name]))
        elif action.metavar in ("FILE", "PATH"):
            complete(action, shtab.FILE)
    return shtab.complete(top, shell=shell)


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of its commands."""
    # argparse has no public list.
    for action in vars(parser)["_actions"]:
        yield action
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                yield from actions_of(command)


def complete(action: argparse.Action, how: Mapping[str, Any]) -> None:
    """Set the method by which shtab completes the value of an option."""
    action.complete = how  # type: ignore[attr-defined]
