"""Values of the schema: how far a temperature is from the threshold where the device slows down."""

from __future__ import annotations

import pytest

from gputop.agent.device import Device, DeviceSample
from gputop.output.pages import LOUD_RED, YELLOW, cell
from gputop.output.status_page import parse_columns
from gputop.schema.values import degrees_to_slowdown
from gputop.ui.drawing.device_cells import heat_style
from gputop.ui.drawing.palette import TEXT, WARN


@pytest.mark.parametrize(
    ("slowdown", "celsius", "slowdown_margin", "margin", "degrees"),
    [
        (89, 64, None, None, 25),
        (89, 80, -2, 30, 9),  # the absolute threshold counts where there are both
        (89, 90, None, None, -1),
        (None, 64, None, 26, 26),
        (None, 64, -2, 4, 6),
        (None, 64, -2, 3, 5),
        (None, None, -2, 20, 22),
        (89, None, -2, 20, 22),
        (None, 64, -2, None, None),
        (89, None, None, None, None),
        (None, None, None, None, None),
    ],
)
def test_degrees_to_the_slowdown_of_either_form_of_threshold_are_marked_alike(
    slowdown: int | None,
    celsius: int | None,
    slowdown_margin: int | None,
    margin: int | None,
    degrees: int | None,
) -> None:
    device = Device(
        0,
        "GPU-0",
        "H100",
        temperature_slowdown_celsius=slowdown,
        temperature_slowdown_margin_celsius=slowdown_margin,
    )
    readings = DeviceSample("GPU-0", temperature_celsius=celsius, temperature_margin_celsius=margin)
    assert degrees_to_slowdown(device, readings) == degrees
    is_hot = degrees is not None and degrees <= 5
    assert heat_style(device, readings) is (WARN if is_hot else TEXT)
    if celsius is not None:
        (column,) = parse_columns("temp")
        warm = YELLOW if degrees is not None and degrees <= 15 else ""
        assert column.cell(device, readings) == cell(f"{celsius}°C", LOUD_RED if is_hot else warm)
