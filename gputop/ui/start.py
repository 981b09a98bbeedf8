"""Starts the dashboard: the sampler first, so that both load at the same time."""

from __future__ import annotations

from gputop.telemetry.child import StreamChild, command


def run(*, interval: float, demo: bool, python: str | None) -> int:
    """Runs the dashboard until it is left; returns the exit status."""
    child = StreamChild(command(interval=interval, demo=demo), interval)
    child.spawn()

    from gputop.ui import crop
    from gputop.ui.app import GputopApp

    crop.install()
    app = GputopApp(child, python)
    app.run()
    return app.return_code or 0
