"""GPUs in groups: by host, by model, or by any label that differs among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.fleet.places import natural
from gputop.text import short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gputop.fleet.model import Fleet, Gpu

HOST, MODEL, NONE = "host", "model", "none"
"""What can be grouped by without a label; `none` is all in one."""


class Group(NamedTuple):
    """GPUs that have the same in common."""

    name: str
    """Foreign text; "" where its GPUs do not say."""
    members: list[int]
    """Numbers of GPUs in the fleet, in its order."""


def choices(fleet: Fleet) -> list[str]:
    """By what the GPUs of a fleet can be grouped: from the smallest unit on."""
    labels = [name for name in fleet.label_names if name not in (HOST, MODEL, NONE)]
    return [HOST, *labels, MODEL, NONE]


def grouped(gpus: Sequence[Gpu], shown: Iterable[int], by: str) -> list[Group]:
    """The groups of those that are shown, in natural order; who does not say comes last."""
    of = name_of(by)
    found: dict[str, list[int]] = {}
    for number in shown:
        found.setdefault(of(gpus[number]), []).append(number)
    names = sorted(found, key=lambda name: (not name, natural(name)))
    return [Group(name, found[name]) for name in names]


def name_of(by: str) -> Callable[[Gpu], str]:
    """The name of the group of a GPU."""
    if by == HOST:
        return lambda gpu: gpu.host
    if by == MODEL:
        return lambda gpu: short_name(gpu.name)
    if by == NONE:
        return lambda _: "all"
    return lambda gpu: gpu.labels.get(by, "")
