"""The dashboard: reads the stream, hands it to the tabs, and leaves when the terminal does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from textual import on, work
from textual.app import App
from textual.events import Key
from textual.widgets import ContentSwitcher
from textual.worker import Worker, WorkerState

from gputop.telemetry.snapshot import Inventory
from gputop.text import visible
from gputop.ui.actions import ACTIONS, Action, action_for, bindings
from gputop.ui.model import Telemetry
from gputop.ui.screens.benchmark import BenchmarkTab
from gputop.ui.screens.commands import Commands
from gputop.ui.screens.help import Help
from gputop.ui.screens.monitor import MonitorTab
from gputop.ui.watchdog import Watchdog
from gputop.ui.widgets.form import Form
from gputop.ui.widgets.header import Header
from gputop.ui.widgets.keys import KeysView

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.events import Event
    from textual.notifications import SeverityLevel
    from textual.widget import Widget

    from gputop.telemetry.child import Interruption
    from gputop.telemetry.snapshot import Record

FAULT, INTERRUPTED = 1, 130


class Stream(Protocol):
    """Where the records come from: a `StreamChild`, or what stands for it."""

    def records(self) -> AsyncGenerator[Record | Interruption]:
        """The records, for ever."""
        ...

    def ask(self, **wanted: Any) -> None:
        """Asks its sampler for another `interval`, or for `gpm`."""
        ...

    async def close(self) -> None:
        """Leaves nothing running."""
        ...


INTERVALS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between samples that keys go through."""


class GputopApp(App[None]):
    """Tabs over one stream."""

    CSS_PATH = "gputop.tcss"
    TITLE = "gputop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False  # ours has what keys do, and only what they do here
    BINDINGS: ClassVar[list[BindingType]] = list(bindings())
    VERTICAL_BREAKPOINTS = [(0, "short"), (32, "tall")]  # noqa: RUF012 - as Textual types it

    def __init__(
        self, stream: Stream, python: str | None = None, settings: Settings = Settings()
    ) -> None:
        super().__init__()
        self.theme = "ansi-dark"
        self._stream = stream
        self.telemetry = Telemetry()
        self._python = python
        self._watchdog = Watchdog()
        self._settings = settings
        self._interval = settings.interval
        self._rung: set[tuple[str, str]] = set()
        self._came_from = "monitor"
        self.fault: str | None = None
        """What ended the dashboard that should not have."""

    def compose(self) -> ComposeResult:
        self._header = Header(self.telemetry)
        table = ProcessTable()
        self._monitor = MonitorTab(self.telemetry, table)
        self._benchmark = BenchmarkTab(self.telemetry, self._python)
        self._device = DevicePage(self.telemetry)
        self._live: dict[str, LiveTab] = {
            "monitor": self._monitor,
            "processes": ProcessesTab(self.telemetry, table),
            "device": self._device,
        }
        self._keys = KeysView()
        yield self._header
        with ContentSwitcher(initial="monitor"):
            yield from self._live.values()
            yield self._benchmark
        yield self._keys

    def on_mount(self) -> None:
        """Starts to listen: to the stream, to signals, to the terminal's end."""
        self._listen()
        self.set_interval(1.0, self._tick)
        # After Ctrl+Z and fg the terminal has nothing left of what it was sent.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.watch(self.screen, "focused", self._focus_changed, init=False)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            self._watchdog.watch(loop, lambda: self.exit(return_code=INTERRUPTED), INTERRUPTED)

    @work(exclusive=True, group="stream", exit_on_error=False)
    async def _listen(self) -> None:
        async with contextlib.aclosing(self._stream.records()) as records:
            async for record in records:
                try:
                    self._take(record)
                except Exception as error:  # noqa: BLE001 - the next record may well be fine
                    self._say(error)

    def _take(self, record: Record | Interruption) -> None:
        self.telemetry.take(record)
        if isinstance(record, Inventory):
            self._benchmark.show_targets()
            return
        self._benchmark.mind_limits()
        self._ring()
        if not self.telemetry.paused:
            self._show()

    def _ring(self) -> None:
        """Once for each alert that was not there before."""
        known = {(alert.device_uuid, alert.kind) for alert in self.telemetry.alerts}
        if self._settings.bell and known - self._rung:
            self.bell()
        self._rung = known

    async def on_event(self, event: Event) -> None:
        """Does at once what a key does where nothing has the focus.

        By Textual's way, past the screen and back, it would come after keys that came behind it.
        """
        if isinstance(event, Key) and self.focused is None and not self.screen.is_modal:
            action = action_for(event.key, self._header.tab)
            if action is not None and await self.run_action(action.action):
                return
        await super().on_event(event)

    def _focus_changed(self, focused: Widget | None) -> None:
        self._keys.in_field = focused is not None
        self._keys.redraw()

    def _show(self) -> None:
        self._header.redraw()
        tab = self._tab
        if tab is None:
            self._benchmark.show_telemetry()
        else:
            tab.show_telemetry()
        self._stream.ask(gpm=self._settings.gpm and tab is not None and tab.wants_gpm)

    @property
    def _tab(self) -> LiveTab | None:
        """The tab that is shown; None is the benchmark."""
        return self._live.get(self._header.tab)

    def _tick(self) -> None:
        if not self.is_headless and not _terminal_is_there():
            self.exit(return_code=INTERRUPTED)
        if self.telemetry.silent_seconds is not None:
            self._show()

    def action_tab(self, name: str) -> None:
        """Shows a tab."""
        self.set_focus(None)
        self.query_one(ContentSwitcher).current = name
        if name == "device":
            self._came_from = self._header.tab
        self._header.tab = self._keys.tab = name
        self._keys.redraw()
        self._show()

    def action_start(self) -> None:
        """Stress-tests: on the monitor the selected device, on the benchmark tab what it says."""
        if self.telemetry.starting:  # the device that is meant may be about to appear
            self.notify("The driver is still starting: `Start` in the form tests the CPU")
            return
        if self._header.tab == "benchmark":
            self._benchmark.start()
            return
        device = self._tab.selected if self._tab else None
        self.action_tab("benchmark")
        if self.telemetry.simulated:
            device = None
            self.notify("Simulated devices do no work: this tests the CPU of this machine")
        self._benchmark.start(device.uuid if device else None, default=True)

    def action_stop(self) -> None:
        """Stops the stress test."""
        self._benchmark.stop()

    def action_density(self) -> None:
        """The next density of the panels."""
        self._monitor.next_density()

    def action_move(self, step: int) -> None:
        """Down by that many devices, processes, or lines."""
        if self._tab:
            self._tab.move(step)

    def action_page(self, step: int) -> None:
        """Down by that many pages."""
        if self._tab:
            self._tab.page(step)

    def action_side(self, step: int) -> None:
        """To the right: a device, or later in time."""
        if self._tab:
            self._tab.side(step)

    def action_switch(self) -> None:
        """Between devices and processes."""
        self._monitor.switch()

    def action_details(self) -> None:
        """The page of the selected device."""
        device = self._tab.selected if self._tab else None
        if device is None:
            self.notify("No device is selected")
            return
        self._device.show(device.uuid)
        self.action_tab("device")

    def action_device(self, step: int) -> None:
        """The page of another device."""
        self._device.next_device(step)

    def action_reset(self) -> None:
        """Minimum, mean and maximum of the device from now on."""
        self._device.reset()

    def action_pause(self) -> None:
        """Freezes the picture, or lets it go on."""
        self.telemetry.pause()
        self._show()

    def action_interval(self, step: int) -> None:
        """Samples less or more often."""
        now = self._interval
        others = [s for s in INTERVALS if (s > now if step > 0 else s < now)]
        if others:
            self._interval = others[0] if step > 0 else others[-1]
            self._stream.ask(interval=self._interval)
        self.notify(f"A sample every {self._interval:g} s")

    def action_filter(self) -> None:
        """What one types is looked for in the processes."""
        if view := self._list:
            view.start_filter()

    def action_sort(self, step: int) -> None:
        """Sorts processes by another column."""
        if view := self._list:
            view.sort_by_next(step)

    def action_sort_reverse(self) -> None:
        """Reverses the order of the processes."""
        if view := self._list:
            view.reverse()

    def action_tree(self) -> None:
        """Processes as a tree, or as a list."""
        if view := self._list:
            view.toggle_tree()

    @property
    def _list(self) -> ProcessesView | None:
        """The processes that are shown."""
        return self._tab.processes if self._tab else None

    def action_signal(self) -> None:
        """Asks which signal to send to the selected process, and sends it."""
        process = self._chosen()
        if process is None or process.start_time is None:
            return
        pid, start_time = process.pid, process.start_time

        def send(number: int | None) -> None:
            if number is not None:
                problem = send_signal(pid, start_time, number)
                name = signal.Signals(number).name
                self._report(problem, "Not sent", f"{name} was sent to {pid}")

        held = [p for p in self.telemetry.processes() if p.pid == pid]
        self.push_screen(SignalScreen(self.telemetry, held), send)

    def action_environment(self) -> None:
        """Shows the environment of the selected process."""
        process = self._chosen()
        if process is None or process.start_time is None:
            return
        try:
            variables = environment(process.pid, process.start_time)
        except ProcError as error:
            self._report(error.problem, "Not shown", "")
            return
        self.push_screen(EnvironmentScreen(process, variables))

    def _chosen(self) -> Process | None:
        """The selected process, if it is one of this machine that can be seen; else says why."""
        process = self._list.selected if self._list else None
        if process is None:
            self.notify("No process is selected: Tab goes to the processes")
        elif self.telemetry.simulated:
            self.notify("A simulated process: there is nothing behind it")
        elif process.start_time is None:
            self.notify(f"{process.pid} cannot be seen: {unseen(process)}", severity="warning")
        else:
            return process
        return None

    def _report(self, problem: Problem | None, failed: str, done: str) -> None:
        if problem is None:
            self.notify(done)
        else:
            self.notify(str(problem), title=failed, severity="error")

    def action_leave(self) -> None:
        """Out of a field, then back to the monitor."""
        if self.focused is not None:
            self.set_focus(None)
        elif self._header.tab == "device":
            self.action_tab(self._came_from)
        else:
            self.action_tab("monitor")

    def action_help(self) -> None:
        """Keys and legend."""
        self.push_screen(Help())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Actions of one tab do nothing on others, and these not behind another screen."""
        if action in ("field", "switch", "commands") and self.screen.is_modal:
            return False
        known = [a for a in ACTIONS if a.name == action]
        return not known or any(self._offers(a) for a in known)

    def _offers(self, action: Action) -> bool:
        """Whether it does something here."""
        if action.id == "signal" and self._settings.readonly:
            return False
        return action.works_on(self._header.tab)

    def action_field(self, step: int) -> None:
        """To another field of the form, before the keys that come behind this one."""
        self.query_one(Form).step(step)

    def action_commands(self) -> None:
        """The command palette: what keys do here, by name."""
        here = [
            a
            for a in ACTIONS
            if self._offers(a)
            and a.action not in ("commands", f"tab('{self._header.tab}')")
            and (a.id != "bench.stop" or self._benchmark.running)
            and (a.id != "back" or self._header.tab != "monitor")
        ]

        async def run(action: Action | None) -> None:
            if action is not None:
                await self.run_action(action.action)

        self.push_screen(Commands(here), run)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Says something, in place of what was said before."""
        self.clear_notifications()
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    @on(Worker.StateChanged)
    def _worker_failed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self._say(event.worker.error)

    def _say(self, error: BaseException) -> None:
        """A fault of our own is said, and does not end the monitor."""
        self.log.error(error)
        self.notify(_described(error), title="A fault in gputop", severity="error")

    def _fatal_error(self) -> None:
        """Ends with one line instead of Textual's traceback, which `GPUTOP_DEBUG` brings back.

        Textual calls it for an exception that nobody caught; a later one may not, and then its
        traceback is what there is.
        """
        error = sys.exception()
        if error is None or os.environ.get("GPUTOP_DEBUG"):
            super()._fatal_error()
            return
        self.fault = _described(error)
        self.panic()

    @on(BenchmarkTab.Changed)
    def _run_changed(self) -> None:
        self._keys.running = self._benchmark.running
        self._keys.redraw()

    async def on_unmount(self) -> None:
        """Leaves nothing running; a stress test has ended with its task."""
        await self._stream.close()


def _described(error: BaseException) -> str:
    return " ".join(visible(f"{type(error).__name__}: {error}").split())


def _terminal_is_there() -> bool:
    """Whether standard input still is a terminal: on a dead one Textual's reader would spin."""
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True
