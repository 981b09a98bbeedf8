"""`gputop stream`: write snapshots until stopped."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from gputop.agent.times import DEFAULT_INTERVAL
from gputop.commands.arguments import (
    chosen_processes,
    fail,
    hosts_of,
    open_recording,
    print_ending,
    source_of,
)
from gputop.commands.options import count, imported
from gputop.console import (
    COULD_NOT_RUN,
    FINE,
    INTERRUPTED,
    USAGE,
    print_message,
)

if TYPE_CHECKING:
    from gputop.agent.problem import Problem
    from gputop.agent.snapshot import Record
    from gputop.output.csv_lines import CsvLines
    from gputop.stream.launch import StreamOptions
    from gputop.stream.machines import Machines

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop stream`."""
    parser.add_argument(
        "--count",
        type=count,
        metavar="N",
        help="stop after N samples",
    )
    parser.add_argument(
        "--format",
        choices=("jsonl", "csv"),
        metavar="FORMAT",
        help="jsonl (default) or csv",
    )
    parser.add_argument(
        "--query",
        type=imported("gputop.output.csv_lines", "parse_query"),
        metavar="LIST",
        help="the columns of CSV, separated by commas: readings by their names in the JSON, such "
        "as time,index,gpu_utilization_percent,memory_used_bytes",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to a new file, compressed if its name ends in .gz; `--replay` plays it",
    )
    parser.add_argument(
        "--control", action="store_true", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--unmasked", action="store_true", help=argparse.SUPPRESS
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the stream. Return the exit status, or end the process with it."""
    from gputop.agent.sender import counted, redirect_prints
    from gputop.recording.writer import OutputError

    redirect_prints()
    csv, output = _csv_lines(arguments), arguments.output
    recording = open_recording(arguments.replay) if arguments.replay else None
    try:
        write_to, close = open_sink(output, csv)
    except OutputError as error:
        fail(f"{error}.", COULD_NOT_RUN)
    if output is not None:
        print_message(f"writing {'CSV' if csv else 'JSON lines'} to {output}")
    remarks = Remarks(write_to) if csv else None
    write_to = remarks.write if remarks else write_to
    status = FINE
    try:
        with (
            whole_records(write_to)
            if output
            else nullcontext(write_to) as write
        ):
            if recording is not None:
                for record in counted(recording.records(), arguments.count):
                    write(chosen_processes(arguments, record))
            else:
                _live(
                    arguments,
                    lambda each: write(chosen_processes(arguments, each)),
                    csv,
                )
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OutputError as error:
        print_message(f"error: {error}. Its content so far can be read")
        status = COULD_NOT_RUN
    finally:
        close()
    if recording is not None:
        print_ending(recording)
        return status
    if status == FINE and remarks and not remarks.has_devices:
        status = COULD_NOT_RUN
    # A normal exit would wait for reader threads, which may hang in the driver.
    os._exit(status)


def open_sink(
    path: Path | None, csv: CsvLines | None
) -> tuple[Callable[[Record], None], Callable[[], None]]:
    """Return two functions: one writes a record, one closes the output.

    The output is `path`, or standard output if it is None. Opening and writing raise `OutputError`.
    """
    from gputop.agent.sender import write_all, write_to_stdout
    from gputop.recording.writer import GrowingFile

    if csv is None:
        if path is None:
            return write_to_stdout, lambda: None
        recording = GrowingFile(path)
        return recording.write_record, recording.close
    file = None if path is None else GrowingFile(path)
    put = file.write if file else partial(write_all, sys.stdout.fileno())

    def write(record: Record) -> None:
        if text := "".join(
            f"{line}\n" for line in csv.lines_of(record)
        ).encode():
            put(text)

    return write, file.close if file else lambda: None


@contextmanager
def whole_records(
    write: Callable[[Record], None],
) -> Iterator[Callable[[Record], None]]:
    """Yield a `write` that delays signals until the record is complete.

    Signals raise `KeyboardInterrupt`. The second one does so at once, because the output may block.
    """
    writing = asked = False

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - fixed by Python
        nonlocal asked
        if asked or not writing:
            raise KeyboardInterrupt
        asked = True

    def whole(record: Record) -> None:
        nonlocal writing
        writing = True
        write(record)
        writing = False
        if asked:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield whole
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _live(
    arguments: argparse.Namespace,
    write: Callable[[Record], None],
    csv: CsvLines | None,
) -> None:
    from gputop.agent.sender import run as write_own
    from gputop.stream.crash_note import say_if_it_crashes
    from gputop.stream.launch import (
        StreamOptions,
        end_with_parent,
        is_child_of_gputop,
    )

    hosts = hosts_of(arguments)
    # If the parent is gputop, the parent reports the crash.
    if not (hosts or arguments.demo or is_child_of_gputop()):
        say_if_it_crashes()
    end_with_parent()
    shows_gpm = csv is None or csv.needs_gpm
    options = StreamOptions(
        arguments.interval or DEFAULT_INTERVAL,
        count=arguments.count,
        **source_of(arguments),
        gpm=shows_gpm and arguments.gpm is not False,
        control=arguments.control,
        secrets=arguments.control and arguments.unmasked,
    )
    if hosts:
        import asyncio

        from gputop.agent.sender import leave_with_parent
        from gputop.stream.machines import Machines

        leave_with_parent()
        machines = Machines(hosts, options.interval, arguments.remote_command)
        with suppress(BrokenPipeError):
            asyncio.run(_write_merged(machines, options, write))
    else:
        write_own(options, write)


async def _write_merged(
    machines: Machines, options: StreamOptions, write: Callable[[Record], None]
) -> None:
    """Write the merged stream of several machines.

    With a count, earlier samples are left out until each machine has answered or is away.
    """
    from gputop.agent.snapshot import Sample
    from gputop.stream.merge import still_connects

    written = 0
    machines.ask(gpm=options.gpm)
    try:
        async with aclosing(machines.records()) as records:
            async for record in records:
                if isinstance(record, Sample):
                    if options.count is not None and still_connects(record):
                        continue
                    written += 1
                write(record)
                if written == options.count:
                    return
    finally:
        await machines.close()


class Remarks:
    """Writes records as CSV, and problems on standard error, because CSV cannot hold them."""

    def __init__(self, write: Callable[[Record], None]) -> None:
        self.has_devices = False
        """True after the first sample with a device."""
        self._write = write
        self._printed: dict[str, Problem] = {}
        """Last printed problem of each host, by name."""

    def write(self, record: Record) -> None:
        """Write a record, and print new problems."""
        from gputop.agent.snapshot import MachineState, Sample

        self._print("", record.problem)
        if isinstance(record, Sample):
            for machine in record.machines:
                # The problem of an unreachable host contains its name.
                is_away = machine.state is MachineState.AWAY
                prefix = "" if is_away else f"{machine.name}: "
                self._print(machine.name, machine.problem, prefix)
            self.has_devices = self.has_devices or bool(record.devices)
        self._write(record)

    def _print(
        self, host: str, problem: Problem | None, prefix: str = ""
    ) -> None:
        if problem not in (None, self._printed.get(host)):
            self._printed[host] = problem
            print_message(f"{prefix}{problem}.")


def _csv_lines(arguments: argparse.Namespace) -> CsvLines | None:
    """Return the formatter for CSV, or None for JSON."""
    columns = arguments.query
    if columns is not None and arguments.format == "jsonl":
        fail(
            "--query chooses the columns of CSV. Leave out --format jsonl.",
            USAGE,
        )
    if columns is None and arguments.format != "csv":
        return None
    from gputop.output.csv_lines import DEFAULT_QUERY, CsvLines, parse_query

    return CsvLines(columns or parse_query(DEFAULT_QUERY))
