"""From 60 columns on, nothing that is asked or to be filled in is cut."""

from __future__ import annotations

import re

import pytest
from textual.widgets import Select, Static

from gputop.bench.plan import request
from gputop.schema.snapshot import Source
from gputop.settings import Settings
from gputop.ui.benchmark.chart import ThroughputChart
from gputop.ui.benchmark.form import KINDS
from gputop.ui.monitor.devices import DevicesView
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.header import Header
from gputop.ui.widgets.host import HostView
from gputop.ui.widgets.question import Question
from tests.streams import PreparedStream, inventory, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import lines, settle, shown, text_of


@pytest.mark.parametrize("width", [60, 79, 80, 99, 100, 120])
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
        fields = ("Kind", "soak", "Device", "0 H100 80GB HBM3", "Type", "bfloat16", "Size", "auto")
        assert all(field in text for field in (*fields, "60", "Start"))


@pytest.mark.parametrize("width", [60, 80])
async def test_the_introduction_is_whole_and_names_every_kind(width: int) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        text = shown(pilot, ThroughputChart)
        assert "…" not in text
        assert text.rstrip().endswith("of x.")
        assert all(request.KINDS[kind] in text for kind in KINDS)


async def test_an_open_list_at_60_columns_is_on_screen() -> None:
    app = GputopApp(PreparedStream(inventory(2), sample(2)))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2", "tab", "tab", "tab", "enter")
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
        app.push_screen(Question(title, [long, long], "Start anyway"))
        await settle(pilot)
        rows = [row.strip(" │") for row in text_of(lines(app)).splitlines()]
        text = " ".join(row for row in rows if row)
        assert title in text
        assert text.count("4000  ada") == 2
        assert "…" in text
        assert "y Start anyway   n Cancel" in text


CUT = re.compile(r"\d…")
"""A number of which nobody knows how long it was."""


@pytest.mark.parametrize("density", ["auto", "row", "compact", "full"])
@pytest.mark.parametrize("devices", [1, 2, 8])
async def test_no_number_of_a_device_is_cut(density: str, devices: int) -> None:
    app = GputopApp(PreparedStream(*scenes.alarming(devices)), settings=Settings(density=density))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        for view in (Header, DevicesView):
            assert not CUT.search(shown(pilot, view))
        assert "64°C" in shown(pilot, DevicesView)


async def test_the_sums_of_a_machine_with_faults_are_whole() -> None:
    app = GputopApp(PreparedStream(*scenes.faults()))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        summary = shown(pilot, Header).splitlines()[1]
        assert summary.endswith("3 not answering  busy  99 %  mem 71.0/80.0 GiB")


@pytest.mark.parametrize("paused", [False, True])
async def test_simulated_devices_are_marked_at_60_columns(paused: bool) -> None:
    simulated = inventory(1, source=Source.SIMULATED)
    app = GputopApp(PreparedStream(simulated, sample(1)))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        if paused:
            await pilot.press("space")
            await settle(pilot)
        top = shown(pilot, Header).splitlines()[0]
        assert "DEMO" in top
        assert "…" not in top
        assert ("PAUSED" in top) == paused


async def test_without_a_driver_what_to_press_is_whole() -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(60, 24)) as pilot:
        await settle(pilot)
        lines_shown = [line.strip() for line in shown(pilot, HostView).splitlines()]
        assert "Press b to stress-test the CPU." in lines_shown
        assert "gputop --demo simulates devices." in lines_shown


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (200, 60)])
async def test_help_is_whole(size: tuple[int, int]) -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1)))
    async with app.run_test(size=size) as pilot:
        await pilot.press("question_mark")
        await settle(pilot)
        box, text = app.screen.query_one(".box"), app.screen.query_one(Static)
        assert text.region.width <= box.scrollable_content_region.width
