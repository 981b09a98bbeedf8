"""Small terminals: no number, tab or note is cut."""

import dataclasses
import re

import pytest

from gputop.agent.snapshot import Inventory, Source
from gputop.settings import Settings
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from tests.ui import scenes
from tests.ui.pilots import app_with, lines, resize, settled, shown, text_of


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
