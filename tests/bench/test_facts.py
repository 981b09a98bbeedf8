"""The conditions of a run in words."""

from __future__ import annotations

from dataclasses import replace

from gputop.bench.events import Comparison, Conditions, Point
from gputop.bench.results.facts import best_row_text, condition_facts, verdict
from tests.bench.kept import BASE, table

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


def test_the_headline_of_copies_is_of_the_largest_size() -> None:
    rates = {1 << 20: 119e9, 1 << 30: 23e9}
    points = tuple(
        Point("host, 1 thread", float(size), {"bytes_per_second": rate})
        for size, rate in rates.items()
    )
    assert best_row_text(table("copy", points)) == "host, 1 thread: 23.0 GB/s"


def test_the_column_of_the_verdict_is_about_the_worst_row() -> None:
    slower = (
        "a: 40 GB/s is 8.1 % under the 43.5 GB/s that is usual (limit 3.0 %); b: 40 GB/s is 20.4 % "
        "under the 50.2 GB/s that is usual (limit 3.0 %), the median of its last 5 like runs"
    )
    result = table("copy", (), comparison=Comparison(-2.0, slower, 5))
    assert verdict(result) == "20 % under"
    assert verdict(replace(BASE, comparison=Comparison(9.7, "slower", 5))) == "10 % under"
