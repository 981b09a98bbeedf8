"""Start the dashboard, or another first screen.

The sampler is started before Textual is imported, so that both load in parallel.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    TOO_MANY_FILES,
    terminfo_colours,
    without_colours,
)
from gputop.stream.launch import StreamOptions, launch

if TYPE_CHECKING:
    from textual.screen import Screen

    from gputop.recording.reader import Recording
    from gputop.settings import Settings
    from gputop.ui.shell.dashboard import RecordSource


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
    """Run the dashboard until the user quits, and return the exit status.

    `chosen` has the `StreamOptions` that select devices. `hosts` replace this machine, or a
    `recording` is played. `show_secrets` leaves command lines and environments of this machine's
    processes unmasked. The other arguments are the app's.
    """
    interval, replay, process = settings.interval, None, None
    asked = StreamOptions(
        interval,
        gpm=False,
        control=True,
        secrets=show_secrets,
        **chosen,
    )
    if not hosts and recording is None:
        process = launch(asked.command)
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
    return _show(
        source,
        settings=settings,
        replay=replay,
        show_secrets=show_secrets,
        **shown,
    )


def show_screen(
    first: Screen[None],
    *,
    python: str | None,  # noqa: ARG001
    **shown: Any,
) -> int:
    """Run the app with that screen until the user quits, and return the exit status."""
    return _show(first=first, **shown)


def _show(*arguments: Any, **options: Any) -> int:
    """Run the app with these arguments, and return the exit status."""
    _set_colours()
    # A key that comes right after a drawing waits for the next frame.
    os.environ.setdefault("TEXTUAL_FPS", "120")
    from gputop.ui.drawing.look import Terminal
    from gputop.ui.shell.app import GputopApp

    app = GputopApp(
        *arguments,
        terminal=Terminal.detect(os.environ),
        **options,
    )
    app.run(mouse=app.settings.mouse)
    if app.fault is not None and os.strerror(errno.EMFILE) in app.fault:
        print(f"gputop: error: {TOO_MANY_FILES}", file=sys.stderr)
        return COULD_NOT_RUN
    if app.fault is not None and says_process_limit(app.fault):
        print(
            f"gputop: error: {process_limit_problem('gputop ended')}.",
            file=sys.stderr,
        )
        return COULD_NOT_RUN
    if app.fault is not None:
        print(
            f"gputop: error: gputop ended because of a bug in it: {app.fault}. "
            "Please report it, with the output of GPUTOP_DEBUG=1.",
            file=sys.stderr,
        )
    return app.return_code or FINE


def _set_colours() -> None:
    """Make Textual use 256 colours if terminfo reports them. Textual decides by the name in TERM.

    The names `alacritty`, `foot` and `xterm-ghostty` do not end in `256color`, and COLORTERM is
    rarely set over SSH. Textual obeys even an empty NO_COLOR, so it is removed.
    """
    if not without_colours(os.environ):
        os.environ.pop("NO_COLOR", None)
    if os.environ.get("COLORTERM") or "TEXTUAL_COLOR_SYSTEM" in os.environ:
        return
    if (terminfo_colours() or 0) >= 256:
        os.environ["TEXTUAL_COLOR_SYSTEM"] = "256"
