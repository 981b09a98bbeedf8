"""Data of the page of hosts: one row per host, with its GPUs. Not a widget."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Machine, MachineState
from gputop.health.findings import Finding, Severity
from gputop.schema.derived import label_of
from gputop.text import ABSENT, count, percentage, quantity, used_of, visible
from gputop.ui.drawing.list_state import Column, ListState
from gputop.ui.telemetry import Telemetry
from gputop.ui.trouble import machine_trouble

MOST_BUSY_PERCENT, MOST_USED_SHARE = 5, 0.05
"""Limits of a free GPU. Contexts of a display or of a daemon may remain."""


class HostGpu(NamedTuple):
    """A GPU of a host, with its gravest finding."""

    device: Device
    readings: DeviceSample
    finding: Finding | None
    is_free: bool


class HostRow(NamedTuple):
    """A host and its GPUs."""

    machine: Machine
    gpus: tuple[HostGpu, ...]
    rank: Severity
    """Severity of the machine's trouble or of the gravest finding."""
    note: str
    """The gravest finding, or why the host is unreachable."""

    @property
    def is_away(self) -> bool:
        return self.machine.state is not MachineState.OK

    def values(self, name: str) -> list[float]:
        """Return the known values of that reading for its GPUs."""
        found = (getattr(gpu.readings, name) for gpu in self.gpus)
        return [value for value in found if value is not None]


def host_rows(telemetry: Telemetry) -> list[HostRow]:
    """Return a row for each host of the sample, in the order of the command line."""
    sample = telemetry.sample
    if sample is None:
        return []
    devices: dict[str | None, list[Device]] = {}
    parents = set()
    for device in telemetry.devices:
        devices.setdefault(device.machine, []).append(device)
        parents.add(device.parent_uuid)
    used = {process.device_uuid for process in sample.processes}
    problems = telemetry.problems
    rows = []
    for machine in sample.machines:
        gpus = []
        if machine.state is MachineState.OK:
            for device in devices.get(machine.name, []):
                readings = telemetry.readings(device.uuid)
                shared = device.uuid in used or device.uuid in parents
                free = not shared and is_free(readings)
                gpus.append(
                    HostGpu(device, readings, problems.get(device.uuid), free),
                )
        rank, note = Severity.OK, ""
        trouble = machine_trouble(telemetry, machine)
        if trouble is not None:
            rank, note = trouble.severity, trouble.what
        elif gpus:
            rank, note = _gravest(gpus)
        rows.append(HostRow(machine, tuple(gpus), rank, note))
    return rows


def is_free(readings: DeviceSample) -> bool:
    """Return True if a GPU has no listed processes and is known to be idle."""
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    busy = readings.gpu_utilization_percent
    if readings.state is not DeviceState.OK or "processes" in readings.absent:
        return False
    if used is None or not total or used > MOST_USED_SHARE * total:
        return False
    return busy is None or busy <= MOST_BUSY_PERCENT


def _gravest(gpus: Sequence[HostGpu]) -> tuple[Severity, str]:
    """Return the severity of the gravest finding of these GPUs, and a text about it."""
    found = [gpu for gpu in gpus if gpu.finding is not None]
    worst = max(gpus, key=_severity)
    if worst.finding is None:
        return Severity.OK, ""
    more = ""
    if len(found) > 1:
        more = f" (+{count(len(found) - 1, 'GPU')})"
    note = f"GPU {worst.device.number}: {worst.finding.title}{more}"
    return worst.finding.severity, note


def _severity(gpu: HostGpu) -> Severity:
    return Severity.OK if gpu.finding is None else gpu.finding.severity


def free_gpus(rows: Iterable[HostRow]) -> list[str]:
    """Return the labels of the free GPUs: `node1:0`."""
    return [
        label_of(gpu.device) for row in rows for gpu in row.gpus if gpu.is_free
    ]


def _of_gpus(
    name: str,
    summed_up: Callable[[list[float]], float],
) -> Callable[[HostRow], float | None]:
    """Return a function that combines the known readings of a host's GPUs."""

    def value(row: HostRow) -> float | None:
        values = row.values(name)
        return summed_up(values) if values else None

    return value


USED = _of_gpus("memory_used_bytes", sum)
TOTAL = _of_gpus("memory_total_bytes", sum)


def _known(row: HostRow, text: str) -> str:
    """Return the text, or nothing for an unreachable host, because its note says why."""
    if row.is_away and text == ABSENT:
        return ""
    return text


def _number(
    title: str,
    width: int,
    value: Callable[[HostRow], float | None],
    text: Callable[[float | None], str],
    about: str,
) -> Column[HostRow]:
    return Column(
        title,
        width,
        lambda row: _known(row, text(value(row))),
        value,
        largest_first=True,
        about=about,
    )


HOST = Column[HostRow](
    "HOST",
    16,
    lambda row: visible(row.machine.name),
    lambda row: row.machine.name,
    right=False,
    about="name as on the command line",
    most=24,
)
GPUS = Column[HostRow](
    "GPUS",
    8,
    lambda row: f"{len(row.gpus)}",
    lambda row: len(row.gpus),
    right=False,
    largest_first=True,
    about="a bar for the load of each GPU; ○ is free, × does not answer",
    most=16,
)
BUSY = _number(
    "BUSY",
    6,
    _of_gpus("gpu_utilization_percent", mean),
    percentage,
    "mean of its GPUs",
)
MEMORY = Column[HostRow](
    "GPU MEM",
    17,
    lambda row: _known(row, used_of(USED(row), TOTAL(row))),
    USED,
    largest_first=True,
    about="memory of its GPUs in use",
)
HEAT = _number(
    "HOT",
    6,
    _of_gpus("temperature_celsius", max),
    lambda value: quantity(value, "°C"),
    "its hottest GPU",
)
POWER = _number(
    "POWER",
    8,
    _of_gpus("power_watts", sum),
    lambda value: quantity(value, " W"),
    "power of its GPUs",
)
CPU = _number(
    "CPU",
    6,
    lambda row: row.machine.host.cpu_percent,
    percentage,
    "of the host",
)
WORST = Column[HostRow](
    "WORST FIRST",
    0,
    lambda row: row.note,
    lambda row: (row.rank, row.is_away),
    right=False,
    largest_first=True,
    about="its gravest finding, or why it is unreachable",
)
COLUMNS = (HOST, GPUS, BUSY, MEMORY, HEAT, POWER, CPU, WORST)
"""Columns in screen order."""
BY_USE = (HOST, GPUS, BUSY, HEAT, MEMORY, POWER, CPU)
"""Columns by usefulness. The last ones are dropped first."""


class HostTable(ListState[HostRow]):
    """List of hosts."""

    def __init__(self) -> None:
        super().__init__(WORST)

    def identity(self, item: HostRow) -> Hashable:
        return item.machine.name

    def search_text(self, item: HostRow) -> str:
        models = {gpu.device.name for gpu in item.gpus}
        texts: Mapping[str, None] = dict.fromkeys(
            (item.machine.name, item.note, *models),
        )
        return "\n".join(texts).casefold()
