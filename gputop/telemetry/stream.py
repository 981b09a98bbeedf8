"""`gputop stream`: the snapshots on standard output, one line each, until nobody wants them."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator, Sequence

from gputop.telemetry.control import obey
from gputop.telemetry.sampler import Sampler
from gputop.telemetry.snapshot import DriverState, Inventory, MachineState, Sample, encode


def run(
    *,
    interval: float,
    count: int | None = None,
    demo: bool = False,
    gpm: bool = True,
    control: bool = False,
) -> int:
    """Writes the stream until nobody reads it, or `count` samples of a settled driver are out.

    With `control` its reader asks for changes on standard input.
    """
    threading.excepthook = _fall
    sampler = make_sampler(interval, demo=demo, gpm=gpm)
    if control:
        threading.Thread(target=_obey, args=(sampler,), name="control", daemon=True).start()
    else:
        leave_with_parent()
    try:
        for line in lines(sampler, count):
            # Unbuffered, so that a record arrives when it is written.
            write_all(sys.stdout.fileno(), line.encode() + b"\n")
    except BrokenPipeError:
        pass  # the reader has what it wanted: `gputop stream | head -1`
    # A reader thread may hang inside the driver; a normal exit would wait for it.
    os._exit(0)


def run_several(
    hosts: Sequence[str],
    remote: Sequence[str],
    *,
    interval: float,
    count: int | None = None,
    gpm: bool = True,
) -> int:
    """As `run`, of several machines; `count` samples since each has answered, or is away."""
    import asyncio

    leave_with_parent()
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(_write_several(hosts, remote, interval, count, gpm=gpm))
    return 0


async def _write_several(
    hosts: Sequence[str], remote: Sequence[str], interval: float, left: int | None, *, gpm: bool
) -> None:
    from gputop.telemetry.remote import Machines

    machines = Machines(hosts, interval, remote)
    machines.ask(gpm=gpm)
    try:
        async with contextlib.aclosing(machines.records()) as records:
            async for record in records:
                write_all(sys.stdout.fileno(), encode(record).encode() + b"\n")
                if isinstance(record, Sample) and left is not None and not _connects(record):
                    left -= 1
                    if left == 0:
                        return
    finally:
        await machines.close()


def _connects(sample: Sample) -> bool:
    """Whether one of the machines has not said yet what it has."""
    return any(
        machine.state is MachineState.CONNECTING
        or (machine.state is MachineState.OK and machine.driver_state is DriverState.STARTING)
        for machine in sample.machines
    )


def _obey(sampler: Sampler) -> None:
    # One that is closed from the start has come to its end.
    with contextlib.suppress(OSError), open(0, "rb", closefd=False) as requests:
        obey(sampler, requests)
    os._exit(0)  # its end is the reader's


_falling = threading.Lock()


def _fall(fault: threading.ExceptHookArgs) -> None:
    """A thread that fails takes the stream with it: its reader says why, and starts it again."""
    _falling.acquire()  # never released: what fails at the same time must not write between
    threading.__excepthook__(fault)
    os._exit(1)


def make_sampler(interval: float, *, demo: bool, gpm: bool = True) -> Sampler:
    """The sampler of this machine, or of the simulation."""
    if demo:
        from gputop.telemetry import simulated

        return simulated.sampler(interval, gpm=gpm)
    from gputop.telemetry import nvml

    return Sampler(nvml.start, interval, gpm=gpm)


def lines(sampler: Sampler, count: int | None) -> Iterator[str]:
    """The encoded records, ending after `count` samples since the driver answered or failed."""
    settled, left = False, count
    for record in sampler.records():
        yield encode(record)
        if isinstance(record, Inventory):
            settled = record.driver_state is not DriverState.STARTING
        elif settled and left is not None:
            left -= 1
            if left == 0:
                return


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of `data`, however little of it a pipe takes at a time.

    Waits also where others who share the pipe or the terminal have made it one that does not block.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            room = select.poll()
            room.register(descriptor, select.POLLOUT)
            room.poll()


def leave_with_parent() -> None:
    """Ends this process when the other end of its standard input closes.

    Only a pipe or a socket has one; what comes through it is left unread, so that a shell loop
    around the command keeps its input. One that is closed from the start is nobody's parent: a
    shell loop over what a finished command wrote.
    """
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    poll = select.poll()
    poll.register(0, select.POLLRDHUP)
    if not poll.poll(0):
        threading.Thread(target=_end_after, args=(poll,), name="parent", daemon=True).start()


def _end_after(hang_up: select.poll) -> None:
    hang_up.poll()
    os._exit(0)
