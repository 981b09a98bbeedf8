import csv
import dataclasses
import json

import pytest

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Inventory, Sample
from gputop.output.csv_lines import COLUMNS, CsvLines, parse_query
from tests import streams
from tests.output.test_public_output import INVENTORY, SAMPLE


def table(query: str, inventory: Inventory, sample: Sample) -> list[dict[str, str]]:
    lines = CsvLines(parse_query(query))
    assert not [*lines.lines_of(inventory)]
    return [*csv.DictReader(lines.lines_of(sample))]


def test_each_value_is_that_of_the_json() -> None:
    inventory, sample = json.loads(to_line(INVENTORY)), json.loads(to_line(SAMPLE))
    rows = table(",".join(COLUMNS), INVENTORY, SAMPLE)
    assert len(rows) == 2, "MIG instances have no line"
    for number, row in enumerate(rows):
        values = inventory["devices"][number] | sample["devices"][number]
        values["time"] = sample["time"]
        for name in COLUMNS:
            value = values.get(name)
            text = "" if value is None else value
            assert row[name] == (text if isinstance(text, str) else json.dumps(value)), name


def test_the_header_is_written_once() -> None:
    lines = CsvLines(parse_query("index, fan_percent"))
    records = (streams.inventory(1), streams.sample(1), streams.sample(1))
    written = [line for record in records for line in lines.lines_of(record)]
    assert written == ["index,fan_percent", "0,", "0,"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("index,memory_used", "There is no column 'memory_used'. Did you mean memory_used_bytes?"),
        ("serial", "There is no column 'serial'."),
        ("ecc.x", "There is no column 'ecc.x'. Names with dots are those of `nvidia-smi "),
        ("index,,name", "There is no column ''."),
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
        ('GPU "1"\n', 'GPU "1"␊'),
    ],
)
def test_no_field_is_a_formula(name: str, field: str) -> None:
    inventory, sample = streams.inventory(1), streams.sample(1)
    device = dataclasses.replace(inventory.devices[0], name=name)
    cold = dataclasses.replace(sample.devices[0], temperature_margin_celsius=-5)
    (row,) = table(
        "name,temperature_margin_celsius",
        dataclasses.replace(inventory, devices=(device,)),
        dataclasses.replace(sample, devices=(cold,)),
    )
    assert row == {"name": field, "temperature_margin_celsius": "-5"}
