"""`gputop completion SHELL`: print the shell's completion script."""

from __future__ import annotations

import argparse

from gputop.commands.arguments import print_text
from gputop.console import FINE

SHELLS = ("bash", "zsh", "fish")
WHERE = """\
bash: gputop completion bash > ~/.local/share/bash-completion/completions/gputop
zsh:  gputop completion zsh > DIRECTORY/_gputop, where DIRECTORY is one of $fpath
fish: gputop completion fish > ~/.config/fish/completions/gputop.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument `SHELL`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"New shells have completion after\n\n{WHERE}"
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS)
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from gputop.commands.parser import parser

    print_text(shtab.complete(parser(), shell=arguments.shell))
    return FINE
