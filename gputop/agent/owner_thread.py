"""A thread that looks up the owners of processes, because /proc may block."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from gputop.agent.device import Absence
from gputop.agent.interface import Facts, LookUp, unseen, with_facts
from gputop.agent.snapshot import Process

OLD_SECONDS = 10.0
"""Seconds after which a busy thread's owners count as unknown, because a pid may be reused."""


class OwnerThread:
    """Finds the owners of the processes on all devices, without delaying the sampler."""

    def __init__(self, look_up: LookUp) -> None:
        """Start the thread. Only this thread calls `look_up`."""
        self._look_up = look_up
        self._changed = threading.Condition()
        self._asked: tuple[int, ...] | None = None
        """Pids that are being looked up; None if the thread is idle."""
        self._asked_at = 0.0
        self._found: dict[int, Facts] = {}
        """Facts of processes by pid."""
        threading.Thread(
            target=self._run,
            name="owners",
            daemon=True,
        ).start()

    def look_up(self, processes: Iterable[Process], patience: float) -> None:
        """Look up these processes, and from now on no others. Wait for up to `patience` seconds.

        If the thread is still busy with earlier processes, return at once.
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
        """Return a process from the driver's list, with its owner if that is known."""
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
