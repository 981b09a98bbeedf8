"""CSV: titles and values, as nvidia-smi prints them or as the JSON has them, and missing ones."""

from __future__ import annotations

import dataclasses

import pytest

from gputop.agent.device import Absence, DeviceSample, DeviceState
from gputop.agent.snapshot import Sample
from gputop.output.csv_lines import CsvLines, parse_query
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
        (
            "index,,name",
            "'' is not a column. Give names such as index,utilization.gpu,memory.used.",
        ),
        ("a; rm -r b", "'a; rm -r b' is not a column. Give names such as "),
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
