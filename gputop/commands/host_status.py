"""`gputop status --host`: a page of each machine."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gputop.commands.arguments import print_text
from gputop.exits import COULD_NOT_RUN, FINE
from gputop.output.page import View, document, page
from gputop.schema.codec import to_json
from gputop.stream.remote import HostSnapshot, host_snapshots
from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.schema.snapshot import Inventory, Sample


def status(
    hosts: Sequence[str], remote_command: Sequence[str], view: View | None, *, gpm: bool
) -> int:
    """Asks all at once, and prints what they have; in JSON where there is no `view`.

    What is wrong with one goes to standard error, and is the exit status: 3.
    """
    found = asyncio.run(host_snapshots(hosts, remote_command, gpm=gpm))
    if view is None:
        from json import dumps

        print_text(dumps([_document(each) for each in found], indent=2))
    elif pages := [_page(each.host, *each.snapshot, view) for each in found if each.snapshot]:
        print_text("\n\n".join(pages))
    problems = [problem for each in found if (problem := _problem(each))]
    for problem in problems:
        print(f"gputop: error: {visible(problem)}", file=sys.stderr)
    return COULD_NOT_RUN if problems else FINE


def _page(host: str, inventory: Inventory, sample: Sample, view: View) -> str:
    """Return its page, headed by the name that was asked for: hosts may call themselves alike."""
    own = inventory.hostname
    name = host if host == own else f"{host} ({own})"
    return page(replace(inventory, hostname=name), sample, view)


def _problem(each: HostSnapshot) -> str | None:
    if each.snapshot is None:
        return str(each.problem)  # which names the host
    problem = each.snapshot.inventory.problem or each.snapshot.sample.problem
    return None if problem is None else f"{each.host}: {problem}"


def _document(each: HostSnapshot) -> dict[str, Any]:
    """As that of one machine, with the host's name; of one without an answer, why."""
    if each.snapshot:
        return {"host": each.host, **document(*each.snapshot)}
    return {"host": each.host, "problem": to_json(each.problem)}
