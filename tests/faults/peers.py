"""Faults of the driver on other monitors: `python -m tests.faults.peers [WORD ...]`.

Runs gputop, nvitop, gpustat and nvtop in a pty against the fake driver, and prints their screens
before a fault, while it lasts and after it: `docs/comparison.md` has what a person saw there. In
each state the first device has another utilization, so numbers that stand still are seen, too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.driver import DRIVER_NOT_LOADED, GPU_IS_LOST, FakeDriver, build
from tests.faults.scenario import three
from tests.peers import NAMES, Peer, peers
from tests.terminal import Terminal

ALL_BITS = (1 << 32) - 1
"""NVML's sign for "no number"."""
SECONDS = 6.0
"""Of each state: six intervals."""


@dataclass(frozen=True)
class Fault:
    """Changes of the second device or of the whole machine, which are taken back in the end."""

    device: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    at_start: bool = False


FAULTS = {
    "a GPU hangs": Fault({"hang": True}),
    "a GPU takes 0.5 s for a call": Fault({"delay_ms": 500}),
    "a GPU is lost": Fault({"code": GPU_IS_LOST}),
    "a GPU is lost at the start": Fault({"code": GPU_IS_LOST}, at_start=True),
    "all bits set": Fault(
        dict.fromkeys(
            ("gpu_utilization_percent", "temperature_celsius", "power_milliwatts"), ALL_BITS
        )
    ),
    "the driver crashes during a reading": Fault(machine={"crash": ("nvmlDeviceGetPowerUsage",)}),
    "no driver yet": Fault(machine={"init_code": DRIVER_NOT_LOADED}, at_start=True),
}


def show(peer: Peer, fault: Fault, driver: FakeDriver, home: Path) -> None:
    """Print the screens of a monitor."""
    no_machine = {"crash": (), "init_code": 0}

    def state(busy: int, broken: bool) -> None:
        first, second, third = three(os.getpid())
        first = replace(first, gpu_utilization_percent=busy)
        if broken:
            second = replace(second, **fault.device)
        driver.write(first, second, third, **no_machine | (fault.machine if broken else {}))

    peer.configure(home, 3, 40)
    state(11, fault.at_start)
    with Terminal(peer.command, peer.environment(driver, home), 120, 40) as terminal:
        for title, busy, broken in (
            ("at the start", 11, fault.at_start),
            ("with the fault", 22, True),
            ("after it", 33, False),
        ):
            state(busy, broken)
            terminal.collect(SECONDS)
            print(f"--- {peer}, {title}, first GPU {busy} %\n{terminal.text.rstrip()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", nargs="+", choices=NAMES, default=NAMES[:-1], metavar="NAME")
    parser.add_argument("words", nargs="*", metavar="WORD", help="of the names of faults")
    options = parser.parse_args()
    compiler = shutil.which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder, compiler)
        monitors = peers(folder, options.tools)
        for title, fault in FAULTS.items():
            if options.words and not any(word in title for word in options.words):
                continue
            print(f"\n=== {title}")
            for peer in monitors:
                home = Path(tempfile.mkdtemp(dir=folder))
                show(peer, fault, FakeDriver(home, library), home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
