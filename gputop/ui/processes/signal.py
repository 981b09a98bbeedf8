"""Dialog that sends a signal to a process: choose one, then confirm."""

from __future__ import annotations

from dataclasses import dataclass
from signal import Signals
from typing import TYPE_CHECKING

from textual import on
from textual.containers import Vertical
from textual.message import Message

from gputop.problem import Problem
from gputop.schema.remedies import unseen
from gputop.text import ABSENT, size, visible
from gputop.ui.drawing.cells import Row, Span, cell, clip
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TAB, TEXT, WARN
from gputop.ui.widgets.confirm import WAIT, Dialog, QuietPeriod
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
DEVICES_NAMED = 8
"""Most devices named in the question; more are only counted."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Device that a process uses, and the bytes of its memory that the process holds."""

    label: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class SignalTarget:
    """Process that the signal is for."""

    pid: int
    start_time: float
    user: str | None
    command: str
    held: tuple[DeviceUse, ...]


def signal_target(
    process: Process, processes: Iterable[Process], devices: Sequence[Device]
) -> SignalTarget | Problem:
    """Return the target with all devices that it uses, or why it cannot get a signal."""
    if process.start_time is None:
        # Without a start time the pid may by now be another process.
        why, _, remedy = unseen(process).partition(": ")
        return Problem(f"No signal to {process.pid}", why, remedy.capitalize())
    labels = {device.uuid: device.label for device in devices}
    same = (
        p
        for p in processes
        if (p.pid, p.start_time, p.machine) == (process.pid, process.start_time, process.machine)
    )
    memory = {p.device_uuid: p.memory_used_bytes for p in same}
    held = tuple(DeviceUse(labels[uuid], memory[uuid]) for uuid in labels if uuid in memory)
    return SignalTarget(process.pid, process.start_time, process.user, process.command or "", held)


class SignalList(LiveView):
    """Process and list of signals; once a signal is chosen, the question."""

    class Asked(Message):
        """Message that a signal was clicked."""

    def __init__(self, target: SignalTarget) -> None:
        super().__init__(id="signals")
        self._target = target
        self._at = 0
        self._first_row = 0
        self.asking = False
        """True once a signal is chosen and the question is open."""
        self.ready = False
        """True once an answer is accepted."""

    @property
    def chosen(self) -> Signals:
        return SIGNALS[self._at][0]

    def move(self, step: int) -> None:
        """Choose the signal `step` lines further down."""
        self._at = max(0, min(len(SIGNALS) - 1, self._at + step))
        self.redraw()

    def ask(self, asking: bool) -> None:
        """Open the question, or go back from it."""
        self.asking = asking
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw the process, then the question or the signals that fit."""
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
        target = self._target
        user = ABSENT if target.user is None else visible(target.user, 64)
        command = visible(target.command, 4 * width)
        rows: list[Row] = [
            [Span(f"{target.pid}", STRONG), Span(f"  {user}")],
            [Span(clip(command, width))],
        ]
        for held in target.held[:DEVICE_LINES]:
            memory = "memory unknown" if held.memory_bytes is None else size(held.memory_bytes)
            rows.append([Span(f"GPU {held.label:<5}", DIM), Span(f"holds {memory}")])
        more = target.held[DEVICE_LINES:]
        if more:
            total = sum(held.memory_bytes or 0 for held in more)
            rows.append([Span(f"and {len(more)} more, with {size(total)}", DIM)])
        return [*rows, []]

    def _offer(self, number: int, width: int) -> Row:
        signal, about = SIGNALS[number]
        at = number == self._at
        name = cell(f" {signal.name.removeprefix('SIG'):<5}{signal:>3}", 11, TAB if at else STRONG)
        return [name, cell(f" {about}", width - 11, TAB if at else TEXT)]

    def _question(self, width: int) -> list[Row]:
        target, name = self._target, self.chosen.name.removeprefix("SIG")
        labels = [held.label for held in target.held]
        many = len(labels) > DEVICES_NAMED
        on = f"{len(labels)} devices" if many else f"GPU {', '.join(labels)}"
        where = f" on {on}?" if labels else "?"
        user = "" if target.user is None else f"{visible(target.user, 64)}, "
        start = f"Send {name} to {target.pid} ({user}"
        room = width - len(start) - len(where) - 1
        command = clip(visible(target.command, 4 * width), max(8, room))
        asked = f"{start}{command}){where}"
        if room < 8:  # the devices have a line of their own above
            asked = f"Send {name} to {target.pid}{where}"
        return [
            [Span(clip(asked, width), WARN)],
            [],
            [
                Span("y", ACCENT if self.ready else DIM),
                Span(f" Send {name}    ", TEXT if self.ready else DIM),
                Span("n", ACCENT),
                Span(" Back to the signals"),
            ],
        ]

    def on_click(self, event: Click) -> None:
        """Choose the signal under the mouse."""
        number = event.y - self._first_row
        if not self.asking and 0 <= number < len(SIGNALS):
            self.move(number - self._at)
            self.post_message(self.Asked())


class SendSignal(Dialog[Signals | None]):
    """Dialog that answers with the signal to send, or None.

    The target may end meanwhile: the sender checks the pid's start time again.
    """

    CSS = """
    SendSignal { align: center middle; background: ansi_default; }
    SendSignal .box { width: 72; }
    #signals { height: 17; max-height: 80vh; }
    """

    def __init__(self, target: SignalTarget) -> None:
        super().__init__()
        self._list = SignalList(target)
        self._quiet = QuietPeriod(self, self._show_keys)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = "Send a signal"
            box.border_subtitle = CHOOSING
            yield self._list

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

    @on(SignalList.Asked)
    def _clicked(self) -> None:
        self._ask(True)

    def _ask(self, asking: bool) -> None:
        self._list.ask(asking)
        self._quiet.begin()

    def _show_keys(self) -> None:
        self._list.ready = self._quiet.over
        self._list.redraw()
        asking = ASKING if self._quiet.over else NOT_YET
        self.query_one(Vertical).border_subtitle = asking if self._list.asking else CHOOSING
