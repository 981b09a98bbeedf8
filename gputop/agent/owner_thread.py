"""A thread that looks up the owners of processes. /proc may block, and readings go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from gputop.agent.device import Absence
from gputop.agent.interface import OwnerLookup, unseen, with_same_owner
from gputop.agent.snapshot import Process

OLD_SECONDS = 10.0
"""Seconds after which owners count as unknown if the thread is still busy: a pid may be reused."""


class OwnerThread:
    """Finds the owners of the processes on all devices, without delaying who asks."""

    def __init__(self, lookup: OwnerLookup) -> None:
        """Start the thread, which alone uses `lookup`."""
        self._lookup = lookup
        self._changed = threading.Condition()
        self._asked: dict[int, Process] | None = None
        """Processes by pid that are being looked up; None if the thread has nothing to do."""
        self._asked_at = 0.0
        self._found: dict[int, Process] = {}
        """Processes by pid, with their owners."""
        threading.Thread(target=self._run, name="owners", daemon=True).start()

    def look_up(self, processes: Iterable[Process], patience: float) -> None:
        """Look up these processes, and no others from now on. Wait for them up to `patience`.

        Nothing is waited for, or looked up, while the thread is busy with earlier processes.
        """
        with self._changed:
            if self._asked is not None:
                return
            self._asked = {process.pid: process for process in processes}
            self._asked_at = time.monotonic()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._asked is None, patience)

    def complete(self, listed: Process) -> Process:
        """Return a process that the driver listed, with its owner as far as that is known."""
        with self._changed:
            found = self._found.get(listed.pid)
            is_busy = self._asked is not None
            if is_busy and time.monotonic() - self._asked_at > OLD_SECONDS:
                return unseen(listed, Absence.TIMED_OUT)
        if found is None:
            return unseen(listed, Absence.NO_DATA_YET)
        return with_same_owner(listed, found)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked is not None)
                asked = self._asked or {}
            for pid, process in asked.items():
                owned = self._lookup.complete(process)
                with self._changed:
                    self._found[pid] = owned
            self._lookup.forget_others({*asked})
            with self._changed:
                self._found = {pid: self._found[pid] for pid in asked}
                self._asked = None
                self._changed.notify_all()
