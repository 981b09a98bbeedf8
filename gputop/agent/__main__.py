"""The agent as a program: it writes this machine's stream to standard output.

`gputop stream` does the same with more options. Another machine runs this program.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from gputop.agent.options import AgentOptions
from gputop.agent.selection import parse_ids
from gputop.agent.sender import redirect_prints, run
from gputop.agent.times import LONGEST_INTERVAL, SHORTEST_INTERVAL

INTERRUPTED = 130


def parse(words: Sequence[str] | None = None) -> AgentOptions:
    """Return the options in these words, or those on the command line."""
    parser = argparse.ArgumentParser(
        prog="gputop.agent",
        description="Write snapshots of this machine as JSON lines.",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
    )
    parser.add_argument("--count", type=int, metavar="N")
    parser.add_argument("--demo", action="store_true")
    parser.add_argument("--no-gpm", dest="gpm", action="store_false")
    parser.add_argument("--control", action="store_true")
    parser.add_argument("--unmasked", dest="secrets", action="store_true")
    parser.add_argument(
        "--id",
        dest="ids",
        type=parse_ids,
        default=(),
        metavar="IDS",
    )
    parser.add_argument("--only-visible", action="store_true")
    options = AgentOptions(**vars(parser.parse_args(words)))
    if not SHORTEST_INTERVAL <= options.interval <= LONGEST_INTERVAL:
        limits = f"{SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g}"
        parser.error(f"--interval takes {limits} seconds")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Run the agent and end the process."""
    options = parse(words)
    redirect_prints()
    status = 0
    try:
        run(options)
    except KeyboardInterrupt:
        status = INTERRUPTED
    # A normal exit would wait for a reading thread that hangs in the driver.
    os._exit(status)


if __name__ == "__main__":
    main()
