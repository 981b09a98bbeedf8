"""What the commands share: errors, checks of their arguments, input and output."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from gputop import from_checkout
from gputop.console import (
    COULD_NOT_RUN,
    USAGE,
    ascii_is_safer,
    print_message,
    terminal_size,
)
from gputop.stream.ssh import MOST_HOSTS
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.snapshot import Process
    from gputop.recording.reader import Recording
    from gputop.stream.child import Interruption, Snapshot


R = TypeVar("R")

ELSEWHERE = {
    "topo": "`nvidia-smi topo -m`",
    "--query-gpu": "`nvidia-smi --query-gpu=… --format=csv`, or `gputop stream --query …`",
    "--query-compute-apps": "`nvidia-smi --query-compute-apps=… --format=csv`",
    "--web-config": "--certfile and --keyfile for TLS, and a reverse proxy for passwords",
    "--pod-resources-kubelet-socket": "dcgm-exporter for the names of pods",
}
"""What gputop does not have, or no more, and what to use."""
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
    if len(hosts) > MOST_HOSTS:
        fail(f"More than {MOST_HOSTS} hosts are named. Watch fewer at a time.", USAGE)
    if hosts:
        refuse(arguments, ("demo", "id", "only_visible"), "other machines", "--host")
    elif arguments.remote_command is not None:
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
    found = getattr(record, "processes", ())
    kept = tuple(each for each in found if _is_chosen(arguments, each))
    if len(kept) == len(found):
        return record
    return cast("R", replace(cast("Any", record), processes=kept))


def _is_chosen(arguments: argparse.Namespace, process: Process) -> bool:
    if arguments.user and process.user not in arguments.user:
        return False
    if arguments.pid and process.pid not in arguments.pid:
        return False
    return not arguments.compute or process.kind != "graphics"


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
    if re.fullmatch("[1-9][0-9]{0,3}", columns):
        return int(columns)
    return None


def wants_colour(asked: bool | None = None) -> bool:
    """Return True if standard output gets colours; `asked` is what an option says."""
    from gputop.output.pages import colour_is_wanted

    if asked is not None:
        return asked
    return colour_is_wanted()


def print_page(text: str, *, over: bool = False, first: bool = True) -> None:
    """Print a page, in ASCII if the locale or the terminal has no more.

    `over` replaces the page before on a terminal; elsewhere an empty line is between them.
    """
    from gputop.output.pages import as_ascii, draw_over

    if ascii_is_safer(os.environ):
        text = as_ascii(text)
    if over and sys.stdout.isatty():
        draw_over(text, first=first)
        return
    if not first:
        text = f"\n{text}"
    print_text(text)


def show(
    arguments: argparse.Namespace,
    document: Callable[[], object],
    page: Callable[[], str],
    *,
    first: bool = True,
) -> None:
    """Print a JSON document if it is asked for, else a page; with --watch, one of several."""
    watches = getattr(arguments, "watch", None) is not None
    if not arguments.json:
        print_page(page(), over=watches, first=first)
    elif watches:
        print_text(json.dumps(document()))
    else:
        print_text(json.dumps(document(), indent=2))


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show on a terminal what takes seconds; it is wiped at the end."""
    shown = sys.stderr.isatty()
    if shown:
        print(text, end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print(" " * len(text), end="\r", file=sys.stderr, flush=True)


def print_text(text: str) -> None:
    """Print in UTF-8, as JSON and CSV are whatever the locale is."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(text, flush=True)


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
