"""Facts about a node's GPU, from the lines of an agent that read it once. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.snapshot import Inventory, Sample
from gputop.bench.plan.request import CPU_MEMORY_SHARE, Target
from gputop.bench.plan.target_choice import processes_on, targets, why_unusable
from gputop.schema.decode import decode
from gputop.text import fold_list, size, visible

if TYPE_CHECKING:
    from gputop.bench.cluster.node_actor import NodeAnswer

IDLE_BYTES = 1 << 30
"""Most memory that the driver and a desktop use. More is in use by another process."""


def node_facts(
    answer: NodeAnswer,
    host: str,
    beside: int,
) -> tuple[Target, str | None]:
    """Return the GPU of an actor, and why it counts as in use (None if it is free).

    `beside` tests share the memory of a node's CPU. Raise `ValueError` with the reason if there is
    no GPU.
    """
    records = [decode(line) for line in answer.lines]
    inventories = [each for each in records if isinstance(each, Inventory)]
    samples = [each for each in records if isinstance(each, Sample)]
    if not inventories or not samples:
        raise ValueError(
            visible(answer.errors.strip() or "it had no output", 300)
        )
    inventory, sample = inventories[-1], samples[-1]
    if answer.cpu:
        return _cpu(answer, inventory, host, beside), None
    if not inventory.devices:
        raise ValueError(str(inventory.problem or "it has no GPU"))
    target = replace(
        targets(inventory, sample)[0], host=host, torch=answer.torch
    )
    if problem := why_unusable(sample, target):
        raise ValueError(problem.why)
    return target, _held(sample, target)


def _cpu(
    answer: NodeAnswer, inventory: Inventory, host: str, beside: int
) -> Target:
    free, ids = answer.free_bytes, answer.gpus
    index = int(ids[0]) if ids and ids[0].isdigit() else 0
    return Target(
        "cpu",
        None,
        index,
        inventory.cpu_name or "CPU",
        None,
        free and free // beside,
        memory_share=CPU_MEMORY_SHARE,
        host=host,
        torch=answer.torch,
    )


def _held(sample: Sample, target: Target) -> str | None:
    """Return why the GPU is in use: its processes, or memory that the driver attributes to none."""
    processes = processes_on(sample, target)
    if processes:
        named = [
            f"{each.pid} ({visible(each.command or '?', 60)})"
            for each in processes
        ]
        return f"in use by process {fold_list(named, 3)}"
    readings = sample.device(target.uuid or "")
    used = readings.memory_unattributed_bytes if readings else None
    if used is not None and used > IDLE_BYTES:
        held = f"{size(used)} of its memory are held"
        return f"in use: {held}, and the driver does not list its processes"
    return None
