"""The guard of a run: a thread that reads the device, and ends a run that would harm it.

It imports the agent from folders (or archives) that the parent gives in the request, because the
worker's Python may have no package except torch. It also sends the readings to the parent.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

from .events import DeviceRecord, RunLimit
from .heat import reached_limit

if TYPE_CHECKING:
    from gputop.agent.device import DeviceSample
    from gputop.agent.snapshot import Process, Record, Sample

INTERVAL_SECONDS = 0.5
START_SECONDS = 30.0
"""Timeout of the device's first answer: a driver may take long to start."""
SILENCE_SECONDS = 20.0
"""Longest silence of a device."""
MOST_PROCESSES, COMMAND_CHARACTERS = 50, 80
"""Most processes that are sent, and the length of their commands."""


class Guard:
    """Reads the device under test twice a second.

    `run` is the body of its thread. Another thread has to check `answer_due`, because this thread
    is blocked while the driver hangs.
    """

    def __init__(
        self,
        uuid: str | None,
        folders: Sequence[str],
        of: str,
        send: Callable[[DeviceRecord], None],
        end: Callable[[RunLimit], None],
    ) -> None:
        """Guard the GPU with this UUID, or the CPU if it is None.

        `folders` hold the packages `gputop` and `pynvml`. `of` is as in `reached_limit`. `send`
        gets each record, `end` gets the limit that ends the run.
        """
        self._uuid, self._folders, self._of = uuid, folders, of
        self._send, self._end = send, end
        self.answer_due = (math.inf, RunLimit("silent", "Not watched", ""))
        """Monotonic deadline of the device's next answer, and the limit if it is missed."""

    def _expect_answer(
        self, seconds: float, age: float = 0.0
    ) -> tuple[float, RunLimit]:
        """Return the deadline of the next answer; the last one is `age` seconds old."""
        why = f"it did not answer for {seconds:.0f} s"
        limit = RunLimit("silent", "Not watched", why)
        return time.monotonic() - age + seconds, limit

    def run(self) -> None:
        """Read until the process ends or a limit ends the run."""
        try:
            import_from("gputop", self._folders)
            import_from("pynvml", self._folders)
            if self._uuid is None:
                self._follow_host()
            else:
                self._follow(self._uuid)
        except Exception as error:  # noqa: BLE001 - a run needs its guard
            why = f"{type(error).__name__}: {error}"
            self._end(RunLimit("unwatched", "Not watched", why))

    def _follow_host(self) -> None:
        """Send the clock and the temperature of the CPU."""
        from gputop.agent.linux.host import HostReader
        from gputop.agent.snapshot import Host, Sample

        reader = HostReader()
        while True:
            read = reader.read()
            clock, temperature = (
                read.cpu_clock_mhz,
                read.cpu_temperature_celsius,
            )
            host = Host(
                cpu_clock_mhz=clock, cpu_temperature_celsius=temperature
            )
            self._send_record(Sample(time.time(), host))
            time.sleep(2 * INTERVAL_SECONDS)

    def _follow(self, uuid: str) -> None:
        from gputop.agent.device import DeviceState
        from gputop.agent.snapshot import Inventory

        gpu = None
        self.answer_due = self._expect_answer(START_SECONDS)
        for record in self._records(uuid):
            if isinstance(record, Inventory):
                gpu = record.device(uuid)
                if gpu is not None:
                    self._send_record(record)
                continue
            readings = record.device(uuid)
            if gpu is None or readings is None or readings.age_seconds is None:
                continue
            self._send_record(shortened(record, readings))
            if why := reached_limit(gpu, readings, self._of):
                self._end(RunLimit("limit", "Too hot", why))
                return
            if readings.state is DeviceState.OK:
                age = readings.age_seconds
                self.answer_due = self._expect_answer(SILENCE_SECONDS, age)

    def _records(self, uuid: str) -> Iterator[Record]:
        from gputop.agent.options import AgentOptions
        from gputop.agent.sender import make_sampler

        # GPM costs the device more than all other readings together.
        options = AgentOptions(INTERVAL_SECONDS, gpm=False, ids=(uuid,))
        return make_sampler(options).records()

    def _send_record(self, record: Record) -> None:
        from gputop.agent.lines import to_line

        self._send(DeviceRecord(json.loads(to_line(record))))


def shortened(sample: Sample, readings: DeviceSample) -> Sample:
    """Return a sample with only these readings of a device, and the first processes."""
    from gputop.agent.snapshot import Host, Sample

    processes: list[Process] = []
    for process in sample.processes[:MOST_PROCESSES]:
        command = process.command and process.command[:COMMAND_CHARACTERS]
        processes.append(replace(process, command=command, absent={}))
    devices = (replace(readings, absent={}),)
    return Sample(sample.time, Host(), devices, tuple(processes))


def import_from(name: str, folders: Sequence[str]) -> None:
    """Import a module from these folders, without making their other modules importable.

    Without folders Python finds the module itself.
    """
    if name in sys.modules or not folders:
        return
    spec = PathFinder.find_spec(name, list(folders))
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {name} in {', '.join(folders)}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
