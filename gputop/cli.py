"""Run a command or the dashboard. Heavy modules are imported only after that choice."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.commands.arguments import (
    fail,
    hosts_of,
    open_recording,
    print_text,
    source_of,
)
from gputop.commands.contradictions import check
from gputop.commands.parser import parse
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    INTERRUPTED,
    TOO_MANY_FILES,
    USAGE,
    discard_output,
    in_notebook_cell,
)
from gputop.settings import KEYS, load
from gputop.settings import path as settings_path
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.ui.shell.tabs import ExtraTab

COLOUR_SYSTEMS = ("auto", "standard", "256", "truecolor")
"""Valid values of TEXTUAL_COLOR_SYSTEM. Textual raises a KeyError for others."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    try:
        words = sys.argv[1:] if argv is None else argv
        return run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return FINE
    except (OSError, RuntimeError) as error:
        if says_process_limit(error):
            fail(
                f"{process_limit_problem('gputop cannot run')}.", COULD_NOT_RUN
            )
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


def run(words: Sequence[str]) -> int:
    """Run the command in `words`, or the dashboard."""
    # stdout is None if the shell closed it with `>&-`.
    if getattr(sys, "stdout", None) is None:
        fail(
            "standard output is closed. Open it, or send it to a file.",
            COULD_NOT_RUN,
        )
    arguments = parse(words)
    if arguments.version:
        print_text(f"gputop {__version__}")
        return FINE
    is_attended = (
        os.isatty(0) and os.isatty(1) and not in_notebook_cell(os.environ)
    )
    prints = arguments.command is not None or arguments.list_gpus
    is_dashboard = is_attended and not prints
    is_beside = is_attended and arguments.command == "run" and can_draw()
    if arguments.command is None and not is_dashboard:
        arguments = parse([*words, "status"])
    if arguments.config is not None:
        _check_config(arguments.config)
    check(arguments, is_dashboard=is_dashboard or is_beside)
    if is_dashboard:
        return dashboard(arguments)
    if is_beside:
        from gputop.commands.run import run_beside

        return run_beside(arguments, dashboard)
    status: int = import_module(f"gputop.commands.{arguments.command}").run(
        arguments
    )
    return status


def _check_config(named: str) -> None:
    """End the program if the settings file that `--config` names cannot be found."""
    file = settings_path(named)
    if file is None:
        return
    try:
        file.stat()
    except OSError as error:
        what = f"the settings file {visible(str(file))}"
        fail(
            f"{what}: {error.strerror}. Correct --config, or leave it out.",
            USAGE,
        )


def can_draw() -> bool:
    """Return True if the terminal can draw a dashboard."""
    return os.environ.get("TERM", "dumb") not in ("", "dumb")


def dashboard(
    arguments: argparse.Namespace, extra: ExtraTab | None = None
) -> int:
    """Run the dashboard, with one more tab. End the program if the terminal cannot draw it."""
    if not can_draw():
        fail(
            "this terminal cannot draw a dashboard: TERM is dumb or not set. "
            "Set TERM=xterm-256color, or use `gputop status`.",
            COULD_NOT_RUN,
        )
    colours = os.environ.get("TEXTUAL_COLOR_SYSTEM", "auto")
    if colours not in COLOUR_SYSTEMS:
        fail(
            f"TEXTUAL_COLOR_SYSTEM={visible(colours)} is not known. Unset it, or give one of "
            f"{', '.join(COLOUR_SYSTEMS)}.",
            USAGE,
        )
    if extra is None and arguments.demo:
        from gputop.commands.run import demo_tab

        extra = demo_tab()
    # Imports make no garbage. The app enables the collector again.
    gc.disable()
    from gputop.ui.shell.start import run as start

    given = {}
    for key in KEYS:
        value = getattr(arguments, key, None)
        if value is not None:
            given[key] = value
    config = settings_path(arguments.config)
    kept, problems = load(config, given=given)
    options: dict[str, Any] = {
        "settings": kept,
        "problems": problems,
        "config": config,
    }
    options["python"] = arguments.python
    if arguments.prometheus is not None:
        from gputop.commands.fleet import run_screen

        return run_screen(arguments, options)
    return start(
        **options,
        chosen=source_of(arguments),
        hosts=hosts_of(arguments),
        remote_command=arguments.remote_command,
        recording=open_recording(arguments.replay)
        if arguments.replay
        else None,
        record=arguments.record,
        show_secrets=arguments.show_secrets,
        search=_search(arguments),
        extra=extra,
    )


def _search(arguments: argparse.Namespace) -> str:
    """Return the initial filter of the list of processes."""
    words = []
    if arguments.user:
        words.append(f"user:{','.join(arguments.user)}")
    if arguments.pid:
        words.append(f"pid:{','.join(map(str, arguments.pid))}")
    if arguments.compute:
        words.append("kind:compute,compute+graphics,mps")
    return " ".join(words)
