"""The application: its look, its settings, and its lifetime with the terminal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette
from textual.filter import LineFilter
from textual.notifications import SeverityLevel
from textual.screen import Screen

from gputop.agent.problem import Problem, ProblemError
from gputop.agent.process_limit import (
    process_limit_problem,
    says_process_limit,
)
from gputop.console import INTERRUPTED
from gputop.settings import DEFAULT, Settings, path, save
from gputop.text import visible
from gputop.ui.drawing import look
from gputop.ui.shell.action_screen import ActionScreen
from gputop.ui.shell.actions import CURSOR
from gputop.ui.terminal import TerminalDriver
from gputop.ui.terminal_input import QUESTION, BackgroundAnswered
from gputop.ui.textual_workarounds import SteadyApp

if TYPE_CHECKING:
    from gputop.ui.shell.dashboard import RecordSource

UI = Path(__file__).parents[1]
ANY_TERMINAL = look.Terminal()
ANSI_THEMES = ("ansi-dark", "textual-ansi")
"""Names of the theme with the terminal's own colours, since Textual 8.2.5 and before. The look then
replaces its colours by gputop's."""
ANSWER_SECONDS = 3.0
"""Longest wait in seconds for the terminal's background colour. Until then the theme is dark."""
TICK_SECONDS = 0.5
"""Seconds between checks that the terminal still exists, and between time-dependent redraws."""


SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
PATIENCE_SECONDS = 10
"""Seconds from a signal to the forced end."""


class Palette(CommandPalette):
    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],
    ) -> bool | None:
        """Move in the list only while it is in view. Textual's page keys raise KeyError before."""
        if action == "command_list" and not self.query_one(CommandList).size:
            return False
        return super().check_action(action, parameters)


# Bindings are not inherited, because Textual quits on Ctrl+Q, which also
# undoes an accidental Ctrl+S.
class GputopApp(SteadyApp, inherit_bindings=False):
    """The application. It continues after its own faults, and ends with its terminal."""

    terminal: TerminalDriver | None = None
    """Driver of the terminal; None without one, as in tests."""
    CSS_PATH: ClassVar = [
        UI / "shell" / "gputop.tcss",
        UI / "benchmark" / "benchmark.tcss",
    ]
    # Style classes of the screens. `gputop.tcss` has a layout for each.
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - as Textual types it
        (0, "-tiny"),
        (40, "-narrow"),
        (70, "-medium"),
        (120, "-roomy"),
        (150, "-wide"),
        (200, "-widest"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - as Textual types it
        (0, "-flat"),
        (12, "-low"),
        (20, "-short"),
        (38, "-tall"),
    ]
    TITLE = "gputop"
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "f10,ctrl+c",
            "quit",
            "Quit",
            show=False,
            priority=True,
            # This also works in a dialog.
        ),
        Binding(
            "ctrl+l",
            "repaint",
            "Repaint",
            show=False,
            priority=True,
        ),
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
        first: ActionScreen | None = None,
        **dashboard: Any,
    ) -> None:
        """Start with the screen `first`, or else with the dashboard of `stream`.

        `problems` are invalid settings, and `config` is their file. The other arguments are the
        dashboard's.
        """
        # Textual reads ansi_color in its constructor, for NO_COLOR.
        super().__init__(driver_class=TerminalDriver, ansi_color=True)
        self.theme = next(
            name for name in ANSI_THEMES if name in self.available_themes
        )
        self.settings = settings
        """The current settings, including those from the command line and the environment."""
        self._changes: dict[str, Any] = {}
        """The settings that the user changed in the dashboard. `S` saves them."""
        self._problems = problems
        self._config = config or path()
        self._terminal = terminal
        self.look = look.choose_look(settings.theme, settings.ascii, terminal)
        self.fault: str | None = None
        self._ask_until = 0.0
        self._leaving: asyncio.Future[None] | None = None
        if first is None:
            from gputop.ui.shell.dashboard import Dashboard

            assert stream is not None
            first = Dashboard(stream, python, **dashboard)
        self.first = first
        """The screen below all dialogs."""

    def get_default_screen(self) -> ActionScreen:
        return self.first

    def on_load(self) -> None:
        """Handle signals before the terminal is changed."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave)

    def on_mount(self) -> None:
        """Watch for the terminal's end, and report invalid settings."""
        # It was off while modules were imported.
        gc.enable()
        # Current objects stay, and a full collection of them would delay a key
        # by 20 ms.
        gc.freeze()
        self.set_interval(TICK_SECONDS, self._tick)
        if self.terminal is not None and self._terminal.colours > 16:
            self.terminal.write(QUESTION)
            self._ask_until = time.monotonic() + ANSWER_SECONDS
        if self._problems:
            self.notify(
                "\n".join(map(str, self._problems)),
                title="Settings",
                severity="warning",
            )

    @on(BackgroundAnswered)
    def _background_answered(self, event: BackgroundAnswered) -> None:
        """Choose the theme for the terminal's background, unless the user chose one."""
        if time.monotonic() < self._ask_until:
            self._terminal = self._terminal._replace(light=event.is_light)
            self.show_look()

    def on_resize(self) -> None:
        """Repaint even if Textual sees the same size: it may have been smaller in between."""
        self.action_repaint()
        self.screen.refresh()

    def _tick(self) -> None:
        if not self.is_headless and not os.isatty(0):
            self._leave()
        self.first.tick()
        self.apply_dropped_resize()

    async def action_quit(self, status: int = 0) -> None:
        await self.first.quit(status)

    def _leave(self) -> None:
        """End because of a signal or a lost terminal, as soon as no tab is being created."""
        if self._leaving is not None:
            return
        self._leaving = asyncio.ensure_future(self.action_quit(INTERRUPTED))
        if not self.is_headless:
            # The alarm kills the process if something hangs.
            signal.alarm(PATIENCE_SECONDS)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette(id="palette"))

    def get_system_commands(
        self,
        screen: Screen[Any],  # noqa: ARG002 - always the first one
    ) -> Iterable[SystemCommand]:
        """Yield the commands of the palette: the screen's actions, and the themes."""
        first = self.first
        for action in first.actions:
            listed = action.name not in ("command_palette", *CURSOR)
            if listed and first.offers(action):
                keys = " ".join(action.key_names)
                do = partial(first.act, action)
                yield SystemCommand(f"{action.help} ({keys})", "", do)
        for name in self._terminal.themes:
            do_theme = partial(self.action_theme, name)
            yield SystemCommand(f"Theme: {name}", "", do_theme)

    def action_repaint(self) -> None:
        """Repaint the whole screen, because another program may have written over it."""
        if self.terminal is not None:
            self.terminal.repaint()

    async def action_export(self, kind: str) -> None:
        """Write the current page to a file in the working directory, as `txt` or `svg`."""
        from gputop.ui.shell.export import page_text, write_page

        name = time.strftime(f"gputop-%Y%m%d-%H%M%S.{kind}")
        content = (
            self.export_screenshot()
            if kind == "svg"
            else page_text(self.screen)
        )
        try:
            file = await asyncio.to_thread(write_page, name, content)
        except OSError as error:
            self.notify(
                f"{name}: {error.strerror}",
                title="Not exported",
                severity="error",
            )
        else:
            self.notify(str(file), title="Exported to")

    def change_settings(self, **changes: Any) -> None:
        """Apply settings that the user chose. Only changed ones are saved."""
        for key, value in changes.items():
            if getattr(self.settings, key) != value:
                self._changes[key] = value
        self.settings = replace(self.settings, **changes)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters for everything that is drawn: the look, then NO_COLOR for the rest."""
        return [
            *([self.look] if self.look.enabled else []),
            *super().get_line_filters(),
        ]

    def show_look(self) -> None:
        """Apply the theme and the characters of the settings, if they have changed."""
        chosen = look.choose_look(
            self.settings.theme,
            self.settings.ascii,
            self._terminal,
        )
        if (chosen.theme, chosen.ascii) == (self.look.theme, self.look.ascii):
            return
        self.look = chosen
        for screen in self.screen_stack:
            # Otherwise, each drawn line stays in memory, in up to four looks.
            screen.query("*").refresh()
            screen.refresh()

    def action_theme(self, name: str = "") -> None:
        """Show the theme with that name, or the next one, and report its name."""
        names = self._terminal.themes
        if len(names) < 2:
            self.notify("This terminal's colours allow only one theme")
            return
        following = names.index(self.look.theme.name) + 1
        self.change_settings(theme=name or names[following % len(names)])
        self.show_look()
        self.notify(f"Theme: {self.look.theme.name}")

    async def action_save(self) -> None:
        try:
            await asyncio.to_thread(
                save,
                self._config,
                self._changes,
                # The home may be on a network.
            )
        except ProblemError as error:
            self.notify(str(error), title="Not saved", severity="error")
            return
        done = "Nothing to save: no setting was changed here"
        if self._changes:
            done = f"Saved in {visible(str(self._config))}"
        self.notify(done, title="Settings")

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002 - Textual's widgets pass True
    ) -> None:
        """Replace the current notification. The text is not markup, because it may be foreign."""
        self.clear_notifications()
        # Textual never removes the container of a notification.
        for screen in self.screen_stack:
            # The caller may be outside of the app.
            self.call_later(screen.query("ToastHolder").remove)
        message = "\n".join(map(visible, message.splitlines()))
        super().notify(
            message,
            title=title,
            severity=severity,
            timeout=timeout,
            markup=False,
        )

    def report(self, error: BaseException) -> None:
        """Show a fault in gputop that does not end it."""
        text, title = _described(error), "A fault in gputop"
        if says_process_limit(error):
            text, title = str(process_limit_problem("Not done")), ""
        self.notify(text, title=title, severity="error")

    def end_with(self, error: BaseException) -> bool:
        """End with one line instead of a traceback. `GPUTOP_DEBUG` shows the traceback."""
        if os.environ.get("GPUTOP_DEBUG"):
            return False
        self.fault = _described(error)
        return True


def _described(error: BaseException) -> str:
    return " ".join(visible(f"{type(error).__name__}: {error}").split())
