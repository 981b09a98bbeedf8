"""Data of the page of hosts: one row per host, with its GPUs. Not a widget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Machine, MachineState
from gputop.health.findings import Finding, Severity
from gputop.schema.derived import label_of
from gputop.text import count, percentage, quantity, used_of, visible
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


def host_rows(telemetry: Telemetry) -> list[HostRow]:
    """Return a row for each host of the sample, in the order of the command line."""
    sample = telemetry.sample
    if sample is None:
        return []
    # A GPU with MIG instances is shared.
    used = {process.device_uuid for process in sample.processes}
    used |= {device.parent_uuid or "" for device in telemetry.devices}
    problems = telemetry.problems
    gpus: dict[str | None, list[HostGpu]] = defaultdict(list)
    for device in telemetry.devices:
        uuid = device.uuid
        readings = telemetry.readings(uuid)
        free = uuid not in used and is_free(readings)
        gpu = HostGpu(device, readings, problems.get(uuid), free)
        gpus[device.machine].append(gpu)
    rows = []
    for machine in sample.machines:
        own: list[HostGpu] = []
        if machine.state is MachineState.OK:
            own = gpus[machine.name]
        rank, note = _gravest(own)
        trouble = machine_trouble(telemetry, machine)
        if trouble is not None:
            rank, note = trouble.severity, trouble.what
        rows.append(HostRow(machine, tuple(own), rank, note))
    return rows


def is_free(readings: DeviceSample) -> bool:
    """Return True if a GPU has no listed processes and is known to be idle."""
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    busy = readings.gpu_utilization_percent
    answers = readings.state is DeviceState.OK
    if not answers or "processes" in readings.absent or not total:
        return False
    if used is None or used > MOST_USED_SHARE * total:
        return False
    return busy is None or busy <= MOST_BUSY_PERCENT


def _gravest(gpus: Sequence[HostGpu]) -> tuple[Severity, str]:
    """Return the severity of the gravest finding of these GPUs, and a text about it."""
    found = [(gpu, gpu.finding) for gpu in gpus if gpu.finding is not None]
    if not found:
        return Severity.OK, ""
    gpu, worst = max(found, key=lambda pair: pair[1].severity)
    more = ""
    if len(found) > 1:
        more = f" (+{count(len(found) - 1, 'GPU')})"
    return worst.severity, f"GPU {gpu.device.number}: {worst.title}{more}"


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
        readings = [getattr(gpu.readings, name) for gpu in row.gpus]
        known = [reading for reading in readings if reading is not None]
        return summed_up(known) if known else None

    return value


USED = _of_gpus("memory_used_bytes", sum)
TOTAL = _of_gpus("memory_total_bytes", sum)


def _number(
    title: str,
    width: int,
    value: Callable[[HostRow], float | None],
    text: Callable[[float | None], str],
) -> Column[HostRow]:
    return Column(
        title,
        width,
        lambda row: text(value(row)),
        value,
        largest_first=True,
    )


HOST = Column[HostRow](
    "HOST",
    16,
    lambda row: visible(row.machine.name),
    lambda row: row.machine.name,
    right=False,
    most=24,
)
GPUS = Column[HostRow](
    "GPUS",
    8,
    lambda row: f"{len(row.gpus)}",
    lambda row: len(row.gpus),
    right=False,
    largest_first=True,
    most=16,
)
WORST = Column[HostRow](
    "WORST FIRST",
    0,
    lambda row: row.note,
    lambda row: row.rank,
    right=False,
    largest_first=True,
)
COLUMNS = (
    HOST,
    GPUS,
    _number(
        "BUSY",
        6,
        _of_gpus("gpu_utilization_percent", mean),
        percentage,
    ),
    _number(
        "HOT",
        6,
        _of_gpus("temperature_celsius", max),
        lambda value: quantity(value, "°C"),
    ),
    Column[HostRow](
        "GPU MEM",
        17,
        lambda row: used_of(USED(row), TOTAL(row)),
        USED,
        largest_first=True,
    ),
    _number(
        "POWER",
        8,
        _of_gpus("power_watts", sum),
        lambda value: quantity(value, " W"),
    ),
    _number(
        "CPU",
        6,
        lambda row: row.machine.host.cpu_percent,
        percentage,
    ),
    WORST,
)
"""Columns in screen order. The last ones before the finding are dropped first."""


class HostTable(ListState[HostRow]):
    """List of hosts."""

    def identity(self, item: HostRow) -> Hashable:
        return item.machine.name

    def search_text(self, item: HostRow) -> str:
        models = {gpu.device.name for gpu in item.gpus}
        texts = (item.machine.name, item.note, *models)
        return "\n".join(texts).casefold()
