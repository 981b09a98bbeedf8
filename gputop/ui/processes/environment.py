"""The environment of a process: what matters to GPUs first, secrets masked until asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import chop_cells
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from gputop.masking import MASK, is_secret
from gputop.text import ABSENT, visible
from gputop.ui.drawing.cells import Row, Span, clip, spread
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT
from gputop.ui.widgets.live import LiveView, Wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Key

    from gputop.schema.snapshot import Process

TELLING = ("CUDA_", "NCCL_", "NVIDIA_", "SLURM_", "TORCH")
"""What the names of variables begin with that say what a process does with GPUs."""
INDENT = "    "
MOVES = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -10_000_000, "end": 10_000_000}
PAGES = {"pagedown": 1, "space": 1, "pageup": -1}


class Variable(NamedTuple):
    """One variable, made inert."""

    name: str
    value: str
    telling: bool
    secret: bool


def variables_of(environment: Sequence[tuple[str, str]]) -> list[Variable]:
    """The variables that say most of GPUs first, each part by name."""
    found = [
        Variable(visible(name), visible(value), name.startswith(TELLING), is_secret(name, value))
        for name, value in environment
    ]
    return sorted(found, key=lambda v: (not v.telling, v.name))


class VariableList(Wheel, LiveView):
    """`NAME=value`, long ones on several lines, in a window over all of them."""

    def __init__(self, environment: Sequence[tuple[str, str]], *, shown: bool = False) -> None:
        super().__init__(id="environment")
        self._variables = variables_of(environment)
        self.typed = ""
        """Words that must all occur in a variable, as far as it shows."""
        self.typing = False
        self._unmasked = shown
        self._first = 0
        self._room = 1
        self._lines: list[Row] | None = None
        self._lines_width = 0
        self._found = 0

    def look_for(self, text: str) -> None:
        """Lists only those in which all words of `text` occur."""
        self.typed = text
        self._first = 0
        self._again()

    def toggle_secrets(self) -> None:
        """Shows the values that look like secrets, or masks them again."""
        self._unmasked = not self._unmasked
        self._again()

    def _again(self) -> None:
        self._lines = None
        self.redraw()

    def wheel(self, step: int) -> None:
        """Shows what is `step` lines further down."""
        self._first += step
        self.redraw()

    def scroll_pages(self, step: int) -> None:
        """Shows what is `step` windows further down."""
        self.wheel(step * max(1, self._room - 1))

    def draw(self, width: int, height: int) -> list[Row]:
        """As many lines as there is room for; under them what is typed, and how many match."""
        if not self._variables:
            return [
                [Span("Nothing to show: it has no environment, has ended,", DIM)],
                [Span("or is not permitted to be looked at: run as its user or root", DIM)],
            ]
        self._room = max(1, height - 1)
        if self._lines is None or width != self._lines_width:
            self._lines, self._lines_width = self._listed(width), width
        lines = self._lines
        self._first = max(0, min(self._first, len(lines) - self._room))
        rows = lines[self._first : self._first + self._room]
        rows = [*rows, *([] for _ in range(height - 1 - len(rows)))]
        return [*rows, self._footer(width)]

    def _shown(self, variable: Variable) -> str:
        return MASK if variable.secret and not self._unmasked else variable.value

    def _listed(self, width: int) -> list[Row]:
        words = self.typed.casefold().split()
        lines: list[Row] = []
        self._found = 0
        for variable in self._variables:
            # What is masked is not searched either: a filter would give it away bit by bit.
            value = self._shown(variable)
            text = f"{variable.name}={value}"
            if all(word in text.casefold() for word in words):
                self._found += 1
                lines += _wrapped(variable, value, width)
        return lines or [[Span("No variable has all of these words in it", DIM)]]

    def _footer(self, width: int) -> Row:
        secrets = sum(variable.secret for variable in self._variables)
        counts = f"{self._found} of {len(self._variables)}"
        masked = (
            f" · v {'masks' if self._unmasked else 'shows'} {secrets} secret{'s' * (secrets > 1)}"
        )
        right = [Span(counts + masked * bool(secrets), DIM)]
        if not self.typing and not self.typed:
            return spread([Span("/", ACCENT), Span(" filter", DIM)], right, width)
        typed = clip(visible(self.typed)[::-1], width // 2)[::-1]
        cursor = Span("▏" if self.typing else " ", ACCENT)
        return spread([Span("/ ", ACCENT), Span(typed, STRONG), cursor], right, width)


def _wrapped(variable: Variable, value: str, width: int) -> list[Row]:
    """The variable on as many lines as it takes, those after the first indented."""
    style = TEXT if value == variable.value else DIM
    room = max(2, width - len(INDENT))
    first, *rest = chop_cells(f"{variable.name}={value}", room)
    name, value = first[: len(variable.name)], first[len(variable.name) :]
    row = [Span(name, ACCENT if variable.telling else STRONG), Span(value, style)]
    return [row, *([Span(INDENT), Span(chunk, style)] for chunk in rest)]


class Environment(ModalScreen[None]):
    """Shows the environment that a process was started with."""

    CSS = """
    Environment { align: center middle; background: ansi_default; }
    Environment .box { width: 124; }
    #environment { height: 80vh; }
    """

    def __init__(
        self, process: Process, environment: Sequence[tuple[str, str]], *, shown: bool = False
    ) -> None:
        super().__init__()
        user = ABSENT if process.user is None else visible(process.user, 64)
        self._heading = Content(f"Environment of {process.pid}, {user}")
        self._list = VariableList(environment, shown=shown)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = self._heading
            box.border_subtitle = "↑ ↓ scroll · Esc closes"
            yield self._list

    def on_key(self, event: Key) -> None:
        """Every key is for the list, in the order typed."""
        event.stop()
        shown = self._list
        if event.key in MOVES and not (shown.typing and event.is_printable):
            shown.wheel(MOVES[event.key])
        elif event.key in PAGES and not (shown.typing and event.is_printable):
            shown.scroll_pages(PAGES[event.key])
        elif shown.typing:
            self._type(event)
        elif event.key in ("escape", "q", "e"):
            if event.key == "escape" and shown.typed:
                shown.look_for("")
            elif self.is_current:  # a second key may have come before the first had closed it
                self.dismiss()
        elif event.key == "slash":
            shown.typing = True
            shown.redraw()
        elif event.key == "v":
            shown.toggle_secrets()

    def _type(self, event: Key) -> None:
        shown = self._list
        match event.key:
            case "enter" | "escape":
                shown.typing = False
                shown.look_for(shown.typed if event.key == "enter" else "")
            case "backspace":
                shown.look_for(shown.typed[:-1])
            case "ctrl+u":
                shown.look_for("")
            case _ if event.is_printable and event.character is not None:
                shown.look_for(shown.typed + event.character)
