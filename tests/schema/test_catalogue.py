import dataclasses
from typing import Any

import pytest
from prometheus_client import Metric

from gputop.agent import words
from gputop.agent.device import READINGS, SERIES_READINGS, Device
from gputop.agent.units import UNITS, limits_of
from gputop.fleet.queries import LIMITS, READ_AS
from gputop.output.prometheus.metrics import families
from gputop.output.prometheus.state import ExporterState
from gputop.output.status_page import COLUMNS, parse_columns
from gputop.schema.catalogue import CATALOGUE, RECOVERIES, VIRTUALIZATIONS, Reading
from gputop.schema.labels import LEGEND, ROWS
from gputop.schema.values import value_text
from tests.output.test_public_output import FULL, INVENTORY, SAMPLE

METRICS = [CATALOGUE[name] for name in READINGS if name not in SERIES_READINGS]
DEVICE = INVENTORY.devices[0]


def exported(*, dcgm: bool) -> dict[str, Metric]:
    follower = ExporterState(clock=lambda: 0.0)
    for record in (INVENTORY, SAMPLE):
        follower.add_record(record)
    return {each.samples[0].name: each for each in families(follower, dcgm=dcgm)}


OURS, DCGM = exported(dcgm=False), exported(dcgm=True)


def test_each_field_of_a_device_has_a_row() -> None:
    fields = {f.name for f in dataclasses.fields(Device)} - {"absent"}
    assert set(CATALOGUE) == ({*READINGS} | fields) - {*SERIES_READINGS}
    assert all(reading.name == name for name, reading in CATALOGUE.items())
    assert all(reading.label or reading.term for reading in CATALOGUE.values())


def test_each_word_of_the_agent_has_a_text() -> None:
    assert [*RECOVERIES] == [*words.RECOVERY_ACTIONS.values()]
    assert [*VIRTUALIZATIONS] == [*words.VIRTUALIZATIONS.values()]


@pytest.mark.parametrize("reading", CATALOGUE.values(), ids=CATALOGUE)
def test_each_is_shown(reading: Reading) -> None:
    (row,) = (row for row in ROWS if reading.name in row.names)
    value = getattr(FULL if reading.name in READINGS else DEVICE, reading.name)
    if value is not None:
        assert value_text(reading.name, value).split()[0] in row.text(DEVICE, FULL)
    column = COLUMNS.get(reading.name) or COLUMNS[row.names[0]]
    assert parse_columns(column.name) == (column,)


@pytest.mark.parametrize("reading", METRICS, ids=lambda reading: reading.name)
def test_each_is_exported_and_explained(reading: Reading) -> None:
    family = OURS[f"gputop_{reading.metric_name}"]
    assert family.documentation == reading.about != ""
    assert family.type == ("counter" if reading.is_counter else "gauge")
    assert any(each.labels["uuid"] == FULL.uuid for each in family.samples)
    if reading.dcgm[0]:
        assert DCGM[f"DCGM_FI_{reading.dcgm[0]}"].documentation == reading.dcgm[1] != ""


@pytest.mark.parametrize("name", READ_AS)
def test_the_fleet_reads_what_is_exported(name: str) -> None:
    value = float(getattr(FULL, name))
    for metric in READ_AS[name]:
        family = {**OURS, **DCGM}.get(metric.name)
        if family is not None and name != "gpu_utilization_percent":
            number = next(s.value for s in family.samples if FULL.uuid in s.labels.values())
            assert number * metric.factor == pytest.approx(value, rel=1e-3, abs=1 << 20)
    low, high = LIMITS[name]
    assert low < high


def test_units_are_the_endings_of_names() -> None:
    assert {reading.unit for reading in CATALOGUE.values()} == {*UNITS, ""}
    assert LEGEND["FP64/32/16 active"] == CATALOGUE["fp64_active_percent"].legend


def test_a_number_of_the_driver_that_cannot_be_is_none(snapshot: Any) -> None:
    assert "\n".join(f"{name}: {limits_of(name)}" for name in CATALOGUE) == snapshot
