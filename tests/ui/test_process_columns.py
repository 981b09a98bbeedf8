from typing import Any

import pytest

from gputop.agent.device import Absence
from gputop.text import ABSENT
from gputop.ui.drawing.list_view import GAP, MARK_WIDTH
from gputop.ui.processes import columns
from gputop.ui.processes.columns import COLUMNS, GPU, ProcessColumn, ProcessRow, process_slots
from gputop.ui.processes.table_state import process_rows
from tests.streams import device, process, sample, unseen


@pytest.mark.parametrize("sorted_by", COLUMNS, ids=lambda c: c.title)
def test_columns_fill_any_width_and_the_sorted_one_is_always_shown(
    sorted_by: ProcessColumn,
) -> None:
    for width in range(60, 251):
        slots = process_slots(width, sorted_by)
        assert MARK_WIDTH + sum(GAP + slot.cells for slot in slots) == width
        assert sorted_by in [slot.column for slot in slots]
        assert slots[-1].cells >= columns.LEAST_COMMAND


@pytest.mark.parametrize(
    ("column", "changes", "empty"),
    [
        (columns.CPU, {}, True),
        (columns.CPU, {"cpu_percent": 0.0}, False),
        (columns.CPU, {"absent": {"cpu_percent": Absence.NO_DATA_YET}}, False),
        (columns.CPU, {"absent": {"cpu_percent": Absence.NOT_SUPPORTED}}, True),
    ],
)
def test_a_column_is_empty_if_nothing_is_known_of_any(
    column: ProcessColumn, changes: dict[str, Any], empty: bool
) -> None:
    none = dict.fromkeys(("user", "start_time"))
    processes = [process(1, 0, **none), process(2, 0, **(none | changes))]
    assert column.is_empty([ProcessRow(each) for each in processes]) is empty


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0s"),
        (59.9, "59s"),
        (60.0, "1m"),
        (3599.0, "59m"),
        (3660.0, "1h01m"),
        (172_799.0, "47h59m"),
        (172_800.0, "2d00h"),
        (863_999.0, "9d23h"),
        (864_000.0, "10d"),
        (86_400.0 * 4000, "4000d"),
    ],
)
def test_an_age_in_six_cells(seconds: float, text: str) -> None:
    assert columns.process_age(seconds) == text
    assert len(text) <= columns.AGE.width


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"container": "9c1e0a7b12cd"}, "ctr 9c1e0a7b12cd"),
        ({"container": "9c1e0a7b12cd", "pod": "3f2a"}, "pod 3f2a"),
        ({"slurm_job": "\x1b[2J"}, "job ␛[2J"),
        ({"pod": "p" * 99}, "pod " + "p" * 60),
        ({"absent": {"container": Absence.NO_PERMISSION}}, ABSENT),
    ],
)
def test_where_a_process_runs(changes: dict[str, Any], text: str) -> None:
    assert columns.WHERE.text(ProcessRow(process(1, 0, **changes))) == text


def test_a_process_that_cannot_be_seen_says_why_and_what_to_do() -> None:
    remedies = {Absence.LOST: "try --pid=host", Absence.NO_PERMISSION: "run as its user or as root"}
    for reason, remedy in remedies.items():
        assert columns.command_of(unseen(77, 0, reason), 100).endswith(f": {remedy}")


def test_mig_instances_are_called_by_their_label() -> None:
    gpu = device(3)
    instance = device(3, uuid="MIG-1", parent_uuid=gpu.uuid, mig_index=1)
    known, unknown = process(1, 0, device_uuid="MIG-1"), process(2, 0, device_uuid="MIG-2")
    rows = process_rows([known, unknown], sample(), (gpu, instance))
    assert [GPU.text(row) for row in rows] == ["3:1", ABSENT]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/opt/env/bin/python train.py", "python train.py"),
        ("/a/folder/ and more", "/a/folder/ and more"),
        ("", ""),
        ("x" * 2000, "x" * 101),
    ],
)
def test_a_program_is_named_without_its_folder(command: str, shown: str) -> None:
    assert columns.command_of(process(1, 0, command=command), 100) == shown
