"""The page of all options: `python -m tests.reference` writes them from the parser."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from gputop.cli import COMMANDS, parser

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
BEGIN, END = "<!-- options -->\n", "<!-- /options -->\n"


def reference() -> str:
    """Every option of every command, as Markdown."""
    top = parser()
    parts = ["<details><summary><code>gputop [OPTIONS]</code></summary>\n", _table(top)]
    for action in vars(top)["_actions"]:
        if isinstance(action.choices, dict):
            for name, sub in action.choices.items():
                usage = f"gputop {name} [OPTIONS]{_positional(sub)}"
                parts += [f"<details><summary><code>{usage}</code></summary>\n"]
                parts += [f"{_sentence(COMMANDS[name])}\n", _table(sub)]
    return "\n".join(parts)


def _positional(command: argparse.ArgumentParser) -> str:
    words = [action.metavar for action in _shown(command) if not action.option_strings]
    return "".join(f" [{word}]" for word in words)


def _table(command: argparse.ArgumentParser) -> str:
    rows = [
        f"| `{_names(action)}` | {_escaped(action.help or '')} |"
        for action in _shown(command)
        if not isinstance(action.choices, dict)
    ]
    return "\n".join(["| option | |", "|---|---|", *rows, "\n</details>\n"])


def _shown(command: argparse.ArgumentParser) -> list[argparse.Action]:
    actions: list[argparse.Action] = vars(command)["_actions"]
    return [a for a in actions if a.help != argparse.SUPPRESS and a.dest != "help"]


def _names(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or str(action.metavar)
    if not action.option_strings or action.nargs == 0:
        return names
    value = action.metavar or ("\\|".join(action.choices) if action.choices else action.dest)
    return f"{names} {value}"


def _escaped(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def replaced(page: str) -> str:
    """Return the page with the options as they are now."""
    return re.sub(f"(?<={BEGIN}).*(?={END})", lambda _: f"\n{reference()}\n", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
