"""Several machines as one stream, some of them away: what the pictures of `--host` show."""

import dataclasses
from collections.abc import Mapping, Sequence

from gputop.agent.problem import Problem
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.stream.child import Interruption
from gputop.stream.merge import MachineStream, inventory_of, sample_of
from tests.streams import NOW
from tests.ui import scenes

REFUSED = "ssh: connect to host gpu-2 port 22: Connection refused"
NO_KEY = "ada@gpu-2: Permission denied (publickey,password)."


def died(errors: str, retry_seconds: float = 8.0, status: int = 255) -> Interruption:
    problem = Problem("The sampler stopped", errors, "")
    return Interruption(problem, retry_seconds=retry_seconds, status=status, errors=errors)


def named(records: Sequence[Record], hostname: str) -> list[Record]:
    return [
        dataclasses.replace(r, hostname=hostname) if isinstance(r, Inventory) else r
        for r in records
    ]


def merged(hosts: Mapping[str, Sequence[Record | Interruption]]) -> list[Record]:
    """Return the records that each of these hosts sends, a second apart, as one stream.

    An interruption in the place of a sample is when it goes; nothing is one that connects.
    """
    machines = {name: MachineStream(name, 0.0) for name in hosts}
    queues = {name: [*records] for name, records in hosts.items()}
    made: list[Record] = []
    last: Inventory | None = None
    tick = 0
    while not made or any(queues.values()):
        for name, queue in queues.items():
            while queue:
                record = queue.pop(0)
                machines[name].add_record(record, float(tick), NOW + tick)
                if isinstance(record, Sample | Interruption):
                    break
        inventory = inventory_of(machines.values(), 1.0, NOW)
        if inventory != last:
            made.append(last := inventory)
        made.append(sample_of(machines.values(), float(tick), NOW + tick))
        tick += 1
    return made


def two(away: str | None = REFUSED, devices: int = 2) -> list[Record]:
    """Two hosts with a job each; where `away` is said, the second said that some seconds ago."""
    first, second = (named(scenes.job(devices, 30), name) for name in ("gpu-1", "gpu-2"))
    if away is not None:
        return merged({"gpu-1": first, "gpu-2": [*second[:-12], died(away, 16.0)]})
    return merged({"gpu-1": first, "gpu-2": second})
