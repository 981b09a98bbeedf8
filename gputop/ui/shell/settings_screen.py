"""The settings screen: everything that the settings file holds, changed with the arrow keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gputop.settings import AUTO, CHOICES, Settings
from gputop.ui.processes.columns import COLUMNS, COMMAND
from gputop.ui.widgets.dialogs import Choice, ChoiceDialog

if TYPE_CHECKING:
    from gputop.ui.shell.app import GputopApp

ABOUT = {"theme": "colours", "ascii": "draw in ASCII alone", "mouse": "from the next start on"}
ABOUT |= {"bell": "ring once at a new alert", "interval": "between samples"}
ABOUT |= {"gpm": "read profiling counters", "readonly": "no signals, until a new start"}
ABOUT |= {"density": "rows per device", "charts": "in full panels"}
ABOUT |= {"scroll": "charts move; up to 6× the bytes", "sort": "column of processes"}
ABOUT |= {"reverse": "the other way round", "tree": "children under parents"}
SORTS = {"n": "GPU", "u": "USER", "p": "PID", "g": "GPU MEM", "s": "SM%", "c": "CPU%"}
SORTS |= {"m": "RES", "t": "AGE"}
"""Columns that processes are sorted by at once, by the letters that nvitop has after `o`."""
ALSO = {"theme": "T", "interval": "+ -", "density": "c", "charts": "G", "sort": ". ,"}
ALSO |= {"reverse": "I", "tree": "t"}
ALSO |= {title: f"o {letter}" for letter, title in SORTS.items()}
"""Keys that change the same without this screen."""
TITLES = {column.title: column.about for column in COLUMNS if column is not COMMAND}
STEPS = {"left": -1, "right": 1, "enter": 1, "space": 1}
VALUES = {**CHOICES, "sort": (AUTO, *[*TITLES][1:], COMMAND.title)}
WORDS = {None: "auto", True: "on", False: "off"}


class SettingsScreen(ChoiceDialog):
    """Dialog with a line for each setting, and one for each column of processes."""

    def __init__(self, app: GputopApp, changed: Callable[[], None], *, columns: bool) -> None:
        """Show the settings of `app`, all or first the `columns`; call `changed` after each."""
        keys = "↑ ↓ select · ← → change · S saves · Esc closes"
        super().__init__("Settings", _rows(app.settings), keys)
        self._gputop, self._changed = app, changed
        self._list.at = len(ABOUT) * columns
        self._list.clicked = self._step

    def _step(self, choice: Choice, step: int = 1) -> None:
        name, now = choice.value
        if name in TITLES:
            hidden = {*self._gputop.settings.hidden_columns.split(",")} ^ {name}
            self._set(hidden_columns=",".join(sorted(hidden - {""})))
        else:
            choices = VALUES.get(name, (False, True)) if name != "readonly" else (now, True)
            choices = choices if now in choices else (now, *choices)
            self._set(**{name: choices[(choices.index(now) + step) % len(choices)]})

    def _set(self, **changes: Any) -> None:
        self._gputop.change_settings(**changes)
        self._changed()
        self._list.choices = _rows(self._gputop.settings)
        self._list.redraw()

    def press(self, key: str, character: str | None) -> None:
        choice = self._list.choices[self._list.at]
        if key in STEPS:
            self._step(choice, STEPS[key])
        elif key in SORTS and choice.value[0] in TITLES:
            self._set(sort=SORTS[key], reverse=False)
            self.close(None)
        elif key == "S":
            self.call_later(self._gputop.action_keep)
        elif key in ("q", "f2", "o"):
            self.close(None)
        else:
            super().press(key, character)


def _rows(settings: Settings) -> list[Choice]:
    hidden = settings.hidden_columns.split(",")
    rows = [(name, getattr(settings, name), about, name) for name, about in ABOUT.items()]
    rows += [(t, t not in hidden, about, f"column {t}") for t, about in TITLES.items()]
    return [
        Choice(f"{label:<15} {_word(value):<19}{about}", ALSO.get(name, ""), (name, value))
        for name, value, about, label in rows
    ]


def _word(value: Any) -> str:
    return f"{value:g} s" if isinstance(value, float) else WORDS.get(value, f"{value}")
