import dataclasses
import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from gputop.agent.device import GPM_READINGS, READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.health.findings import Bound, BoundBy, Finding, Severity
from gputop.stream.history import History
from gputop.text import ABSENT
from gputop.ui.device.screen import DevicePage
from gputop.ui.device.title import DeviceTitle
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row, width_of
from gputop.ui.drawing.list_view import ListView
from gputop.ui.drawing.palette import DIM, TRACK, WARN
from gputop.ui.monitor import panel
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.layout import GAP, Density, plan_layout, process_rows
from gputop.ui.monitor.shown_device import ShownDevice
from gputop.ui.processes.screen import ProcessesView
from gputop.ui.shell.header import Header
from tests.streams import sample
from tests.ui import scenes
from tests.ui.pilots import app_with, dashboard_of, settle, settled, shown

GIB = 1 << 30
NEVER = Absence.NOT_SUPPORTED
OF_AN_INSTANCE = ("memory_used_bytes", "memory_total_bytes", "memory_free_bytes")


def text_of(rows: list[Row]) -> list[str]:
    return [cells.text_of(row) for row in rows]


def shown_device(device: Device, readings: DeviceSample, **known: Any) -> ShownDevice:
    telemetry: Any = SimpleNamespace(
        devices=(device,),
        history=History(),
        interval=1.0,
        problems={},
        judgement=SimpleNamespace(bound_by={}),
        readings=lambda _: readings,
        find_device=lambda _: device,
        machine_of=lambda _: None,
        host_of=lambda _: None,
        old_seconds=lambda _: None,
    )
    vars(telemetry).update(known)
    return ShownDevice(telemetry, device)


def h100(**changes: Any) -> ShownDevice:
    return shown_device(scenes.device(0), scenes.training(0, 10, **changes))


def with_known(**known: Any) -> ShownDevice:
    return shown_device(scenes.device(0), scenes.training(0, 10), **known)


def instance(**changes: Any) -> ShownDevice:
    device = dataclasses.replace(
        scenes.device(0), parent_uuid="GPU-parent", mig_index=1, name="NVIDIA H100 MIG 1g.10gb"
    )
    has: dict[str, Any] = dict.fromkeys(OF_AN_INSTANCE, 4 * GIB) | changes
    absent = {name: NEVER for name in READINGS if name not in has}
    readings = DeviceSample(device.uuid, absent=absent, **has)
    return shown_device(device, readings, devices=(device, device))


def in_rows(width: int, *devices: ShownDevice) -> list[Row]:
    view = DevicesView(devices[0].telemetry)
    view.state.fill(devices)
    slots = view.slots(width)
    lines = [view.line(each, slots, selected=False) for each in devices]
    return [ListView.heading(view, width), *lines]


@pytest.mark.parametrize("density", [Density.COMPACT, Density.FULL])
def test_an_instance_has_no_signs_of_absence_but_that_of_busy(density: Density) -> None:
    title, _, busy, memory, *others = text_of(panel.draw(instance(), density, 60, 5))
    assert title.split()[:4] == ["0:1", "└", "MIG", "1g.10gb"]
    assert busy.split()[0] == "busy"
    assert "┄┄┄┄" in busy
    assert busy.rstrip().endswith(ABSENT)
    assert "4.00 of 4.00 GiB" in memory
    assert not [line for line in (title, *others) if ABSENT in line]
    assert "power" not in " ".join(others)


@pytest.mark.parametrize("density", list(Density))
def test_old_readings_are_faded(density: Density) -> None:
    made = with_known(old_seconds=lambda _: 12.3)
    if density is Density.ROW:
        _, *rows = in_rows(120, made)
        _, fresh = text_of(in_rows(120, h100()))
        assert text_of(rows)[0].index("GiB") == fresh.index("GiB")
    else:
        rows = panel.draw(made, density, 60, 12)
    assert "12 s old" in text_of(rows)[0]
    numbers = [span for row in rows for span in row if re.search(r"\d", span.text)]
    loud = {span.text.strip() for span in numbers if span.style not in (DIM, TRACK)}
    if density is Density.ROW:
        assert loud == {"0 12 s old"}
    else:
        assert loud == {"0", "12 s old", "H100 80GB HBM3"}
    assert any(span.style == DIM for span in numbers)
    assert WARN in {span.style for span in numbers}


def test_sm_active_stands_for_busy_where_that_is_not_counted() -> None:
    made = instance(sm_active_percent=81.0, tensor_active_percent=44.0, dram_active_percent=52.0)
    _, _, busy, _, *others = text_of(panel.draw(made, Density.FULL, 60, 12))
    assert re.match(r" +SM +━+╸?─* +81 % tensor +44 %", busy)
    assert "SM active" not in others[0]
    assert "DRAM 52 %" in others[0]


def test_memory_that_is_shared_is_the_hosts() -> None:
    host = SimpleNamespace(memory_used_bytes=20 * GIB, memory_total_bytes=120 * GIB)
    device = dataclasses.replace(scenes.device(0), memory_is_shared=True)
    made = shown_device(device, scenes.training(0, 10), host_of=lambda _: host)
    assert re.match(
        r" +host +━.* 20.0 of 120 GiB", text_of(panel.draw(made, Density.FULL, 60, 5))[3]
    )


def test_heat_little_memory_and_a_fault_of_the_clock_are_coloured() -> None:
    bad: dict[str, Any] = {"temperature_celsius": 85, "memory_used_bytes": 79 << 30}
    bad["clock_event_reasons"] = ("hw_thermal",)
    for made, warned in ((h100(), []), (h100(**bad), ["79.0", "85", "HW"])):
        for rows in (in_rows(200, made), panel.draw(made, Density.FULL, 100, 12)):
            found = {
                re.split("[/° ]", s.text.strip())[0] for r in rows for s in r if s.style == WARN
            }
            assert sorted(found) == warned


@pytest.mark.parametrize("density", [Density.COMPACT, Density.FULL])
@pytest.mark.parametrize("width", [52, 60, 160])
def test_a_finding_and_a_word_have_a_row_of_their_own(density: Density, width: int) -> None:
    found = Finding(Severity.WARNING, "may be waiting for input", ())
    bound = BoundBy(Bound.INPUT, "its work has gaps")
    uuid, without = scenes.device(0).uuid, h100()
    judged = SimpleNamespace(bound_by={uuid: bound})
    both = with_known(judgement=judged, problems={uuid: found})
    before, after = (text_of(panel.draw(p, density, width, 12)) for p in (without, both))
    changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
    assert changed == [(before[1], after[1])]
    assert before[1].strip() == "bound by –"
    assert re.match(r" +bound by input +▲ May be waiting for", after[1])
    why = text_of(panel.draw(with_known(judgement=judged), density, width, 12))
    assert re.match(r" +bound by input +its work has gaps", why[1])


@pytest.mark.parametrize("state", [s for s in DeviceState if s is not DeviceState.OK])
def test_a_fault_takes_the_place_of_readings(state: DeviceState) -> None:
    made = shown_device(scenes.device(1), scenes.gone(1, state))
    for density, width in itertools.product((Density.COMPACT, Density.FULL), (52, 60, 120)):
        rows = panel.draw(made, density, width, density)
        assert [width_of(row) for row in rows] == [width] * density
        text = "\n".join(text_of(rows))
        assert "°C" not in text
        assert state.value.replace("_", " ").upper() in text
        assert text.count("`") % 2 == 0  # no command is cut
        if density is Density.FULL or (width >= 60 and state is not DeviceState.NEEDS_RESET):
            assert "…" not in text


def test_a_column_that_no_device_has_leaves_its_room_to_others() -> None:
    without_gpm = h100(**dict.fromkeys(GPM_READINGS), absent=dict.fromkeys(GPM_READINGS, NEVER))
    with_fan = h100(fan_percent=40, absent={})
    for devices, title, has in (
        ([h100()], "FAN", False),
        ([h100(), with_fan], "FAN", True),
        ([h100(), without_gpm], "TENSOR", True),
        ([without_gpm], "TENSOR", False),
    ):
        assert (title in text_of(in_rows(200, *devices))[0]) is has


def test_rows_and_their_heading_have_one_width(snapshot: Any) -> None:
    devices = [h100(fan_percent=40, absent={}), instance(), with_known(old_seconds=lambda _: 12.3)]
    devices.append(shown_device(scenes.device(1), scenes.gone(1)))
    for width in range(30, 260, 7):
        assert {width_of(row) for row in in_rows(width, *devices)} == {width}
    headings = [row for width in (40, 80, 120, 160, 300) for row in in_rows(width, *devices)[:1]]
    assert "\n".join(text_of([*headings, *in_rows(230, *devices)])) == snapshot


def test_compact_panels(snapshot: Any) -> None:
    made = h100(clock_event_reasons=("sw_power_cap",))
    found = [panel.draw(made, Density.COMPACT, width, 4) for width in (40, 62, 63, 120)]
    assert "\n".join(text_of([row for rows in found for row in rows])) == snapshot


@pytest.mark.parametrize(
    ("size", "devices", "expected"),
    [
        ((80, 20), 1, (Density.FULL, 1, 14)),
        ((80, 20), 3, (Density.COMPACT, 1, 4)),
        ((80, 20), 8, (Density.ROW, 1, 1)),
        ((120, 36), 2, (Density.FULL, 2, 26)),
        ((104, 36), 8, (Density.ROW, 1, 1)),
        ((105, 36), 8, (Density.FULL, 2, 6)),
        ((136, 30), 40, (Density.ROW, 1, 1)),
        ((137, 30), 40, (Density.ROW, 2, 1)),
        ((200, 120), 1, (Density.FULL, 1, 32)),
        ((200, 56), 4, (Density.FULL, 2, 20)),
        ((200, 56), 16, (Density.FULL, 3, 6)),
        ((212, 60), 21, (Density.FULL, 4, 7)),
    ],
)
def test_density_columns_and_height_for_a_space(
    size: tuple[int, int], devices: int, expected: tuple[Density, int, int]
) -> None:
    found = plan_layout(devices, *size)
    assert (found.density, found.columns, found.panel_height) == expected


@given(
    st.integers(1, 64),
    st.integers(20, 300),
    st.integers(4, 100),
    st.sampled_from([None, *Density]),
)
def test_panels_fit_the_width_and_a_choice_is_kept(
    devices: int, width: int, height: int, chosen: Density | None
) -> None:
    found = plan_layout(devices, width, height, chosen)
    assert found.columns * found.panel_width + (found.columns - 1) * GAP <= width
    assert found.panel_height >= found.density
    assert chosen is None or found.density is chosen
    heading = found.density is Density.ROW
    assert found.rows == -(-devices // found.columns) * found.panel_height + heading
    if chosen is None and not heading:
        assert found.rows + process_rows(height) <= height


def places(pilot: Pilot[None]) -> list[tuple[int, int]]:
    text = shown(pilot, DevicesView).splitlines()
    marks = re.compile(r"\d H100 80GB HBM3|bound by|busy")
    return [(y, found.start()) for y, line in enumerate(text) for found in marks.finditer(line)]


async def test_every_panel_stays_where_it_is_while_findings_come_and_go() -> None:
    async with settled(app_with(*scenes.job(8, 30)), (160, 50)) as (app, pilot):
        before = places(pilot)
        assert len(before) >= 8 * 3
        view = app.screen.query_one(DevicesView)
        right = [view.is_right(scenes.device(n).uuid) for n in range(4)]
        assert right == [False, True, False, True]
        dashboard = dashboard_of(app)
        for record in scenes.alarming(8)[-8:]:
            dashboard.telemetry.receive(record)
            dashboard.show()
            await settle(pilot)
            assert places(pilot) == before
        assert "▲ GPU 2: " in shown(pilot, Header)


async def test_a_double_click_on_a_device_opens_its_page_with_its_processes() -> None:
    async with settled(app_with(*scenes.job(2, 3)), (100, 30)) as (app, pilot):
        await pilot.click(DevicesView, offset=(5, 10), times=2)
        assert shown(pilot, DeviceTitle).startswith("1 H100")
        assert dashboard_of(app).tabs.shown == "page"
        for pid in (812_401, 812_400):
            listed = app.screen.query_one(DevicePage).query_one(ProcessesView)
            assert f" {pid} " in listed.text()
            await pilot.press("n")
        dashboard_of(app).telemetry.receive(sample(2, ()))
        dashboard_of(app).show()
        assert listed.text().rstrip() == "  No processes"
