"""The columns of the process table: which fit, and what they say."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.agent.device import Absence
from gputop.text import ABSENT
from gputop.ui.processes import columns
from gputop.ui.processes.columns import COLUMNS, GPU, ProcessColumn, ProcessContext, shown_columns
from tests.streams import NOW, device, process, unseen


def titles(width: int, sorted_by: ProcessColumn = GPU) -> list[str]:
    return [slot.column.title for slot in shown_columns(width, sorted_by)]


@pytest.mark.parametrize("sorted_by", COLUMNS, ids=lambda c: c.title)
def test_columns_fill_any_width_and_the_sorted_one_is_always_shown(
    sorted_by: ProcessColumn,
) -> None:
    for width in range(60, 251):
        slots = shown_columns(width, sorted_by)
        taken = columns.MARK_WIDTH + sum(columns.GAP + slot.cells for slot in slots)
        assert taken == width
        assert sorted_by in [slot.column for slot in slots]
        assert slots[-1].column.title == "COMMAND"
        assert slots[-1].cells >= columns.LEAST_COMMAND


def test_scrolled_to_the_right_each_column_is_seen_and_then_the_command_moves() -> None:
    titles = [column.title for column in COLUMNS]
    moving = titles[2:-1]
    for width in (60, 80, 120):
        for steps in range(1, 20):
            *shown, command = shown_columns(width, GPU, COLUMNS, steps)
            names = [slot.column.title for slot in shown]
            assert names[:2] == ["GPU", "PID"]
            rest = moving[steps:]
            assert names[2:] == rest[: len(names) - 2]
            assert len(names) > 2 or not rest
            assert command.column is columns.COMMAND
            assert command.skipped == max(0, steps - len(moving)) * columns.SIDE_CELLS
            taken = columns.MARK_WIDTH + sum(columns.GAP + s.cells for s in (*shown, command))
            assert taken == width


@pytest.mark.parametrize(
    ("column", "changes", "empty"),
    [
        (columns.CPU, {}, True),
        (columns.CPU, {"cpu_percent": 0.0}, False),
        (columns.CPU, {"absent": {"cpu_percent": Absence.NO_DATA_YET}}, False),
        (columns.CPU, {"absent": {"cpu_percent": Absence.NOT_SUPPORTED}}, True),
        (columns.WHERE, {}, True),
        (columns.WHERE, {"absent": {"pod": Absence.NO_PERMISSION}}, True),
        (columns.WHERE, {"slurm_job": "1"}, False),
        (columns.USER, {"user": None}, True),
        (columns.AGE, {"start_time": None}, True),
    ],
)
def test_a_column_is_empty_if_nothing_is_known_of_any(
    column: ProcessColumn, changes: dict[str, Any], empty: bool
) -> None:
    context = ProcessContext()
    none = dict.fromkeys(("user", "start_time"))
    processes = [process(1, 0, **none), process(2, 0, **(none | changes))]
    assert column.is_empty(processes, context) is empty


def test_the_least_telling_columns_give_way_first() -> None:
    assert titles(60) == ["GPU", "PID", "USER", "GPU MEM", "SM%", "COMMAND"]
    assert titles(200) == [column.title for column in COLUMNS]
    for width in range(60, 250):
        assert set(titles(width)) <= set(titles(width + 1))


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.title)
def test_a_title_has_room_with_its_arrow(column: ProcessColumn) -> None:
    assert column.width == 0 or len(column.title) + 1 <= column.width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3.0, "0s"),
        (0.4, "0s"),
        (59.9, "59s"),
        (60.0, "1m00s"),
        (599.0, "9m59s"),
        (600.0, "10m"),
        (3599.0, "59m"),
        (3600.0, "1h00m"),
        (35_999.0, "9h59m"),
        (36_000.0, "10h"),
        (172_799.0, "47h"),
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
        ({"container": "9c1e0a7b12cd", "slurm_job": "71524"}, "job 71524"),
        ({"slurm_job": "\x1b[2J"}, "job ␛[2J"),
        ({"absent": {"container": Absence.NO_PERMISSION}}, ABSENT),
    ],
)
def test_where_a_process_runs(changes: dict[str, Any], text: str) -> None:
    assert columns.WHERE.text(process(1, 0, **changes), ProcessContext()) == text


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [(Absence.LOST, "try --pid=host"), (Absence.NO_PERMISSION, "run as its user or root")],
)
def test_a_process_that_cannot_be_seen_says_why_and_what_to_do(
    reason: Absence, remedy: str
) -> None:
    text = columns.command_of(unseen(77, 0, reason), 100)
    assert text.endswith(f": {remedy}")


def test_mig_instances_are_called_by_their_label() -> None:
    gpu = device(3)
    instance = device(3, uuid="MIG-1", parent_uuid=gpu.uuid, mig_index=1)
    context = ProcessContext.for_sample(NOW, (gpu, instance))
    assert GPU.text(process(1, 0, device_uuid="MIG-1"), context) == "3:1"
    assert GPU.text(process(1, 0, device_uuid="MIG-2"), context) == ABSENT


@pytest.mark.parametrize(
    ("command", "room", "shown"),
    [
        ("/opt/env/bin/python train.py", 40, "/opt/env/bin/python train.py"),
        ("/opt/env/bin/python train.py", 28, "/opt/env/bin/python train.py"),
        ("/opt/env/bin/python train.py", 20, "python train.py "),
        ("/usr/lib/xorg/Xorg", 10, "Xorg "),
        ("/a/folder/ and more", 10, "/a/folder/ "),
        ("python /opt/train.py", 10, "python /opt"),
        ("./here/run --all", 8, "./here/ru"),
    ],
)
def test_a_program_loses_its_folder_where_there_is_no_room(
    command: str, room: int, shown: str
) -> None:
    told = columns.command_of(process(1, 0, command=command), room)
    assert told.strip() == shown.strip()[: room + 1]


def test_a_command_is_scrolled_behind_the_folder_that_it_lost() -> None:
    long = process(1, 0, command="/opt/env/bin/python train.py --rank 1")
    assert columns.command_of(long, 10, 7) == "train.py --"


USER_NAME = "alexandra.konstantinova"
"""23 characters."""


@pytest.mark.parametrize(
    ("width", "cells"), [(220, 23), (160, 17), (110, 18), (80, 12), (60, columns.USER.width)]
)
def test_a_long_name_gets_the_room_that_the_command_does_not_need(width: int, cells: int) -> None:
    named = process(7, 0, user=USER_NAME, command="python train.py " * 20)
    slots = shown_columns(width, GPU, longest=columns.longest_texts([named]))
    (user,) = (slot for slot in slots if slot.column is columns.USER)
    assert user.cells == cells
    taken = columns.MARK_WIDTH + sum(columns.GAP + slot.cells for slot in slots)
    assert taken == width


def test_short_names_take_no_more_room_than_before() -> None:
    short = columns.longest_texts([process(7, 0, user="ada")])
    for width in range(60, 251):
        assert shown_columns(width, GPU, longest=short) == shown_columns(width, GPU)


@pytest.mark.parametrize("user", ["x" * 5000, "名" * 40, "\x1b[2J" * 20, None])
def test_the_command_keeps_enough_room_whatever_a_name_is(user: str | None) -> None:
    longest = columns.longest_texts([process(7, 0, user=user, machine=user)])
    assert longest[columns.USER] <= 2 * columns.LONGEST_TEXT
    for width in range(60, 251):
        *_, command = shown_columns(width, GPU, longest=longest)
        *_, before = shown_columns(width, GPU)
        assert command.cells >= min(before.cells, max(columns.ENOUGH_COMMAND, width // 3))
