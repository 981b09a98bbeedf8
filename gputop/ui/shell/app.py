"""The application: its look, its settings and its life with the terminal. Screens do the rest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.css.stylesheet import Stylesheet
from textual.events import Event as UiEvent
from textual.events import Key, Paste

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import process_limit_problem, says_process_limit
from gputop.console import INTERRUPTED
from gputop.settings import DEFAULT, Settings, path, save
from gputop.text import visible
from gputop.ui.drawing import look
from gputop.ui.shell.actions import ActionScreen
from gputop.ui.terminal import TerminalDriver
from gputop.ui.textual_workarounds import apply_dropped_resize, forget_closed_widgets

if TYPE_CHECKING:
    from textual.filter import LineFilter
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

    from gputop.ui.shell.dashboard import RecordSource

ANY_TERMINAL = look.Terminal()
ANSI_THEMES = ("ansi-dark", "textual-ansi")
"""Names of the theme in the terminal's own colours: since Textual 8.2.5, and before. The look then
replaces them by ours."""
THRESHOLDS = 10_000, 2, 2
"""New objects per collection of garbage, and collections per collection of older objects. Python's
own 700 took a tenth of the time, and with its 10 and 10 a closed screen stayed for an hour."""
LAYOUT_SECONDS = 2.0
"""Seconds that the layout of a screen may take before it is painted as it is."""
COLLECT_SECONDS = 60.0
"""Seconds between returns of memory to the system. To collect garbage takes 10 to 30 ms each time.
Python itself collects only when a quarter of the objects are new, and memory grows by that."""
TICK_SECONDS = 0.5
"""Seconds between checks that the terminal still exists, and redraws of what changes with time."""


SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
PATIENCE_SECONDS = 10
"""Seconds from a signal to the forced end."""


class Sheet(Stylesheet):
    """Style sheet that parses each source once. Textual's parses all after the first theme."""

    def reparse(self) -> None:
        """Parse the sources that are not parsed with the current variables."""
        self.parse()


class GputopApp(
    App[None], inherit_bindings=False
):  # Ctrl+Q is for who pressed Ctrl+S before
    """The one application. It survives its faults, and ends with its terminal."""

    CSS_PATH = Path(__file__).with_name("gputop.tcss")  # also for subclasses elsewhere
    TITLE = "gputop"
    AUTO_FOCUS = None
    ENABLE_COMMAND_PALETTE = False  # ours has what keys do, and only what they do here
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "f10,ctrl+c", "quit", "Quit", show=False, priority=True
        ),  # also in a dialog
        Binding("ctrl+l", "repaint", "Repaint", show=False, priority=True),
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
        first: Screen[None] | None = None,
        **dashboard: Any,
    ) -> None:
        """Begin with the screen `first`, or else with the dashboard of `stream`.

        `problems` are the settings that could not be used, and `config` is their file. The other
        arguments are the dashboard's.
        """
        # Textual reads ansi_color in its constructor, for NO_COLOR.
        super().__init__(driver_class=TerminalDriver, ansi_color=True)
        self.stylesheet = Sheet(variables=self.get_css_variables())
        self.theme = next(name for name in ANSI_THEMES if name in self.available_themes)
        self.settings = settings
        """The settings as they are now, also from the command line and the environment."""
        self._changes: dict[str, Any] = {}
        """The settings that the user changed in the dashboard, which `S` saves."""
        self._problems = problems
        self._config = config or path()
        self._terminal = terminal
        self.look = look.choose_look(settings.theme, settings.ascii, terminal)
        self.fault: str | None = None
        self._leaving: asyncio.Future[None] | None = None
        if first is None:
            from gputop.ui.shell.dashboard import Dashboard

            assert stream is not None
            first = Dashboard(stream, python, **dashboard)
        self.first = first
        self._held = contextlib.ExitStack()
        self._held_until = 0.0
        """Batch of updates while a screen is laid out."""
        self._batches = 0
        self._is_unpainted = False

    def get_default_screen(self) -> Screen[None]:
        return self.first

    def on_load(self) -> None:
        """Handle signals before the terminal is changed."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave)

    def on_mount(self) -> None:
        """Watch for the terminal's end; report unusable settings."""
        gc.freeze()  # what is here now stays: a full collection would hold up a key by 20 ms
        gc.set_threshold(*THRESHOLDS)
        gc.enable()
        self._collect_at = time.monotonic() + COLLECT_SECONDS
        self.set_interval(TICK_SECONDS, self._tick)
        self.screen_change_signal.subscribe(self, self._screen_changed, immediate=True)
        if self._problems:
            self.notify(
                "\n".join(map(str, self._problems)),
                title="Settings",
                severity="warning",
            )

    def _screen_changed(self, screen: Screen[Any]) -> None:
        """Paint nothing until the screen is laid out, then all of it at once."""
        self._held.enter_context(self.batch_update())
        self._held_until = time.monotonic() + LAYOUT_SECONDS

        def paint() -> None:
            self._held.close()
            screen.check_idle()

        screen.call_after_refresh(paint)

    @contextlib.contextmanager
    def batch_update(self) -> Iterator[None]:
        """Paint at its end also what was not painted in it: Textual forgets a resize meanwhile."""
        self._batches += 1
        try:
            with super().batch_update():
                yield
        finally:
            self._batches -= 1
            if not self._batches and self._is_unpainted and self.screen_stack:
                self._is_unpainted = False
                self.screen.refresh()

    def post_display_hook(self) -> None:
        """Remember that something was to be painted in a batch."""
        self._is_unpainted |= self._batches > 0

    def on_resize(self) -> None:
        """Paint again, even if Textual sees no other size: a smaller one may have come between."""
        self.screen.refresh()

    def _tick(self) -> None:
        if time.monotonic() > self._held_until:
            self._held.close()  # of a screen that ended before it was laid out
        if not self.is_headless and not os.isatty(0):
            self._leave()
        if (screen := self._action_screen) is not None:
            screen.tick()
        apply_dropped_resize(self)
        now = time.monotonic()
        if now >= self._collect_at:
            self._collect_at = now + COLLECT_SECONDS
            self._return_memory()

    def _return_memory(self) -> None:
        """Empty caches, collect garbage, and return to the system what glibc keeps of both."""
        import ctypes  # the first screen does without it

        forget_closed_widgets()
        gc.collect()
        with contextlib.suppress(
            AttributeError, OSError
        ):  # other C libraries have no such call
            ctypes.CDLL(None).malloc_trim(0)

    @property
    def _action_screen(self) -> ActionScreen | None:
        """The screen that is shown, behind a dialog or not."""
        screens = (
            each
            for each in reversed(self.screen_stack)
            if isinstance(each, ActionScreen)
        )
        return next(screens, None)

    async def action_quit(self, status: int = 0) -> None:
        screen = self._action_screen
        if screen is None:
            self.exit(return_code=status)
        else:
            await screen.quit(status)

    def _leave(self) -> None:
        """End because of a signal or without a terminal, once no tab is being made."""
        if self._leaving is not None:
            return
        self._leaving = asyncio.ensure_future(self.action_quit(INTERRUPTED))
        if not self.is_headless:
            signal.alarm(PATIENCE_SECONDS)  # kills the process if something hangs

    async def on_event(self, event: UiEvent) -> None:
        """Have the screen handle a key at once where nothing has the focus.

        By Textual's way, past the screen and back, it would come after keys that came behind it.
        """
        if isinstance(event, Key | Paste):
            screen = self.screen
            if isinstance(screen, ActionScreen) and await screen.handle_input(event):
                return
        await super().on_event(event)

    def action_repaint(self) -> None:
        """Paint the whole screen again: another program may have written over it."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.repaint()

    # Look and settings.

    def change_settings(self, **changes: Any) -> None:
        """Apply settings that the user chose. Only those that differ from before are saved."""
        for key, value in changes.items():
            if getattr(self.settings, key) != value:
                self._changes[key] = value
        self.settings = replace(self.settings, **changes)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of all that is drawn: the look first, then NO_COLOR of the rest."""
        return [
            *([self.look] if self.look.enabled else []),
            *super().get_line_filters(),
        ]

    def show_look(self) -> None:
        """Show everything in the theme and the characters of the settings, if they have changed."""
        chosen = look.choose_look(
            self.settings.theme, self.settings.ascii, self._terminal
        )
        if (chosen.theme, chosen.ascii) == (self.look.theme, self.look.ascii):
            return
        self.look = chosen
        for screen in self.screen_stack:
            for widget in screen.query(
                "*"
            ):  # else each drawn line stays, in up to four looks
                widget.refresh()
            screen.refresh()

    @property
    def other_themes(self) -> list[str]:
        """Names of the themes that the terminal can show besides the current one, from it on."""
        names = [*self._terminal.themes]
        at = names.index(now) if (now := self.look.theme.name) in names else 0
        return [*names[at + 1 :], *names[:at]]

    def action_theme(self, name: str = "") -> None:
        """Show the theme of that name, or the next one, and say which."""
        if name or (others := self.other_themes):
            self.change_settings(theme=name or others[0])
            self.show_look()
            self.notify(f"Theme: {self.look.theme.name}")
        else:
            self.notify("This terminal's colours allow only one theme")

    async def action_save(self) -> None:
        try:
            await asyncio.to_thread(
                save, self._config, self._changes
            )  # the home may be far away
        except ProblemError as error:
            self.notify(str(error), title="Not saved", severity="error")
            return
        done = "Nothing to save: no setting was changed here"
        if self._changes:
            done = f"Saved in {visible(str(self._config))}"
        self.notify(done, title="Settings")

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
        for (
            screen
        ) in self.screen_stack:  # Textual leaves what was around each of them, for ever
            for around in screen.query("ToastHolder"):
                self.call_later(around.remove)  # the caller may be outside of the app
        message = "\n".join(map(visible, message.splitlines()))
        super().notify(
            message, title=title, severity=severity, timeout=timeout, markup=False
        )

    def report(self, error: BaseException) -> None:
        """Notify of a fault in gputop that does not end it."""
        self.log.error(error)
        if says_process_limit(error):
            self.notify(str(process_limit_problem("Not done")), severity="error")
            return
        self.notify(_described(error), title="A fault in gputop", severity="error")

    def _fatal_error(self) -> None:
        """End with one line instead of Textual's traceback, which `GPUTOP_DEBUG` brings back.

        Textual calls it for an exception that nobody caught. A later Textual may not, and then its
        traceback is shown.
        """
        error = sys.exc_info()[1]
        if error is None or os.environ.get("GPUTOP_DEBUG"):
            super()._fatal_error()
            return
        self.fault = _described(error)
        self.panic()


def _described(error: BaseException) -> str:
    return " ".join(visible(f"{type(error).__name__}: {error}").split())
