import dataclasses
import re

import pytest

from gputop.agent.snapshot import Inventory, Source
from gputop.settings import Settings
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from tests.ui import scenes
from tests.ui.pilots import app_with, settled, shown


@pytest.mark.parametrize("density", ["auto", "row", "full"])
async def test_no_number_of_a_device_is_cut(density: str) -> None:
    machine, *told = scenes.alarming(8)
    assert isinstance(machine, Inventory)
    simulated = dataclasses.replace(machine, source=Source.SIMULATED)
    app = app_with(simulated, *told, settings=Settings(density=density))
    async with settled(app, (60, 24)) as (_, pilot):
        assert "DEMO" in shown(pilot, Header).splitlines()[0]
        for view in (Header, DevicesView):
            assert not re.search(r"\d…", shown(pilot, view))
        assert "64°C" in shown(pilot, DevicesView)
