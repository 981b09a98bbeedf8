"""What the commands share: exit statuses, how an error is said, arguments and their snapshots."""

from __future__ import annotations

import argparse
import pkgutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gputop import from_checkout
from gputop.bounds import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.exits import COULD_NOT_RUN, USAGE
from gputop.stream.ssh import REMOTE_COMMAND, parse_command, parse_host
from gputop.terminal import terminal_size
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from gputop.recording.reader import Recording
    from gputop.stream.child import Interruption, Snapshot


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with where to look next."""

    def error(self, message: str) -> NoReturn:
        remedy = "" if message.endswith(".") else f". Try `{self.prog} --help`."
        fail(f"{message}{remedy}", USAGE)


def fail(message: str, status: int) -> NoReturn:
    """Ends the program with one line on standard error."""
    print(f"gputop: error: {visible(message, len(message))}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """End with what to type where a module is missing that this extra of gputop installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "gputop").startswith("gputop"):
            raise
        install = from_checkout(f"'.[{name}]'")
        fail(f"{error.name} is not installed. Type {install}.", COULD_NOT_RUN)


def interval(text: str) -> float:
    """Seconds between samples, as an argument."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an interval: give seconds from {SHORTEST_INTERVAL:g} "
            f"to {LONGEST_INTERVAL:g}, such as 1."
        )
    return seconds


def count(text: str) -> int:
    """How many, as an argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count: give a whole number from 1.")
    return number


def refuse(arguments: argparse.Namespace, names: Iterable[str], what: str, other: str) -> None:
    """End if one of these options is given: none of them is for what the other option asks for."""
    for name in names:
        value = getattr(arguments, name)
        if value or (name == "gpm" and value is not None):
            option = "host" if name == "hosts" else name.replace("_", "-")
            fail(f"--{option} is not for {what}. Leave it out, or {other}.", USAGE)


def argument(parse: Callable[[str], Any] | str) -> Callable[[str], Any]:
    """A parser that raises `ValueError` as argparse wants it; one that is named is loaded later."""

    def parsed(text: str) -> Any:
        try:
            return (pkgutil.resolve_name(parse) if isinstance(parse, str) else parse)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def add_source(command: argparse.ArgumentParser) -> None:
    """How often to look, at what."""
    command.add_argument(
        "--interval",
        type=interval,
        default=argparse.SUPPRESS,  # or a command's default would overwrite what came before it
        metavar="S",
        help="seconds between samples (0.25 to 60, default 1)",
    )
    command.add_argument(
        "--gpm",
        action=argparse.BooleanOptionalAction,
        default=argparse.SUPPRESS,
        help="profiling counters: SM, tensor and DRAM activity (default: yes)",
    )
    add_demo(command)


def add_hosts(command: argparse.ArgumentParser) -> None:
    """Other machines in place of this one."""
    command.add_argument(
        "--host",
        type=argument(parse_host),
        action="append",
        dest="hosts",
        default=argparse.SUPPRESS,
        metavar="NAME",
        help="another machine, over ssh; NAME is such as gpu-1 or ada@gpu-1, several with --host "
        "again; `localhost` is this one, without ssh",
    )
    command.add_argument(
        "--remote-command",
        type=argument(parse_command),
        default=argparse.SUPPRESS,
        metavar="CMD",
        help="how gputop is started there, such as ~/venv/bin/gputop (default: gputop)",
    )


def hosts_of(arguments: argparse.Namespace) -> list[str]:
    """The hosts to look at, each once; none is this machine alone. Ends where that is misuse."""
    hosts: list[str] = list(dict.fromkeys(arguments.hosts or ()))
    if hosts and arguments.demo:
        fail("--host and --demo are two sources. Leave one of them out.", USAGE)
    if arguments.remote_command != REMOTE_COMMAND and not hosts:
        fail("--remote-command is for other machines. Name one with --host.", USAGE)
    return hosts


def add_fleet(command: argparse.ArgumentParser) -> None:
    """A fleet in place of machines."""
    command.add_argument(
        "--prometheus",
        type=argument("gputop.fleet.server:parse_url"),
        default=argparse.SUPPRESS,
        metavar="URL",
        help="the fleet that a Prometheus scrapes; URL is such as http://prometheus:9090, signed "
        "in to by GPUTOP_PROMETHEUS_TOKEN_FILE, _USER and _PASSWORD, _CERT, _KEY "
        "and _CA, or ~/.netrc; GPUTOP_PROMETHEUS_HEADERS has headers of your own, such as "
        "'X-Scope-OrgID: TENANT'",
    )
    command.add_argument(
        "--match",
        type=argument("gputop.fleet.server:parse_match"),
        default=argparse.SUPPRESS,
        metavar="LABELS",
        help="of the fleet those GPUs, in label matchers of PromQL, "
        """such as 'cluster="a",rack=~"r1.*"'""",
    )


def check_fleet(arguments: argparse.Namespace) -> None:
    """Ends where a fleet is asked for with what is of machines."""
    if arguments.prometheus is None:
        if arguments.match is not None:
            fail("--match is of a fleet. Say which with --prometheus URL.", USAGE)
        return
    options = ("demo", "hosts", "replay", "gpm", "record", "show_secrets")
    refuse(arguments, options, "a fleet", "--prometheus")


def add_demo(command: argparse.ArgumentParser) -> None:
    """Simulated devices in place of the machine's."""
    command.add_argument(
        "--demo",
        action="store_true",
        default=argparse.SUPPRESS,
        help="simulated devices, marked as such",
    )


def add_replay(command: argparse.ArgumentParser) -> None:
    """A recording in place of the machine."""
    command.add_argument(
        "--replay",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="play what was recorded, by `stream --output` or with r",
    )


def open_recording(path: Path) -> Recording:
    """The recording; ends the program where it cannot be played."""
    from gputop.recording.reader import Recording, RecordingError

    try:
        return Recording(path)
    except RecordingError as error:
        fail(f"{error}.", COULD_NOT_RUN)


def output_width() -> int | None:
    """Columns of the terminal that standard output is; None where it is none."""
    return terminal_size()[0] if sys.stdout.isatty() else None


def print_again(arguments: argparse.Namespace, text: str, *, first: bool) -> None:
    """Prints one page of many: on a terminal in the place of the one before."""
    from gputop.output.ansi import frame

    terminal = sys.stdout.isatty() and not arguments.json
    if terminal:
        text = frame(text, terminal_size()[1], first=first)
    elif not first and not arguments.json:
        text = f"\n{text}"
    print_text(text, end="" if terminal else "\n")


def print_text(text: str, end: str = "\n") -> None:
    """Prints in UTF-8 whatever the locale says: a "–" that becomes a "?" would be another word."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print(text, end=end, flush=True)


def snapshots(
    arguments: argparse.Namespace, *, interval: float, gpm: bool = True
) -> AsyncGenerator[Snapshot | Interruption]:
    """Those of one sampler, which starts at once and ends with them; of a recording the last one.

    Raises `StreamError` while it is read, where there is nothing to be had.
    """
    recording = getattr(arguments, "replay", None)
    if recording is not None:
        return _recorded(recording)
    from gputop.stream.launch import command, launch

    asked = command(interval=interval, demo=arguments.demo, gpm=gpm)
    process = launch(asked)  # it takes longer than all that is loaded meanwhile
    from gputop.stream import child

    return child.snapshots(child.StreamChild(asked, interval, process))


async def _recorded(path: Path) -> AsyncGenerator[Snapshot | Interruption]:
    from gputop.commands.arguments import open_recording
    from gputop.recording.reader import RecordingError
    from gputop.stream.child import Snapshot, StreamError

    try:
        yield Snapshot(*open_recording(path).last())
    except RecordingError as error:
        raise StreamError(error.problem) from None
