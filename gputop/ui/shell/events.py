"""Events that a user may wait for: a job ended, a GPU became free, a fault appeared."""

from __future__ import annotations

import asyncio
import os
import shlex
from asyncio.subprocess import DEVNULL
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputop.agent.device import Device, DeviceState
from gputop.agent.snapshot import Process, Sample
from gputop.health.causes import find_causes, title_of
from gputop.health.findings import Finding, Severity
from gputop.schema.derived import label_of
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.ui.shell.app import GputopApp

JOB_SECONDS = 60.0
"""Age of a process from which its end is an event."""


class Notice(NamedTuple):
    """An event to report to the user."""

    kind: str
    """`job-ended`, `gpu-free` or `fault`."""
    text: str


class EventWatch:
    """Compares each sample with the previous one."""

    def __init__(self) -> None:
        self._before: dict[str, list[Process]] = {}
        self._faults: set[tuple[object, ...]] = set()

    def notices(
        self,
        sample: Sample,
        devices: Iterable[Device],
        findings: Iterable[Finding],
    ) -> Iterator[Notice]:
        """Yield the events since the previous sample."""
        now = sample.processes_by_device()
        states = {each.uuid: each for each in sample.devices}
        ended: dict[int, Process] = {}
        free = []
        for device in devices:
            readings = states.get(device.uuid)
            if (
                readings is None
                or readings.state is not DeviceState.OK
                or "processes" in readings.absent
            ):
                continue
            before = self._before.get(device.uuid, [])
            running = self._before[device.uuid] = now[device.uuid]
            known = {(each.pid, each.start_time) for each in running}
            for each in before:
                is_gone = (each.pid, each.start_time) not in known
                if is_gone and _is_job(each, sample.time):
                    ended[each.pid] = each
            if before and not running:
                free.append(label_of(device))
        if ended:
            yield Notice("job-ended", _ended(list(ended.values())))
        if free:
            yield Notice("gpu-free", f"Free: GPU {', '.join(free)}")
        yield from self._new_faults(findings)

    def _new_faults(self, findings: Iterable[Finding]) -> Iterator[Notice]:
        before, self._faults = self._faults, set()
        new = []
        for each in findings:
            if each.severity is Severity.FAULT:
                self._faults.add(each.key)
                if each.key not in before:
                    new.append(each)
        if new:
            said = [title_of(cause) for cause in find_causes(new)]
            yield Notice("fault", "; ".join(said))


def announce(notice: Notice, app: GputopApp) -> None:
    """Report an event as the settings say: by the terminal or by a command."""
    settings, text = app.settings, visible(notice.text, 200)
    if settings.notes and app.terminal is not None:
        app.terminal.write(f"\x1b]9;gputop: {text}\x07")
    if settings.on_event:
        command = [*shlex.split(settings.on_event), text]
        running = _run(command, notice.kind, app)
        app.run_worker(running, group="events", exit_on_error=False)


async def _run(command: Sequence[str], kind: str, app: GputopApp) -> None:
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
        app.notify(f"{command[0]}: {error.strerror}", title="--on-event")


def _is_job(process: Process, now: float) -> bool:
    return (
        process.start_time is not None
        and now - process.start_time >= JOB_SECONDS
    )


def _ended(processes: list[Process]) -> str:
    first = processes[0]
    text = visible(first.command or f"process {first.pid}", 60)
    if len(processes) > 1:
        text += f" and {len(processes) - 1} more"
    return f"Ended: {text}"
