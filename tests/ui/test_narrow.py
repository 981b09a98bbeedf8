"""From 60 columns on, nothing that is asked or to be filled in is cut."""

from __future__ import annotations

import pytest
from textual.widgets import Select

from gputop.ui.app import GputopApp
from gputop.ui.screens.question import Question
from tests.streams import (
    PreparedStream,
    inventory,
    no_driver,
    sample,
)
from tests.ui.pilots import lines, settle, text_of


@pytest.mark.parametrize("width", [60, 79, 80, 120])
async def test_the_form_is_whole(width: int) -> None:
    """No field is cut or empty, and the device's name is there in full."""
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        for widget in app.query("#form Label, #form Select, #form Input, #form Button"):
            region = widget.region
            assert region.width >= 4
            assert region.right <= width
            assert app.screen.find_widget(widget).visible_region == region
        text = text_of(lines(app)[2:4])
        fields = ("Device", "0 H100 80GB HBM3", "Type", "bfloat16", "Size", "auto", "60", "Start")
        assert all(field in text for field in fields)


async def test_an_open_list_at_60_columns_is_on_screen() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2", "tab", "tab", "enter")
        await settle(pilot)
        assert app.query_one("#dtype", Select).expanded
        text = text_of(lines(app))
        assert "float8" in text or "float64" in text


@pytest.mark.parametrize("width", [60, 80, 140])
async def test_a_question_is_whole(width: int) -> None:
    title = "GPU 0, NVIDIA GeForce RTX 4090 Laptop GPU is in use. A stress test slows down:"
    long = "   4000  ada        " + "python train.py " * 20
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        app.push_screen(Question(title, [long, long], "Start all the same"))
        await settle(pilot)
        rows = [row.strip(" │") for row in text_of(lines(app)).splitlines()]
        text = " ".join(row for row in rows if row)
        assert title in text
        assert text.count("4000  ada") == 2
        assert "…" in text
        assert "y Start all the same   n Leave it" in text
