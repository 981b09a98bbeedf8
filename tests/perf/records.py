"""Cost of records: `python -m tests.perf.records [--hours 8]`.

Encoding and decoding of a sample of 8 and of 64 devices, as multiples of `json.loads` of the same
line in the same run. Then a recording of so many hours of 8 devices, one sample a second: seconds
of processor time to open it, to scan it, to seek in it, and to read its last sample.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.agent.lines import to_line
from gputop.recording.reader import Recording
from gputop.recording.writer import Recorder
from gputop.schema.decode import decode
from tests import streams

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.agent.snapshot import Sample

ROUNDS = 300


def sample_of(devices: int, moment: float = streams.NOW) -> Sample:
    """Make a sample with three processes on each device."""
    processes = [streams.process(4000 + n, n % devices) for n in range(3 * devices)]
    return dataclasses.replace(streams.sample(devices, processes), time=moment)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def usual(work: Callable[[], object]) -> float:
    """Return the median processor time of a call."""
    return statistics.median(seconds(work) for _ in range(ROUNDS))


def print_codec(devices: int) -> None:
    """Print what encoding and decoding cost."""
    sample = sample_of(devices)
    line = to_line(sample)
    unit = usual(lambda: json.loads(line))
    encode = usual(lambda: to_line(sample))
    decoded = usual(lambda: decode(line))
    print(
        f"{devices:2} devices, {len(line):,} bytes: encode {1e3 * encode:.3f} ms "
        f"({encode / unit:.2f} × json.loads), decode {1e3 * decoded:.3f} ms ({decoded / unit:.2f})"
    )


def first_two(recording: Recording, number: int) -> object:
    """Read the inventory that holds at a sample, and the sample."""
    return list(islice(recording.records(number), 2))


def print_recording(path: Path, hours: float) -> None:
    """Print what it costs to read a long recording."""
    recorder = Recorder(path)
    recorder.write(streams.inventory(8))
    for second in range(int(3600 * hours)):
        recorder.write(sample_of(8, streams.NOW + second))
    recorder.close()
    print(f"{hours:g} h of 8 devices: {path.stat().st_size / 1e6:.1f} MB")
    recording = Recording(path)
    print(f"open {seconds(lambda: Recording(path)):.3f} s, scan {seconds(recording.scan):.2f} s")
    last = len(recording.positions) - 1
    for number in (last, last // 2, 0):
        print(f"seek to {number}: {seconds(partial(first_two, recording, number)):.2f} s")
    print(f"last sample: {seconds(lambda: Recording(path).last()):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=8.0)
    arguments = parser.parse_args()
    for devices in (8, 64):
        print_codec(devices)
    with tempfile.TemporaryDirectory() as folder:
        print_recording(Path(folder) / "a.jsonl.gz", arguments.hours)


if __name__ == "__main__":
    main()
