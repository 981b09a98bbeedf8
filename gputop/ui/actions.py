"""Everything a key does, in one place: bindings, footer, help and command palette read it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Tab = Literal["monitor", "benchmark"]


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does."""

    id: str
    keys: str
    """As Textual names them, separated by commas; the first is the one that is shown."""
    action: str
    help: str
    label: str = ""
    """For the footer; actions without one are only in the help."""
    tab: Tab | None = None
    """The only tab on which it does something; None is everywhere."""
    everywhere: tuple[str, ...] = ()
    """Those of its keys that no field and no other screen can take."""


ACTIONS = (
    Action("tab.monitor", "1", "tab('monitor')", "Monitor: devices and their processes"),
    Action("tab.benchmark", "2", "tab('benchmark')", "Benchmark: stress tests and results"),
    Action("bench.start", "b", "start", "Stress-test the selected device", "Stress test"),
    Action("bench.stop", "x", "stop", "Stop the stress test", "Stop"),
    Action("density", "c", "density", "Density: one row, three, full", "Density", "monitor"),
    Action("device.next", "down,j,right", "move(1)", "Select the next device", "", "monitor"),
    Action("device.previous", "up,k,left", "move(-1)", "Select the previous device", "", "monitor"),
    Action("device.first", "home", "move(-9999)", "Select the first device", "", "monitor"),
    Action("device.last", "end", "move(9999)", "Select the last device", "", "monitor"),
    Action("form", "tab", "field(1)", "Go through the form", "Form", "benchmark", ("tab",)),
    Action(
        "form.back",
        "shift+tab",
        "field(-1)",
        "Go back through the form",
        "",
        "benchmark",
        ("shift+tab",),
    ),
    Action("back", "escape", "leave", "Back: out of a field, to the monitor"),
    Action(
        "commands",
        "ctrl+p",
        "commands",
        "Command palette: the same by name",
        everywhere=("ctrl+p",),
    ),
    Action("help", "question_mark,f1", "help", "Help: keys and numbers", "Help"),
    Action("suspend", "ctrl+z", "suspend_process", "Suspend; `fg` in the shell resumes it"),
    Action(
        "quit",
        "q,f10,ctrl+c",
        "quit",
        "Quit; ends a running stress test",
        "Quit",
        everywhere=("f10", "ctrl+c"),
    ),
)
KEYS = {key: action for action in ACTIONS for key in action.keys.split(",")}

SHOWN = {
    "question_mark": "?",
    "f1": "F1",
    "f10": "F10",
    "ctrl+c": "Ctrl+C",
    "ctrl+p": "Ctrl+P",
    "ctrl+z": "Ctrl+Z",
    "escape": "Esc",
    "shift+tab": "Shift+Tab",
}
SHOWN |= {"down": "↓", "up": "↑", "left": "←", "right": "→", "tab": "Tab"}
SHOWN |= {"home": "Home", "end": "End"}


def key_names(action: Action) -> list[str]:
    """The keys as they are printed on a keyboard."""
    return [SHOWN.get(key, key) for key in action.keys.split(",")]


def bindings() -> list[Binding]:
    """The actions as Textual's bindings."""
    return [
        Binding(key, a.action, a.help, id=a.id, show=False, priority=key in a.everywhere)
        for a in ACTIONS
        for key in a.keys.split(",")
    ]
