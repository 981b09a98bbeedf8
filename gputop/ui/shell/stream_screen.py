"""Screen of one stream: it receives the records, records them, and reports what they mean."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncGenerator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from textual import work

from gputop.agent.snapshot import Event, Inventory, Record, Sample
from gputop.health.findings import Severity
from gputop.settings import INTERVALS
from gputop.stream.child import Interruption
from gputop.text import visible
from gputop.ui.shell.action_screen import ActionScreen
from gputop.ui.shell.events import EventWatch, Notice
from gputop.ui.shell.recording import Recordings
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.recording.replay import Played, Replay


class RecordSource(Protocol):
    """Source of records: a `StreamChild`, or a substitute."""

    def records(self) -> AsyncGenerator[Record | Interruption | Played]:
        """Yield records forever."""

    def ask(self, **wanted: Any) -> None:
        """Request another `interval`, or `gpm`, from the sampler."""

    async def close(self) -> None:
        """End everything that runs."""


class StreamScreen(ActionScreen):
    """Screen that follows one stream. A subclass shows the telemetry."""

    def __init__(
        self,
        stream: RecordSource,
        replay: Replay | None = None,
        record: Path | None = None,
        *,
        show_secrets: bool = False,
    ) -> None:
        """Follow `stream`. For a recording, this is `replay`, too. Record to the file `record`."""
        super().__init__()
        self._stream = stream
        self._replay = replay
        self._recordings = Recordings(
            self.notify,
            self._recording_changed,
            record,
        )
        clock = time.monotonic if replay is None else replay.now
        self.telemetry = Telemetry(
            clock,
            replayed=replay is not None,
            show_secrets=show_secrets,
        )
        self._events = EventWatch()
        self._rung: set[tuple[object, ...]] = set()
        """Identities of the problems that have rung the bell, while they last."""

    def on_mount(self) -> None:
        self.follow(self._stream.records(), self.receive)
        # Import it while waiting for the sampler. A thread would delay the
        # first number.
        self.call_after_refresh(import_module, "gputop.health.judge")

    async def on_unmount(self) -> None:
        """End everything that runs. A stress test has ended with its task."""
        await self._recordings.close()
        await self._stream.close()

    @property
    def wants_gpm(self) -> bool:
        """True if GPM readings are on screen."""
        raise NotImplementedError

    def show(self) -> None:
        """Show the telemetry."""
        raise NotImplementedError

    def show_status(self) -> None:
        """Show a new problem, or that a recording has started or ended, even during a pause."""
        raise NotImplementedError

    @property
    def is_recording(self) -> bool:
        return self._recordings.current is not None

    async def receive(self, record: Record | Interruption | Played) -> None:
        if isinstance(record, Inventory | Sample | Interruption):
            self._add_record(record)
        else:
            await self._play(record)

    async def _play(self, played: Played) -> None:
        """Add the records that a replay has played. After a jump, use a thread."""
        if played.restarted:
            self.telemetry.moving = True
            try:
                await asyncio.to_thread(self.telemetry.restart, played.records)
            finally:
                self.telemetry.moving = False
        else:
            for record in played.records:
                if not isinstance(record, Event):
                    self.telemetry.receive(record)
                    # There may be many samples, and a key may be waiting.
                    await asyncio.sleep(0)
        self._ring()
        self.show()

    def _add_record(self, record: Record | Interruption) -> None:
        self.telemetry.receive(record)
        if isinstance(record, Inventory | Sample):
            self._recordings.add_record(record)
        if isinstance(record, Inventory):
            return
        if isinstance(record, Sample):
            telemetry = self.telemetry
            for notice in self._events.notices(
                record,
                telemetry.devices,
                telemetry.findings,
            ):
                self._announce(notice)
        self._ring()
        if not self.telemetry.paused:
            self.show()

    def _announce(self, notice: Notice) -> None:
        """Report an event as the settings say: by the terminal or by a command."""
        text = visible(notice.text, 200)
        if self.app.settings.notes and self.app.terminal is not None:
            self.app.terminal.write(f"\x1b]9;gputop: {text}\x07")
        if self.app.settings.on_event:
            self._run_command(
                [*shlex.split(self.app.settings.on_event), text],
                notice.kind,
            )

    @work(group="events", exit_on_error=False)
    async def _run_command(self, command: Sequence[str], kind: str) -> None:
        """Run the user's command for an event. Its output is discarded."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                env={**os.environ, "GPUTOP_EVENT": kind},
            )
            await process.wait()
        except OSError as error:
            self.notify(f"{command[0]}: {error.strerror}", title="--on-event")

    def _ring(self) -> None:
        problems: set[tuple[object, ...]] = set()
        for each in self.telemetry.findings:
            if each.severity > Severity.INFORMATION:
                problems.add(each.key)
        if problems - self._rung:
            self.show_status()
            if self.app.settings.bell:
                self.app.bell()
        self._rung = problems

    def ask_gpm(self) -> None:
        """Sample GPM while it is shown or recorded."""
        wanted = self.wants_gpm or self.is_recording
        self._stream.ask(gpm=self.app.settings.gpm and wanted)

    def tick(self) -> None:
        """Show missing data."""
        self.telemetry.tick()
        if self.telemetry.silent_seconds is not None:
            self.show()

    def action_pause(self) -> None:
        self.telemetry.pause()
        self.show()

    def action_record(self) -> None:
        self._recordings.toggle()

    def _recording_changed(self) -> None:
        self.show_status()
        self.ask_gpm()

    def action_interval(self, step: int) -> None:
        now = self.app.settings.interval
        shorter = [seconds for seconds in INTERVALS if seconds < now]
        longer = [seconds for seconds in INTERVALS if seconds > now]
        if step > 0 and longer:
            now = longer[0]
        if step < 0 and shorter:
            now = shorter[-1]
        self.app.change_settings(interval=now)
        self._stream.ask(interval=now)
        self.notify(f"A sample every {now:g} s")

    def report(self, error: BaseException) -> None:
        """Show a fault in gputop, or in the recording that is played."""
        if self._replay is not None:
            from gputop.recording.reader import RecordingError

            if isinstance(error, RecordingError):
                self.telemetry.interruption = error.problem
                self.notify(
                    f"{visible(str(error))}.",
                    title="Replay",
                    severity="error",
                )
                return
        super().report(error)
