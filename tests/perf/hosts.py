"""What many hosts cost the dashboard: `python -m tests.perf.hosts [--hosts 64] [--away 0]`.

Each host sends a line every two seconds, as its agent does over ssh. Counted is the processor time
of one process from the lines to the drawn list, without ssh itself, as percent of one core.
"""

from __future__ import annotations

import argparse
import time

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Inventory
from gputop.schema.decode import decode
from gputop.stream.merge import MachineStream, inventory_of, sample_of
from gputop.ui.hosts.host_row import host_rows
from gputop.ui.hosts.screen import HostsTitle, HostsView
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests.streams import NOW
from tests.ui import fleets, scenes

INTERVAL_SECONDS = 2.0
WIDTH, HEIGHT = 160, 50


class Screen:
    """The dashboard's data and the views of its first page, without a terminal."""

    def __init__(self, hosts: int) -> None:
        self.machines = {f"node{n}": MachineStream(f"node{n}", 0.0) for n in range(hosts)}
        self.telemetry = Telemetry()
        self.title, self.hosts = HostsTitle(self.telemetry), HostsView()
        self.header = Header(self.telemetry)
        self.seconds: dict[str, float] = {}
        self._inventory: Inventory | None = None

    def count(self, name: str, began: float) -> float:
        """Add the processor time since `began` to what `name` took."""
        now = time.process_time()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - began
        return now

    def take(self, line: bytes, tick: int, away: int) -> None:
        """Read a line from each host that is not away."""
        now = float(tick) * INTERVAL_SECONDS
        for number, machine in enumerate(self.machines.values()):
            if number >= away:
                machine.add_record(decode(line), now, NOW + now)
            elif tick == 0:
                machine.add_record(fleets.died(fleets.NO_KEY), now, NOW)

    def merge(self, tick: int) -> None:
        streams, now = self.machines.values(), tick * INTERVAL_SECONDS
        inventory = inventory_of(streams, INTERVAL_SECONDS, NOW)
        if inventory != self._inventory:
            self._inventory = inventory
            self.telemetry.receive(inventory)
        merged = sample_of(streams, now, NOW + now)
        self.telemetry.receive(merged)

    def draw(self) -> None:
        self.header.draw(WIDTH, 3)
        self.title.rows = host_rows(self.telemetry)
        self.hosts.state.fill(self.title.rows)
        self.title.draw(WIDTH, 1)
        self.hosts.draw(WIDTH, HEIGHT)


def measure(hosts: int, devices: int, samples: int, away: int) -> None:
    sent = (to_line(record).encode() for record in scenes.job(devices, samples))
    inventory, *lines = sent
    screen = Screen(hosts)
    screen.take(inventory, 0, away)
    for tick, line in enumerate(lines):
        began = time.process_time()
        screen.take(line, tick, away)
        began = screen.count("read", began)
        screen.merge(tick)
        began = screen.count("merge", began)
        assert screen.telemetry.judgement is not None
        began = screen.count("judge", began)
        screen.draw()
        screen.count("draw", began)
    wall = len(lines) * INTERVAL_SECONDS
    print(f"{hosts} hosts × {devices} GPUs, {away} away, every {INTERVAL_SECONDS:g} s:")
    for name, seconds in (*screen.seconds.items(), ("all", sum(screen.seconds.values()))):
        print(f"{name:<8}{100 * seconds / wall:6.1f} % of a core")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--away", type=int, default=0)
    given = parser.parse_args()
    measure(given.hosts, given.gpus, given.samples, given.away)


if __name__ == "__main__":
    main()
