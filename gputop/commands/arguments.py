"""Parsers, options, errors and output that the commands share."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from gputop import from_checkout
from gputop.bounds import LONGEST_INTERVAL, SHORTEST_INTERVAL
from gputop.console import COULD_NOT_RUN, USAGE, print_message, terminal_size, without_colours
from gputop.stream.ssh import REMOTE_COMMAND, parse_command, parse_host
from gputop.text import visible
from gputop.ui.terminal.skeleton import FLAGS, SKELETON

if TYPE_CHECKING:
    from gputop.recording.reader import Recording
    from gputop.stream.child import Interruption, Snapshot


R = TypeVar("R")


Parse = Callable[[str], Any] | str
"""Parser of a value, or where to load it from when it is needed."""


ELSEWHERE = {
    "topo": "`nvidia-smi topo -m`",
    "--query-gpu": "`nvidia-smi --query-gpu=… --format=csv`, or `gputop stream --query …`",
    "--query-compute-apps": "`nvidia-smi --query-compute-apps=… --format=csv`",
}
"""What nvidia-smi does and gputop does not, and the command to use."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with a remedy. Names of an option have spaces between."""

    def flag(self, names: str, words: str) -> None:
        """Add an option that has no value, with the words of its help."""
        self.add_argument(*names.split(), action="store_true", help=words)

    def switch(self, name: str, words: str) -> None:
        """Add an option that can be given with `--no-`, too."""
        self.add_argument(name, action=argparse.BooleanOptionalAction, help=words)

    def value(
        self, names: str, metavar: str, parse: Parse, words: str, default: Any = None, **more: Any
    ) -> None:
        """Add an option with a value, whose parser raises `ValueError`; see `_value`."""
        known = _value(metavar, parse, words, **more)
        self.add_argument(*names.split(), default=default, **known)

    def print_help(self, file: Any = None) -> None:
        """Print the help: on a terminal headings are bold, and options and commands in colour."""
        text, file = self.format_help(), file or sys.stdout
        plain = without_colours(os.environ) or os.environ.get("TERM") == "dumb"
        if sys.version_info < (3, 14) and file.isatty() and not plain:
            text = re.sub(r"^(usage:|\S.*:$)", "\x1b[1m\\1\x1b[0m", text, flags=re.MULTILINE)
            names = r"(?<![\w-])--?(?:\[no-\])?[a-zA-Z0-9][\w-]*|(?<=^  )[a-z]+(?=  )"
            text = re.sub(names, "\x1b[36m\\g<0>\x1b[0m", text, flags=re.MULTILINE)
        self._print_message(text, file)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words, and end at those that are not known.

        argparse would leave a command's to the parser above it, which has other options.
        """
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        remedy = f"Try `{self.prog} --help`."
        wrong = re.search(r"(invalid choice: '|unrecognized arguments: )([\w-]+)", message)
        if wrong:
            from difflib import get_close_matches

            if wrong[2] in ELSEWHERE:
                fail(f"gputop has no {wrong[2]}. Use {ELSEWHERE[wrong[2]]}.", USAGE)
            choices = re.findall(r"'([\w-]+)'", message[wrong.end() :])
            options = vars(self)["_option_string_actions"]  # undocumented, as all that lists them
            for nearest in get_close_matches(wrong[2], choices or options, 1, cutoff=0.75):
                fail(f"{wrong[2]} is not known. Did you mean {nearest}?", USAGE)
            name = wrong[2].removeprefix("--").removeprefix("no-")
            if name in ("theme", "config", *FLAGS) and name != "gpm":
                fail(f"{wrong[2]} is for the dashboard. Leave it out.", USAGE)
            if re.match("--?[a-z]", wrong[2]):
                fail(f"`{self.prog}` has no {wrong[2]}. {remedy}", USAGE)
        if not message.endswith((".", "?")):
            message = f"{message}. {remedy}"
        fail(message, USAGE)


def fail(message: str, status: int) -> NoReturn:
    """End the program with one line on standard error."""
    SKELETON.hide()
    print(f"gputop: error: {visible(message, len(message))}", file=sys.stderr)
    sys.exit(status)


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


def interval(text: str) -> float:
    """Parse the seconds between samples."""
    with suppress(ValueError):
        if SHORTEST_INTERVAL <= (seconds := float(text)) <= LONGEST_INTERVAL:
            return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is not an interval: give seconds from {SHORTEST_INTERVAL:g} "
        f"to {LONGEST_INTERVAL:g}, such as 1."
    )


def count(text: str) -> int:
    """Parse a positive whole number."""
    with suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a count: give a whole number from 1.")


def parse_users(text: str) -> list[str]:
    """Parse names of users, separated by commas. Raises `ValueError`."""
    if not (names := [name for each in text.split(",") if (name := each.strip())]):
        raise ValueError(f"{text!r} names no users. Give names, such as ada,bob.")
    return names


def parse_pids(text: str) -> list[int]:
    """Parse process numbers, separated by commas. Raises `ValueError`."""
    if not re.fullmatch(r"[0-9]{1,9}(, *[0-9]{1,9})*", text):
        raise ValueError(f"{text!r} names no processes. Give their numbers, such as 4242,4243.")
    return [int(number) for number in text.split(",")]


def refuse(arguments: argparse.Namespace, names: Iterable[str], what: str, other: str) -> None:
    """End if one of these options is given, which are not for what the other option asks for."""
    for name in names:
        value = getattr(arguments, name)
        if value or (name in ("gpm", "processes") and value is not None):
            fail(f"--{name.replace('_', '-')} is not for {what}. Leave it out, or {other}.", USAGE)


def _value(metavar: str, parse: Parse, words: str, **more: Any) -> Mapping[str, Any]:
    """Return argparse's settings of an option, whose parser raises `ValueError`.

    A parser that is only named is loaded when it is needed.
    """

    def parsed(text: str) -> Any:
        try:
            if not isinstance(parse, str):
                return parse(text)
            import pkgutil  # the dashboard does without it

            return pkgutil.resolve_name(parse)(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return {"metavar": metavar, "type": parsed, "help": words, **more}


def _flag(words: str) -> Mapping[str, Any]:
    return {"help": words, "action": "store_true"}


SHARED = {
    "--interval": _value("S", interval, "seconds between samples (0.25 to 60, default 1)"),
    "--gpm": {
        "help": "profiling counters: SM, tensor and DRAM activity (default: yes)",
        "action": argparse.BooleanOptionalAction,
    },
    "--id": _value(
        "LIST",
        "gputop.sources.selection:parse_ids",
        "only these GPUs; indices, PCI addresses or starts of UUIDs, such as 0,2",
        action="extend",
    ),
    "--only-visible": _flag("only GPUs that CUDA_VISIBLE_DEVICES leaves visible"),
    "--user": _value(
        "LIST",
        parse_users,
        "only processes of these users; LIST is such as ada,bob; all GPUs are still shown",
        action="extend",
    ),
    "--pid": _value(
        "LIST",
        parse_pids,
        "only processes with these PIDs; LIST is such as 42,43; all GPUs are still shown",
        action="extend",
    ),
    "--compute": _flag(
        "only processes that compute, such as those of CUDA; all GPUs are still shown"
    ),
    "--demo": _flag("simulated devices, marked as such"),
    "--host": _value(
        "NAME",
        parse_host,
        "another machine, over ssh; NAME is a host such as gpu-1 or ada@gpu-1; repeat --host for "
        "several; `localhost` is this machine, without ssh",
        action="append",
    ),
    "--remote-command": _value(
        "CMD",
        parse_command,
        "command that starts gputop there, such as ~/venv/bin/gputop (default: gputop)",
    ),
    "--prometheus": _value(
        "URL",
        "gputop.fleet.server:parse_url",
        "GPUs known to a Prometheus server; URL is such as http://prometheus:9090; to sign in, set "
        "GPUTOP_PROMETHEUS_TOKEN_FILE, _USER and _PASSWORD, _CERT, _KEY and _CA, or use ~/.netrc; "
        "GPUTOP_PROMETHEUS_HEADERS adds headers, such as 'X-Scope-OrgID: TENANT'",
    ),
    "--match": _value(
        "LABELS",
        "gputop.fleet.server:parse_match",
        """only these GPUs of the fleet, as PromQL matchers: 'cluster="a",rack=~"r1.*"'""",
    ),
    "--replay": _value(
        "FILE", Path, "play a recording; `stream --output` or r in the dashboard makes one"
    ),
}
PROCESSES = ("--user", "--pid", "--compute")
SHORT = {"--id": "-i", "--interval": "-l", "--user": "-u", "--pid": "-p", "--compute": "-c"}
"""Short names, as gpustat, nvitop or nvidia-smi have them."""
SOURCE = ("--interval", "--gpm", "--id", "--only-visible", *PROCESSES, "--demo")
HOSTS = ("--host", "--remote-command")
FLEET = ("--prometheus", "--match")


def add_shared(command: argparse.ArgumentParser, *names: str) -> None:
    """Add these options of `SHARED`. Before the command they are refused unless it has them."""
    command.set_defaults(shared=names)
    for name in names:
        # A default of the command would overwrite what was given before it.
        short = [SHORT[name]] if name in SHORT else []
        command.add_argument(name, *short, default=argparse.SUPPRESS, **SHARED[name])


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
            fail("--match is for a fleet. Name its server with --prometheus URL.", USAGE)
        return
    options = ("demo", "host", "replay", "gpm", "id", "only_visible", "user", "pid", "compute")
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
    return record if len(kept) == len(found) else replace(cast("Any", record), processes=kept)


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


DEPENDENT = {"verbose": "", "only_visible": "", "pid": "", "compute": "", "match": ""}
DEPENDENT |= {"gpm": "profiling counters", "remote_command": "", "record": "record the dashboard"}
"""Options on the line of the one before them, with words of their own if its words do not do."""


class Overview(Parser):
    """A parser whose help has a line for each command and option, with its text's first clause.

    It fits on a screen of 80 x 24. Consecutive switches share a line, as do dependent options. The
    `--help` of a command has everything.
    """

    def format_help(self) -> str:
        commands, options = [], []
        # Undocumented, as all of argparse that lists a parser's content.
        for action in vars(self)["_actions"]:
            if isinstance(action.choices, dict):
                helps = {each.dest: each.help for each in vars(action)["_choices_actions"]}
                commands += [_line(f"  {name}", helps[name] or "") for name in action.choices]
            # The last two stand there as `status` already.
            elif action.dest not in ("help", "once", "list_gpus"):
                options.append(action)
        usage = f"usage: {self.prog} [OPTIONS] [COMMAND ...]   ({self.epilog})"
        return "\n".join([f"{self.description}", usage, *commands, *_options(options), ""])


def _options(actions: list[argparse.Action]) -> Iterator[str]:
    kind = argparse.BooleanOptionalAction
    switches = [each for each in actions if isinstance(each, kind) and each.dest not in DEPENDENT]
    for number, action in enumerate(actions):
        if action.dest in DEPENDENT:
            continue
        after = actions[number + 1 :]
        if action not in switches:
            more = [*takewhile(lambda each: each.dest in DEPENDENT, after)]
            names = "".join(f"  {_name(each)}" for each in (action, *more))
            yield _line(names, action.help or "", *(DEPENDENT[each.dest] for each in more))
        elif action is switches[-1]:
            yield "".join(f"  {_name(each)}" for each in switches)


def _name(action: argparse.Action) -> str:
    long = action.option_strings[0]
    if isinstance(action, argparse.BooleanOptionalAction):
        return f"--[no-]{long.removeprefix('--')}"
    return f"{long} {action.metavar}" if action.metavar else long


def _line(name: str, text: str, *more: str) -> str:
    """Return a line with the first clause of the text, moved by a name that is too long."""
    clauses = (text.partition(";")[0].partition(" (")[0], *more)
    return f"{name:<22}  {', '.join(filter(None, clauses))}"
