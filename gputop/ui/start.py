"""Starts the dashboard: the sampler first, so that both load at the same time."""

from __future__ import annotations

import io
import sys

from gputop.telemetry.child import StreamChild, command


def run(*, interval: float, demo: bool, python: str | None) -> int:
    """Runs the dashboard until it is left; returns the exit status."""
    child = StreamChild(command(interval=interval, demo=demo, control=True), interval)
    child.spawn()

    from gputop.ui import crop
    from gputop.ui.app import GputopApp

    crop.install()
    for stream in (sys.__stdout__, sys.__stderr__):
        if isinstance(stream, io.TextIOWrapper):
            # Terminals are UTF-8 whatever the locale says; Textual writes to standard error.
            stream.reconfigure(encoding="utf-8", errors="replace")
    app = GputopApp(child, python)
    app.run()
    if app.fault is not None:
        print(
            f"gputop: error: a fault of gputop's own ended it: {app.fault}. "
            "Please report it, with what GPUTOP_DEBUG=1 shows.",
            file=sys.stderr,
        )
    return app.return_code or 0
