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
    ("busy", "time in which any kernel ran; 100 % may be one SM of 132"),
    ("mem", "memory in use; reserved, beside it, is the driver's"),
    ("power", "draw against the enforced limit"),
    ("SM, mem MHz", "clocks now / at most"),
    ("bus", "time in which memory was read or written"),
    ("P0 … P15", "performance state, P0 is the fastest"),
    ("–", "no reading; `gputop status --json` says why"),
    ("TFLOP/s", "2·N³ operations a product, normal data, wall time"),
    ("peak", "the best window of 0.2 s; mean is of the whole run"),
    ("droop", "how far its second half is below the peak"),
)


class Help(ModalScreen[None]):
    """Keys and legend."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close", id="help.close")
    ]

    def compose(self) -> ComposeResult:
        text = Text()
        text.append("Keys\n", style="bold")
        for action in ACTIONS:
            where = f"  ({', '.join(action.tabs)})" if action.tabs else ""
            text.append(f"  {' '.join(key_names(action)):<13}", style="bold color(75)")
            text.append(f"{action.help}{where}\n")
        text.append("\nNumbers\n", style="bold")
        for name, meaning in LEGEND:
            text.append(f"  {name:<13}", style="bold")
            text.append(f"{meaning}\n")
        text.rstrip()
        with VerticalScroll(classes="box") as box:
            box.border_title = "Help"
            box.border_subtitle = "↑ ↓ scroll · Esc closes"
            yield Static(text)
