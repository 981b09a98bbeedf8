from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.snapshot import Process, ProcessKind
from gputop.ui.processes import columns
from gputop.ui.processes.columns import COLUMNS, GPU, PID, ProcessColumn, ProcessRow
from gputop.ui.processes.table_state import ProcessTable, branches
from tests.streams import NOW, crowd, inventory, process, sample, unseen

FULL = process(
    *(9, 0),
    sm_utilization_percent=1,
    memory_utilization_percent=1,
    encoder_utilization_percent=0,
    decoder_utilization_percent=0,
    cpu_percent=0.0,
    memory_resident_bytes=1,
    container="9c1e0a",
)
"""A process with a value in every column."""


def table_of(*processes: Process, devices: int = 8) -> ProcessTable:
    table = ProcessTable()
    take(table, *processes, devices=devices)
    return table


def take(table: ProcessTable, *processes: Process, devices: int = 8) -> None:
    table.update(sample(0, processes), inventory(devices).devices)


def toggle_tree(table: ProcessTable) -> None:
    table.tree = not table.tree
    table.changed(order=False)


def pids(table: ProcessTable) -> list[int]:
    return [line.process.pid for line in table.lines]


def test_at_first_by_device_then_the_largest() -> None:
    small, large = process(1, 0, memory_used_bytes=5), process(2, 0, memory_used_bytes=9)
    unknown = process(3, 0, memory_used_bytes=None)
    other = process(4, 1, memory_used_bytes=99)
    nowhere = process(5, 0, device_uuid="GPU-gone", memory_used_bytes=999)
    assert pids(table_of(nowhere, other, unknown, small, large)) == [2, 1, 3, 4, 5]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.title)
@pytest.mark.parametrize("descending", [False, True])
def test_every_column_sorts_both_ways_with_what_is_unknown_last(
    column: ProcessColumn, descending: bool
) -> None:
    processes = crowd(200)
    table = table_of(*processes)
    if column is not GPU:
        table.sort_by(column)
    if table.descending != descending:
        table.sort_by(table.sorted_by)
    keys = [column.value(line) for line in table.lines]
    known = [key for key in keys if key is not None]
    assert len(keys) == len(processes)
    assert known == sorted(known, reverse=descending)
    assert keys == known + [None] * (len(keys) - len(known))


def titles(table: ProcessTable) -> list[str]:
    return [column.title for column in table.columns]


def test_columns_that_are_empty_for_all_are_left_out_and_never_the_sorted_one() -> None:
    table = table_of(process(1, 0), process(2, 0))
    assert titles(table) == ["GPU", "PID", "USER", "TYPE", "GPU MEM", "AGE", "COMMAND"]
    table.sort_by(columns.CPU)
    assert titles(table)[5:7] == ["CPU%", "AGE"]
    table.sort_by_next(-1)
    assert table.sorted_by is columns.GPU_MEMORY
    take(table, process(1, 0), FULL)
    assert titles(table) == [column.title for column in COLUMNS]
    assert titles(table_of(unseen(1, 0))) == ["GPU", "PID", "TYPE", "GPU MEM", "COMMAND"]


def test_the_next_column_goes_round_and_begins_with_its_own_direction() -> None:
    table = table_of(FULL)
    seen = []
    for _ in COLUMNS:
        table.sort_by_next(1)
        seen.append(table.sorted_by)
        assert table.descending == table.sorted_by.largest_first
    assert seen == [*COLUMNS[1:], GPU]
    table.sort_by_next(-1)
    assert table.sorted_by is COLUMNS[-1]
    table.sort_by(PID)
    table.sort_by(PID)
    assert table.descending


def test_a_filter_finds_by_everything_that_a_row_shows() -> None:
    where = {"container": "9c1e0a7b12cd", "slurm_job": "71524"}
    wanted = process(4242, 3, kind=ProcessKind.GRAPHICS, **where)
    other = process(5, 1, user="bob", command="sleep 8", pod="3f2a1b2c")
    table = table_of(wanted, other)
    words = "train.py|ADA train|4242|graphics|71524|gpu3|  --rank  3 |job ada|user:ada"
    words += "|user:carl,ADA pid:1,4242|pid:4242|kind:graphics,mps"
    for each in words.split("|"):
        table.set_filter(each)
        assert pids(table) == [4242], each
        assert table.total == 2
    table.set_filter("3f2a")
    assert pids(table) == [5]
    table.set_filter("")
    assert len(table.lines) == 2


def test_children_are_drawn_under_their_parents() -> None:
    table = table_of(
        process(1, 0, memory_used_bytes=9),
        process(2, 0, parent_pid=1, memory_used_bytes=8),
        process(3, 0, parent_pid=2, memory_used_bytes=7),
        process(4, 0, parent_pid=1, memory_used_bytes=6),
        process(5, 0, parent_pid=999, memory_used_bytes=5),
        process(6, 0, parent_pid=5, memory_used_bytes=4),
    )
    toggle_tree(table)
    drawn = [f"{line.branch}{line.process.pid}" for line in table.lines]
    assert drawn == ["1", "├─ 2", "│  └─ 3", "└─ 4", "5", "└─ 6"]
    table.sort_by(PID)
    table.sort_by(PID)
    drawn = [f"{line.branch}{line.process.pid}" for line in table.lines]
    assert drawn == ["5", "└─ 6", "1", "├─ 4", "└─ 2", "   └─ 3"]
    toggle_tree(table)
    assert {line.branch for line in table.lines} == {""}


LAUNCHED = {"parent_pid": 50, "parent_command": "/opt/bin/torchrun -n 2 train.py"}


def drawn_tree(*processes: Process) -> list[str]:
    table = table_of(*processes)
    toggle_tree(table)
    return [f"{row.branch}{row.process.pid}{'*' * row.is_parent}" for row in table.lines]


def test_a_tree_shows_the_launcher_that_uses_no_device() -> None:
    ranks = [process(n, n, **LAUNCHED) for n in (1, 2)]
    assert drawn_tree(*ranks) == ["50*", "├─ 1", "└─ 2"]
    assert drawn_tree(*ranks, process(50, 3)) == ["50", "├─ 1", "└─ 2"]
    in_shell = process(3, 0, parent_pid=51, parent_command="-bash")
    assert drawn_tree(in_shell) == ["3"]


family = st.lists(
    st.tuples(st.integers(1, 8), st.integers(0, 3), st.none() | st.integers(1, 8)), max_size=12
)


@given(family)
def test_a_tree_has_every_row_once_whatever_the_parents_are(
    drawn: list[tuple[int, int, int | None]],
) -> None:
    processes = [process(pid, index, parent_pid=parent) for pid, index, parent in drawn]
    lines = branches([ProcessRow(each) for each in processes])
    assert Counter(map(id, processes)) == Counter(id(line.process) for line in lines)
    path: list[int] = []
    for line in lines:
        depth = len(line.branch) // 3
        assert depth <= len(path)
        assert depth == 0 or path[depth - 1] == line.process.parent_pid
        path = [*path[:depth], line.process.pid]


def test_a_pid_that_is_used_again_is_another_process() -> None:
    first, second, again = process(5, 0), process(6, 0), process(5, 1, start_time=NOW)
    table = table_of(first, second)
    table.select(0)
    take(table, second, again)
    assert pids(table)[table.at] == second.pid
