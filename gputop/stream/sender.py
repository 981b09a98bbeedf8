"""`gputop stream`: the snapshots on standard output, one line each, until nobody wants them."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gputop.schema.snapshot import DriverState, Inventory, MachineState, Record, Sample, encode
from gputop.sources.interface import ReplacedError
from gputop.sources.linux.owners import Owners
from gputop.sources.sampler import Sampler
from gputop.stream.control import obey
from gputop.stream.flow import Window

if TYPE_CHECKING:
    from gputop.sources.interface import Driver
    from gputop.stream.remote import Machines


NEW_OBJECTS = 50_000
"""Until the collector looks through them. A sample of many processes is as many, none of them in a
circle: at Python's own 700 to look through them took a fifth of the time."""
COLLECTED = 100
"""Samples until what is in a circle is collected: the driver's bindings leave some, for hours."""


def to_stdout(record: Record) -> None:
    """Writes a record as a line of JSON; unbuffered, so that it arrives when it is written."""
    write_all(sys.stdout.fileno(), encode(record).encode() + b"\n")


def run(
    *,
    interval: float,
    count: int | None = None,
    demo: bool = False,
    gpm: bool = True,
    control: bool = False,
    secrets: bool = False,
    write: Callable[[Record], None] = to_stdout,
) -> None:
    """Writes the stream until nobody reads it, or `count` samples of a settled driver are out.

    With `control` its reader asks for changes on standard input, and may ask to get no more samples
    than it acknowledges. With `secrets` command lines have theirs. Raises what `write` does.
    """
    threading.excepthook = _fall
    gc.set_threshold(NEW_OBJECTS)
    sampler, window = make_sampler(interval, demo=demo, gpm=gpm, secrets=secrets), Window()
    if control:
        threading.Thread(target=_obey, args=(sampler, window), name="control", daemon=True).start()
    else:
        leave_with_parent()
    # The reader has what it wanted: `gputop stream | head -1`.
    with contextlib.suppress(BrokenPipeError):
        for number, record in enumerate(counted(sampler.records(), count), 1):
            if number % COLLECTED == 0:
                gc.collect()
            for each in window.due(record):
                write(each)


def run_several(
    hosts: Sequence[str],
    remote: Sequence[str],
    *,
    interval: float,
    count: int | None = None,
    gpm: bool = True,
    write: Callable[[Record], None] = to_stdout,
) -> None:
    """As `run`, of several machines; `count` samples since each has answered, or is away."""
    import asyncio

    from gputop.stream.remote import Machines

    leave_with_parent()
    with contextlib.suppress(BrokenPipeError):
        asyncio.run(_write_several(Machines(hosts, interval, remote), count, write, gpm=gpm))


async def _write_several(
    machines: Machines, left: int | None, write: Callable[[Record], None], *, gpm: bool
) -> None:
    machines.ask(gpm=gpm)
    try:
        async with contextlib.aclosing(machines.records()) as records:
            async for record in records:
                write(record)
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


def _obey(sampler: Sampler, window: Window) -> None:
    # One that is closed from the start has come to its end.
    with contextlib.suppress(OSError), open(0, "rb", closefd=False) as requests:
        obey(sampler, window, requests)
    os._exit(0)  # its end is the reader's


_falling = threading.Lock()


def _fall(fault: threading.ExceptHookArgs) -> None:
    """A thread that fails takes the stream with it: its reader says why, and starts it again."""
    _falling.acquire()  # never released: what fails at the same time must not write between
    if isinstance(fault.exc_value, ReplacedError):  # no fault of ours
        print(f"gputop: error: {fault.exc_value}. Start it again.", file=sys.stderr)
    else:
        threading.__excepthook__(fault)
    os._exit(1)


def make_sampler(
    interval: float, *, demo: bool, gpm: bool = True, secrets: bool = False
) -> Sampler:
    """The sampler of this machine, or of the simulation."""
    if demo:
        from gputop.sources import simulated

        return simulated.sampler(interval, gpm=gpm)
    return Sampler(_start_driver, interval, owners=partial(Owners, secrets=secrets), gpm=gpm)


def _start_driver() -> Driver:
    """Initialize NVML. Raises `DriverError`, also if there is no usable nvidia-ml-py."""
    # Not before: the import fails without it, and is tried again with the driver.
    from gputop.sources.nvml import driver

    return driver.start()


def counted(records: Iterable[Record], count: int | None) -> Iterator[Record]:
    """The records, ending after `count` samples since the driver answered or failed."""
    settled, left = False, count
    for record in records:
        yield record
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
