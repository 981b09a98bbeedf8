"""Parse the command line and run the command. Nothing heavy is imported before it is known."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gputop import __version__
from gputop.commands.arguments import (
    SHARED,
    Overview,
    Parser,
    add_shared,
    check_fleet,
    fail,
    hosts_of,
    open_recording,
    print_text,
    refuse,
    source_of,
)
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    INTERRUPTED,
    TOO_MANY_FILES,
    USAGE,
    discard_output,
    in_notebook_cell,
    print_message,
    process_limit_problem,
    says_process_limit,
)
from gputop.settings import AUTO, KEYS, THEMES, load
from gputop.settings import path as settings_path
from gputop.stream.ssh import REMOTE_COMMAND
from gputop.text import visible

COMMANDS = {
    "status": "the devices, a line each, as text or JSON; once, or every few seconds",
    "bench": "a stress test without the dashboard",
    "pick": "the idlest devices, for CUDA_VISIBLE_DEVICES",
    "doctor": "check driver, devices and torch; say what to do about problems",
    "stream": "snapshots as JSON lines or CSV, until stopped",
    "exporter": "metrics for Prometheus, over HTTP, until stopped",
    "schema": "JSON Schema of what other commands print",
    "completion": "shell completion for bash, zsh or fish",
}
"""Commands in the order of the help, each with its line."""

UNSET: Mapping[str, Any] = {
    **dict.fromkeys(option.removeprefix("--").replace("-", "_") for option in SHARED),
    **dict.fromkeys(("only_visible", "compute", "demo", "once", "list_gpus"), False),
    "remote_command": REMOTE_COMMAND,
}
"""Values of the options that a command can be given before its name, where they are not given."""


def parser(words: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Return the parser, with the options of the commands that are among the words.

    The options of all commands would take a twentieth of the dashboard's start.
    """
    top = Overview(
        prog="gputop",
        description="A terminal dashboard for NVIDIA GPUs, with a stress test on one key.",
        epilog="gputop COMMAND --help says more",
        allow_abbrev=False,
    )
    show = "show the version and exit; with --verbose, all versions that a bug report needs"
    top.flag("--version -V", show)
    top.flag("--verbose", "with --version: also the versions of Python, dependencies and driver")
    # `whole_parser` is for the completion of every word.
    top.set_defaults(**UNSET, whole_parser=parser)
    top.flag("--once -1", "the same as `gputop status`")
    top.flag("--list-gpus -L", "the same as `gputop status --list-gpus`")
    add_shared(top, *SHARED)
    top.value("--record", "FILE", Path, "record what the dashboard shows to a new file, as r does")
    top.switch(
        "--show-secrets",
        "show passwords and tokens in command lines and environments; only on this screen and of "
        "this machine: recordings and other hosts mask them",
    )
    torch = "the interpreter whose torch runs stress tests (default: the active environment's)"
    top.value("--python", "PATH", "gputop.bench.plan.request:parse_python", torch)
    screen = top.add_argument_group("the dashboard", "also kept in its settings file")
    themes = f"{' '.join((AUTO, *THEMES))}; auto suits the terminal"
    screen.add_argument("--theme", choices=(AUTO, *THEMES), metavar="NAME", help=themes)
    for name, what in SWITCHES.items():
        screen.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=what)
    config = "the settings file (default: gputop/config.toml in $XDG_CONFIG_HOME)"
    screen.add_argument("--config", metavar="FILE", help=config)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, what in COMMANDS.items():
        sub = commands.add_parser(name, help=what, allow_abbrev=False)
        sub.set_defaults(shared=())
        if name in words:
            import_module(f"gputop.commands.{name}").add_arguments(sub)
    return top


COLOUR_SYSTEMS = ("auto", "standard", "256", "truecolor")
"""Values of TEXTUAL_COLOR_SYSTEM; Textual raises a KeyError for others."""
SWITCHES = {
    "ascii": "draw with ASCII characters only (default: if TERM=linux or the locale is not UTF-8)",
    "mouse": "use the mouse, or leave it to the terminal (default: use it)",
    "bell": "ring the terminal's bell at a new alert",
    "readonly": "never signal a process",
}
"""Settings of the dashboard that are on or off, with their help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    try:
        words = sys.argv[1:] if argv is None else argv
        return run(parser(words).parse_args(words))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return FINE
    except (OSError, RuntimeError) as error:
        if says_process_limit(error):
            fail(f"{process_limit_problem('gputop cannot run')}.", COULD_NOT_RUN)
        if not isinstance(error, OSError):
            raise
        if error.errno in (errno.EMFILE, errno.ENFILE):
            fail(TOO_MANY_FILES, COULD_NOT_RUN)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        discard_output()
        fail(
            f"standard output cannot be written: {error.strerror}. Free some space, or write "
            "elsewhere.",
            COULD_NOT_RUN,
        )


def run(arguments: argparse.Namespace) -> int:
    """Check the arguments, and run the command or the dashboard."""
    if getattr(sys, "stdout", None) is None:  # as Python has it where the shell said `>&-`
        fail("standard output is closed. Open it, or send it to a file.", COULD_NOT_RUN)
    if arguments.version:
        print_text(f"gputop {__version__}")
        if arguments.verbose:
            from gputop.commands.doctor import version_facts

            print_text("\n".join(f"{name} {what}" for name, what in version_facts()))
        return FINE
    is_attended = os.isatty(0) and os.isatty(1) and not in_notebook_cell(os.environ)
    prints = arguments.command is not None or arguments.once or arguments.list_gpus
    is_dashboard = is_attended and not prints
    _check(arguments, is_dashboard=is_dashboard)
    if arguments.command is not None:
        status: int = import_module(f"gputop.commands.{arguments.command}").run(arguments)
        return status
    if not is_dashboard:
        from gputop.commands.status import run_without_options

        return run_without_options(arguments)
    return dashboard(arguments)


def _check(arguments: argparse.Namespace, *, is_dashboard: bool) -> None:
    """End the program if options contradict each other or the command."""
    if arguments.command is not None:
        _refuse_dropped(arguments)
    if arguments.replay is not None:
        options = ("demo", "id", "only_visible", "interval", "gpm", "host", "record")
        refuse(arguments, (*options, "show_secrets"), "a recording", "--replay")
    check_fleet(arguments)
    hosts = hosts_of(arguments)
    if arguments.record is not None and not is_dashboard:
        fail("--record is for the dashboard. Try `gputop stream --output FILE`.", USAGE)
    if arguments.show_secrets and (hosts or not is_dashboard):
        why = "other hosts mask theirs" if hosts else "what is printed is masked"
        fail(f"--show-secrets is for the dashboard of this machine: {why}. Leave it out.", USAGE)
    if not (hosts or is_dashboard or arguments.demo or arguments.replay):
        _note_unknown(arguments.user or ())


USER_SECONDS = 1.0
"""Seconds to wait for a directory service that knows whether a user exists."""


def _note_unknown(users: Sequence[str]) -> None:
    import pwd
    from concurrent import futures
    from functools import partial

    from gputop.threads import call_in_thread

    for user in users:
        try:
            call_in_thread(partial(pwd.getpwnam, user)).result(USER_SECONDS)
        except futures.TimeoutError:
            print_message(
                f"note: user {user} is not found yet, because SSSD or NSS does not answer"
            )
        except KeyError:
            if not user.isdecimal():  # a uid without a name is shown as its number
                print_message(f"note: this machine has no user {user}")


def _refuse_dropped(arguments: argparse.Namespace) -> None:
    """End the program if an option before the command is none of the command's."""
    command = arguments.command
    for name, unset in UNSET.items():
        option = f"--{name.replace('_', '-')}"
        if (value := getattr(arguments, name)) == unset or option in arguments.shared:
            continue
        is_device = (command, name) == ("bench", "id")
        remedy = f"Choose with --device {','.join(value)}" if is_device else "Leave it out"
        fail(f"{option} is not for `{command}`. {remedy}.", USAGE)


def dashboard(arguments: argparse.Namespace) -> int:
    """Run the dashboard, on a terminal that can draw it."""
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        fail(
            "this terminal cannot draw a dashboard: TERM is dumb or not set. "
            "Set TERM=xterm-256color, or use `gputop status`.",
            COULD_NOT_RUN,
        )
    colours = os.environ.get("TEXTUAL_COLOR_SYSTEM", "auto")
    if colours not in COLOUR_SYSTEMS:
        fail(
            f"TEXTUAL_COLOR_SYSTEM={visible(colours, 40)} is not known. Unset it, or give one of "
            f"{', '.join(COLOUR_SYSTEMS)}.",
            USAGE,
        )
    gc.disable()  # nothing that is loaded is garbage; the app has it on again
    from gputop.ui.shell.start import run as start

    given = {key: value for key in KEYS if (value := getattr(arguments, key, None)) is not None}
    config = _settings_file(arguments.config)
    kept, problems = load(config, given=given)
    options: dict[str, Any] = {"settings": kept, "problems": problems, "config": config}
    options["python"] = arguments.python
    if arguments.prometheus is not None:
        return fleet_dashboard(arguments, options)
    return start(
        **options,
        chosen=source_of(arguments),
        hosts=hosts_of(arguments),
        remote_command=arguments.remote_command,
        recording=open_recording(arguments.replay) if arguments.replay else None,
        record=arguments.record,
        show_secrets=arguments.show_secrets,
        search=_search(arguments),
    )


def _settings_file(named: str | None) -> Path | None:
    """Return the path of the settings file. End the program if `--config` names a missing one."""
    file = settings_path(named)
    if named is not None and file is not None:
        try:
            file.stat()
        except FileNotFoundError:
            what = f"the settings file {visible(str(file), 200)} does not exist"
            fail(f"{what}. Create it, or leave out --config.", USAGE)
        except OSError:
            pass  # reading it reports this
    return file


def _search(arguments: argparse.Namespace) -> str:
    """Return the filter with which the list of processes begins."""
    values = {
        "user": arguments.user or (),
        "pid": map(str, arguments.pid or ()),
        "kind": ("compute", "compute+graphics", "mps") if arguments.compute else (),
    }
    return " ".join(f"{name}:{text}" for name, each in values.items() if (text := ",".join(each)))


def fleet_dashboard(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Run the fleet screen."""
    from gputop.commands.status import FLEET_INTERVAL, open_watch

    interval = FLEET_INTERVAL if arguments.interval is None else arguments.interval
    watch = open_watch(arguments, interval)
    from gputop.fleet.host_stream import HostStream
    from gputop.ui.shell.start import run_fleet

    return run_fleet(
        watch,
        lambda host: HostStream(watch, host),
        where=arguments.prometheus,
        match=watch.match,
        interval=interval,
        **options,
    )
