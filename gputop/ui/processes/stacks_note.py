"""Note with the line of a process in which its time goes."""

from __future__ import annotations

from textual.app import App

from gputop.health.stacks import SECONDS, StacksError, sample_stacks

NOTE_SECONDS = 20.0
"""Seconds for which the result is shown."""


async def note_stacks(app: App[None], pid: int) -> None:
    """Sample the Python stacks of a process, and show where its time goes."""
    app.notify(f"Sampling the Python stacks of {pid} for {SECONDS} s")
    try:
        stacks = await sample_stacks(pid)
    except StacksError as error:
        app.notify(f"{error}.", severity="warning", timeout=NOTE_SECONDS)
        return
    title = f"Process {pid}, last {SECONDS} s"
    app.notify(stacks.sentence, title=title, timeout=NOTE_SECONDS)
