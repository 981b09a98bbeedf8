"""`gputop wait`: return when a GPU is idle, has free memory or a fault, or a process has ended."""

from __future__ import annotations

import argparse
import math
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from gputop.agent.times import SHORTEST_INTERVAL
from gputop.commands.arguments import fail, print_text, snapshots
from gputop.commands.options import argument_type, imported, seconds
from gputop.console import COULD_NOT_RUN, FINE, USAGE, print_message
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gputop.health.waiting import DeviceWait, ProcessEnd
    from gputop.stream.child import Interruption, Snapshot

INTERVAL_SECONDS = 1.0
LASTS_SECONDS = 10.0
"""Default time for which a GPU must be idle or free: longer than a checkpoint between two steps."""


@argument_type
def parse_program(text: str) -> list[str]:
    """Parse a command line."""
    words = shlex.split(text)
    if not words:
        raise ValueError(
            "the command is empty. Give one such as 'notify-send gputop'."
        )
    return words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop wait`."""
    parser.description = (
        "Wait until a condition is met, print it, and exit with 0: "
        "gputop wait --until idle -i 0 && python train.py. Exit status 3: the time is over, or the "
        "devices cannot be read."
    )
    parser.add_argument(
        "--until",
        action="append",
        type=imported("gputop.health.waiting", "parse_condition"),
        metavar="CONDITION",
        required=True,
        help="idle (at most 5 %% busy), free:SIZE (so much free memory, such as free:20GiB or "
        "free:80%%), exit:PID (a process of this machine has ended) or fault; of several, "
        "the first that is met",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="until all GPUs are idle or free, not one of them; choose them with --id",
    )
    parser.add_argument(
        "--for",
        dest="lasting",
        type=seconds,
        metavar="S",
        default=LASTS_SECONDS,
        help=f"a GPU must be idle or free for this long (default {LASTS_SECONDS:g})",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        default=math.inf,
        help="give up after this time (default: never)",
    )
    parser.add_argument(
        "--exec",
        dest="program",
        type=parse_program,
        metavar="CMD",
        help="then run a command, with the text as its last argument, such as notify-send",
    )
    parser.add_argument(
        "--notify",
        action="store_true",
        help="then ring the terminal's bell and have it show a note",
    )


def run(arguments: argparse.Namespace) -> int:
    """Wait, print the condition that was met, and return the exit status."""
    # This import is slow, and not needed by every command.
    import asyncio

    from gputop.health.waiting import DeviceWait, Kind, ProcessEnd
    from gputop.stream.child import StreamError

    processes = []
    devices = []
    for condition in dict.fromkeys(arguments.until):
        if condition.kind is Kind.EXIT:
            processes.append(ProcessEnd(condition.pid))
        else:
            devices.append(
                DeviceWait(condition, arguments.lasting, arguments.all)
            )
    if processes and arguments.host:
        fail(
            "exit:PID is for processes of this machine. Leave out --host.",
            USAGE,
        )
    try:
        text = asyncio.run(_first(arguments, devices, processes))
    except TimeoutError:
        fail(
            f"the condition was not met in {arguments.timeout:g} s.",
            COULD_NOT_RUN,
        )
    except StreamError as error:
        fail(str(error), COULD_NOT_RUN)
    print_text(visible(text, len(text)))
    if arguments.notify:
        _notify(text)
    if arguments.program:
        return _execute([*arguments.program, text])
    return FINE


async def _first(
    arguments: argparse.Namespace,
    devices: list[DeviceWait],
    processes: list[ProcessEnd],
) -> str:
    """Return the sentence of the first condition that is met. Raises `TimeoutError`."""
    import asyncio

    waits = []
    if processes:
        waits.append(asyncio.create_task(_processes(processes)))
    if devices:
        found = snapshots(arguments, interval=INTERVAL_SECONDS)
        waits.append(asyncio.create_task(_devices(found, devices)))
    timeout = None if math.isinf(arguments.timeout) else arguments.timeout
    done, waiting = await asyncio.wait(
        waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
    )
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    if not done:
        raise TimeoutError
    return done.pop().result()


async def _processes(processes: list[ProcessEnd]) -> str:
    import asyncio

    while True:
        for process in processes:
            if process.sentence is not None:
                return process.sentence
        await asyncio.sleep(SHORTEST_INTERVAL)


async def _devices(
    found: AsyncGenerator[Snapshot | Interruption], devices: list[DeviceWait]
) -> str:
    from contextlib import aclosing

    from gputop.stream.child import Interruption, StreamError

    async with aclosing(found):
        async for each in found:
            if isinstance(each, Interruption):
                print_message(str(each.problem))
                continue
            if each.inventory.problem is not None:
                raise StreamError(each.inventory.problem)
            for wait in devices:
                text = wait.add(each)
                if text is not None:
                    return text
    raise AssertionError("the snapshots of a child have no end")


def _notify(text: str) -> None:
    """Ring the bell and show a note (OSC 9), if standard error is a terminal."""
    if sys.stderr.isatty():
        print(
            f"\a\x1b]9;gputop: {visible(text)}\x07",
            end="",
            file=sys.stderr,
            flush=True,
        )


def _execute(command: list[str]) -> int:
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}. Check --exec.", COULD_NOT_RUN)
