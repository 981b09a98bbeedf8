"""How the agent starts over ssh: `python -m tests.perf.agent_start`.

A real `sshd` on the loopback, whose hosts have no gputop and no driver. Prints the bytes on the
line until the first record, and the seconds to that, beside those of `ssh` with the command `true`.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gputop.agent.snapshot import Inventory
from gputop.stream.agent_archive import agent_archive, agent_input
from gputop.stream.launch import StreamOptions
from gputop.stream.machines import child_of
from gputop.stream.ssh import ssh_command
from tests.perf.slow_host import far_host

FAST = 1e9
"""Bytes a second that a relay in Python does not carry: nothing is held back."""
ALLOWED_SECONDS = 1.0
ALLOWED_BYTES = 150_000


async def first_record() -> float:
    """Start the agent, and return the seconds to its first record."""
    began = time.monotonic()
    child = child_of("far", None, StreamOptions(1.0))
    try:
        async with contextlib.aclosing(child.records()) as records:
            assert isinstance(await anext(records), Inventory)
            return time.monotonic() - began
    finally:
        await child.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    options = parser.parse_args()
    alone, agent, carried = [], [], []
    with (
        tempfile.TemporaryDirectory() as name,
        far_host(Path(name), FAST, 0.0) as (line, os.environ["PATH"]),
    ):
        for _ in range(options.times):
            began = time.monotonic()
            subprocess.run(ssh_command("far", ["true"]), check=True)
            alone.append(time.monotonic() - began)
            before = line.carried
            agent.append(asyncio.run(first_record()))
            carried.append(line.carried - before)
    more = statistics.median(agent) - statistics.median(alone)
    print(f"archive {len(agent_archive()):,} bytes, sent {len(agent_input()):,} bytes")
    print(f"on the line until the first record, both ways: {statistics.median(carried):,} bytes")
    print(f"ssh with `true`: {statistics.median(alone):.2f} s")
    print(f"first record of the agent: {statistics.median(agent):.2f} s, {more:.2f} s more")
    met = more <= ALLOWED_SECONDS and len(agent_input()) <= ALLOWED_BYTES
    print("met" if met else "missed")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
