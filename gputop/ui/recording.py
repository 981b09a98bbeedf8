"""What the dashboard receives, written to a file while it is shown."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gputop.growing import OutputError
from gputop.telemetry.recording import Recorder
from gputop.telemetry.snapshot import Problem, Record
from gputop.text import duration, size

MOST_WAITING = 300
"""Records that wait for the disk, before it is given up."""
END_SECONDS = 0.5
"""How long the dashboard waits at its end for what is not written yet."""


class Recording:
    """A recording in the making. A thread of its own writes: a disk that hangs holds up nothing.

    `begun` is called once the file is there, `failed` once it cannot be written any more; both by
    that thread, or by who writes.
    """

    def __init__(
        self, path: Path, begun: Callable[[], None], failed: Callable[[Problem], None]
    ) -> None:
        self.path = path.absolute()
        self._begun, self._failed = begun, failed
        self._since = time.monotonic()
        self._bytes = 0
        self._waiting: queue.Queue[Record | None] = queue.Queue(MOST_WAITING)
        self._over = False
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    @property
    def length(self) -> str:
        """For how long it has been going on, and how large it is: `1:02, 1.2 MiB`."""
        return f"{duration(time.monotonic() - self._since)}, {size(self._bytes)}"

    def write(self, record: Record) -> None:
        """Has one written."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._fail(
                Problem(
                    f"{self.path} cannot be written",
                    "the disk does not answer",
                    "Record to another one",
                )
            )

    def stop(self) -> None:
        """Ends it, once what is waiting is written."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def wait(self) -> None:
        """Until it is written, for a moment at most."""
        self._thread.join(END_SECONDS)

    def _fail(self, problem: Problem) -> None:
        if not self._over:
            self._over = True
            self._failed(problem)

    def _work(self) -> None:
        try:
            recorder = Recorder(self.path)
        except OutputError as error:
            self._fail(error.problem)
            return
        self._begun()
        try:
            while not self._over and (record := self._waiting.get()) is not None:
                recorder.write(record)
                self._bytes = recorder.file.size
        except OutputError as error:
            self._fail(error.problem)
        finally:
            recorder.close()
