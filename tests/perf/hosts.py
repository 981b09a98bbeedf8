"""What many hosts cost the dashboard: `python -m tests.perf.hosts [--hosts 64] [--away 0]`.

Each host sends a line every two seconds, as its agent does over ssh. Counted is the processor time
of one process from the lines to the drawn list, without ssh itself, as percent of one core.
"""

import argparse
import time
from collections import Counter

from gputop.agent.lines import to_line
from gputop.schema.decode import decode
from gputop.stream.merge import MachineStream, inventory_of, sample_of
from gputop.ui.hosts.host_row import host_rows
from gputop.ui.hosts.screen import HostsView, title_of
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests.streams import NOW
from tests.ui import fleets, scenes

INTERVAL_SECONDS = 2.0
WIDTH, HEIGHT = 160, 50


def measure(hosts: int, devices: int, samples: int, away: int) -> Counter[str]:
    """Return the processor seconds of each part. Hosts that are away have one error."""
    machines = [MachineStream(f"node{n}", 0.0) for n in range(hosts)]
    for machine in machines[:away]:
        machine.add_record(fleets.died(fleets.NO_KEY), 0.0, NOW)
    telemetry = Telemetry()
    view, header = HostsView(), Header(telemetry)
    spent: Counter[str] = Counter()
    began = time.process_time()

    def count(name: str) -> None:
        nonlocal began
        now = time.process_time()
        spent[name] += now - began  # type: ignore[assignment]
        began = now

    inventory, *lines = [to_line(record).encode() for record in scenes.job(devices, samples)]
    for machine in machines[away:]:
        machine.add_record(decode(inventory), 0.0, NOW)
    telemetry.receive(inventory_of(machines, INTERVAL_SECONDS, NOW))
    count("start")
    for tick, line in enumerate(lines):
        now = tick * INTERVAL_SECONDS
        for machine in machines[away:]:
            machine.add_record(decode(line), now, NOW + now)
        count("read")
        telemetry.receive(sample_of(machines, now, NOW + now))
        count("merge")
        assert telemetry.judgement is not None
        count("judge")
        header.draw(WIDTH, 3)
        rows = host_rows(telemetry)
        view.state.fill(rows)
        title_of(rows)
        view.draw(WIDTH, HEIGHT)
        count("draw")
    del spent["start"]
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--away", type=int, default=0)
    given = parser.parse_args()
    spent = measure(given.hosts, given.gpus, given.samples, given.away)
    wall = given.samples * INTERVAL_SECONDS
    print(f"{given.hosts} hosts × {given.gpus} GPUs, {given.away} away:")
    for name, seconds in (*spent.items(), ("all", spent.total())):
        print(f"{name:<8}{100 * seconds / wall:6.1f} % of a core")


if __name__ == "__main__":
    main()
