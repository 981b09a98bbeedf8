"""`gputop completion SHELL`: print the shell's completion script."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gputop.commands.arguments import print_text
from gputop.console import FINE

SHELLS = ("bash", "zsh", "fish")
WHERE = """\
bash: gputop completion bash > ~/.local/share/bash-completion/completions/gputop
zsh:  gputop completion zsh > DIRECTORY/_gputop, where DIRECTORY is one of $fpath
fish: gputop completion fish > ~/.config/fish/completions/gputop.fish"""


class _Shells(tuple[str, ...]):
    """Shells in messages and completions; the values that scripts ask for are accepted, too."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word in (*SHELLS, *VALUES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"New shells have completion after\n\n{WHERE}"
    parser.add_argument("shell", choices=_Shells(SHELLS), metavar="SHELL", help=", ".join(SHELLS))


def run(arguments: argparse.Namespace) -> int:
    """Print the script, or the values that a script asks for."""
    if arguments.shell in VALUES:
        print_text("\n".join(VALUES[arguments.shell]()))
    else:
        print_text(script(arguments.whole_parser(), arguments.shell))
    return FINE


def _devices() -> list[str]:
    """Return the indices of the driver's devices."""
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(number) for number, _ in enumerate(folder.iterdir())] if folder.is_dir() else []


def _hosts() -> list[str]:
    """Return the hosts that the configuration of ssh names, without patterns."""
    try:
        text = Path("~/.ssh/config").expanduser().read_text(encoding="utf-8", errors="replace")
    except (OSError, RuntimeError):
        return []
    lines = re.findall(r"^\s*Host[\s=]+(.*)$", text, re.MULTILINE | re.IGNORECASE)
    names = (name.strip('"') for line in lines for name in line.split())
    return [name for name in dict.fromkeys(names) if re.fullmatch(r"[\w.@-]+", name)]


VALUES = {"devices": _devices, "hosts": _hosts}
"""Values that only the machine knows when they are completed."""


def _ask(values: str) -> dict[str, Any]:
    """Return the completion by these values of the machine, which gputop prints at that moment."""
    import shtab

    command = f"gputop completion {values} 2>/dev/null"
    found: dict[str, Any] = dict(shtab.cmd(command))
    # Not the command itself: zsh would run it for each key, whatever is completed.
    name = found["zsh"] = f"_gputop_{values}"
    define = f'{name}() {{ compadd -- ${{(f)"$({command})"}} }}'
    return found | {"preamble": {**found["preamble"], "zsh": define}}


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the options and arguments of a parser and of its commands."""
    for action in vars(parser)["_actions"]:  # undocumented, as all that lists them
        yield action
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                yield from actions_of(command)


def script(top: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script, made from the parser that reads the words."""
    import shtab

    from gputop.bench.plan.kinds import DTYPES
    from gputop.output.status_page import NAMES

    fixed = {
        "--dtype": [*DTYPES],
        "--columns": NAMES,
        "--format": ("jsonl", "csv", "csv,noheader,nounits"),
    }
    asked = {"--id": "devices", "--device": "devices", "--host": "hosts"}
    for action in actions_of(top):
        for name in action.option_strings:
            if name in fixed:
                action.choices = fixed[name]
            elif name in asked:
                action.complete = _ask(asked[name])  # type: ignore[attr-defined]
        if action.metavar in ("FILE", "PATH"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(top, shell=shell)
