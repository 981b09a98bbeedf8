"""`gputop completion SHELL`: print the shell's completion script."""

from __future__ import annotations

import argparse

from gputop.commands.arguments import actions_of, print_text
from gputop.console import FINE

SHELLS = ("bash", "zsh", "fish")
WHERE = """\
bash: gputop completion bash > ~/.local/share/bash-completion/completions/gputop
zsh:  gputop completion zsh > DIRECTORY/_gputop, where DIRECTORY is one of $fpath
fish: gputop completion fish > ~/.config/fish/completions/gputop.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"New shells have completion after\n\n{WHERE}"
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    print_text(script(arguments.whole_parser(), arguments.shell))
    return FINE


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script, made from the parser that reads the words."""
    import shtab

    for action in actions_of(top):
        if action.metavar in ("FILE", "PATH"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(top, shell=shell)
