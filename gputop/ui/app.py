"""The dashboard: reads the stream, hands it to the tabs, and leaves when the terminal does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import termios
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual import on, work
from textual.app import App, SystemCommand
from textual.widgets import ContentSwitcher
from textual.worker import Worker, WorkerState

from gputop.telemetry.snapshot import Inventory
from gputop.ui.actions import ACTIONS, bindings
from gputop.ui.model import Telemetry
from gputop.ui.screens.benchmark import BenchmarkTab
from gputop.ui.screens.help import Help
from gputop.ui.screens.monitor import MonitorTab
from gputop.ui.widgets.header import Header
from gputop.ui.widgets.keys import KeysView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.screen import Screen

    from gputop.telemetry.child import Interruption
    from gputop.telemetry.snapshot import Record

INTERRUPTED = 130


class Stream(Protocol):
    """Where the records come from: a `StreamChild`, or what stands for it."""

    def records(self) -> AsyncGenerator[Record | Interruption]:
        """The records, for ever."""
        ...

    async def close(self) -> None:
        """Leaves nothing running."""
        ...


class GputopApp(App[None]):
    """Two tabs over one stream."""

    CSS_PATH = "gputop.tcss"
    TITLE = "gputop"
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())
    VERTICAL_BREAKPOINTS = [(0, "short"), (32, "tall")]  # noqa: RUF012 - as Textual types it

    def __init__(self, stream: Stream, python: str | None = None) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self._stream = stream
        self.telemetry = Telemetry()
        self._python = python

    def compose(self) -> ComposeResult:
        self._header = Header(self.telemetry)
        self._monitor = MonitorTab(self.telemetry)
        self._benchmark = BenchmarkTab(self.telemetry, self._python)
        self._keys = KeysView()
        yield self._header
        with ContentSwitcher(initial="monitor"):
            yield self._monitor
            yield self._benchmark
        yield self._keys

    def on_mount(self) -> None:
        """Starts to listen: to the stream, to signals, to the terminal's end."""
        self._listen()
        self.set_interval(1.0, self._tick)
        # After Ctrl+Z and fg the terminal has nothing left of what it was sent.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # not the main thread: a test
                loop.add_signal_handler(number, lambda: self.exit(return_code=INTERRUPTED))

    @work(exclusive=True, group="stream")
    async def _listen(self) -> None:
        async with contextlib.aclosing(self._stream.records()) as records:
            async for record in records:
                self.telemetry.take(record)
                if isinstance(record, Inventory):
                    self._benchmark.show_targets()
                else:
                    self._benchmark.mind_limits()
                    self._show()

    def _show(self) -> None:
        self._header.redraw()
        if self._header.tab == "monitor":
            self._monitor.show_telemetry()
        else:
            self._benchmark.show_telemetry()

    def _tick(self) -> None:
        if not self.is_headless and not _terminal_is_there():
            self.exit(return_code=INTERRUPTED)
        if self.telemetry.silent_seconds is not None:
            self._show()

    def action_tab(self, name: str) -> None:
        """Shows a tab."""
        self.set_focus(None)
        self.query_one(ContentSwitcher).current = name
        self._header.tab = self._keys.tab = name
        self._keys.redraw()
        self._show()

    def action_start(self) -> None:
        """Stress-tests: on the monitor the selected device, on the benchmark tab what it says."""
        if self._header.tab == "benchmark":
            self._benchmark.start()
            return
        device = self._monitor.selected
        self.action_tab("benchmark")
        if self.telemetry.simulated:
            self.notify("Simulated devices do no work: this tests the CPU of this machine")
        self._benchmark.start(device.uuid if device else None, default=True)

    def action_stop(self) -> None:
        """Stops the stress test."""
        self._benchmark.stop()

    def action_density(self) -> None:
        """The next density of the panels."""
        self._monitor.next_density()

    def action_move(self, step: int) -> None:
        """Selects another device."""
        self._monitor.move(step)

    def action_leave(self) -> None:
        """Out of a field, then back to the monitor."""
        if self.focused is not None:
            self.set_focus(None)
        else:
            self.action_tab("monitor")

    def action_help(self) -> None:
        """Keys and legend."""
        self.push_screen(Help())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Actions of one tab do nothing on the other."""
        tabs = {a.tab for a in ACTIONS if a.action.partition("(")[0] == action}
        return not tabs or None in tabs or self._header.tab in tabs

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """The command palette: the same actions by name."""
        for action in ACTIONS:
            yield SystemCommand(
                action.help, f"Key {action.keys.split(',')[0]}", _runner(self, action.action)
            )

    @on(Worker.StateChanged)
    def _failed(self, event: Worker.StateChanged) -> None:
        """A fault of our own is said, and does not end the monitor."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            text = f"{type(error).__name__}: {error}"
            self.notify(text, title="A fault in gputop", severity="error", markup=False)

    @on(BenchmarkTab.Changed)
    def _run_changed(self) -> None:
        self._keys.running = self._benchmark.running
        self._keys.redraw()

    async def on_unmount(self) -> None:
        """Leaves nothing running; a stress test has ended with its task."""
        await self._stream.close()


def _runner(app: GputopApp, action: str) -> Callable[[], object]:
    return lambda: app.call_later(app.run_action, action)


def _terminal_is_there() -> bool:
    """Whether standard input still is a terminal: on a dead one Textual's reader would spin."""
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True
