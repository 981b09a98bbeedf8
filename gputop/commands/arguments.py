"""Functions that the commands share: errors, checks of arguments, input and output."""

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
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.agent.snapshot import Process
    from gputop.recording.reader import Recording
    from gputop.stream.child import Interruption, Snapshot


R = TypeVar("R")
INDENT = 2
"""Spaces for each level of a JSON document."""
ELSEWHERE = {
    "topo": "`nvidia-smi topo -m`",
    "--query-gpu": "`nvidia-smi --query-gpu=… --format=csv`, or `gputop stream --query …`",
    "--query-compute-apps": "`nvidia-smi --query-compute-apps=… --format=csv`",
    "--web-config": "--certfile and --keyfile for TLS, and a reverse proxy for passwords",
    "--pod-resources-kubelet-socket": "dcgm-exporter for the names of pods",
}
"""Commands and options of other tools that gputop lacks, and what to use instead."""


def fail(message: str, status: int) -> NoReturn:
    """End the program with one line on standard error."""
    print(f"gputop: error: {visible(message, len(message))}", file=sys.stderr)
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a remedy."""

    def error(self, message: str) -> NoReturn:
        """End the program with a message that suggests the nearest known word."""
        fail(explain(message, self.prog, self._option_string_actions), USAGE)


def explain(
    message: str,
    prog: str,
    known_options: Iterable[str],
) -> str:
    """Return argparse's message with a remedy."""
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
            word, choices or known_options, cutoff=0.75
        ):
            return f"{word} is unknown. Did you mean {nearest}?"
        if re.match("--?[a-z]", word):
            return f"`{prog}` has no {word}. {remedy}"
    if message.endswith((".", "?")):
        return message
    return f"{message}. {remedy}"


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """End the program with a remedy if a module of this extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "gputop").startswith("gputop"):
            raise
        install = from_checkout(f"'.[{name}]'")
        fail(f"{error.name} is not installed. Type {install}.", COULD_NOT_RUN)


def hosts_of(arguments: argparse.Namespace) -> list[str]:
    """Return the hosts without duplicates; empty for this machine."""
    return list(dict.fromkeys(getattr(arguments, "host", None) or ()))


def source_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `StreamOptions` that choose the devices of this machine."""
    ids, only_visible = tuple(arguments.id or ()), arguments.only_visible
    return {"demo": arguments.demo, "ids": ids, "only_visible": only_visible}


def chosen_processes(arguments: argparse.Namespace, record: R) -> R:
    """Return the record with only the chosen processes. An inventory is returned unchanged."""
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
    """Open a recording. End the program if it cannot be played."""
    from gputop.recording.reader import Recording, RecordingError

    try:
        return Recording(path)
    except RecordingError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def print_ending(recording: Recording) -> None:
    """Print the place of the damage if the recording could not be read to its end."""
    if recording.ending is not None:
        print_message(f"{recording.path}: {recording.ending}")


def output_width() -> int | None:
    """Return the width of the terminal on standard output, or else the variable COLUMNS.

    None means that lines are not broken. `watch` sets COLUMNS.
    """
    if sys.stdout.isatty():
        return terminal_size()[0]
    columns = os.environ.get("COLUMNS", "")
    if re.fullmatch("[1-9][0-9]{0,3}", columns):
        return int(columns)
    return None


def wants_colour(asked: bool | None = None) -> bool:
    """Return True if standard output gets colours. `asked` is the value of the option, if given."""
    from gputop.output.pages import colour_is_wanted

    if asked is not None:
        return asked
    return colour_is_wanted()


def print_page(
    text: str,
    *,
    over: bool = False,
    first: bool = True,
) -> None:
    """Print a page, in ASCII if the locale or the terminal requires it.

    With `over`, replace the previous page on a terminal. Otherwise an empty line separates pages.
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
    """Print a JSON document with `--json`, or else a page. With `--watch` it is one of several."""
    watches = getattr(arguments, "watch", None) is not None
    if not arguments.json:
        print_page(page(), over=watches, first=first)
    elif watches:
        print_text(json.dumps(document()))
    else:
        print_json(document())


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a text on the terminal during the block, and remove it at the end."""
    shown = sys.stderr.isatty()
    if shown:
        print(
            text,
            end="\r",
            file=sys.stderr,
            flush=True,
        )
    try:
        yield
    finally:
        if shown:
            print(
                " " * len(text),
                end="\r",
                file=sys.stderr,
                flush=True,
            )


def print_json(document: object) -> None:
    """Print a document as indented JSON."""
    print_text(json.dumps(document, indent=INDENT))


def print_text(text: str) -> None:
    """Print in UTF-8, independent of the locale, as JSON and CSV require."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(text, flush=True)


def snapshots(
    arguments: argparse.Namespace, *, interval: float, gpm: bool = True
) -> AsyncGenerator[Snapshot | Interruption]:
    """Return snapshots of this machine, of all hosts as one, or the last one of a recording.

    The sampler is started at once. Iterating raises `StreamError` if there is no snapshot.
    """
    recording = getattr(arguments, "replay", None)
    if recording is not None:
        return _recorded(recording)
    hosts = hosts_of(arguments)
    if hosts:
        from gputop.stream.machines import merged_snapshots

        return merged_snapshots(
            hosts,
            arguments.remote_command,
            interval,
            gpm=gpm,
        )
    from gputop.stream.launch import StreamOptions, launch

    command = StreamOptions(interval, gpm=gpm, **source_of(arguments)).command
    # The sampler starts while the modules below are loaded.
    process = launch(command)
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
