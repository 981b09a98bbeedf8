"""The page of findings, and the gravest of each device on the monitor."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event, Sample
from gputop.health.conditions import STATES
from gputop.settings import Settings
from gputop.ui.device.why_page import FindingsView
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from tests import streams
from tests.health.histories import GPM_OFF, NO_GPM, WORKING, Machine, device, saw, trainer
from tests.ui.pilots import app_with, settle, settled, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.pilot import Pilot

    from gputop.agent.snapshot import Record

STARVED = {"gpu_utilization_percent": saw(95, 0, 8, 3)}
HOT = {"clock_event_reasons": ("sw_thermal",), "sm_clock_mhz": 1200}
USUAL, LARGE = (80, 24), (120, 40)


def records(*readings: Mapping[str, Any], seconds: int = 90, **machine: Any) -> list[Record]:
    """Devices that do that for so long."""
    full = trainer(cpu_percent=99.0)
    processes = tuple(
        dataclasses.replace(full, device_uuid=device(n).uuid, pid=full.pid + n)
        for n in range(len(readings))
    )
    made = Machine(
        devices=tuple(device(n) for n in range(len(readings))),
        readings=tuple({**WORKING, **each} for each in readings),
        **{"processes": processes, **machine},
    )
    found: list[Record] = [dataclasses.replace(streams.inventory(), devices=tuple(made.devices))]
    for _ in range(seconds):
        found.append(made.sample())
        made.ticks += 1
    return found


def findings(pilot: Pilot[None]) -> str:
    """Without the ends of lines."""
    return " ".join(shown(pilot, FindingsView).split())


@pytest.mark.parametrize("key", ["w", "!"])
async def test_the_findings_of_all_devices_come_first(key: str) -> None:
    async with settled(app_with(*records(STARVED, HOT)), LARGE) as (_, pilot):
        await pilot.press(key)
        assert "all 2 devices" in shown(pilot, FindingsView)
        said = findings(pilot)
        assert "warning GPU 0: may be waiting for input" in said
        assert "warning GPU 1: throttled by heat" in said
        assert said.index("What slows the work") < said.index("throttled by heat")
        looked_for = said.partition("Checked, no problem")[2]
        assert "heat" not in looked_for
        assert "straggler" in looked_for
        await pilot.press("w")
        assert "GPU 0 H100" in shown(pilot, FindingsView)
        assert "watched for 1:29" in shown(pilot, FindingsView)
        assert "CPU of its busiest process 99 %" in findings(pilot)
        await pilot.press("n")
        assert "GPU 1 H100" in shown(pilot, FindingsView)
        assert "may be waiting for input" not in findings(pilot)


@pytest.mark.parametrize("width", [60, 120])
async def test_the_second_line_says_how_things_are_the_gravest_first(width: int) -> None:
    sick = records(*[STARVED] * 3, WORKING, {"ecc_uncorrected": 2})
    async with settled(app_with(*sick), (width, 40)) as (_, pilot):
        second = shown(pilot, Header).splitlines()[1]
        assert second.startswith(" ▲ GPU 4: 2 uncorrected ECC errors")
        assert second.endswith("+1 more: w")
        assert await pilot.click(Header, offset=(20, 1))
        await settle(pilot)
        assert pilot.app.query_one(Header).tab == "why"
    async with settled(app_with(*records(STARVED)), (width, 40)) as (_, pilot):
        second = shown(pilot, Header).splitlines()[1]
        assert second.startswith(" ▲ GPU 0: may be waiting for input, a CPU core is")
        assert ("full: idle 64 %" in second) == (width > 60)
    async with settled(app_with(*records(WORKING, seconds=10)), (width, 40)) as (_, pilot):
        second = shown(pilot, Header).splitlines()[1]
        assert re.fullmatch(r" No problem so far: \d+ of 21 checks done", second)


async def test_nothing_found_says_what_was_looked_for_and_what_cannot_be_told() -> None:
    async with settled(app_with(*records(NO_GPM, absent=GPM_OFF)), USUAL) as (_, pilot):
        await pilot.press("w")
        said = findings(pilot)
        assert "No problem found: 19 of 21 checks done" in said
        assert "Checked, no problem" in said
        assert "busy with idle SMs" in said
        assert "tensor cores: no SM active (GPM is off" in said
        assert "memory bandwidth: no DRAM active (GPM is off" in said


@pytest.mark.parametrize(
    ("density", "signs"),
    [
        ("row", ("▲ input", "▲ heat")),
        ("compact", ("▲ May be waiting for input", "▲ Throttled by heat")),
    ],
)
async def test_the_monitor_has_the_gravest_of_each_device(
    density: str, signs: tuple[str, str]
) -> None:
    app = app_with(*records(STARVED, HOT), settings=Settings(density=density))
    async with settled(app, USUAL) as (_, pilot):
        said = shown(pilot, DevicesView)
        assert all(sign in said for sign in signs)


async def test_a_device_with_a_fault_shows_the_fault() -> None:
    """One that has fallen off the bus is not reset, whatever else the driver says of it."""
    told = records(STARVED, HOT)
    last = told[-1]
    assert isinstance(last, Sample)
    lost = dataclasses.replace(streams.lost(0, DeviceState.NEEDS_RESET), uuid=device(0).uuid)
    event = Event(last.time, device(0).uuid, "xid", 79)
    told[-1] = dataclasses.replace(last, devices=(lost, last.devices[1]), events=(event,))
    async with settled(app_with(*told), LARGE) as (_, pilot):
        words = STATES[DeviceState.NEEDS_RESET]
        assert words in shown(pilot, DevicesView)
        await pilot.press("w")
        said = findings(pilot)
        assert f"FAULT GPU 0: {words}; Xid 79: the GPU has fallen" in said
        assert "Usually only a reboot helps" in said
        assert "--gpu-reset" not in said
        assert "no device (the device is lost" in said
