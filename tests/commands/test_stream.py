"""Where a stream goes: what a signal may interrupt, and what it may not."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from gputop.commands.stream import SIGNALS, Remarks, whole_records
from gputop.output.nvidia_smi import CsvLines, parse_apps_query
from tests import streams

if TYPE_CHECKING:
    from gputop.schema.snapshot import Record


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_waits_for_the_record_and_a_second_one_does_not(
    number: signal.Signals, times: int
) -> None:
    written: list[Record] = []
    before = signal.getsignal(number)

    def write(record: Record) -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)
        written.append(record)

    sample = streams.sample(1)
    with pytest.raises(KeyboardInterrupt), whole_records(write) as whole:
        whole(sample)
    assert written == [sample][: 2 - times]
    assert signal.getsignal(number) == before


def test_between_two_records_it_ends_at_once() -> None:
    written: list[Record] = []
    with whole_records(written.append) as whole:
        whole(streams.sample(1))
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert len(written) == 1


def test_devices_without_processes_are_devices() -> None:
    written: list[Record] = []
    form = CsvLines(parse_apps_query("pid"), apps=True)
    remarks = Remarks(form, written.append)
    for record, has_devices in (
        (streams.inventory(1), False),  # nothing was read yet
        (streams.sample(0), False),
        (streams.sample(1), True),
        (streams.sample(0), True),
    ):
        remarks.write(record)
        assert remarks.has_devices is has_devices
        assert written[-1] is record
