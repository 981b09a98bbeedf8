"""Environment of a process: variables about GPUs first, secrets masked until asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.cells import chop_cells
from textual.containers import Vertical
from textual.content import Content

from gputop.masking import MASK, is_secret
from gputop.text import ABSENT, count, visible
from gputop.ui.drawing.cells import Row, Span, spread
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT
from gputop.ui.widgets.confirm import Dialog
from gputop.ui.widgets.filter import FilterView
from gputop.ui.widgets.live import Wheel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Key

    from gputop.schema.snapshot import Process

GPU_PREFIXES = ("CUDA_", "NCCL_", "NVIDIA_", "SLURM_", "TORCH")
"""Prefixes of variables that control how a process uses GPUs."""
INDENT = "    "
MOVES = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -10_000_000, "end": 10_000_000}
PAGES = {"pagedown": 1, "space": 1, "pageup": -1}


class Variable(NamedTuple):
    """Environment variable in visible characters."""

    name: str
    value: str
    about_gpus: bool
    secret: bool


def variables_of(environment: Sequence[tuple[str, str]]) -> list[Variable]:
    """Return the variables about GPUs, then the others, each group sorted by name."""
    found = [
        Variable(
            visible(name), visible(value), name.startswith(GPU_PREFIXES), is_secret(name, value)
        )
        for name, value in environment
    ]
    return sorted(found, key=lambda v: (not v.about_gpus, v.name))


class VariableList(Wheel, FilterView):
    """Scrolling list of `NAME=value`; long values take several lines."""

    def __init__(self, environment: Sequence[tuple[str, str]], *, shown: bool = False) -> None:
        super().__init__(id="environment")
        self._variables = variables_of(environment)
        self._unmasked = shown
        self._room = 1
        self._lines: list[Row] | None = None
        self._lines_width = 0
        self._found = 0

    def type(self, text: str) -> None:
        """List only the variables that contain all words of `text`, as far as they show."""
        self._first, self._lines = 0, None
        super().type(text)

    def toggle_secrets(self) -> None:
        """Show values that look like secrets, or mask them again."""
        self._unmasked = not self._unmasked
        self._lines = None
        self.redraw()

    def scroll_pages(self, step: int) -> None:
        """Scroll down by `step` windows."""
        self.wheel(step * max(1, self._room - 1))

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the lines that fit; under them the filter and the number of matches."""
        if not self._variables:
            return [
                [Span("No environment to show: the process has none or has ended,", DIM)],
                [Span("or reading it is not permitted: run as its user or root", DIM)],
            ]
        self._room = max(1, height - 1)
        if self._lines is None or width != self._lines_width:
            self._lines, self._lines_width = self._listed(width), width
        lines = self._lines
        self._first = max(0, min(self._first, len(lines) - self._room))
        rows = lines[self._first : self._first + self._room]
        rows = [*rows, *([] for _ in range(height - 1 - len(rows)))]
        return [*rows, self._footer(width)]

    def _listed(self, width: int) -> list[Row]:
        words = self.typed.casefold().split()
        lines: list[Row] = []
        self._found = 0
        for variable in self._variables:
            # A masked value is not searched either: a filter would give it away bit by bit.
            value = MASK if variable.secret and not self._unmasked else variable.value
            text = f"{variable.name}={value}"
            if all(word in text.casefold() for word in words):
                self._found += 1
                lines += _wrapped(variable, value, width)
        return lines or [[Span("No variable contains all of these words", DIM)]]

    def _footer(self, width: int) -> Row:
        counts = f"{self._found} of {len(self._variables)}"
        if secrets := sum(variable.secret for variable in self._variables):
            counts += f" · v {'masks' if self._unmasked else 'shows'} {count(secrets, 'secret')}"
        left = [Span("/", ACCENT), Span(" filter", DIM)]
        if self.typing or self.typed:
            left = [Span("/ ", ACCENT), *self.prompt(width // 2)[1:]]
        return spread(left, [Span(counts, DIM)], width)


def _wrapped(variable: Variable, value: str, width: int) -> list[Row]:
    """Return the lines of a variable; those after the first are indented."""
    style = TEXT if value == variable.value else DIM
    room = max(2, width - len(INDENT))
    first, *rest = chop_cells(f"{variable.name}={value}", room)
    name, value = first[: len(variable.name)], first[len(variable.name) :]
    row = [Span(name, ACCENT if variable.about_gpus else STRONG), Span(value, style)]
    return [row, *([Span(INDENT), Span(chunk, style)] for chunk in rest)]


class Environment(Dialog[None]):
    """Dialog with the environment that a process was started with."""

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
        """Handle every key here, in the order typed."""
        event.stop()
        key, shown = event.key, self._list
        command = not (shown.typing and event.is_printable)
        if command and key in MOVES:
            shown.wheel(MOVES[key])
        elif command and key in PAGES:
            shown.scroll_pages(PAGES[key])
        elif shown.typing:
            shown.filter_key(key, event.character)
        elif key in ("escape", "q", "e"):
            if not (key == "escape" and shown.clear_filter()):
                self.close(None)
        elif key == "slash":
            shown.action_filter()
        elif key == "v":
            shown.toggle_secrets()
