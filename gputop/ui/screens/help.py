"""Help, written from the registry of actions, with a legend of what is on screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from gputop.ui.actions import ACTIONS, key_names

if TYPE_CHECKING:
    from textual.app import ComposeResult

LEGEND = (
    ("busy", "share of time in which at least one kernel ran: 100 % can be one SM of 132"),
    ("mem", "memory that processes use; reserved is the driver's own, beside it"),
    ("power", "draw of the last second against the enforced limit"),
    ("SM, mem", "clocks now and at most; bus is the share of time that memory was accessed"),
    ("P0 … P15", "performance state, P0 the fastest"),
    ("–", "no reading: not supported, not permitted or not there yet; --json says which"),
    ("TFLOP/s", "2·N³ per product, random normal data, wall time; mean over the whole run,"),
    ("", "peak the best window; droop: how far the second half is below the peak"),
)


class Help(ModalScreen[None]):
    """Keys and legend."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", id="help.close")
    ]

    def compose(self) -> ComposeResult:
        text = Text()
        text.append("Keys\n", style="bold")
        for action in ACTIONS:
            where = f"  ({action.tab} tab)" if action.tab else ""
            text.append(f"  {' '.join(key_names(action)):<14}", style="bold color(75)")
            text.append(f"{action.help}{where}\n")
        text.append(f"  {'Ctrl+P':<14}", style="bold color(75)")
        text.append("Command palette: the same by name\n")
        text.append("\nNumbers\n", style="bold")
        for name, meaning in LEGEND:
            text.append(f"  {name:<14}", style="bold")
            text.append(f"{meaning}\n")
        text.append("\nEsc closes this page", style="dim")
        with VerticalScroll(classes="box", can_focus=True):
            yield Static(text)
