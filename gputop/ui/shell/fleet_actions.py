"""Everything a key does on the fleet screen, and the help that lists it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gputop.ui.fleet.filter import EXAMPLE
from gputop.ui.shell.actions import Action, key_names
from gputop.ui.shell.help import HelpPage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ACTIONS = (
    Action("fleet.open", "enter", "open", "The host under the cursor, in the monitor", "Open host"),
    Action(
        "fleet.switch", "tab,w", "switch", "Between the map and what is wrong", "List", (), ("tab",)
    ),
    Action("metric", "m", "metric(1)", "Colour the map by the next value", "Colour"),
    Action("metric.previous", "M", "metric(-1)", "... by the previous one"),
    Action("group", "g", "group(1)", "Group by the next label", "Group"),
    Action("group.previous", "G", "group(-1)", "... by the previous one"),
    Action("fleet.filter", "slash", "filter", "Only GPUs with certain labels", "Filter"),
    Action("fleet.refresh", "R", "refresh_now", "Ask the server now", "Refresh"),
    Action("fleet.density", "c", "density", "Density: what fits, values, one, half, folded", ""),
    Action("fleet.next", "down,j", "move(1)", "Down: on the map, or in the list"),
    Action("fleet.previous", "up,k", "move(-1)", "Up"),
    Action("fleet.right", "right", "side(1)", "The next GPU"),
    Action("fleet.left", "left", "side(-1)", "The previous GPU"),
    Action("group.next", "n", "next_group(1)", "The next group"),
    Action("group.before", "p", "next_group(-1)", "The group before"),
    Action("fleet.page.next", "pagedown", "page(1)", "A page down"),
    Action("fleet.page.previous", "pageup", "page(-1)", "A page up"),
    Action("fleet.first", "home", "end(-1)", "To the first"),
    Action("fleet.last", "end", "end(1)", "To the last"),
    Action("theme", "T", "theme", "The next theme of colours"),
    Action("settings", "S", "keep", "Keep the theme for the next time"),
    Action("back", "escape", "leave", "Back: off the list, off the filter"),
    Action(
        "commands", "ctrl+p", "commands", "Command palette: the same by name", "", (), ("ctrl+p",)
    ),
    Action("help", "question_mark,f1", "help", "Help: keys and signs", "Help"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes it"),
    Action("quit", "q,f10,ctrl+c", "quit", "Quit", "Quit", (), ("f10", "ctrl+c")),
)
BY_ID = {action.id: action for action in ACTIONS}


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
