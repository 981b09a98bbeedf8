"""What the commands share: errors, checks of their arguments, input and output."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from gputop import from_checkout
from gputop.console import COULD_NOT_RUN, USAGE, print_message, terminal_size
from gputop.stream.ssh import REMOTE_COMMAND
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.recording.reader import Recording
    from gputop.stream.child import Interruption, Snapshot


R = TypeVar("R")

ELSEWHERE = {
    "topo": "`nvidia-smi topo -m`",
    "--query-gpu": "`nvidia-smi --query-gpu=… --format=csv`, or `gputop stream --query …`",
    "--query-compute-apps": "`nvidia-smi --query-compute-apps=… --format=csv`",
}
"""What nvidia-smi does and gputop does not, and the command to use."""
DASHBOARD_ONLY = ("theme", "config", "ascii", "mouse", "bell", "readonly")
"""Options that no command has, without their dashes."""


def fail(message: str, status: int) -> NoReturn:
    """End the program with one line on standard error."""
    print(f"gputop: error: {visible(message, len(message))}", file=sys.stderr)
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a remedy."""

    def error(self, message: str) -> NoReturn:
        """End the program. The message names the nearest known word."""
        fail(explain(message, self.prog, self._option_string_actions), USAGE)


def explain(message: str, prog: str, known_options: Iterable[str]) -> str:
    """Return one of argparse's messages with a remedy."""
    remedy = f"Try `{prog} --help`."
    found = re.search(
        r"(?:invalid choice: '|unrecognized arguments: )([\w-]+)", message
    )
    if found is not None:
        from difflib import get_close_matches

        word = found[1]
        if word in ELSEWHERE:
            return f"gputop has no {word}. Use {ELSEWHERE[word]}."
        choices = re.findall(r"[\w-]+", message.partition("(choose from")[2])
        for nearest in get_close_matches(
            word, choices or known_options, 1, cutoff=0.75
        ):
            return f"{word} is not known. Did you mean {nearest}?"
        if word.removeprefix("--").removeprefix("no-") in DASHBOARD_ONLY:
            return f"{word} is for the dashboard. Leave it out."
        if re.match("--?[a-z]", word):
            return f"`{prog}` has no {word}. {remedy}"
    if message.endswith((".", "?")):
        return message
    return f"{message}. {remedy}"


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """End with the remedy if a module is missing that this extra of gputop installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "gputop").startswith("gputop"):
            raise
        install = from_checkout(f"'.[{name}]'")
        fail(f"{error.name} is not installed. Type {install}.", COULD_NOT_RUN)


def refuse(
    arguments: argparse.Namespace, names: Iterable[str], what: str, other: str
) -> None:
    """End if one of these options is given, which are not for what the other option asks for."""
    for name in names:
        value = getattr(arguments, name)
        if value or (name in ("gpm", "processes") and value is not None):
            fail(
                f"--{name.replace('_', '-')} is not for {what}. Leave it out, or {other}.",
                USAGE,
            )


def hosts_of(arguments: argparse.Namespace) -> list[str]:
    """Return the hosts, each once; none means this machine. Ends if other options contradict."""
    hosts: list[str] = list(dict.fromkeys(arguments.host or ()))
    if hosts:
        refuse(arguments, ("demo", "id", "only_visible"), "other machines", "--host")
    elif arguments.remote_command != REMOTE_COMMAND:
        fail("--remote-command is for other machines. Name one with --host.", USAGE)
    return hosts


def source_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `StreamOptions` that say which devices of this machine are read."""
    ids, only_visible = tuple(arguments.id or ()), arguments.only_visible
    return {"demo": arguments.demo, "ids": ids, "only_visible": only_visible}


def check_fleet(arguments: argparse.Namespace) -> None:
    """End if a fleet is asked for with options for machines."""
    if arguments.prometheus is None:
        if arguments.match is not None:
            fail(
                "--match is for a fleet. Name its server with --prometheus URL.", USAGE
            )
        return
    options = (
        "demo",
        "host",
        "replay",
        "gpm",
        "id",
        "only_visible",
        "user",
        "pid",
        "compute",
    )
    refuse(arguments, (*options, "record", "show_secrets"), "a fleet", "--prometheus")


def chosen_processes(arguments: argparse.Namespace, record: R) -> R:
    """Return a sample with the processes that `PROCESSES` choose; another record as it is."""
    users, pids = arguments.user, arguments.pid
    found = getattr(record, "processes", ())
    kept = tuple(
        each
        for each in found
        if (not users or each.user in users)
        and (not pids or each.pid in pids)
        and (not arguments.compute or each.kind != "graphics")
    )
    return (
        record
        if len(kept) == len(found)
        else replace(cast("Any", record), processes=kept)
    )


def open_recording(path: Path) -> Recording:
    """Open the recording; end the program if it cannot be played."""
    from gputop.recording.reader import Recording, RecordingError

    try:
        return Recording(path)
    except RecordingError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def print_ending(recording: Recording) -> None:
    """Print where the recording is damaged, if it is not read to the end of its file."""
    if recording.ending is not None:
        print_message(f"{recording.path}: {recording.ending}")


def output_width() -> int | None:
    """Return the columns of the terminal on standard output, or what COLUMNS says without one.

    None means that lines are not broken. `watch` sets COLUMNS.
    """
    if sys.stdout.isatty():
        return terminal_size()[0]
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if re.fullmatch("[1-9][0-9]{0,3}", columns) else None


def print_again(arguments: argparse.Namespace, text: str, *, first: bool) -> None:
    """Print one of several pages: on a terminal in place of the previous one."""
    from gputop.output.ansi import frame

    terminal = sys.stdout.isatty() and not arguments.json
    if terminal:
        text = frame(text, terminal_size()[1], first=first)
    elif not first and not arguments.json:
        text = f"\n{text}"
    print_text(text, end="" if terminal else "\n")


def print_text(text: str, end: str = "\n") -> None:
    """Print in UTF-8 whatever the locale is: a "–" must not become a "?"."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(text, end=end, flush=True)


def snapshots(
    arguments: argparse.Namespace, *, interval: float, gpm: bool = True
) -> AsyncGenerator[Snapshot | Interruption]:
    """Yield the snapshots of one sampler, which starts at once, or the last one of a recording.

    Raises `StreamError` while it is read, if there is none.
    """
    recording = getattr(arguments, "replay", None)
    if recording is not None:
        return _recorded(recording)
    from gputop.stream.launch import StreamOptions, launch

    command = StreamOptions(interval, gpm=gpm, **source_of(arguments)).command
    process = launch(command)  # it takes longer than all that is loaded meanwhile
    from gputop.stream.child import StreamChild
    from gputop.stream.child import snapshots as follow

    return follow(StreamChild(command, interval, process))


async def _recorded(path: Path) -> AsyncGenerator[Snapshot | Interruption]:
    from gputop.recording.reader import RecordingError
    from gputop.stream.child import Snapshot, StreamError

    try:
        recording = open_recording(path)
        last = recording.last()
        print_ending(recording)
        yield Snapshot(*last)
    except RecordingError as error:
        raise StreamError(error.problem) from None
