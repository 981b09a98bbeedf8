"""Recordings of the records that the dashboard receives, written while it is shown."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.text import duration, size, visible

MOST_WAITING = 300
"""Most records in the queue before the recording fails."""
END_SECONDS = 0.5
"""Seconds that the dashboard waits at its end for records that are not written yet."""


class RecordingThread(threading.Thread):
    """A recording in progress. Its own thread writes, so a hanging disk delays nothing else.

    `tell` is called with a text and a title after the file was created and after it was completed,
    and `fail` if it cannot be written. The calls come from that thread, or from the caller of
    `write`.
    """

    def __init__(
        self,
        path: Path,
        tell: Callable[[str, str], None],
        fail: Callable[[Problem], None],
    ) -> None:
        super().__init__(name="recording", daemon=True)
        self.path = path
        # The working directory may have been removed.
        with contextlib.suppress(OSError):
            self.path = path.absolute()
        self.tell, self._fail = tell, fail
        self._since = time.monotonic()
        self._waiting: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.start()

    def write(self, record: Record) -> None:
        """Queue a record for writing."""
        self._waiting.put(record)
        if self._waiting.qsize() > MOST_WAITING:
            what = f"{self.path} cannot be written"
            remedy = "Record to another one"
            self._fail(Problem(what, "the disk does not answer", remedy))

    def stop(self) -> None:
        """Stop after the queued records are written."""
        self._waiting.put(None)

    def run(self) -> None:
        from gputop.recording.writer import GrowingFile

        where = visible(str(self.path))
        try:
            file = GrowingFile(self.path)
            self.tell(f"To {where}. r stops it", "Recording")
            with contextlib.closing(file):
                while (record := self._waiting.get()) is not None:
                    file.write_record(record)
        except ProblemError as error:
            self._fail(error.problem)
            return
        length = (
            f"{duration(time.monotonic() - self._since)}, {size(file.size)}"
        )
        self.tell(
            f"{length}. Play it with: gputop --replay {where}",
            "Recorded",
        )


class Recordings:
    """Recordings, one at a time. Calls `notify` at each start and end, and then `changed`.

    A recording starts with the latest sample, so that even a short one can be played. Records are
    written whether they are shown or not. `wanted` is a file to record to from the start. For the
    event loop only.
    """

    def __init__(
        self,
        notify: Callable[..., None],
        changed: Callable[[], None],
        wanted: Path | None = None,
    ) -> None:
        self.current: RecordingThread | None = None
        self._notify, self._changed = notify, changed
        self._wanted = wanted
        self._inventory: Inventory | None = None
        self._sample: Sample | None = None

    def add_record(self, record: Record) -> None:
        """Write the record if a recording is in progress."""
        if self.current is not None:
            self.current.write(record)
        if isinstance(record, Inventory):
            self._inventory = record
            return
        self._sample = record
        if self._wanted is not None and self._inventory is not None:
            wanted, self._wanted = self._wanted, None
            self._begin(wanted, self._inventory, record)

    def toggle(self) -> None:
        """Start a recording in the working directory, or end the current one."""
        inventory, sample = self._inventory, self._sample
        if self.current is not None:
            self._end(self.current)
        elif inventory is None or sample is None:
            self._notify("Nothing to record yet")
        else:
            from gputop.recording.writer import default_name

            path = Path(default_name(inventory.hostname, time.time()))
            self._begin(path, inventory, sample)

    async def close(self) -> None:
        """End the current recording, without a notification."""
        if self.current is not None:
            self.current.tell = lambda *_: None
            self.current.stop()
            await asyncio.to_thread(self.current.join, END_SECONDS)

    def _begin(
        self,
        path: Path,
        inventory: Inventory,
        sample: Sample,
    ) -> None:
        loop = asyncio.get_running_loop()

        def later(what: Callable[..., None], *arguments: object) -> None:
            # The event loop may have ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(what, *arguments)

        def tell(text: str, title: str) -> None:
            self._notify(text, title=title)

        def failed(problem: Problem) -> None:
            if self.current is recording:
                self._end(recording)
            self._notify(
                f"{visible(str(problem))}.",
                title="Not recorded",
                severity="error",
            )

        recording = RecordingThread(
            path,
            partial(later, tell),
            partial(later, failed),
        )
        recording.write(inventory)
        recording.write(sample)
        self.current = recording
        self._changed()

    def _end(self, recording: RecordingThread) -> None:
        self.current = None
        recording.stop()
        self._changed()
