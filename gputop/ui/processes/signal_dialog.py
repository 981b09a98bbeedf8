"""Dialog that sends a signal to a process or to its job."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from signal import Signals
from typing import Any, NamedTuple

from rich.text import Text
from textual.app import App

from gputop.agent.device import Device
from gputop.agent.problem import ProblemError
from gputop.agent.snapshot import Process
from gputop.schema.derived import label_of
from gputop.stream.process_history import key_of
from gputop.text import fold_list, visible
from gputop.ui.drawing.dialogs import Choice, ChoiceDialog, ConfirmScreen
from gputop.ui.drawing.palette import ACCENT, DIM, TEXT
from gputop.ui.processes import signals
from gputop.ui.processes.jobs import job_of, program_of

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
CHOOSING = "Enter chooses · Esc closes"
SWITCHING = f"{CHOOSING} · Tab: process or job"
MOST_NAMED = 8
"""Most devices and processes to name. Others are only counted."""
LONGEST_COMMAND = 200


def name_of(signal: Signals) -> str:
    """Return `TERM`."""
    return signal.name.removeprefix("SIG")


class SignalTarget(NamedTuple):
    """Processes that receive the signal."""

    name: str
    """`4242`, or `its job (5 processes)`."""
    processes: tuple[Process, ...]
    devices: str = ""
    """The devices that they use: ` on GPU 0, 1`."""

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


def signal_targets(
    process: Process,
    processes: Sequence[Process],
    devices: Sequence[Device],
) -> list[SignalTarget]:
    """Return the process, and its job if it has one."""
    targets = [_target(f"{process.pid}", [process], processes, devices)]
    # Without a start time, the pid may already belong to another process.
    job = [p for p in job_of(process, processes) if p.start_time is not None]
    if len(job) > 1:
        kind = "job"
        if process.slurm_job is not None:
            kind = f"Slurm job {process.slurm_job}"
        name = f"its {kind} ({len(job)} processes)"
        targets.append(_target(name, job, processes, devices))
    return targets


def _target(
    name: str,
    members: Sequence[Process],
    processes: Iterable[Process],
    devices: Sequence[Device],
) -> SignalTarget:
    keys = {key_of(member) for member in members}
    used = {each.device_uuid for each in processes if key_of(each) in keys}
    labels = [label_of(device) for device in devices if device.uuid in used]
    text = f" on GPU {fold_list(labels, MOST_NAMED)}" if labels else ""
    return SignalTarget(name, tuple(members), text)


class Order(NamedTuple):
    """A signal and the processes that receive it."""

    signal: Signals
    processes: tuple[Process, ...]


class SendSignal(ChoiceDialog):
    """Dialog that returns the signal to send after a confirmation, or None.

    A process may end meanwhile, so the sender checks each pid's start time again.
    """

    def __init__(
        self,
        targets: Sequence[SignalTarget],
        *,
        left: bool = False,
    ) -> None:
        """Ask for a signal to one of the `targets`, on the right or on the `left`."""
        choices = []
        for signal, about in SIGNALS:
            text = f"{name_of(signal):<5}{signal.value:>3}  {about}"
            choices.append(Choice(text, "", signal))
        keys = SWITCHING if len(targets) > 1 else CHOOSING
        super().__init__("Send a signal", choices, keys)
        self.styles.align_horizontal = "left" if left else "right"
        self._targets = targets
        self._target = targets[0]
        self._show_targets()

    def press(self, key: str) -> None:
        if key in ("tab", "shift+tab", "left", "right"):
            following = self._targets.index(self._target) + 1
            self._target = self._targets[following % len(self._targets)]
            self._show_targets()
        else:
            super().press(key)

    def choose(self, choice: Choice) -> None:
        """Ask for confirmation, at the same side of the screen."""
        target = self._target
        name = name_of(choice.value)
        asked = (
            f"Send {name} to {target.name} ({target.about}){target.devices}?"
        )
        question = ConfirmScreen(asked, (), "Send it")
        question.add_class("beside")
        question.styles.align_horizontal = self.styles.align_horizontal
        order = Order(choice.value, target.processes)
        question.ask(self.app, lambda _: self.close(order))

    def _show_targets(self) -> None:
        """Show the process and its job, with a mark at the chosen one."""
        text = Text(no_wrap=True, overflow="ellipsis")
        for target in self._targets:
            mark, style = "○", TEXT
            if target is self._target:
                mark, style = "●", ACCENT
            text.append(f"{mark} {target.name}", style)
            text.append(f"  {target.about}\n", DIM)
        self.head.update(text)


async def send(app: App[Any], order: Order) -> None:
    """Send the signal, and report when the processes have ended."""
    name, began = name_of(order.signal), time.monotonic()
    reached: dict[int, float] = {}
    for process in order.processes:
        pid, started = process.pid, process.start_time
        assert started is not None, "else it is no target"
        try:
            signals.send_signal(pid, started, order.signal)
            reached[pid] = started
        except ProblemError as error:
            text = str(error.problem)
            app.notify(text, title="Not sent", severity="error")
    if not reached:
        return
    who = f"{order.processes[0].pid}"
    if len(order.processes) > 1:
        who = f"{len(reached)} processes"
    app.notify(f"{name} was sent to {who}")
    if order.signal in ENDING:
        seconds, left = await signals.seconds_until_end(reached, began)
        if left:
            ended = f"{who}: {left} not ended {seconds:.0f} s after {name}"
            app.notify(ended, severity="warning")
        else:
            app.notify(f"{who} ended after {seconds:.1f} s")
