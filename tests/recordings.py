"""Recordings for tests: short ones, with whatever gaps and events they are to have."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from gputop.agent.snapshot import Record, Sample
from gputop.recording.reader import Recording
from gputop.recording.writer import GrowingFile
from tests import streams


def samples(count: int, devices: int = 1, gaps: dict[int, float] | None = None) -> list[Sample]:
    """One a second; before those in `gaps` so many seconds more. Each says its number as busy."""
    made, time = [], streams.NOW
    for number in range(count):
        time += (gaps or {}).get(number, 0.0) + (number > 0)
        readings = (
            streams.readings(index, gpu_utilization_percent=number % 101)
            for index in range(devices)
        )
        sample = streams.sample(devices, time=time)
        made.append(dataclasses.replace(sample, devices=tuple(readings)))
    return made


def write(path: Path, made: Iterable[Record]) -> Path:
    file = GrowingFile(path)
    for record in made:
        file.write_record(record)
    file.close()
    return path


def make(path: Path, count: int, devices: int = 1, gaps: dict[int, float] | None = None) -> Path:
    return write(path, records(count, devices, gaps))


def records(count: int, devices: int = 1, gaps: dict[int, float] | None = None) -> list[Record]:
    return [streams.inventory(devices), *samples(count, devices, gaps)]


def numbers(played: Sequence[Record]) -> list[int | None]:
    return [r.devices[0].gpu_utilization_percent for r in played if isinstance(r, Sample)]


def scanned(path: Path) -> Recording:
    recording = Recording(path)
    while not recording.is_scanned:
        recording.scan_more()
    return recording
