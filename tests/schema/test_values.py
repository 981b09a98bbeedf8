from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.device import Device, DeviceSample
from gputop.output.pages import LOUD_RED, YELLOW, cell
from gputop.output.status_page import parse_columns
from gputop.schema.derived import gpus_text
from gputop.schema.values import degrees_to_slowdown, link_bytes, value_text
from gputop.ui.drawing.device_cells import heat_style
from gputop.ui.drawing.palette import TEXT, WARN
from tests import streams


@pytest.mark.parametrize(
    ("said", "degrees"),
    [
        ((89, 64, None, None), 25),
        ((89, 80, -2, 30), 9),  # the absolute threshold counts where there are both
        ((89, 90, None, None), -1),
        ((None, 64, None, 26), 26),
        ((None, 64, -2, 4), 6),
        ((None, 64, -2, 3), 5),
        ((None, None, -2, 20), 22),
        ((89, None, -2, 20), 22),
        ((None, 64, -2, None), None),
        ((None, None, None, None), None),
    ],
)
def test_degrees_to_the_slowdown_of_either_form_of_threshold_are_marked_alike(
    said: tuple[int | None, ...], degrees: int | None
) -> None:
    slowdown, celsius, slowdown_margin, margin = said
    device = Device(0, "GPU-0", "H100", temperature_slowdown_celsius=slowdown)
    device = replace(device, temperature_slowdown_margin_celsius=slowdown_margin)
    readings = DeviceSample("GPU-0", temperature_celsius=celsius, temperature_margin_celsius=margin)
    assert degrees_to_slowdown(device, readings) == degrees
    is_hot = degrees is not None and degrees <= 5
    assert heat_style(device, readings) is (WARN if is_hot else TEXT)
    if celsius is not None:
        (column,) = parse_columns("temp")
        warm = YELLOW if degrees is not None and degrees <= 15 else ""
        assert column.cell(device, readings) == cell(f"{celsius}°C", LOUD_RED if is_hot else warm)


CAP = "power cap (normal at full load)"
SECONDS = {"sw_thermal": 0.004, "sw_power_cap": 3725.0, "idle": 0.0}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("energy_joules", 999.6, "1.00 kJ"),
        ("energy_joules", 1.5e9, "1.50 GJ"),
        ("energy_joules", 2e15, "2000000 GJ"),
        ("clock_event_seconds", SECONDS, "power cap 1:02:05, software thermal slowdown 4 ms"),
        ("clock_event_seconds", {"sw_thermal": 0.9995}, "software thermal slowdown 1.0 s"),
        ("clock_event_seconds", {"sync_boost": 59.96}, "sync boost 1:00"),
        ("clock_event_seconds", {"sync_boost": 0.0001}, "sync boost 1 ms"),
        ("clock_event_seconds", {}, "none"),
        ("clock_event_reasons", ("sw_power_cap", "x" * 50), f"{CAP}, {'x' * 40}"),
        ("clock_event_reasons", (), "nothing"),
        (
            "nvlink_link_rx_bytes_per_second",
            (1 << 30, 1 << 30, None, 5),
            "0–1: 1.00 GiB/s, 2: down, 3: 5 B/s",
        ),
        ("fans_percent", (33, 44), "33 %, 44 %"),
        ("pci_device_id", "2330" * 20, f"0x{'2330' * 10}"),
        ("uuid", "x" * 300, "x" * 200),
        ("compute_mode", "exclusive_process", "exclusive process"),
        ("compute_mode", "x" * 50, "x" * 40),
        ("recovery_action", "x" * 50, "x" * 40),
        ("performance_state", 2, "P2"),
        ("power_watts", 301.25, "301 W"),
        ("ecc_enabled", False, "disabled"),
    ],
)
def test_a_value_has_its_unit(name: str, value: Any, text: str) -> None:
    assert value_text(name, value) == text


def test_gpus_are_counted_without_instances_and_with_those_left_out() -> None:
    assert gpus_text(streams.inventory(2)) == "2 GPUs"
    instance = streams.device(2, parent_uuid="GPU-9")
    devices = (*streams.inventory(2).devices, instance)
    inventory = streams.inventory(devices_left_out=6)
    assert gpus_text(replace(inventory, devices=devices)) == "2 of 8 GPUs"


def test_a_link_carries_what_its_generation_says() -> None:
    """10 bits a byte in generations 1 and 2, then 130 for 16, then 256 for 242 of 8 bits."""
    coding = {1: 2.5 / 10, 2: 5 / 10, 3: 8 / 8.125, 4: 16 / 8.125, 5: 32 / 8.125, 6: 8 * 242 / 256}
    for generation, gigabytes in coding.items():
        assert link_bytes(generation, 16) == pytest.approx(16e9 * gigabytes, rel=1e-3)
    assert (link_bytes(7, 16), link_bytes(4, 0), link_bytes(1, 1)) == (None, None, 250e6)
