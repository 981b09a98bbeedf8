"""A thread that looks up the owners of processes. /proc may block, and readings go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from gputop.agent.device import Absence
from gputop.agent.interface import Facts, LookUp, unseen, with_facts
from gputop.agent.snapshot import Process

OLD_SECONDS = 10.0
"""Seconds after which owners count as unknown if the thread is still busy: a pid may be reused."""


class OwnerThread:
    """Finds the owners of the processes on all devices, without delaying who asks."""

    def __init__(self, look_up: LookUp) -> None:
        """Start the thread, which alone calls `look_up`."""
        self._look_up = look_up
        self._changed = threading.Condition()
        self._asked: tuple[int, ...] | None = None
        """Pids that are being looked up; None if the thread has nothing to do."""
        self._asked_at = 0.0
        self._found: dict[int, Facts] = {}
        """Facts of processes by pid."""
        threading.Thread(
            target=self._run,
            name="owners",
            daemon=True,
        ).start()

    def look_up(self, processes: Iterable[Process], patience: float) -> None:
        """Look up these processes, and no others from now on. Wait for them up to `patience`.

        Nothing is waited for, or looked up, while the thread is busy with earlier processes.
        """
        with self._changed:
            if self._asked is not None:
                return
            # A process on two devices is looked up once.
            self._asked = tuple(
                dict.fromkeys(process.pid for process in processes)
            )
            self._asked_at = time.monotonic()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._asked is None, patience)

    def complete(self, listed: Process) -> Process:
        """Return a process that the driver listed, with its owner as far as that is known."""
        with self._changed:
            facts = self._found.get(listed.pid)
            is_busy = self._asked is not None
            if is_busy and time.monotonic() - self._asked_at > OLD_SECONDS:
                facts = unseen(Absence.TIMED_OUT)
        if facts is None:
            facts = unseen(Absence.NO_DATA_YET)
        return with_facts(listed, facts)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked is not None)
                pids = self._asked or ()
            for pid, facts in self._look_up(pids):
                with self._changed:
                    self._found[pid] = facts
            with self._changed:
                self._found = {pid: self._found[pid] for pid in pids}
                self._asked = None
                self._changed.notify_all()
