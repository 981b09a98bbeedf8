"""From 60 columns on, nothing that is asked or to be filled in is cut."""

from __future__ import annotations

import re

import pytest

from gputop.agent.snapshot import Source
from gputop.bench.plan.kinds import KINDS
from gputop.settings import Settings
from gputop.ui.benchmark.throughput_chart import ThroughputChart
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from tests.streams import inventory, no_driver, sample
from tests.ui import scenes
from tests.ui.pilots import (
    app_with,
    lines,
    open_form,
    resize,
    settle,
    settled,
    shown,
    text_of,
    until,
)


@pytest.mark.parametrize("width", [60, 100])
async def test_the_form_is_whole(width: int) -> None:
    """No field is cut or empty, and the device's name is there in full."""
    async with settled(app_with(inventory(2), sample(2)), (width, 24)) as (app, pilot):
        await open_form(pilot)
        for widget in app.query("#form Label, #form Select, #form Input, #form Button"):
            if not widget.display:  # the frequency, which only pulses have
                continue
            region = widget.region
            assert region.width >= 4
            assert region.right <= width
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


CUT = re.compile(r"\d…")
"""A number of which nobody knows how long it was."""


@pytest.mark.parametrize("density", ["auto", "row", "full"])
async def test_no_number_of_a_device_is_cut(density: str) -> None:
    app = app_with(*scenes.alarming(8), settings=Settings(density=density))
    async with settled(app, (60, 24)) as (_, pilot):
        for view in (Header, DevicesView):
            assert not CUT.search(shown(pilot, view))
        assert "64°C" in shown(pilot, DevicesView)


async def test_simulated_devices_are_marked_at_60_columns() -> None:
    simulated = inventory(1, source=Source.SIMULATED)
    async with settled(app_with(simulated, sample(1)), (60, 24)) as (_, pilot):
        for paused in (False, True):
            top = shown(pilot, Header).splitlines()[0]
            assert "DEMO" in top
            assert "…" not in top
            assert ("PAUSED" in top) == paused
            await pilot.press("space")


async def test_the_smallest_terminals_have_the_devices_alone() -> None:
    app = app_with(*scenes.alarming(8))
    async with app.run_test(size=(60, 11)) as pilot:
        await until(pilot, lambda: "%" in text_of(lines(app)))
        await settle(pilot)
        heading, *rows = text_of(lines(app)).splitlines()[:9]
        assert heading.split() == ["GPU", "BUSY", "MEMORY", "TEMP"]
        assert [row.strip("▌ ")[0] for row in rows] == [*"01234567"]
        await resize(pilot, 80, 24)
        assert "Monitor" in text_of(lines(app))
        assert "PID" in text_of(lines(app))


WIDTHS, HEIGHTS = range(40, 61), range(12, 15)
NOTE = re.compile(r" +(\d+) to (\d+) of (\d+) (devices|processes)( ·.*|: .*)?")


def check_narrow(rows: list[str]) -> None:
    """Tabs are whole, and a note counts the rows over it."""
    assert rows[0].startswith(" gputop  1 Monitor  2")
    assert "…" not in rows[0] + rows[1] + rows[-1]
    for at, row in enumerate(rows):
        assert "…" not in row or not NOTE.match(row)
        if found := NOTE.fullmatch(row):
            many = int(found[2]) - int(found[1]) + 1
            assert 1 <= many < int(found[3])
            marks = [each for each in rows[at - many : at] if re.match(r"[▌ ] *\d", each)]
            assert len(marks) == many, rows


SMALL = [(width, height) for height in HEIGHTS for width in {40, *range(28 + height, 61, 11)}]
"""Some of the small sizes, with those around the limit."""


@pytest.mark.daily(1)
@pytest.mark.parametrize("devices", [1, 0, 8])
async def test_small_sizes_have_nothing_cut_and_no_wrong_note(devices: int) -> None:
    records = scenes.job(devices) if devices else [no_driver(), sample()]
    app = app_with(*records)
    async with app.run_test(size=(60, 14)) as pilot:
        await until(pilot, lambda: "%" in text_of(lines(app)))
        for width, height in SMALL:
            await resize(pilot, width, height)
            rows = [row.rstrip() for row in text_of(lines(app)).splitlines()]
            assert len(rows) == height
            check_narrow(rows)
