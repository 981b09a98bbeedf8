"""An app in the look that the user has chosen, and the keeping of that choice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from textual.app import App
from textual.css.stylesheet import Stylesheet

from gputop.settings import DEFAULT, Settings, SettingsError, path, save
from gputop.text import visible
from gputop.ui.drawing import look

if TYPE_CHECKING:
    from pathlib import Path

    from textual.driver import Driver
    from textual.filter import LineFilter

    from gputop.problem import Problem

ANY_TERMINAL = look.Terminal()
ANSI_THEMES = ("ansi-dark", "textual-ansi")
"""Names of the theme in the terminal's own colours: since Textual 8.2.5, and before. The look then
replaces them by ours."""


def _driver() -> type[Driver] | None:
    """Ours, or Textual's own where its parser, which is private, is not the one that ours feeds."""
    try:
        from gputop.ui.terminal.driver import TerminalDriver, is_known
    except ImportError:
        return None
    return TerminalDriver if is_known() else None


class Sheet(Stylesheet):
    """Parses each source once. Textual's parses all of them again after the first theme."""

    def reparse(self) -> None:
        """Parses what is not parsed with the variables as they are."""
        self.parse()


class ThemedApp(App[None]):
    """All that it draws, in whatever widget, goes through its look."""

    def __init__(
        self,
        settings: Settings = DEFAULT,
        problems: Sequence[Problem] = (),
        config: Path | None = None,
        terminal: look.Terminal = ANY_TERMINAL,
    ) -> None:
        """`problems` are what could not be used of the settings, `config` is their file."""
        # ansi_color is said from the start: what NO_COLOR does goes by it
        super().__init__(driver_class=_driver(), ansi_color=True)
        self.stylesheet = Sheet(variables=self.get_css_variables())
        self.theme = next(name for name in ANSI_THEMES if name in self.available_themes)
        self._settings = settings
        """As they are now: what would be kept."""
        self._problems = problems
        self._config = config or path()
        self._terminal = terminal
        self.look = look.choose_look(settings.theme, settings.ascii, terminal)

    def on_mount(self) -> None:
        """Says what could not be used of the settings."""
        if self._problems:
            self.notify("\n".join(map(str, self._problems)), title="Settings", severity="warning")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """The look comes first: NO_COLOR then takes what colours are left."""
        return [*([self.look] if self.look.enabled else []), *super().get_line_filters()]

    @property
    def settings(self) -> Settings:
        """As they are now."""
        return self._settings

    def set_theme(self, name: str) -> None:
        """Shows everything in the theme of that name, as far as the terminal can."""
        self._settings = replace(self._settings, theme=name)
        self.look = look.choose_look(name, self._settings.ascii, self._terminal)
        for screen in self.screen_stack:
            for widget in screen.query("*"):  # else each drawn line stays, in up to four looks
                widget.refresh()
            screen.refresh()

    def action_theme(self) -> None:
        """The next theme."""
        self.set_theme(look.next_theme(self.look, self._terminal))

    async def action_keep(self) -> None:
        """Keeps the settings as they are now."""
        try:
            await asyncio.to_thread(save, self._config, self._settings)  # the home may be far away
        except SettingsError as error:
            self.notify(str(error), title="Not kept", severity="error")
        else:
            self.notify(f"Kept in {visible(str(self._config))}", title="Settings")
