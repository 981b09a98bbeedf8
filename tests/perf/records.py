"""Time to encode and decode a sample: `python -m tests.perf.records`."""

import time
import timeit
from collections.abc import Callable
from functools import partial

from gputop.agent.lines import to_line
from gputop.schema.decode import decode
from tests import streams

REPEATS = 25
CALLS = 10


def main() -> None:
    for devices, processes in ((8, 24), (64, 192), (64, 512)):
        sample = streams.sample(devices, streams.crowd(processes, devices))
        line = to_line(sample).encode()
        encoding = milliseconds(partial(to_line, sample))
        decoding = milliseconds(partial(decode, line))
        print(
            f"{devices:2} devices, {processes:3} processes: {len(line):7,} bytes, "
            f"encode {encoding:6.3f} ms, decode {decoding:6.3f} ms"
        )


def milliseconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, the least of many rounds."""
    rounds = timeit.repeat(call, number=CALLS, repeat=REPEATS, timer=time.process_time)
    return min(rounds) / CALLS * 1e3


if __name__ == "__main__":
    main()
