"""Dialog that sends a signal to a process or to its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from signal import Signals
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from gputop.schema.derived import label_of
from gputop.text import fold_list, visible
from gputop.ui.drawing.dialogs import WAIT, Dialog, QuietPeriod
from gputop.ui.drawing.palette import ACCENT, DIM, STRONG, TEXT, WARN
from gputop.ui.processes.jobs import job_of, process_key, program_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import Key, Resize

    from gputop.agent.device import Device
    from gputop.agent.snapshot import Process

SIGNALS = (
    (Signals.SIGTERM, "requests its end: may clean up or refuse"),
    (Signals.SIGINT, "interrupts it, as Ctrl+C does"),
    (Signals.SIGKILL, "kills it at once: nothing is saved"),
    (Signals.SIGSTOP, "suspends it; it keeps its device memory"),
    (Signals.SIGCONT, "resumes a suspended process"),
    (Signals.SIGHUP, "reports that its terminal closed"),
    (Signals.SIGQUIT, "ends it with a core dump"),
    (Signals.SIGUSR1, "effect defined by the program"),
    (Signals.SIGUSR2, "effect defined by the program"),
)
"""Signals in order of severity, with their default effects."""
ENDING = (
    Signals.SIGTERM,
    Signals.SIGINT,
    Signals.SIGKILL,
    Signals.SIGHUP,
    Signals.SIGQUIT,
)
"""Signals after which the end of the process is awaited."""
CHOOSING, ASKING = "Enter chooses · Esc closes", "y sends it · Esc goes back"
SWITCHING = f"{CHOOSING} · Tab: process or job"
NOT_YET = f"{WAIT} · Esc goes back"
MOST_NAMED = 8
"""Most devices and processes to name. Others are only counted."""
LONGEST_COMMAND = 200
ROOMY = 18
"""Rows of a terminal that has room for the process above the signals."""


def name_of(signal: Signals) -> str:
    """Return `TERM`."""
    return signal.name.removeprefix("SIG")


MOVES: Mapping[str, Callable[[OptionList], None]] = {
    "down": OptionList.action_cursor_down,
    "j": OptionList.action_cursor_down,
    "up": OptionList.action_cursor_up,
    "k": OptionList.action_cursor_up,
    "home": OptionList.action_first,
    "pageup": OptionList.action_first,
    "end": OptionList.action_last,
    "pagedown": OptionList.action_last,
}
"""Keys that move the cursor in the list of signals."""


class SignalTarget(NamedTuple):
    """Processes that receive the signal."""

    name: str
    """`4242`, or `its job (5 processes)`."""
    processes: tuple[Process, ...]
    labels: tuple[str, ...]
    """Labels of the devices that they use."""

    @property
    def about(self) -> str:
        """Owner and command of the process, or the members of the job."""
        if len(self.processes) > 1:
            members = [f"{program_of(p)} {p.pid}" for p in self.processes]
            return visible(fold_list(members, MOST_NAMED), LONGEST_COMMAND)
        process = self.processes[0]
        command = visible(process.command or "", LONGEST_COMMAND)
        if process.user is None:
            return command
        return f"{visible(process.user, 64)}, {command}"

    @property
    def devices(self) -> str:
        """Text with the devices that they use."""
        if not self.labels:
            return ""
        if len(self.labels) > MOST_NAMED:
            return f" on {len(self.labels)} devices"
        return f" on GPU {', '.join(self.labels)}"


def signal_targets(
    process: Process, processes: Sequence[Process], devices: Sequence[Device]
) -> list[SignalTarget]:
    """Return the process, and its job if it has one."""
    targets = [_target(f"{process.pid}", (process,), processes, devices)]
    job = job_of(process, processes)
    if job is not None:
        # Without a start time, the pid may already belong to another process.
        members = tuple(p for p in job.processes if p.start_time is not None)
        name = f"its {job.name} ({len(members)} processes)"
        targets.append(_target(name, members, processes, devices))
    return targets


def _target(
    name: str,
    members: tuple[Process, ...],
    processes: Iterable[Process],
    devices: Sequence[Device],
) -> SignalTarget:
    wanted = {process_key(member) for member in members}
    used = {
        each.device_uuid for each in processes if process_key(each) in wanted
    }
    labels = [label_of(device) for device in devices if device.uuid in used]
    return SignalTarget(name, members, tuple(labels))


class Order(NamedTuple):
    """A signal and the processes that receive it."""

    signal: Signals
    processes: tuple[Process, ...]


class SendSignal(Dialog[Order]):
    """Dialog that returns the signal to send, or None.

    A process may end meanwhile, so the sender checks each pid's start time again.
    """

    def __init__(
        self, targets: Sequence[SignalTarget], *, left: bool = False
    ) -> None:
        """Ask for a signal to one of the `targets`, on the right or on the `left`."""
        super().__init__()
        self.styles.align_horizontal = "left" if left else "right"
        self._targets = targets
        self._at = 0
        self._asking = False
        """True after a signal was chosen, while the confirmation is open."""
        self._question = Static(id="signal-question")
        self._head = Static(id="signal-head")
        self._list = OptionList(
            *(
                Option(f"{name_of(signal):<5}{signal.value:>3}  {about}")
                for signal, about in SIGNALS
            ),
            markup=False,
        )
        # Keys are handled here, in the order in which they were typed.
        self._list.can_focus = False
        self._quiet = QuietPeriod(self, self._show)

    def compose(self) -> ComposeResult:
        with Vertical(classes="box") as box:
            box.border_title = "Send a signal"
            yield self._question
            yield self._head
            yield self._list

    def on_mount(self) -> None:
        self._list.highlighted = 0
        self._show()

    def on_resize(self, event: Resize) -> None:
        self._head.display = event.size.height >= ROOMY

    @property
    def target(self) -> SignalTarget:
        return self._targets[self._at]

    @property
    def signal(self) -> Signals:
        return SIGNALS[self._list.highlighted or 0][0]

    def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        key = event.key
        if self._asking:
            answer = self._quiet.answer(key)
            if answer:
                self.close(Order(self.signal, self.target.processes))
            elif answer is False:
                self._ask(False)
        elif key in ("escape", "q", "f9"):
            if self.is_current:
                self.dismiss()
        elif key == "enter":
            self._ask(True)
        elif key in ("tab", "shift+tab", "left", "right"):
            self._at = (self._at + 1) % len(self._targets)
            self._show()
        elif key in MOVES:
            MOVES[key](self._list)

    def on_option_list_option_selected(self) -> None:
        """Ask for confirmation of the clicked signal."""
        if not self._asking:
            self._ask(True)

    def _ask(self, asking: bool) -> None:
        self._asking = asking
        self._quiet.begin()

    def _show(self) -> None:
        """Show the target with the signals or with the confirmation."""
        if not self.is_attached:
            return
        target = self.target
        name = name_of(self.signal)
        asked = (
            f"Send {name} to {target.name} ({target.about}){target.devices}?"
        )
        self._question.update(Text(asked, WARN))
        self._question.display = self._asking
        self._list.display = not self._asking
        self._head.update(self._head_text())
        keys = SWITCHING if len(self._targets) > 1 else CHOOSING
        if self._asking:
            keys = ASKING if self._quiet.over else NOT_YET
        self.query_one(Vertical).border_subtitle = keys

    def _head_text(self) -> Text:
        """Return the process and its job, with a mark at the chosen one."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for target in self._targets:
            mark, style, about = "○ ", STRONG, DIM
            if target is self.target:
                mark, style, about = "● ", ACCENT, TEXT
            if len(self._targets) > 1:
                text.append(mark, style)
            text.append(target.name, style)
            text.append(f"  {target.about}\n", about)
        return text
