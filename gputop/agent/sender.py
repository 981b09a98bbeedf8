"""The sending side of `gputop stream`: snapshots on standard output until the reader is gone.

With `--control` the reader sends lines of JSON on standard input. `{"interval": 2.0}` sets the
interval, and `{"gpm": true}` switches GPM on. `{"next": true}` requests the next sample: after the
first such line, only requested samples are written. Unknown and unreadable lines are ignored,
because the reader may be another version of gputop.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from gputop.agent.interface import Driver, ReplacedError
from gputop.agent.lines import to_line
from gputop.agent.linux.owners import Owners
from gputop.agent.options import AgentOptions
from gputop.agent.pacing import Pacing
from gputop.agent.problem import COULD_NOT_RUN
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.agent.sampler import Sampler
from gputop.agent.snapshot import DriverState, Inventory, Record, Source
from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL

NEW_OBJECTS = 50_000
"""Allocations between two runs of the garbage collector.

A large sample creates this many objects, none of them cyclic. With Python's default of 700, the
collector took a fifth of the time.
"""


def redirect_prints() -> None:
    """Send prints of libraries to standard error, because standard output is for records.

    The CUDA toolkit's stub of NVML prints a warning.
    """
    # Standard error is closed.
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError):
        records = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        sys.stdout = open(  # noqa: SIM115
            records,
            "w",
            encoding="utf-8",
            closefd=False,
        )


def write_to_stdout(record: Record) -> None:
    """Write a record as a line of JSON, unbuffered, so that the reader gets it at once."""
    write_all(sys.stdout.fileno(), to_line(record).encode() + b"\n")


def run(
    options: AgentOptions, write: Callable[[Record], None] = write_to_stdout
) -> None:
    """Write the stream until the reader is gone, or as many samples as the options say.

    Raises the errors of `write`.
    """
    threading.excepthook = _end_process
    gc.set_threshold(NEW_OBJECTS, 1, 1)
    sampler, pacing = make_sampler(options), Pacing()
    if options.control:
        threading.Thread(
            target=_read_requests,
            args=(sampler, pacing),
            name="control",
            daemon=True,
        ).start()
    else:
        leave_with_parent()
    # The reader may close the pipe at any time, as in `gputop stream | head
    # -1`.
    with contextlib.suppress(BrokenPipeError):
        for record in counted(sampler.records(), options.count):
            for each in pacing.select(record):
                write(each)
            if pacing.reader_is_gone:
                return


def _read_requests(sampler: Sampler, pacing: Pacing) -> None:
    # Standard input may be closed from the start.
    with (
        contextlib.suppress(OSError),
        open(0, "rb", closefd=False) as requests,
    ):
        handle_requests(sampler, pacing, requests)
    # End of the input means that the reader is gone.
    os._exit(0)


def handle_requests(
    sampler: Sampler,
    pacing: Pacing,
    lines: Iterable[bytes],
) -> None:
    """Handle the reader's requests until its lines end."""
    for line in lines:
        wanted: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            wanted = json.loads(line)
        if not isinstance(wanted, dict):
            continue
        interval, gpm = _number(wanted.get("interval")), wanted.get("gpm")
        if interval is not None and interval > 0:
            sampler.set_interval(
                min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, interval))
            )
        if isinstance(gpm, bool):
            sampler.set_gpm(wanted=gpm)
        if isinstance(loads := wanted.get("loads"), dict):
            with contextlib.suppress(TypeError, ValueError):
                sampler.simulate(loads)
        if wanted.get("next") is True:
            pacing.ask()


def _number(value: Any) -> float | None:
    """Return a finite number as it is. True is not a number here."""
    return (
        value
        if type(value) in (int, float) and abs(value) < math.inf
        else None
    )


_ending = threading.Lock()
_print_traceback = threading.excepthook


def _end_process(fault: threading.ExceptHookArgs) -> None:
    """End the process if a thread fails. The reader shows why and starts the stream again."""
    # Never released, so that a second failing thread writes nothing.
    _ending.acquire()
    # This is not an error of gputop.
    if isinstance(fault.exc_value, ReplacedError):
        print(
            f"gputop: error: {fault.exc_value}. Start it again.",
            file=sys.stderr,
        )
    elif fault.exc_value is not None and says_process_limit(fault.exc_value):
        problem = process_limit_problem("gputop cannot run")
        print(f"gputop: error: {problem}.", file=sys.stderr)
        os._exit(COULD_NOT_RUN)
    else:
        _print_traceback(fault)
    os._exit(1)


def make_sampler(options: AgentOptions) -> Sampler:
    """Return the sampler of this machine, or of the simulation."""
    selection = None
    if options.ids or options.only_visible:
        from gputop.agent.selection import Selection

        selection = Selection(options.ids, options.only_visible)
    common = partial(
        Sampler,
        interval=options.interval,
        gpm=options.gpm,
        selection=selection,
    )
    if options.demo:
        from gputop.agent.simulated import SimulatedDriver, simulated_owners

        driver = SimulatedDriver()
        return common(
            lambda: driver,
            source=Source.SIMULATED,
            owners=simulated_owners,
            simulate=driver.simulate,
        )
    owners = Owners(secrets=options.secrets)
    return common(_start_driver, owners=owners.look_up)


def _start_driver() -> Driver:
    """Initialize NVML. Raises `DriverError`, also if there is no usable nvidia-ml-py."""
    # Import it here, because the import fails without nvidia-ml-py and is
    # tried again with the driver.
    from gputop.agent.nvml import driver

    return driver.start()


def counted(records: Iterable[Record], count: int | None) -> Iterator[Record]:
    """Yield the records, up to `count` samples after the driver has answered or failed."""
    if count is None:
        yield from records
        return
    settled, left = False, count
    for record in records:
        if isinstance(record, Inventory):
            settled = record.driver_state is not DriverState.STARTING
            yield record
        elif settled:
            yield record
            left -= 1
            if left == 0:
                return


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, even if a pipe accepts only a little at a time.

    Also waits if another process has made the shared pipe or terminal non-blocking.
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
    """End this process when the other end of its standard input closes.

    Only a pipe or a socket has another end. The input is not read, so that a shell loop around the
    command keeps it. A pipe that is at its end from the start is ignored, as in `cmd | while read
    …`.
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
        threading.Thread(
            target=_end_after, args=(poll,), name="parent", daemon=True
        ).start()


def _end_after(hang_up: select.poll) -> None:
    hang_up.poll()
    os._exit(0)
