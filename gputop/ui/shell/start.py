"""Start of the dashboard and of the fleet screen: the sampler first, so that both load in parallel.

Textual and asyncio are loaded without parts that gputop does not use and that take long to load:
Textual's command palette, which is off here, brings in a dozen widgets; asyncio brings in TLS. A
later import loads either as usual. The palette's module is private to Textual: where it cannot be
left out, it is loaded.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gputop.agent.process_limit import process_limit_problem, says_process_limit
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    TOO_MANY_FILES,
    terminfo_colours,
    without_colours,
)
from gputop.stream.launch import StreamOptions, launch
from gputop.ui.terminal.skeleton import SKELETON

if TYPE_CHECKING:
    from gputop.recording.reader import Recording
    from gputop.settings import Settings
    from gputop.ui.shell.dashboard import Dashboard, RecordSource
    from gputop.ui.shell.fleet_screen import FleetSource


def run(
    *,
    settings: Settings,
    chosen: Mapping[str, Any],
    hosts: Sequence[str] = (),
    remote_command: Sequence[str] | None = None,
    recording: Recording | None = None,
    show_secrets: bool = False,
    **shown: Any,
) -> int:
    """Run the dashboard until it is left; return the exit status.

    `chosen` are the options of `StreamOptions` that say which devices are read. `hosts` are shown
    instead of this machine, or a `recording` is played. `show_secrets` leaves command lines and
    environments of this machine's processes unmasked. The other arguments are the app's.
    """
    interval, replay, process = settings.interval, None, None
    asked = StreamOptions(
        interval, gpm=False, control=True, secrets=show_secrets, **chosen
    )
    if not hosts and recording is None:
        process = launch(asked.command)
    load_asyncio()
    source: RecordSource
    if recording is not None:
        from gputop.recording.replay import Replay

        source = replay = Replay(recording)
    elif hosts:
        from gputop.stream.machines import Machines

        source = machines = Machines(hosts, interval, remote_command)
        machines.spawn()
    else:
        from gputop.stream.child import StreamChild

        source = StreamChild(asked.command, interval, process)
    load()
    return _show(
        source, settings=settings, replay=replay, show_secrets=show_secrets, **shown
    )


def run_fleet(
    watch: FleetSource,
    open_stream: Callable[[str], RecordSource],
    *,
    where: str,
    match: str = "",
    interval: float = 10.0,
    python: str | None = None,
    **shown: Any,
) -> int:
    """Run the fleet screen until it is left; return the exit status.

    `where` and `match` are the server and what it is asked for, as they may be shown; `open_stream`
    makes the stream of a host by its name. The other arguments are the app's.
    """
    load()
    from gputop.ui.fleet.fleet_state import FleetState
    from gputop.ui.shell.fleet_screen import FleetScreen

    def open_host(host: str) -> Dashboard:
        from gputop.ui.shell.dashboard import Dashboard  # the fleet does without it

        return Dashboard(open_stream(host), python, back_to="Fleet")

    first = FleetScreen(FleetState(interval), watch, open_host, where, match)
    return _show(first=first, **shown)


def _show(*arguments: Any, **options: Any) -> int:
    """Run the app with these arguments; return the exit status."""
    from gputop.ui.drawing.look import Terminal
    from gputop.ui.shell.app import GputopApp

    app = GputopApp(*arguments, terminal=Terminal.detect(os.environ), **options)
    app.run(mouse=app.settings.mouse)
    SKELETON.hide()  # if the app did not even begin
    if app.fault is not None and os.strerror(errno.EMFILE) in app.fault:
        print(f"gputop: error: {TOO_MANY_FILES}", file=sys.stderr)
        return COULD_NOT_RUN
    if app.fault is not None and says_process_limit(app.fault):
        print(
            f"gputop: error: {process_limit_problem('gputop ended')}.", file=sys.stderr
        )
        return COULD_NOT_RUN
    if app.fault is not None:
        print(
            f"gputop: error: gputop ended because of a bug in it: {app.fault}. "
            "Please report it, with the output of GPUTOP_DEBUG=1.",
            file=sys.stderr,
        )
    return app.return_code or FINE


def load() -> None:
    """Load Textual, and prepare it for this terminal."""
    _say_colours()
    load_textual()

    from gputop.ui.terminal import textual_patches

    textual_patches.install_caches()
    for stream in (sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            # Whatever the locale says; Textual writes to standard error. Where it is best not to
            # rely on that, everything is drawn in ASCII.
            stream.reconfigure(encoding="utf-8", errors="replace")


def _say_colours() -> None:
    """Tell Textual of 256 colours if terminfo has them: Textual goes by the name in TERM.

    The names `alacritty`, `foot` and `xterm-ghostty` do not end in `256color`, and COLORTERM is
    rarely set over SSH. Textual obeys even an empty NO_COLOR, which is removed.
    """
    if not without_colours(os.environ):
        os.environ.pop("NO_COLOR", None)
    if os.environ.get("COLORTERM") or "TEXTUAL_COLOR_SYSTEM" in os.environ:
        return
    if (terminfo_colours() or 0) >= 256:
        os.environ["TEXTUAL_COLOR_SYSTEM"] = "256"


PALETTE = "textual.command"


def load_asyncio() -> None:
    """Load asyncio without TLS, as in a Python that was built without it."""
    with _in_place_of("ssl", None):
        import_module("asyncio")


def load_textual() -> None:
    """Load Textual's app, with empty classes for those of the command palette."""
    if PALETTE in sys.modules or "textual.app" in sys.modules:
        return
    before = set(sys.modules)
    try:
        with _in_place_of(PALETTE, _Empty(PALETTE)):
            import_module("textual.app")
    except Exception:  # noqa: BLE001 - whatever it is that another Textual does with them
        for name in {*sys.modules} - before:
            if name.startswith("textual"):
                del sys.modules[name]


class _Empty(ModuleType):
    """Module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def _in_place_of(name: str, module: ModuleType | None) -> Iterator[None]:
    """Replace a module for imports, or hide it with None, unless it was loaded before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = module  # type: ignore[assignment] # None is what Python itself has there
    try:
        yield
    finally:
        del sys.modules[name]
