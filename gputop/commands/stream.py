"""`gputop stream`: write snapshots until stopped."""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.commands.arguments import (
    add_hosts,
    add_replay,
    add_source,
    argument,
    count,
    fail,
    hosts_of,
    open_recording,
)
from gputop.console import COULD_NOT_RUN, FINE, INTERRUPTED, USAGE, print_message
from gputop.text import count as plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.output.nvidia_smi import CsvLines
    from gputop.problem import Problem
    from gputop.recording.reader import Recording
    from gputop.schema.snapshot import Record

CSV_WORDS = ("noheader", "nounits")


class Format(NamedTuple):
    """Form in which the stream is written."""

    csv: bool = False
    header: bool = True
    units: bool = True


def parse_format(text: str) -> Format:
    """Parse `jsonl`, or `csv` with nvidia-smi's modifiers. Raises `ValueError`."""
    first, *words = (word.strip() for word in text.split(","))
    if first == "csv" and set(words) <= {*CSV_WORDS}:
        return Format(True, "noheader" not in words, "nounits" not in words)
    if text == "jsonl":
        return Format()
    raise ValueError(f"{text!r} is not a format: give jsonl, or csv with ,noheader or ,nounits.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop stream`."""
    add_source(parser)
    add_hosts(parser)
    add_replay(parser)
    parser.add_argument("--count", type=count, metavar="N", help="stop after N samples")
    parser.add_argument(
        "--format",
        type=argument(parse_format),
        metavar="FORMAT",
        help="jsonl (default), or csv as nvidia-smi prints it: csv[,noheader][,nounits]",
    )
    parser.add_argument(
        "--query",
        "--query-gpu",
        type=argument("gputop.output.nvidia_smi:parse_query"),
        metavar="LIST",
        help="the columns of CSV, separated by commas, under nvidia-smi's names, such as "
        "timestamp,index,utilization.gpu,memory.used",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write to a new file, compressed if its name ends in .gz; `--replay` plays it",
    )
    parser.add_argument("--control", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--unmasked", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Write the stream, and return the exit status, or end the process with it."""
    from gputop.output.sinks import open_sink, whole_records
    from gputop.recording.writer import OutputError
    from gputop.stream.sender import counted

    csv, output = _csv(arguments), arguments.output
    recording = open_recording(arguments.replay) if arguments.replay else None
    try:
        write_to, close = open_sink(output, csv)
    except OutputError as error:
        fail(f"{error}.", COULD_NOT_RUN)
    if output is not None:
        print_message(f"writing {'CSV' if csv else 'JSON lines'} to {output}")
    status = FINE
    try:
        with whole_records(write_to) if output else nullcontext(write_to) as write:
            if recording is not None:
                for record in counted(recording.records(), arguments.count):
                    write(record)
            else:
                _live(arguments, _with_problems(write) if csv else write, gpm=csv is None)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OutputError as error:
        print_message(f"error: {error}. Its content so far can be read")
        status = COULD_NOT_RUN
    finally:
        close()
    if recording is not None:
        _print_losses(recording)
        return status
    if status == FINE and csv is not None and not csv.rows:
        print_message("error: there are no devices. Try `gputop status`")
        status = COULD_NOT_RUN
    # A reader thread may hang inside the driver; a normal exit would wait for it.
    os._exit(status)


def _live(arguments: argparse.Namespace, write: Callable[[Record], None], *, gpm: bool) -> None:
    from gputop.stream.launch import end_with_parent
    from gputop.stream.sender import run as run_one
    from gputop.stream.sender import run_several

    end_with_parent()
    options: dict[str, Any] = {
        "interval": 1.0 if arguments.interval is None else arguments.interval,
        "gpm": gpm and arguments.gpm is not False,
        "count": arguments.count,
        "write": write,
    }
    if hosts := hosts_of(arguments):
        run_several(hosts, arguments.remote_command, **options)
    else:
        control, demo = arguments.control, arguments.demo
        run_one(**options, demo=demo, control=control, secrets=control and arguments.unmasked)


def _with_problems(write: Callable[[Record], None]) -> Callable[[Record], None]:
    """Return a writer that also prints problems of the driver, for which CSV has no column."""
    said: Problem | None = None

    def saying(record: Record) -> None:
        nonlocal said
        if record.problem is not None and record.problem != said:
            said = record.problem
            print_message(f"{said}.")
        write(record)

    return saying


def _print_losses(recording: Recording) -> None:
    if recording.damaged:
        print_message(f"skipped {plural(recording.damaged, 'damaged line')} of {recording.path}")
    if recording.unread:
        print_message(f"{recording.path}: {recording.unread}")


def _csv(arguments: argparse.Namespace) -> CsvLines | None:
    form = arguments.format or Format(csv=arguments.query is not None)
    if not form.csv:
        if arguments.query is not None:
            fail("--query chooses the columns of CSV. Leave out --format jsonl.", USAGE)
        return None
    from gputop.output.nvidia_smi import DEFAULT_QUERY, CsvLines, parse_query

    columns = arguments.query or parse_query(DEFAULT_QUERY)
    return CsvLines(columns, header=form.header, units=form.units)
