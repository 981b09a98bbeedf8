"""Dialog that sends a signal to a process: choose one, then confirm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from signal import Signals
from typing import TYPE_CHECKING, NamedTuple

from textual.containers import Vertical

from gputop.text import ABSENT, size, visible
from gputop.ui.drawing.cells import Row, Span, cell, clip, wrap
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TAB, TEXT, WARN
from gputop.ui.processes.table_state import rows_of
from gputop.ui.widgets.dialogs import WAIT, Dialog, QuietPeriod
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Click, Key

    from gputop.schema.device import Device
    from gputop.schema.snapshot import Process

SIGNALS = (
    (Signals.SIGTERM, "asks it to end: it may clean up or refuse"),
    (Signals.SIGINT, "interrupts it, as Ctrl+C does"),
    (Signals.SIGKILL, "kills it at once: nothing is saved"),
    (Signals.SIGSTOP, "suspends it; it keeps its device memory"),
    (Signals.SIGCONT, "resumes a suspended process"),
    (Signals.SIGHUP, "tells it that its terminal is gone"),
    (Signals.SIGQUIT, "ends it with a core dump"),
    (Signals.SIGUSR1, "does what the program defines"),
    (Signals.SIGUSR2, "does what the program defines"),
)
"""Signals, the gentlest first, with their default effects."""
MOVES = {"down": 1, "j": 1, "up": -1, "k": -1, "home": -99, "end": 99}
CHOOSING, ASKING = "Enter chooses · Esc closes", "y sends it · Esc goes back"
NOT_YET = f"{WAIT} · Esc goes back"
DEVICE_LINES = 4
"""Most devices of a process with a line of their own."""
SLACK = 12
"""Cells that the question, on two lines, may lose where they break."""
DEVICES_NAMED = 8
"""Most devices named in the question; more are only counted."""


class SignalTarget(NamedTuple):
    """Process that the signal is for."""

    process: Process
    held: tuple[tuple[str, int | None], ...]
    """Label of each device that it uses, and the bytes of its memory that it holds."""


def signal_target(
    process: Process, processes: Iterable[Process], devices: Sequence[Device]
) -> SignalTarget:
    """Return the target with all devices that it uses."""
    memory = {p.device_uuid: p.memory_used_bytes for p in rows_of(process, processes)}
    used = (device for device in devices if device.uuid in memory)
    return SignalTarget(process, tuple((each.label, memory[each.uuid]) for each in used))


class SignalList(LiveView):
    """Process and list of signals; once a signal is chosen, the question."""

    def __init__(self, target: SignalTarget, clicked: Callable[[], None]) -> None:
        """Call `clicked` when the mouse has chosen a signal."""
        super().__init__(id="signals")
        self._target, self._clicked = target, clicked
        self._at = 0
        self._first_row = 0
        self.asking = False
        """True once a signal is chosen and the question is open."""
        self.ready = False

    @property
    def chosen(self) -> Signals:
        return SIGNALS[self._at][0]

    def move(self, step: int) -> None:
        self._at = max(0, min(len(SIGNALS) - 1, self._at + step))
        self.redraw()

    @property
    def rows_needed(self) -> int:
        """Rows that show the process and all signals."""
        return len(self._who(1)) + len(SIGNALS)

    def draw(self, width: int, height: int) -> list[Row]:
        if self.asking:
            question = self._question(width)
            return [*self._who(width)[: max(0, height - len(question))], *question]
        who = self._who(width)[: height - 1]
        room = height - len(who)
        first = max(0, min(self._at - room // 2, len(SIGNALS) - room))
        self._first_row = len(who) - first
        numbers = range(first, min(first + room, len(SIGNALS)))
        return [*who, *(self._offer(number, width) for number in numbers)]

    def _who(self, width: int) -> list[Row]:
        process, devices = self._target
        user = ABSENT if process.user is None else visible(process.user, 64)
        command = clip(visible(process.command or "", 4 * width), width)
        rows = [[Span(f"{process.pid}", STRONG), Span(f"  {user}")], [Span(command)]]
        for label, held in devices[:DEVICE_LINES]:
            memory = "memory unknown" if held is None else size(held)
            rows.append([Span(f"GPU {label:<5}", DIM), Span(f"holds {memory}")])
        more = devices[DEVICE_LINES:]
        if more:
            total = sum(held or 0 for _, held in more)
            rows.append([Span(f"and {len(more)} more, with {size(total)}", DIM)])
        return [*rows, []]

    def _offer(self, number: int, width: int) -> Row:
        signal, about = SIGNALS[number]
        at = number == self._at
        name = cell(f" {signal.name.removeprefix('SIG'):<5}{signal:>3}", 11, TAB if at else STRONG)
        return [name, cell(f" {about}", width - 11, TAB if at else TEXT)]

    def _question(self, width: int) -> list[Row]:
        (process, devices), name = self._target, self.chosen.name.removeprefix("SIG")
        labels = [label for label, _ in devices]
        many = len(labels) > DEVICES_NAMED
        on = f"{len(labels)} devices" if many else f"GPU {', '.join(labels)}"
        where = f" on {on}?" if labels else "?"
        user = "" if process.user is None else f"{visible(process.user, 64)}, "
        start = f"Send {name} to {process.pid} ({user}"
        room = 2 * width - len(start) - len(where) - SLACK
        command = clip(visible(process.command or "", 4 * width), max(8, room))
        asked = f"{start}{command}){where}"
        if room < 8:  # the devices have a line of their own above
            asked = f"Send {name} to {process.pid}{where}"
        key, style = (ACCENT, TEXT) if self.ready else (DIM, DIM)
        answers = [Span("y", key), Span(f" Send {name}    ", style), Span("n", ACCENT)]
        lines: list[Row] = [[Span(line, WARN)] for line in wrap(asked, width)]
        return [*lines, [], [*answers, Span(" Back to the signals")]]

    def on_click(self, event: Click) -> None:
        number = event.y - self._first_row
        if not self.asking and 0 <= number < len(SIGNALS):
            self.move(number - self._at)
            self._clicked()


class SendSignal(Dialog[Signals | None]):
    """Dialog that answers with the signal to send, or None.

    The target may end meanwhile: the sender checks the pid's start time again.
    """

    def __init__(self, target: SignalTarget, *, left: bool = False) -> None:
        """Ask for a signal to `target` on the right, or on the `left`."""
        super().__init__()
        self.styles.align_horizontal = "left" if left else "right"
        self._list = SignalList(target, lambda: self._ask(True))
        self._quiet = QuietPeriod(self, self._show_keys)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = "Send a signal"
            box.border_subtitle = CHOOSING
            yield self._list
            self._list.styles.height = self._list.rows_needed

    def on_key(self, event: Key) -> None:
        """Handle every key here, in the order typed."""
        event.stop()
        if self._list.asking:
            if event.key == "y" and self._quiet.over:
                self.close(self._list.chosen)
            elif event.key in ("n", "escape", "q"):
                self._ask(False)
            else:
                self._quiet.begin()
            return
        match event.key:
            case "escape" | "q" | "f9":
                self.close(None)
            case "enter":
                self._ask(True)
            case key if key in MOVES:
                self._list.move(MOVES[key])

    def _ask(self, asking: bool) -> None:
        self._list.asking = asking
        self._quiet.begin()

    def _show_keys(self) -> None:
        self._list.ready = self._quiet.over
        self._list.redraw()
        asking = ASKING if self._quiet.over else NOT_YET
        self.query_one(Vertical).border_subtitle = asking if self._list.asking else CHOOSING
