"""`gputop --help`: all there is on one screen of 80 x 24."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gputop.commands.arguments import Parser

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMN = 24
"""Where the texts begin."""
DEPENDENT = ("remote_command", "match")
"""Options that say more of the one before them."""


class Overview(Parser):
    """A parser whose help has a line for each command and option: of its text the first clause.

    Switches that come in a row share a line, and so does what is nothing without the one before it.
    `--help` of a command has everything.
    """

    def format_help(self) -> str:
        commands, options = [], []
        # Not in argparse's documentation, as everything that tells what a parser has.
        for action in vars(self)["_actions"]:
            if isinstance(action.choices, dict):
                helps = {each.dest: each.help for each in vars(action)["_choices_actions"]}
                commands += [_line(f"  {name}", helps[name] or "") for name in action.choices]
            elif action.dest != "help":
                options.append(action)
        usage = f"usage: {self.prog} [OPTIONS] [COMMAND ...]   ({self.epilog})"
        return "\n".join([usage, f"{self.description}", "", *commands, "", *_options(options), ""])


def _options(actions: list[argparse.Action]) -> Iterator[str]:
    switches = [action for action in actions if _is_switch(action)]
    for action, after in zip(actions, [*actions[1:], None], strict=True):
        if action.dest in DEPENDENT:
            continue
        if action not in switches:
            more = f"  {_name(after)}" if after is not None and after.dest in DEPENDENT else ""
            yield _line(f"  {_name(action)}{more}", action.help or "")
        elif action is switches[-1]:
            names = "  ".join(_name(each) for each in switches)
            yield f"  {names}"


def _is_switch(action: argparse.Action) -> bool:
    return isinstance(action, argparse.BooleanOptionalAction) and action.dest != "gpm"


def _name(action: argparse.Action) -> str:
    long = action.option_strings[0]
    if isinstance(action, argparse.BooleanOptionalAction):
        return f"--[no-]{long.removeprefix('--')}"
    return f"{long} {action.metavar}" if action.metavar else long


def _line(name: str, text: str) -> str:
    """Of the text the first clause; a name that is too long moves it."""
    clause = text.partition(";")[0].partition(" (")[0]
    return f"{name:<{COLUMN - 2}}  {clause}"
