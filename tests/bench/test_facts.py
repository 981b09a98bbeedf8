"""The conditions of a run in words."""

from __future__ import annotations

from gputop.bench.events import Conditions
from gputop.bench.results.facts import condition_facts

FULL = Conditions(
    driver_version="580.65.06",
    pci_device_id="2330",
    power_watts_mean=655.4,
    power_limit_watts=700.0,
    sm_clock_mhz_mean=1755.2,
    sm_clock_max_mhz=1980.0,
    temperature_celsius_max=71.0,
    heat_limit="84°C (slowdown at 87°C)\x1b",
    energy_joules=40_800.0,
    tflop_per_joule=1.0294,
    clock_event_seconds={"sw_thermal": 6.0, "sw_power_cap": 54.0, "bit_0x1\x1b": 0.5},
)


def test_all_that_is_known_is_said() -> None:
    assert list(condition_facts(FULL)) == [
        ("power", "655 W on average, 94 % of the limit of 700 W"),
        ("energy", "40.8 kJ by the device's counter, 1.03 TFLOP/J"),
        ("clock", "1755 MHz on average, maximum 1980 MHz"),
        ("heat", "up to 71°C"),
        ("heat limit", "84°C (slowdown at 87°C)␛"),
        ("held back", "power cap 54.0 s, software thermal slowdown 6.0 s, bit_0x1␛ 500 ms"),
        ("driver", "580.65.06"),
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert list(condition_facts(None)) == []
    assert list(condition_facts(Conditions())) == []
    cpu = Conditions(sm_clock_mhz_mean=3100.0, temperature_celsius_max=64.0)
    assert [row for row, _ in condition_facts(cpu)] == ["clock", "heat"]
    assert list(condition_facts(Conditions(power_watts_mean=70.0, energy_joules=700.0))) == [
        ("power", "70 W on average"),
        ("energy", "700 J by the device's counter"),
    ]
