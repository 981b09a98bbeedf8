"""Help on the fleet screen: what keys do, and what signs and numbers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.actions import key_names
from gputop.ui.fleet.actions import ACTIONS
from gputop.ui.fleet.filter import EXAMPLE
from gputop.ui.screens.help import HelpPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIGNS = {
    "! ▲ ?": "a fault, a warning, and a GPU whose readings are no more scraped",
    "▁▂▄▆█": "little to much of what the map is coloured by: the line above it has the scale",
    "▀": "two GPUs in a cell, one above the other, where there is no room for more",
    "–": "nobody has scraped that",
    "r3  64  87% !2": "a group: its name, its GPUs, their median, and how many are wrong",
    "dim": "an answer is late: these are the numbers of the one before",
}
NUMBERS = {
    "median, p5, p95": "half of the GPUs are below the median, one in twenty below p5, and one in "
    "twenty above p95; a GPU without the reading is in none of them",
    "since": "when it began, or when it was seen first from here",
}
FILTER = {
    EXAMPLE: "all of the words have to be true",
    "= !=": "is, is not; * stands for anything: rack=r1*",
    "~ !~": "has in it, has not in it, in capitals or not",
    "train": "a word alone is looked for in the host, the model and all labels",
    "host gpu model": "as well as the labels that the server has",
}


class FleetHelp(HelpPage):
    """Keys and legend."""

    def groups(self) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
        """Each with its title."""
        yield "Keys", [(" ".join(key_names(action)), action.help) for action in ACTIONS]
        yield "Signs", SIGNS.items()
        yield "Numbers", NUMBERS.items()
        yield "Filter", FILTER.items()
