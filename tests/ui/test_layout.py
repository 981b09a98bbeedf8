"""The space that devices and processes get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.ui.monitor.device_list import GAP, plan_layout, process_rows
from gputop.ui.monitor.panel import Density

SIZES = {"80x24": (80, 21), "120x40": (120, 37), "200x60": (200, 57)}
"""Columns and rows of the terminal, and what of it is the tab's."""


@pytest.mark.parametrize(
    ("size", "devices", "density", "columns"),
    [
        ("80x24", 1, Density.FULL, 1),
        ("80x24", 2, Density.FULL, 1),
        ("80x24", 4, Density.COMPACT, 1),
        ("80x24", 8, Density.ROW, 1),
        ("80x24", 16, Density.ROW, 1),
        ("120x40", 1, Density.FULL, 1),
        ("120x40", 2, Density.FULL, 2),
        ("120x40", 4, Density.FULL, 2),
        ("120x40", 8, Density.FULL, 2),
        ("120x40", 16, Density.ROW, 1),
        ("200x60", 1, Density.FULL, 1),
        ("200x60", 2, Density.FULL, 2),
        ("200x60", 4, Density.FULL, 2),
        ("200x60", 8, Density.FULL, 2),
        ("200x60", 16, Density.FULL, 3),
    ],
)
def test_the_usual_machines_on_the_usual_terminals(
    size: str, devices: int, density: Density, columns: int
) -> None:
    width, height = SIZES[size]
    found = plan_layout(devices, devices, width, height)
    assert (found.density, found.columns) == (density, columns)
    assert found.rows + 1 < height, "the process table has no room"


@given(
    st.integers(1, 64),
    st.integers(0, 200),
    st.integers(20, 300),
    st.integers(4, 100),
    st.sampled_from([None, *Density]),
)
def test_panels_fit_the_width_and_a_choice_is_kept(
    devices: int, processes: int, width: int, height: int, chosen: Density | None
) -> None:
    found = plan_layout(devices, processes, width, height, chosen)
    assert found.columns * found.panel_width + (found.columns - 1) * GAP <= width
    assert found.panel_height >= found.density
    assert chosen is None or found.density is chosen
    heading = found.density is Density.ROW
    assert found.rows == -(-devices // found.columns) * found.panel_height + heading


@pytest.mark.parametrize(
    ("size", "devices", "processes", "height"),
    [
        ("80x24", 1, 1, 19),
        ("120x40", 1, 2, 32),
        ("120x40", 2, 8, 28),
        ("120x40", 2, 40, 23),
        ("120x40", 4, 4, 16),
        ("200x60", 4, 4, 26),
        ("200x60", 8, 9, 11),
    ],
)
def test_panels_take_the_room_that_processes_leave(
    size: str, devices: int, processes: int, height: int
) -> None:
    assert plan_layout(devices, processes, *SIZES[size]).panel_height == height


@given(st.integers(1, 64), st.integers(0, 300), st.sampled_from([*SIZES]))
def test_processes_have_what_they_need_up_to_a_share(
    devices: int, processes: int, size: str
) -> None:
    _, height = SIZES[size]
    rows = process_rows(processes, height)
    assert rows <= max(3, 0.4 * height)
    assert rows == processes + 1 or rows >= 0.4 * height - 1 or processes == 0
    found = plan_layout(devices, processes, *SIZES[size])
    if found.density is not Density.ROW:
        assert found.rows + rows <= height


def test_eight_gpus_leave_ten_processes() -> None:
    found = plan_layout(8, 10, 120, 36)
    assert (found.density, found.panel_height) == (Density.FULL, 6)
    assert 36 - found.rows >= 11
