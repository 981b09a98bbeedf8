"""`gputop pick`: print the idlest working devices, for CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.snapshot import Inventory, Sample, Source
from gputop.agent.times import SHORTEST_INTERVAL
from gputop.commands.arguments import fail, print_json, print_text, snapshots
from gputop.commands.options import (
    argument_type,
    count,
    imported,
    number,
    seconds,
)
from gputop.console import COULD_NOT_RUN, FINE, print_message

if TYPE_CHECKING:
    from gputop.health.idle_devices import Candidate, Requirements
    from gputop.stream.child import Interruption, Snapshot

INTERVAL_SECONDS = SHORTEST_INTERVAL
LOOKS = 5
"""Samples in one second: the first, and one after each quarter."""
CANDIDATE_FIELDS = (
    "busy_percent",
    "memory_free_bytes",
    "memory_usable_bytes",
    "reason",
)


PERCENT = number(
    0, 100, "not a percentage. Give a number from 0 to 100, such as 10"
)


@argument_type
def parse_percent(text: str) -> float:
    """Parse a percentage, with or without its sign."""
    return PERCENT(text.removesuffix("%").rstrip())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gputop pick`."""
    parser.description = (
        "Print the UUIDs of the devices that did least over a second and have most free memory: "
        "gpus=$(gputop pick -n 2) && CUDA_VISIBLE_DEVICES=$gpus python train.py. "
        "A device that needs a reset, is lost, or has had uncorrected memory errors since its "
        "driver was loaded is never picked; a busy or nearly full one is, and a line on standard "
        "error says so. "
        "Only devices that CUDA_VISIBLE_DEVICES leaves are considered. Nothing is reserved. "
        "With --host, print the host with the idlest devices, and their UUIDs after it: "
        "read host gpus < <(gputop pick -n 2 --host 'gpu-*')."
    )
    parser.add_argument(
        "-n",
        "--count",
        type=count,
        metavar="N",
        default=1,
        help="how many (default 1)",
    )
    parser.add_argument(
        "--min-free",
        type=imported("gputop.health.idle_devices", "parse_amount"),
        metavar="SIZE",
        help="at least this much free memory, such as 20GiB, 20GB or 80%%",
    )
    parser.add_argument(
        "--max-busy",
        type=parse_percent,
        metavar="PERCENT",
        help="at most this mean utilization, over a second",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="S",
        nargs="?",
        const=math.inf,
        default=0.0,
        help="wait until enough devices fit; without S, as long as it takes",
    )
    parser.add_argument(
        "--index",
        action="store_true",
        help="print indices instead of UUIDs; set CUDA_DEVICE_ORDER=PCI_BUS_ID with them: by "
        "default CUDA counts the fastest device first",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="every device, with the reason if it does not fit",
    )


class Outcome(NamedTuple):
    """Picked devices and all others, judged over one second. None is picked if too few fit."""

    inventory: Inventory
    picked: list[Candidate]
    others: list[Candidate]
    note: str | None
    """Problem with CUDA_VISIBLE_DEVICES."""
    hopeless: str | None
    """Reason why waiting does not help."""


def run(arguments: argparse.Namespace) -> int:
    """Print the picked devices, or an error if too few devices fit."""
    found = snapshots(arguments, interval=INTERVAL_SECONDS)
    import asyncio

    from gputop.health.idle_devices import Requirements

    needs = Requirements(
        arguments.min_free, arguments.max_busy, arguments.index
    )
    try:
        outcome = asyncio.run(
            look(found, arguments.count, needs, arguments.wait, print_message)
        )
    except (ProblemError, ValueError) as error:
        fail(str(error), COULD_NOT_RUN)
    if arguments.json:
        print_json(_document(arguments, outcome))
    if outcome.note is not None:
        print_message(outcome.note)
    if not outcome.picked:
        return _refuse(arguments, outcome)
    _advise(arguments, outcome)
    if not arguments.json:
        names = ",".join(_names(arguments, outcome))
        host = outcome.picked[0].device.machine
        print_text(names if host is None else f"{host} {names}")
    return FINE


def _names(arguments: argparse.Namespace, outcome: Outcome) -> list[str]:
    if not arguments.index:
        return [each.device.own.uuid for each in outcome.picked]
    from gputop.agent.visible_devices import in_bus_order

    names = []
    for each in outcome.picked:
        host = each.device.machine
        here = [d for d in outcome.inventory.devices if d.machine == host]
        names.append(str(in_bus_order(here).index(each.device)))
    return names


def _document(
    arguments: argparse.Namespace, outcome: Outcome
) -> dict[str, Any]:
    return {
        "picked": _names(arguments, outcome),
        "devices": [
            {
                name: getattr(each.device.own, name)
                for name in ("uuid", "index", "mig_index", "name")
            }
            | (
                {}
                if each.device.machine is None
                else {"host": each.device.machine}
            )
            | {name: getattr(each, name) for name in CANDIDATE_FIELDS}
            for each in (*outcome.picked, *outcome.others)
        ],
    }


async def look(
    found: AsyncGenerator[Snapshot | Interruption],
    wanted: int,
    needs: Requirements,
    wait_seconds: float,
    tell: Callable[[str], None],
) -> Outcome:
    """Watch until `wanted` devices fit, or `wait_seconds` have passed.

    `tell` gets a message if it has to wait. Raises `ProblemError` if there are no devices or no
    snapshots, and `ValueError` if CUDA_VISIBLE_DEVICES is ambiguous.
    """
    from contextlib import aclosing

    from gputop.agent.times import IDENTIFY_SECONDS
    from gputop.agent.visible_devices import VARIABLE
    from gputop.stream.child import Snapshot, awaits_identity

    looks: deque[Sample] = deque(maxlen=LOOKS)
    now = time.monotonic()
    end = now + wait_seconds
    # CUDA_VISIBLE_DEVICES may contain the UUID of a device that is not identified yet.
    known_by = now + IDENTIFY_SECONDS if VARIABLE in os.environ else now
    waiting = False
    async with aclosing(found):
        async for each in found:
            late = time.monotonic() >= end
            if not isinstance(each, Snapshot):
                if late:
                    raise ProblemError(
                        replace(each.problem, remedy="Try again")
                    )
                looks.clear()
                continue
            if each.inventory.problem is not None:
                raise ProblemError(each.inventory.problem)
            if not each.inventory.devices:
                raise ProblemError(_no_device(each.sample))
            if time.monotonic() < known_by and awaits_identity(each.inventory):
                continue
            looks.append(each.sample)
            if len(looks) < LOOKS:
                continue
            outcome = _outcome(wanted, needs, each.inventory, looks)
            if outcome.picked or outcome.hopeless or late:
                return outcome
            if not waiting:
                tell(f"{_too_few(wanted, outcome)}: {_waiting(wait_seconds)}")
            waiting = True
    raise AssertionError("the snapshots of a child have no end")


def _waiting(limit: float) -> str:
    if math.isinf(limit):
        return "waiting"
    return f"waiting, for up to {limit:g} s"


def _outcome(
    wanted: int,
    needs: Requirements,
    inventory: Inventory,
    looks: Sequence[Sample],
) -> Outcome:
    from gputop.health.idle_devices import candidates, too_small

    allowed, note = _visible(inventory, looks[-1])
    every = candidates(inventory, looks, needs, allowed)
    picked = _idlest_of_one_machine(every, wanted)
    others = [each for each in every if each not in picked]
    hopeless = too_small(every, needs, wanted)
    return Outcome(inventory, picked, others, note, hopeless)


def _visible(
    inventory: Inventory, sample: Sample
) -> tuple[Collection[str], str | None]:
    """Return the UUIDs that may be picked, and a note on problems with the others."""
    from gputop.agent.visible_devices import seen

    if not sample.machines:
        allowed = seen(inventory.devices)
        return allowed.uuids, allowed.note
    # CUDA_VISIBLE_DEVICES applies only to this machine.
    problems = [str(each.problem) for each in sample.machines if each.problem]
    uuids = frozenset(each.uuid for each in inventory.devices)
    return uuids, " ".join(f"{problem}." for problem in problems) or None


def _idlest_of_one_machine(
    every: Sequence[Candidate], wanted: int
) -> list[Candidate]:
    """Return `wanted` fitting devices of one machine; empty if no machine has enough."""
    fitting: defaultdict[str | None, list[Candidate]] = defaultdict(list)
    for each in every:
        if each.reason is None:
            of_machine = fitting[each.device.machine]
            of_machine.append(each)
            if len(of_machine) == wanted:
                return of_machine
    return []


def _no_device(sample: Sample) -> Problem:
    for machine in sample.machines:
        if machine.problem is not None:
            return machine.problem
    why = "the driver has none"
    return Problem("There is no device to pick", why, "See `gputop status`")


def _too_few(count: int, outcome: Outcome) -> str:
    fitting = sum(each.reason is None for each in outcome.others)
    if count == 1:
        return "no device fits"
    if fitting >= count:
        return f"{count} devices are wanted, no host has that many"
    fit = f"{fitting} fits" if fitting == 1 else f"{fitting or 'none'} fit"
    return f"{count} devices are wanted, {fit}"


def _refuse(arguments: argparse.Namespace, outcome: Outcome) -> int:
    """Print in one line why too few devices fit. Return the exit status."""
    from gputop.health.idle_devices import explain

    if outcome.hopeless:
        print_message(
            f"error: {outcome.hopeless}. Ask for less with --min-free."
        )
        return COULD_NOT_RUN
    remedy = "Ask for less, wait with --wait, or see `gputop doctor`."
    message = f"error: {_too_few(arguments.count, outcome)}."
    if any(each.reason is not None for each in outcome.others):
        message += f" {explain(outcome.others)}"
    print_message(f"{message} {remedy}")
    return COULD_NOT_RUN


def _advise(arguments: argparse.Namespace, outcome: Outcome) -> None:
    if outcome.inventory.source is Source.SIMULATED:
        print_message("these devices are simulated: CUDA cannot use them")
    for each in outcome.picked:
        if each.warning:
            print_message(each.warning)
    if arguments.index and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        print_message(
            "these indices need CUDA_DEVICE_ORDER=PCI_BUS_ID: without it CUDA counts the fastest "
            "device first"
        )
