"""From 60 columns on, nothing that is asked or to be filled in is cut."""

from __future__ import annotations

import dataclasses
import re

import pytest

from gputop.agent.snapshot import Inventory, Source
from gputop.bench.plan.kinds import KINDS
from gputop.settings import Settings
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from tests.streams import inventory, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import app_with, lines, open_form, resize, settle, settled, shown, text_of


async def test_the_form_is_whole() -> None:
    """No field is cut or empty, and the device's name is there in full."""
    async with settled(app_with(inventory(2), sample(2)), (60, 24)) as (app, pilot):
        await open_form(pilot)
        for widget in app.query("#form Label, #form Select, #form Input, #form Button"):
            if not widget.display:  # the frequency, which only pulses have
                continue
            region = widget.region
            assert region.width >= 4
            assert app.screen.find_widget(widget).visible_region == region
        text = text_of(lines(app)[3:5])
        fields = ("Kind", "soak", "Device", "0 H100 80GB HBM3", "Type", "bfloat16", "Size", "auto")
        assert all(field in text for field in (*fields, "60", "Start"))


async def test_the_introduction_is_whole_and_names_every_kind() -> None:
    async with settled(app_with(no_driver(), sample()), (60, 24)) as (_, pilot):
        await pilot.press("2")
        text = shown(pilot, ThroughputChart)
        assert "…" not in text
        assert text.rstrip().endswith("within half a second.")
        assert all(kind.description in text for kind in KINDS.values() if not kind.several_devices)


async def test_a_question_is_whole() -> None:
    title = "GPU 0, NVIDIA GeForce RTX 4090 Laptop GPU is in use. A stress test would slow down:"
    long = "   4000  ada        " + "python train.py " * 20
    async with settled(app_with(no_driver(), sample()), (60, 24)) as (app, pilot):
        app.push_screen(ConfirmScreen(title, [long, long], "Start anyway"))
        await settle(pilot)
        rows = [row.strip(" │") for row in text_of(lines(app)).splitlines()]
        text = " ".join(row for row in rows if row)
        assert title in text
        assert text.count("4000  ada") == 2
        assert "…" in text
        assert re.search("Cancel +n Start anyway +y", text)


@pytest.mark.parametrize("density", ["auto", "row", "full"])
async def test_no_number_of_a_device_is_cut(density: str) -> None:
    """Simulated ones are marked."""
    machine, *told = scenes.alarming(8)
    assert isinstance(machine, Inventory)
    simulated = dataclasses.replace(machine, source=Source.SIMULATED)
    app = app_with(simulated, *told, settings=Settings(density=density))
    async with settled(app, (60, 24)) as (_, pilot):
        assert "DEMO" in shown(pilot, Header).splitlines()[0]
        for view in (Header, DevicesView):
            assert not re.search(r"\d…", shown(pilot, view))
        assert "64°C" in shown(pilot, DevicesView)


NOTE = re.compile(r" +(\d+) to (\d+) of (\d+) (devices|processes)( ·.*|: .*)?")
SMALL = [(width, height) for height in (12, 13, 14) for width in {40, *range(28 + height, 61, 11)}]
"""Some of the small sizes, with those around the limit."""


@pytest.mark.daily(1)
@pytest.mark.parametrize("devices", [1, 8])
async def test_small_sizes_have_whole_tabs_and_notes_that_count_the_rows_over_them(
    devices: int,
) -> None:
    async with settled(app_with(*scenes.job(devices)), (60, 14)) as (app, pilot):
        for width, height in SMALL:
            await resize(pilot, width, height)
            rows = [row.rstrip() for row in text_of(lines(app)).splitlines()]
            assert rows[0].startswith(" gputop  1 Monitor  2")
            assert "…" not in rows[0] + rows[1] + rows[-1]
            for at, row in enumerate(rows):
                if found := NOTE.fullmatch(row):
                    many = int(found[2]) - int(found[1]) + 1
                    assert 1 <= many < int(found[3])
                    marks = [r for r in rows[at - many : at] if re.match(r"[▌ ] *\d", r)]
                    assert len(marks) == many, rows
