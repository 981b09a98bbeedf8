"""The sending side of `gputop stream`: snapshots on standard output until nobody reads them.

With `--control` the reader sends lines of JSON on standard input. `{"interval": 2.0}` sets the
interval, and `{"gpm": true}` switches GPM. `{"next": true}` asks for the next sample: from the
first such line on, only samples that were asked for are written. Unknown and unreadable lines are
ignored: the reader may be another version of gputop.
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
"""Objects until the garbage collector runs.

A sample of many processes has as many, none of them in a cycle. With Python's default of 700 the
collector took a fifth of the time.
"""


def redirect_prints() -> None:
    """Send to standard error what libraries print: standard output is for records alone.

    The CUDA toolkit's stub of NVML prints a warning.
    """
    if sys.stderr is None:  # it is closed
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
    """Write a record as a line of JSON; unbuffered, so that it arrives when it is written."""
    write_all(sys.stdout.fileno(), to_line(record).encode() + b"\n")


def run(
    options: AgentOptions, write: Callable[[Record], None] = write_to_stdout
) -> None:
    """Write the stream until nobody reads it, or as many samples as the options say.

    Raises what `write` does.
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
    # The reader has what it wanted: `gputop stream | head -1`.
    with contextlib.suppress(BrokenPipeError):
        for record in counted(sampler.records(), options.count):
            for each in pacing.select(record):
                write(each)
            if pacing.reader_is_gone:
                return


def _read_requests(sampler: Sampler, pacing: Pacing) -> None:
    # One that is closed from the start has come to its end.
    with (
        contextlib.suppress(OSError),
        open(0, "rb", closefd=False) as requests,
    ):
        handle_requests(sampler, pacing, requests)
    os._exit(0)  # its end is the reader's


def handle_requests(
    sampler: Sampler,
    pacing: Pacing,
    lines: Iterable[bytes],
) -> None:
    """Do what the reader's lines ask for, up to their end."""
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
    """Return a finite number as it is; true is not a number here."""
    return (
        value
        if type(value) in (int, float) and abs(value) < math.inf
        else None
    )


_ending = threading.Lock()
_print_traceback = threading.excepthook


def _end_process(fault: threading.ExceptHookArgs) -> None:
    """End the stream with a thread that fails: the reader says why, and starts it again."""
    # Never released: what fails at the same time must not write between
    _ending.acquire()
    if isinstance(fault.exc_value, ReplacedError):  # no fault of ours
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
    # Not before: the import fails without it, and is tried again with the driver.
    from gputop.agent.nvml import driver

    return driver.start()


def counted(records: Iterable[Record], count: int | None) -> Iterator[Record]:
    """Yield the records, with `count` samples of a driver that has answered or failed."""
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
    """Write all of `data`, however little of it a pipe accepts at a time.

    Waits also where others who share the pipe or the terminal have made it non-blocking.
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

    Only a pipe or a socket has one. Its input is left unread, so that a shell loop around the
    command keeps its input. One that is closed from the start is nobody's parent: a shell loop over
    what a finished command wrote.
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
