import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Group

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Event, Record, Sample
from gputop.health.conditions import STATES
from gputop.ui.device.why_page import FindingsView
from gputop.ui.drawing.cells import text_of
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.health.histories import GPM_OFF, NO_GPM, WORKING, Machine, device, saw, trainer
from tests.ui.pilots import app_with, rendered, settle, settled, shown

STARVED = {"gpu_utilization_percent": saw(95, 0, 8, 3)}
HOT = {"clock_event_reasons": ("sw_thermal",), "sm_clock_mhz": 1200}


def records(*readings: Mapping[str, Any], seconds: int = 90, **machine: Any) -> list[Record]:
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


def known(*told: Record) -> Telemetry:
    telemetry = Telemetry()
    for record in told:
        telemetry.receive(record)
    return telemetry


def findings(telemetry: Telemetry, index: int | None = None) -> str:
    view = FindingsView(telemetry)
    if index is not None:
        view.device = telemetry.devices[index]
        view.of_all = False
    text = rendered(Group(view.title(), view.page()), 110)
    return " ".join(text.split())


def second_line(width: int, *told: Record) -> str:
    return text_of(Header(known(*told)).draw(width, 3)[1]).rstrip()


def test_the_findings_of_all_devices_and_of_one() -> None:
    telemetry = known(*records(STARVED, HOT))
    said = findings(telemetry)
    assert "all 2 devices watched for 1:29" in said
    assert "warning GPU 0: may be waiting for input" in said
    assert re.search("warning GPU 1: throttled by heat since [0-9:]{8} slowed", said)
    assert said.index("What slows the work") < said.index("throttled by heat")
    looked_for = said.partition("Checked, no problem")[2]
    assert "heat" not in looked_for
    assert "straggler" in looked_for
    one = findings(telemetry, 0)
    assert "GPU 0 H100" in one
    assert "CPU of its busiest process 99 %" in one
    assert "may be waiting for input" not in findings(telemetry, 1)


@pytest.mark.parametrize("way", ["w", "exclamation_mark", "click"])
async def test_all_devices_come_first_then_each(way: str) -> None:
    async with settled(app_with(*records(STARVED, HOT, seconds=3)), (80, 24)) as (_, pilot):
        if way == "click":
            await pilot.click(Header, offset=(20, 1))
        else:
            await pilot.press(way)
        for title in ("all 2 devices", "GPU 0 H100", "all 2 devices"):
            await settle(pilot)
            assert title in shown(pilot, FindingsView)
            await pilot.press("w")
        await pilot.press("n")
        assert "GPU 1 H100" in shown(pilot, FindingsView)


@pytest.mark.parametrize("width", [60, 120])
def test_the_second_line_says_how_things_are_the_gravest_first(width: int) -> None:
    second = second_line(width, *records(*[STARVED] * 3, WORKING, {"ecc_uncorrected": 2}))
    assert second.startswith(" ▲ GPU 4: 2 uncorrected ECC errors")
    assert second.endswith("+1 more: w")
    second = second_line(width, *records(STARVED))
    assert second.startswith(" ▲ GPU 0: may be waiting for input, a CPU core is")
    assert ("full: idle 64 %" in second) == (width > 60)
    second = second_line(width, *records(WORKING, seconds=10))
    assert re.fullmatch(r" No problem so far: \d+ of 21 checks done", second)


def test_nothing_found_says_what_was_looked_for_and_what_cannot_be_told() -> None:
    said = findings(known(*records(NO_GPM, absent=GPM_OFF)))
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
def test_the_monitor_has_the_gravest_of_each_device(density: str, signs: tuple[str, str]) -> None:
    view = DevicesView(known(*records(STARVED, HOT)))
    view.density = density
    view.plan(80, 20)
    said = "\n".join(text_of(row) for row in view.draw(80, 16))
    assert all(sign in said for sign in signs)


def test_a_device_with_a_fault_shows_the_fault() -> None:
    """One that has fallen off the bus is not reset, whatever else the driver says of it."""
    told = records(STARVED, HOT)
    last = told[-1]
    assert isinstance(last, Sample)
    lost = dataclasses.replace(streams.lost(0, DeviceState.NEEDS_RESET), uuid=device(0).uuid)
    event = Event(last.time, device(0).uuid, "xid", 79)
    told[-1] = dataclasses.replace(last, devices=(lost, last.devices[1]), events=(event,))
    said = findings(known(*told))
    assert f"FAULT GPU 0: {STATES[DeviceState.NEEDS_RESET]}; Xid 79: the GPU has fallen" in said
    assert "Usually only a reboot helps" in said
    assert "--gpu-reset" not in said
    assert "no device (the device is lost" in said
