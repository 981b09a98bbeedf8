"""Where a command's snapshots come from, as the arguments say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from gputop.telemetry.child import Interruption, Snapshot


def snapshots(
    arguments: argparse.Namespace, *, interval: float, gpm: bool = True
) -> AsyncGenerator[Snapshot | Interruption]:
    """Those of one sampler, which starts at once and ends with them; of a recording the last one.

    Raises `StreamError` while it is read, where there is nothing to be had.
    """
    recording = getattr(arguments, "replay", None)
    if recording is not None:
        return _recorded(recording)
    from gputop.telemetry.launch import command, launch

    asked = command(interval=interval, demo=arguments.demo, gpm=gpm)
    process = launch(asked)  # it takes longer than all that is loaded meanwhile
    from gputop.telemetry import child

    return child.snapshots(child.StreamChild(asked, interval, process))


async def _recorded(path: Path) -> AsyncGenerator[Snapshot | Interruption]:
    from gputop.commands.arguments import open_recording
    from gputop.telemetry.child import Snapshot, StreamError
    from gputop.telemetry.recorded import RecordingError

    try:
        yield Snapshot(*open_recording(path).last())
    except RecordingError as error:
        raise StreamError(error.problem) from None
