"""What a process used in the last minutes: on several devices, with gaps, after its end."""

from __future__ import annotations

import math

from gputop.stream import process_history
from gputop.stream.process_history import ProcessHistory
from tests.streams import process


def test_numbers_of_several_devices_are_of_one_process() -> None:
    history = ProcessHistory()
    on_two = [
        process(1, 0, memory_used_bytes=4, sm_utilization_percent=None, cpu_percent=50.0),
        process(1, 1, memory_used_bytes=6, sm_utilization_percent=30, cpu_percent=50.0),
    ]
    history.add(on_two)
    expected = {"cpu_percent": [50.0], "memory_used_bytes": [10.0], "sm_utilization_percent": [30]}
    for name, numbers in expected.items():
        assert history.series(on_two[0], name) == numbers


def test_samples_without_the_process_are_gaps() -> None:
    history, held = ProcessHistory(), process(1, 0, cpu_percent=5.0)
    other = process(1, 0, start_time=1.0)
    for processes in ([], [held], [], [held, other], []):
        history.add(processes)
    series = history.series(held, "cpu_percent")
    assert [None if math.isnan(value) else value for value in series] == [5.0, None, 5.0, None]
    assert len(history.series(other, "cpu_percent")) == 2
    assert history.series(process(9, 0), "cpu_percent") == []


def test_it_is_bounded() -> None:
    history, held = ProcessHistory(), process(1, 0, cpu_percent=5.0)
    for _ in range(3 * process_history.CAPACITY):
        history.add([held])
    assert len(history.series(held, "cpu_percent")) <= 2 * process_history.CAPACITY
    history.add([process(n, 0) for n in range(2, process_history.MOST_PROCESSES + 2)])
    assert history.series(held, "cpu_percent") == []
