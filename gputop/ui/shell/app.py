"""The application: its look, its settings and its life with the terminal. Screens do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.css.stylesheet import Stylesheet
from textual.events import Key, Paste

from gputop.console import INTERRUPTED
from gputop.settings import DEFAULT, Settings, SettingsError, path, save
from gputop.text import visible
from gputop.ui.drawing import look
from gputop.ui.shell.keys import ActionScreen
from gputop.ui.shell.watchdog import Watchdog
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.driver import Driver
    from textual.events import Event as UiEvent
    from textual.filter import LineFilter
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

    from gputop.problem import Problem
    from gputop.recording.replay import Replay
    from gputop.ui.shell.dashboard import RecordSource

ANY_TERMINAL = look.Terminal()
ANSI_THEMES = ("ansi-dark", "textual-ansi")
"""Names of the theme in the terminal's own colours: since Textual 8.2.5, and before. The look then
replaces them by ours."""
THRESHOLDS = 10_000, 2, 2
"""New objects per collection of garbage, and collections per collection of older objects. A tick
makes thousands of objects that soon go without it, and Python's own 700 took a tenth of the time.
With its own 10 and 10, a screen that was closed stayed for an hour."""
COLLECT_SECONDS, COLLECT_SHARE = 10.0, 0.002
"""Seconds between returns of memory to the system, and the largest share of processor time for
collecting garbage, some 10 to 30 ms each time. Python itself collects only when a quarter of the
objects are new, and memory grows by that."""
TICK_SECONDS = 0.5
"""Seconds between checks that the terminal still exists, and redraws of what changes with time."""


class Sheet(Stylesheet):
    """Style sheet that parses each source once. Textual's parses all after the first theme."""

    def reparse(self) -> None:
        """Parse the sources that are not parsed with the current variables."""
        self.parse()


class GputopApp(App[None], inherit_bindings=False):  # Ctrl+Q is for who pressed Ctrl+S before
    """The one application. It survives its faults, and ends with its terminal."""

    CSS_PATH = Path(__file__).with_name("gputop.tcss")  # also for subclasses elsewhere
    TITLE = "gputop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False  # ours has what keys do, and only what they do here
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f10,ctrl+c", "quit", "Quit", show=False, priority=True)  # also in a dialog
    ]

    def __init__(
        self,
        stream: RecordSource | None = None,
        python: str | None = None,
        settings: Settings = DEFAULT,
        *,
        problems: Sequence[Problem] = (),
        config: Path | None = None,
        terminal: look.Terminal = ANY_TERMINAL,
        replay: Replay | None = None,
        record: Path | None = None,
        show_secrets: bool = False,
        first: Screen[None] | None = None,
        handles_signals: bool = True,
    ) -> None:
        """Begin with the screen `first`, or else with the dashboard of `stream`.

        `problems` are the settings that could not be used, and `config` is their file. Signals end
        the app unless the caller handles them. The other arguments are the dashboard's.
        """
        # ansi_color is given from the start: what NO_COLOR does goes by it
        super().__init__(driver_class=_driver(), ansi_color=True)
        self.stylesheet = Sheet(variables=self.get_css_variables())
        self.theme = next(name for name in ANSI_THEMES if name in self.available_themes)
        self._settings = settings
        self._problems = problems
        self._config = config or path()
        self._terminal = terminal
        self.look = look.choose_look(settings.theme, settings.ascii, terminal)
        self._watchdog = Watchdog() if handles_signals else None
        self.fault: str | None = None
        """Fault that ended the app, if one did."""
        if first is None:
            from gputop.ui.shell.dashboard import Dashboard

            assert stream is not None
            first = Dashboard(
                stream, python, replay=replay, record=record, show_secrets=show_secrets
            )
        self.first = first

    def get_default_screen(self) -> Screen[None]:
        """Return the screen to begin with."""
        return self.first

    def on_mount(self) -> None:
        """Listen for signals and for the terminal's end; report unusable settings."""
        gc.freeze()  # what is here now stays: a full collection would hold up a key by 20 ms
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        self._return_at = self._collect_at = time.monotonic() + COLLECT_SECONDS
        self.set_interval(TICK_SECONDS, self._tick)
        # After Ctrl+Z and fg the terminal has nothing left of what it was sent; one that was
        # behind has not been sent everything.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        if self._watchdog is not None and not self.is_headless:
            loop = asyncio.get_running_loop()
            self._watchdog.watch(loop, lambda: self.exit(return_code=INTERRUPTED), INTERRUPTED)
        if self._problems:
            self.notify("\n".join(map(str, self._problems)), title="Settings", severity="warning")

    def _tick(self) -> None:
        if not self.is_headless and not _terminal_exists():
            self.exit(return_code=INTERRUPTED)
        if (screen := self._action_screen) is not None:
            screen.tick()
        now = time.monotonic()
        if now >= self._return_at:
            self._return_at = now + COLLECT_SECONDS
            collect, before = now >= self._collect_at, time.thread_time()
            self._return_memory(collect=collect)
            if collect:  # by this thread's time: others may have had the processor
                self._collect_at = now + (time.thread_time() - before) / COLLECT_SHARE

    def _return_memory(self, *, collect: bool) -> None:
        """Empty caches, collect garbage, and return to the system what glibc keeps of both."""
        import ctypes  # the first screen does without both

        from gputop.ui.terminal import textual_caches

        views = (view for screen in self.screen_stack for view in screen.query(LiveView))
        textual_caches.forget_drawn(views)
        if collect:
            gc.collect()
        with contextlib.suppress(AttributeError, OSError):  # other C libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)

    @property
    def _action_screen(self) -> ActionScreen | None:
        """The screen that is shown, behind a dialog or not."""
        screens = (each for each in reversed(self.screen_stack) if isinstance(each, ActionScreen))
        return next(screens, None)

    async def action_quit(self) -> None:
        """Leave as the screen has it."""
        if (screen := self._action_screen) is not None:
            await screen.quit()

    async def on_event(self, event: UiEvent) -> None:
        """Have the screen handle a key at once where nothing has the focus.

        By Textual's way, past the screen and back, it would come after keys that came behind it.
        """
        if isinstance(event, Key | Paste):
            screen = self.screen
            if isinstance(screen, ActionScreen) and await screen.handle_input(event):
                return
        await super().on_event(event)

    # Look and settings.

    @property
    def settings(self) -> Settings:
        """The settings as they are now, which `keep` saves."""
        return self._settings

    def change_settings(self, **changes: Any) -> None:
        """Replace some of the settings."""
        self._settings = replace(self._settings, **changes)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of all that is drawn: the look first, then NO_COLOR of the rest."""
        return [*([self.look] if self.look.enabled else []), *super().get_line_filters()]

    def set_theme(self, name: str) -> None:
        """Show everything in the theme of that name, as far as the terminal can."""
        self.change_settings(theme=name)
        self.look = look.choose_look(name, self._settings.ascii, self._terminal)
        for screen in self.screen_stack:
            for widget in screen.query("*"):  # else each drawn line stays, in up to four looks
                widget.refresh()
            screen.refresh()

    def action_theme(self) -> None:
        """Show the next theme."""
        self.set_theme(look.next_theme(self.look, self._terminal))

    async def action_keep(self) -> None:
        """Save the settings as they are now."""
        try:
            await asyncio.to_thread(save, self._config, self._settings)  # the home may be far away
        except SettingsError as error:
            self.notify(str(error), title="Not kept", severity="error")
        else:
            self.notify(f"Kept in {visible(str(self._config))}", title="Settings")

    # Notifications and faults.

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002 - Textual's widgets pass True
    ) -> None:
        """Show a notification in place of the one before, without markup: it has foreign text."""
        self.clear_notifications()
        for screen in self.screen_stack:  # Textual leaves what was around each of them, for ever
            for around in screen.query("ToastHolder"):
                self.call_later(around.remove)  # the caller may be outside of the app
        message = "\n".join(map(visible, message.splitlines()))
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=False)

    def report(self, error: BaseException) -> None:
        """Notify of a fault in gputop that does not end it."""
        self.log.error(error)
        self.notify(_described(error), title="A fault in gputop", severity="error")

    def _fatal_error(self) -> None:
        """End with one line instead of Textual's traceback, which `GPUTOP_DEBUG` brings back.

        Textual calls it for an exception that nobody caught. A later Textual may not, and then its
        traceback is shown.
        """
        error = sys.exception()
        if error is None or os.environ.get("GPUTOP_DEBUG"):
            super()._fatal_error()
            return
        self.fault = _described(error)
        self.panic()


def _driver() -> type[Driver] | None:
    """Return our driver, or None for Textual's own where its private parser is another one."""
    try:
        from gputop.ui.terminal.driver import TerminalDriver, is_known
    except ImportError:
        return None
    return TerminalDriver if is_known() else None


def _described(error: BaseException) -> str:
    return " ".join(visible(f"{type(error).__name__}: {error}").split())


def _terminal_exists() -> bool:
    """Return True if standard input is a terminal: on a dead one Textual's reader would spin."""
    try:
        termios.tcgetattr(0)
    except (termios.error, OSError):
        return False
    return True
