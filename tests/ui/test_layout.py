"""The space that devices and processes get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.ui.monitor.layout import GAP, Density, plan_layout, process_rows

SIZES = {"80x24": (80, 20), "120x40": (120, 36), "160x50": (160, 46), "200x60": (200, 56)}
"""Columns and rows of the terminal, and what of it is the tab's."""


@pytest.mark.parametrize(
    ("size", "devices", "density", "columns", "height"),
    [
        ("80x24", 1, Density.FULL, 1, 14),
        ("80x24", 2, Density.FULL, 1, 7),
        ("80x24", 3, Density.COMPACT, 1, 4),
        ("80x24", 8, Density.ROW, 1, 1),
        ("120x40", 1, Density.FULL, 1, 26),
        ("120x40", 2, Density.FULL, 2, 26),
        ("120x40", 4, Density.FULL, 2, 13),
        ("120x40", 8, Density.FULL, 2, 6),
        ("120x40", 16, Density.ROW, 1, 1),
        ("160x50", 8, Density.FULL, 2, 8),
        ("160x50", 64, Density.ROW, 2, 1),
        ("200x60", 1, Density.FULL, 1, 32),
        ("200x60", 4, Density.FULL, 2, 20),
        ("200x60", 16, Density.FULL, 3, 6),
        ("200x60", 64, Density.ROW, 2, 1),
    ],
)
def test_the_usual_machines_on_the_usual_terminals(
    size: str, devices: int, density: Density, columns: int, height: int
) -> None:
    found = plan_layout([devices], *SIZES[size])
    assert (found.density, found.columns, found.panel_height) == (density, columns, height)


@given(
    st.integers(1, 64),
    st.integers(20, 300),
    st.integers(4, 100),
    st.sampled_from([None, *Density]),
)
def test_panels_fit_the_width_and_a_choice_is_kept(
    devices: int, width: int, height: int, chosen: Density | None
) -> None:
    found = plan_layout([devices], width, height, chosen)
    assert found.columns * found.panel_width + (found.columns - 1) * GAP <= width
    assert found.panel_height >= found.density
    assert chosen is None or found.density is chosen
    heading = found.density is Density.ROW
    assert found.rows == -(-devices // found.columns) * found.panel_height + heading
    if chosen is None and not heading:
        assert found.rows + process_rows(height) <= height
