"""Rules about the devices of one job: is one behind the others, is the load spread evenly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gputop.health import thresholds as t
from gputop.health.alerts import Severity
from gputop.health.device_view import Look, NoEvidence
from gputop.health.findings import Evidence, Said, unit_of
from gputop.text import percentage, size

if TYPE_CHECKING:
    from gputop.schema.snapshot import Process

BUSY, CLOCK, USED = "gpu_utilization_percent", "sm_clock_mhz", "memory_used_bytes"
POWER, TEMPERATURE = "power_watts", "temperature_celsius"


def find_peers(looks: Mapping[str, Look], of: Iterable[str]) -> None:
    """Tells each of these devices which others of its kind work on the same job."""
    whole = {uuid: look for uuid, look in looks.items() if look.device.parent_uuid is None}
    jobs: dict[tuple[str, object], dict[str, Look]] = defaultdict(dict)
    for uuid, look in whole.items():
        for process in look.processes:
            for key in _jobs(process):
                jobs[key][uuid] = look
    for uuid in whole.keys() & of:
        look = looks[uuid]
        peers: dict[str, Look] = {}
        for process in look.processes:
            for key in _jobs(process):
                peers |= jobs[key]
        look.peers = [
            each
            for each in peers.values()
            if each is not look and each.device.name == look.device.name
        ]


def _jobs(process: Process) -> Iterable[tuple[str, object]]:
    """What the processes of one job have in common."""
    yield "pid", process.pid
    if process.slurm_job is not None:
        yield "job", process.slurm_job
    elif process.parent_pid is not None and process.parent_pid > 1 and process.command:
        # A launcher starts the same program for each device; a shell starts different ones.
        program = " ".join(process.command.split()[:3])
        yield "launcher", (process.parent_pid, program)


def straggler(look: Look) -> Said | None:
    """Its clock is behind those of its peers, and they wait for it."""
    if not look.peers:
        return None
    busy = look.mean(look.activity)
    others = _median(look, look.activity)
    if not (look.passes(t.STRAGGLER_LOAD, busy) and look.passes(t.STRAGGLER_LOAD, others)):
        return None
    mine, theirs = look.mean(CLOCK), _median(look, CLOCK)
    if theirs <= 0:
        return None
    behind = 100 * (mine - theirs) / theirs
    if not look.passes(t.STRAGGLER, behind):
        return None
    evidence = [Evidence("SM clock, to theirs", CLOCK, behind, "%", look.span(t.WINDOW_SECONDS))]
    for label, name in (
        ("SM clock", CLOCK),
        ("power", POWER),
        ("busy", look.activity),
        ("temperature", TEMPERATURE),
    ):
        evidence += _beside(look, label, name)
    return Said(
        Severity.WARNING,
        f"May hold up its job: its SM clock is {percentage(-behind)} below {_peers(look)}",
        evidence,
        "The others wait for it at every step: look at its temperature, at what holds its clocks "
        "back, and at what else runs on it",
    )


def imbalance(look: Look) -> Said | None:
    """It holds more memory, or does less work, than its peers."""
    if not look.peers:
        return None
    total = look.sample.memory_total_bytes or look.device.memory_total_bytes
    memory, theirs = look.known(USED), _known_median(look, USED)
    busy, busy_of_others = look.known(look.activity), _known_median(look, look.activity)
    more = less = None
    if memory is not None and theirs is not None and total:
        more = 100 * (memory - theirs) / total
    if busy is not None and busy_of_others is not None:
        less = busy_of_others - busy
    if more is not None and look.passes(t.MORE_MEMORY, more):
        assert memory is not None
        assert theirs is not None
        return Said(
            Severity.INFORMATION,
            f"Holds {size(memory - theirs)} more memory than {_peers(look)}",
            [*_beside(look, "in use", USED), *_beside(look, "busy", look.activity)],
            "Its share of the work may be larger; look for what all ranks put on this device "
            "(cuda:0 by default)",
        )
    if less is not None and look.passes(t.LESS_BUSY, less):
        return Said(
            Severity.INFORMATION,
            f"Busy {percentage(busy)}, and {_peers(look)} {percentage(busy_of_others)}: "
            "work may be uneven",
            [*_beside(look, "busy", look.activity), *_beside(look, "in use", USED)],
            "Look at how work is split; in a pipeline at how its stages are cut",
        )
    if more is None and less is None:
        raise NoEvidence(USED)
    return None


def _peers(look: Look) -> str:
    many = len(look.peers)
    one = f"its peer (GPU {look.peers[0].device.label})"
    return f"the median of its {many} peers" if many > 1 else one


def _known_median(look: Look, name: str) -> float | None:
    medians: dict[str, float | None] = look.memo.setdefault("medians", {})
    if name not in medians:
        numbers = sorted(n for peer in look.peers if (n := peer.known(name)) is not None)
        half = len(numbers) // 2  # of an even number between the two in the middle
        medians[name] = (numbers[half] + numbers[-half - 1]) / 2 if numbers else None
    return medians[name]


def _median(look: Look, name: str) -> float:
    found = _known_median(look, name)
    if found is None:
        raise NoEvidence(name)
    return found


def _beside(look: Look, label: str, name: str) -> list[Evidence]:
    """Its mean, and the median of its peers."""
    theirs = _known_median(look, name)
    found = look.means(label, name)
    if found and theirs is not None:
        span = look.span(t.WINDOW_SECONDS)
        found.append(Evidence(f"{label}, its peers", name, theirs, unit_of(name), span))
    return found
