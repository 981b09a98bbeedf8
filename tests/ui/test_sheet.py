"""The style sheets are parsed once each, and anew where the theme's variables are others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App
from textual.css import stylesheet
from textual.screen import Screen
from textual.widgets import Static

from gputop.ui.shell.app import GputopApp, Sheet
from tests.streams import PreparedStream, inventory, sample
from tests.ui.pilots import settle

if TYPE_CHECKING:
    from textual.app import ComposeResult

pytestmark = pytest.mark.usefixtures("parses_css")


async def test_our_style_sheet_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: Counter[str] = Counter()
    parse = vars(stylesheet)["parse"]

    def counted(scope: str, css: str, *args: Any, **named: Any) -> Any:
        parsed[css] += 1
        return parse(scope, css, *args, **named)

    monkeypatch.setattr(stylesheet, "parse", counted)
    app = GputopApp(PreparedStream(inventory(), sample()))
    async with app.run_test() as pilot:
        await settle(pilot)
        assert isinstance(app.stylesheet, Sheet)
        (ours,) = (count for css, count in parsed.items() if "#header" in css)
        assert (ours, parsed[App.DEFAULT_CSS]) == (1, 1)


class Coloured(GputopApp):
    """One whose colours are the theme's, as ours are not."""

    CSS = "Static { color: $primary; }"

    def compose(self) -> ComposeResult:
        yield Static("text")


async def test_another_theme_shows() -> None:
    app = Coloured(first=Screen())
    async with app.run_test() as pilot:
        await settle(pilot)
        text = app.query_one(Static)
        before = text.styles.color
        app.theme = "dracula"
        await settle(pilot)
        assert text.styles.color != before
