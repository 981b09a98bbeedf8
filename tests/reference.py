"""The pages of all options and fields, and the manual page, written from the code by this module.

`python -m tests.reference` writes all of them.
"""

import argparse
import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import gputop
from gputop import __version__
from gputop.agent.nvml.device_queries import reading_queries
from gputop.agent.nvml.query import EVERY_SECOND
from gputop.agent.snapshot import DriverState, Source
from gputop.commands.parser import COMMANDS, parser
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, FINE, INTERRUPTED, USAGE
from gputop.schema.catalogue import CATALOGUE

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference.md"
MANUAL = ROOT / "man" / "gputop.1"
LIBRARY = ROOT / "docs" / "library.md"
TYPES = (
    gputop.Snapshot,
    gputop.Inventory,
    gputop.Sample,
    gputop.Device,
    gputop.DeviceSample,
    gputop.Process,
    gputop.Host,
    gputop.Event,
    gputop.Problem,
    gputop.Absence,
    gputop.DeviceState,
    gputop.ProcessKind,
    DriverState,
    Source,
)


INTERVALS: dict[str, str] = {}
"""Sentences for readings that can be older than `age_seconds`."""
for _query in reading_queries():
    for _name in _query.names if _query.interval else ():
        if _query.interval == EVERY_SECOND:
            INTERVALS[_name] = "Read every second."
        else:  # of a reading with two questions the one that is asked more often counts
            INTERVALS.setdefault(_name, "Read every 10 s.")
INTERVALS |= dict.fromkeys(
    ("memory_attributed_bytes", "memory_unattributed_bytes"),
    "Made of the process list, which is read every 2 s.",
)


def reference() -> str:
    top = parser()
    parts = ["<details><summary><code>gputop [OPTIONS]</code></summary>\n", _table(top)]
    for name, sub in commands(top).items():
        usage = f"gputop {name} [OPTIONS]{_positional(sub)}"
        parts += [f"<details><summary><code>{usage}</code></summary>\n"]
        parts += [f"{_sentence(COMMANDS[name])}\n", _table(sub)]
    return "\n".join(parts)


def commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions: list[argparse.Action] = vars(top)["_actions"]
    return next(action.choices for action in actions if isinstance(action.choices, dict))


def manual() -> str:
    top = parser()
    parts = [
        '.\\" Made from the parser by `python -m tests.reference`.',
        f'.TH GPUTOP 1 "" "gputop {__version__}"',
        ".SH NAME\ngputop \\- a terminal dashboard for NVIDIA GPUs",
        ".SH SYNOPSIS\n.B gputop\n.RI [ OPTIONS ]\n.br\n.B gputop\n.I COMMAND\n.RI [ OPTIONS ]",
        f".SH DESCRIPTION\n{_roff(ABOUT)}",
        f".SH OPTIONS\n{_tagged(top)}",
        ".SH COMMANDS\nOptions that a command shares with the dashboard may stand before it.",
    ]
    for name, sub in commands(top).items():
        parts += [f".SS gputop {name}{_roff(_positional(sub))}\n{_roff(_sentence(COMMANDS[name]))}"]
        parts += [_tagged(sub)]
    parts += [".SH EXIT STATUS"]
    parts += [f".TP\n.B {status}\n{_roff(meaning)}" for status, meaning in STATUSES.items()]
    parts += [".SH FILES", f".TP\n.I {_roff('$XDG_CONFIG_HOME/gputop/config.toml')}"]
    parts += ["The settings, by default in ~/.config."]
    return "\n".join(part for part in parts if part) + "\n"


ABOUT = """\
gputop shows every device live while a model trains, says why a job is slow, and stress-tests a \
GPU with one key. Without a command it opens the dashboard, in which ? shows the keys."""
STATUSES = {
    FINE: "Fine.",
    FAULT: "A fault was found: a wrong result, a failed check.",
    USAGE: "Wrong usage.",
    COULD_NOT_RUN: "It could not run: no device, no torch, not enough memory.",
    DEGRADED: "Degraded: throttled, or slower than it should be.",
    INTERRUPTED: "Interrupted.",
}


def _tagged(command: argparse.ArgumentParser) -> str:
    rows = [
        f".TP\n.B {_roff(_names(action))}\n{_roff((action.help or '').replace('%%', '%'))}"
        for action in _shown(command)
        if not isinstance(action.choices, dict)
    ]
    return "\n".join(rows)


_SPECIAL = str.maketrans(
    {"\\": "\\e", "-": "\\-", "'": "\\(aq", '"': "\\(dq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
)
"""Characters that roff would take for a command, or for a sign that no shell knows."""


def _roff(text: str) -> str:
    text = text.translate(_SPECIAL)
    return f"\\&{text}" if text.startswith(".") else text


def _positional(command: argparse.ArgumentParser) -> str:
    words = [action.metavar for action in _shown(command) if not action.option_strings]
    return "".join(f" [{word}]" for word in words)


def _table(command: argparse.ArgumentParser) -> str:
    rows = [
        f"| `{_escaped(_names(action))}` | {_escaped(action.help or '')} |"
        for action in _shown(command)
        if not isinstance(action.choices, dict)
    ]
    return "\n".join(["| option | |", "|---|---|", *rows, "\n</details>\n"])


def _shown(command: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = [action for group in command._action_groups for action in group._group_actions]
    return [a for a in actions if a.help != argparse.SUPPRESS and a.dest != "help"]


def _names(action: argparse.Action) -> str:
    names = ", ".join(action.option_strings) or str(action.metavar)
    if not action.option_strings or action.nargs == 0:
        return names
    return f"{names} {action.metavar or '|'.join(action.choices or (action.dest,))}"


def _escaped(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def fields() -> str:
    """The fields of each public type, with the first sentence that its source says of them."""
    parts = []
    for each in TYPES:
        about = _sentence((each.__doc__ or "").partition(".")[0])
        parts += [f"<details><summary><code>{each.__name__}</code></summary>\n", f"{about}\n"]
        head = ["| value | |", "|---|---|"]
        if not issubclass(each, Enum):
            head = ["| field | type | |", "|---|---|---|"]
        parts += [*head, *_rows(each), "\n</details>\n"]
    return "\n".join(parts)


def _rows(of: type) -> Iterator[str]:
    (body,) = ast.parse(inspect.getsource(of)).body
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        said = after.value if isinstance(after, ast.Expr) else ast.Constant("")
        if isinstance(field, ast.Assign):
            yield f"| `{ast.literal_eval(field.value)}` | {ast.literal_eval(said)} |"
        if isinstance(field, ast.AnnAssign):
            kind = _escaped(ast.unparse(field.annotation))
            name = ast.unparse(field.target)
            reading = CATALOGUE.get(name) if of is gputop.DeviceSample else None
            # Of the metric, whose unit is a ratio.
            about = reading.about.replace(", 0 to 1", "") + " " if reading else ""
            about += ast.literal_eval(said)
            if of is gputop.DeviceSample:
                about += f" {INTERVALS.get(name, '')}"
            yield f"| `{name}` | `{kind}` | {_escaped(' '.join(about.split()))} |"


def replaced(page: str, what: str, text: str) -> str:
    """Return the page with that text between the comments that name it."""
    begin, end = f"<!-- {what} -->\n", f"<!-- /{what} -->\n"
    return re.sub(f"(?<={begin}).*(?={end})", lambda _: f"\n{text}\n", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), "options", reference()))
    LIBRARY.write_text(replaced(LIBRARY.read_text(), "fields", fields()))
    MANUAL.write_text(manual())
