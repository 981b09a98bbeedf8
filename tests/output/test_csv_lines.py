"""CSV: titles and values, as nvidia-smi prints them or as the JSON has them, and missing ones."""

from __future__ import annotations

import dataclasses

import pytest

from gputop.agent.device import Absence, DeviceSample, DeviceState
from gputop.agent.lines import to_line
from gputop.agent.snapshot import Sample
from gputop.output.csv_lines import DEFAULT_QUERY, CsvLines, parse_query
from gputop.schema.decode import decode
from gputop.schema.values import value_text
from tests import streams


def printed(query: str, *, devices: int = 1, **changes: object) -> list[str]:
    """All lines of one sample."""
    csv = CsvLines(parse_query(query), **changes)  # type: ignore[arg-type]
    records = (streams.inventory(devices), streams.sample(devices))
    return [line for record in records for line in csv.lines_of(record)]


def test_without_header_and_units() -> None:
    query = "index,utilization.gpu,memory.used,power.draw,fan.speed"
    assert printed(query, units=False) == [
        "index, utilization.gpu [%], memory.used [MiB], power.draw [W], fan.speed [%]",
        "0, 97, 3072, 100.00, [N/A]",
    ]
    assert printed(query, header=False) == ["0, 97 %, 3072 MiB, 100.00 W, [N/A]"]


@pytest.mark.parametrize(
    ("absence", "state", "text"),
    [
        (Absence.NOT_SUPPORTED, DeviceState.OK, "[N/A]"),
        (Absence.DISABLED, DeviceState.OK, "[N/A]"),
        (Absence.NO_DATA_YET, DeviceState.OK, "[N/A]"),
        (Absence.NO_PERMISSION, DeviceState.OK, "[Insufficient Permissions]"),
        (Absence.LOST, DeviceState.LOST, "[GPU is lost]"),
        (Absence.TIMED_OUT, DeviceState.NOT_RESPONDING, "[Unknown Error]"),
        (Absence.ERROR, DeviceState.OK, "[Unknown Error]"),
        (Absence.LOST, DeviceState.NEEDS_RESET, "[GPU requires reset]"),
    ],
)
def test_what_is_missing(absence: Absence, state: DeviceState, text: str) -> None:
    csv = CsvLines(parse_query("index,utilization.gpu,memory.used"), header=False)
    names = ("gpu_utilization_percent", "memory_used_bytes")
    lost = DeviceSample(streams.device(0).uuid, state, absent=dict.fromkeys(names, absence))
    records = (streams.inventory(1), _with(lost))
    assert [line for record in records for line in csv.lines_of(record)] == [f"0, {text}, {text}"]


def _with(readings: DeviceSample) -> Sample:
    return dataclasses.replace(streams.sample(1), devices=(readings,))


def test_a_recording_with_the_words_of_gputop_0_1() -> None:
    """It had names for two bits that nvml.h does not name."""
    old = streams.readings(0, clock_event_reasons=("sw_power_cap", "board_limit", "reliability"))
    sample = decode(to_line(_with(old)))
    assert isinstance(sample, Sample)
    csv = CsvLines(parse_query("clocks_event_reasons.active"), header=False)
    list(csv.lines_of(streams.inventory(1)))
    assert list(csv.lines_of(sample)) == ["0x0000000000000604"]
    text = value_text("clock_event_reasons", sample.devices[0].clock_event_reasons)
    assert text == "power cap (normal at full load), board limit, reliability voltage"


OWN = {
    "gpu_utilization_percent": (streams.readings(0).gpu_utilization_percent, "97"),
    "memory_used_bytes": (3 << 30, "3221225472"),
    "power_watts": (100.12345, "100.123"),
    "remap_pending": (False, "false"),
    "nvlink_link_rx_bytes_per_second": ((5, None, 0), "5 [N/A] 0"),
    "clock_event_reasons": (("sw_power_cap", "bit_0x400"), "sw_power_cap bit_0x400"),
    "clock_event_seconds": ({"sw_power_cap": 5.0, "idle": 0.25}, "sw_power_cap=5.0 idle=0.25"),
    "sm_active_percent": (None, "[N/A]"),
}
"""A value of each kind of the JSON, and its field of CSV."""


def test_a_reading_under_its_own_name_is_the_value_of_the_json() -> None:
    readings = {name: value for name, (value, _) in OWN.items()}
    csv = CsvLines(parse_query(",".join(OWN)))
    list(csv.lines_of(streams.inventory(1)))
    header, row = csv.lines_of(_with(streams.readings(0, **readings)))
    assert header == ", ".join(OWN)
    assert row == ", ".join(text for _, text in OWN.values())


def test_profiling_counters_are_read_only_for_their_columns() -> None:
    assert CsvLines(parse_query("index,sm_active_percent")).needs_gpm
    assert not CsvLines(parse_query(DEFAULT_QUERY)).needs_gpm


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("utilisation.gpu", "There is no column utilisation.gpu. Did you mean utilization.gpu? "),
        ("index,memory_used", "There is no column memory_used. Did you mean memory_used_bytes?"),
        ("power", "There is no column power. Did you mean power_watts?"),
        ("clocks.smm", "There is no column clocks.smm. Did you mean clocks.sm? `nvidia-smi "),
        ("serial", "There is no column serial. `nvidia-smi --query-gpu=serial` may have it."),
        (
            "fabric.state",
            "There is no column fabric.state. `nvidia-smi --query-gpu=fabric.state` may have it.",
        ),
        ("index,,name", "'' is no column. Give names such as index,utilization.gpu,memory.used."),
        ("a; rm -r b", "'a; rm -r b' is no column. Give names such as "),
    ],
)
def test_an_unknown_name_has_a_remedy(query: str, message: str) -> None:
    with pytest.raises(ValueError, match="column") as error:
        parse_query(query)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("\t@SUM(A1)", "'␉@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("GPU,=1+1", "GPU,'=1+1"),
        ("GPU;-1+1", "GPU;'-1+1"),
    ],
)
def test_no_field_is_a_formula(name: str, field: str) -> None:
    inventory = streams.inventory(1)
    device = dataclasses.replace(inventory.devices[0], name=name)
    lines = CsvLines(parse_query("index,name,temperature.gpu.tlimit"), header=False)
    assert not [*lines.lines_of(dataclasses.replace(inventory, devices=(device,)))]
    sample = streams.sample(1)
    cold = dataclasses.replace(sample.devices[0], temperature_margin_celsius=-5)
    (row,) = lines.lines_of(dataclasses.replace(sample, devices=(cold,)))
    assert row == f"0, {field}, -5"
