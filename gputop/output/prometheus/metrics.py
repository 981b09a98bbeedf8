"""A stream as metrics of Prometheus, under gputop's names or those of dcgm-exporter.

Metrics are named after https://prometheus.io/docs/practices/naming, in base units: ratios from 0
to 1, hertz, bytes, watts, joules, seconds, degrees Celsius; counters end in `_total`. A missing
reading has no series; it is never 0.

DCGM's names, units and help texts are those of `etc/default-counters.csv` in dcgm-exporter, or else
of DCGM's field identifiers: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. Of the
default counters only the licence of virtual GPUs is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from gputop.agent.device import READINGS, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import DriverState, Inventory, Process, Sample
from gputop.health.conditions import XIDS
from gputop.health.findings import Finding
from gputop.health.judge import RULES
from gputop.output.prometheus.state import (
    ExporterState,
    Pods,
    XidCount,
    XidKey,
    holders_of,
)
from gputop.schema.catalogue import CATALOGUE, PROCESS_READINGS, Reading
from gputop.schema.clock_events import mask_of
from gputop.text import visible

Kind = Literal["gauge", "counter", "unknown"]
Labels = Mapping[str, str]
Part = tuple[Labels, float]
"""A number, with the labels that tell it from others."""
MOST_PROCESSES = 32
"""Processes of a device that are exported. Each is a series of each metric, new at each start."""
XID_HELP = "Value of the last XID error encountered."
_UP = "Whether the newest sample is recent and the driver answers: 1 or 0."
_INTERRUPTIONS = (
    "How often the sampler was started again, or a line of it could not be read."
)


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its series. No two of them have the same labels."""

    name: str
    """The name in a query, with `_total`."""
    help: str
    kind: Kind
    series: tuple[Part, ...]


class LabelledDevice(NamedTuple):
    """A device with its readings, and the labels of its series."""

    device: Device
    sample: DeviceSample
    labels: Labels
    pods: tuple[Labels, ...] = ()
    """Labels of the containers that hold it."""


def family(
    name: str, about: str, series: Iterable[Part], kind: Kind | None = None
) -> Family:
    """Make a family; of series with the same labels keep the first. `_total` means a counter."""
    kind = kind or ("counter" if name.endswith("_total") else "gauge")
    unique: dict[frozenset[tuple[str, str]], Part] = {}
    for part in series:
        unique.setdefault(frozenset(part[0].items()), part)
    return Family(name, about, kind, tuple(unique.values()))


def values_of(
    records: Iterable[tuple[Labels, DeviceSample | Process]], *names: str
) -> Iterator[tuple[Any, ...]]:
    """Yield labels and these fields of the records that have a value in all of them."""
    for labels, record in records:
        values = [getattr(record, name) for name in names]
        if None not in values and not record.absent.keys() & {*names}:
            yield labels, *values


def parts_of(reading: Reading, value: Any) -> Iterator[Part]:
    """Yield the numbers of a value of this reading, in base units.

    Each known word is a series: 1 if it applies, else 0. Words of later drivers have a series while
    they apply. Items of a list that are None have none.
    """
    convert, label = reading.base_unit, reading.part_label
    if reading.words:
        current = (value,) if isinstance(value, str) else value
        for name in dict.fromkeys((*reading.words, *current)):
            yield {label: visible(name, 200)}, float(name in current)
    elif isinstance(value, Mapping):
        yield from (
            ({label: visible(name, 200)}, number) for name, number in value.items()
        )
    elif isinstance(value, tuple):
        each = enumerate(value)
        yield from (
            ({label: str(n)}, convert(part)) for n, part in each if part is not None
        )
    else:
        yield {}, convert(value)


def families(
    state: ExporterState,
    now: float,
    *,
    processes: bool = False,
    dcgm: bool = False,
    pods: Pods = MappingProxyType({}),
) -> list[Family]:
    """Return the metrics at the monotonic time `now`; of a silent stream only that it is silent.

    With `dcgm` devices have the metrics of dcgm-exporter instead of ours.
    """
    current = state.current(now)
    up = current is not None and current[0].driver_state is DriverState.OK
    found = [
        family("gputop_up", _UP, [({}, float(up))]),
        family(
            "gputop_interruptions_total", _INTERRUPTIONS, [({}, state.interruptions)]
        ),
    ]
    if current is None:
        return found
    inventory, sample = current
    devices = _devices(inventory, sample, _dcgm_labels if dcgm else _labels, pods)
    held = [({**each.labels, **pod}, 1.0) for each in devices for pod in each.pods]
    found.append(
        family("gputop_device_pod", "A container that holds a device: always 1.", held)
    )
    if dcgm:
        found += _dcgm(devices, state.xids)
    else:
        found += [_info(inventory), *_states(devices, sample, now - state.received)]
        samples = [(each.labels, each.sample) for each in devices]
        found += [
            _measured(CATALOGUE[name], samples)
            for name in READINGS
            if name in CATALOGUE
        ]
        found += _xids(inventory, devices, state.xids)
        if state.begun is not None:
            found += _findings(devices, state.findings, state.begun)
    if processes:
        found += _processes(devices, inventory, sample)
    return [each for each in found if each.series]


def _devices(
    inventory: Inventory,
    sample: Sample,
    label: Callable[[Device, Inventory], Labels],
    pods: Pods,
) -> list[LabelledDevice]:
    known = {device.uuid: device for device in inventory.devices}
    found = []
    for device in known.values():
        readings, gpu = (
            sample.device(device.uuid),
            known.get(device.parent_uuid or "", device),
        )
        if readings is not None:
            held = tuple(
                _present(each._asdict(), 253) for each in holders_of(device, gpu, pods)
            )
            labels = {**label(device, inventory), **_common(held)}
            found.append(LabelledDevice(device, readings, labels, held))
    return found


def _common(labels: Sequence[Labels]) -> Labels:
    """Return the labels that all have. A sum over pods must not count a shared device twice."""
    common = set.intersection(*({*each.items()} for each in labels)) if labels else ()
    return dict(common)


def _labels(device: Device, inventory: Inventory) -> Labels:
    """Return the labels that identify a device; a MIG instance has those of its GPU, too."""
    labels = {
        "index": device.index,
        "uuid": device.uuid,
        "name": device.name,
        "host": inventory.hostname,
        "parent": device.parent_uuid,
        "mig_index": device.mig_index,
        "gpu_instance": device.mig_gpu_instance,
        "compute_instance": device.mig_compute_instance,
    }
    return {
        name: visible(str(value), 200)
        for name, value in labels.items()
        if value is not None
    }


def _info(inventory: Inventory) -> Family:
    labels = {
        "host": inventory.hostname,
        "source": inventory.source,
        "version": inventory.gputop_version,
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
    }
    about = "Versions, and whether the devices are simulated: always 1."
    return family("gputop_info", about, [(_present(labels), 1.0)])


def _present(labels: Mapping[str, str | None], limit: int = 200) -> dict[str, str]:
    return {name: visible(value, limit) for name, value in labels.items() if value}


def _states(
    devices: Sequence[LabelledDevice], sample: Sample, waited: float
) -> Iterator[Family]:
    """Yield what is known of a device even if it answers nothing."""
    names = ("pci_bus_id", "pci_device_id", "architecture", "compute_capability")
    identity = [
        (
            {
                **each.labels,
                **_present({name: getattr(each.device, name) for name in names}),
            },
            1.0,
        )
        for each in devices
    ]
    yield family("gputop_device_info", "What a device is: always 1.", identity)
    states = [
        ({**each.labels, "state": state}, float(each.sample.state is state))
        for each in devices
        for state in DeviceState
    ]
    about = "Whether a device answers: 1 for the state it is in, 0 for the others."
    yield family("gputop_device_state", about, states)
    known = values_of([(each.labels, each.sample) for each in devices], "age_seconds")
    ages = [(own, age + waited) for own, age in known]
    about = (
        "Age of a device's readings; of one that does not answer, how long it has not."
    )
    yield family("gputop_reading_age_seconds", about, ages)
    known = values_of(
        [(each.labels, each.sample) for each in devices], "slow_age_seconds"
    )
    ages = [(own, age + waited) for own, age in known]
    about = (
        "Age of the oldest of its readings that are read every second or every 10 s."
    )
    yield family("gputop_slow_reading_age_seconds", about, ages)
    listed = [
        (each.labels, float(len(_processes_on(each, sample))))
        for each in devices
        if "processes" not in each.sample.absent
    ]
    yield family("gputop_processes", "Processes on a device.", listed)


def _measured(
    reading: Reading,
    records: Iterable[tuple[Labels, DeviceSample | Process]],
    prefix: str = "",
) -> Family:
    series = (
        ({**labels, **more}, number)
        for labels, value in values_of(records, reading.name)
        for more, number in parts_of(reading, value)
    )
    return family(f"gputop_{prefix}{reading.metric_name}", reading.about, series)


def _xids(
    inventory: Inventory,
    devices: Sequence[LabelledDevice],
    counts: Mapping[XidKey, XidCount],
) -> Iterator[Family]:
    """Yield the XidCount of devices that are there, and those without a device.

    There is no series before the first of a code: an alert compares the last one with `time()`. The
    container that holds the device now is no label: it may have come after the Xid.
    """
    labels: dict[str | None, Labels] = {
        each.device.uuid: _labels(each.device, inventory) for each in devices
    }
    labels[None] = {"host": visible(inventory.hostname, 200)}
    known = [
        ({**labels[uuid], "code": "unknown" if code is None else str(code)}, xids)
        for (uuid, code), xids in counts.items()
        if uuid in labels
    ]
    about = "Xid errors that the driver reported since this exporter started."
    yield family(
        "gputop_xid_errors_total", about, [(k, float(x.times)) for k, x in known]
    )
    about = "When the last of them was reported, in Unix time."
    yield family(
        "gputop_xid_last_timestamp_seconds", about, [(k, x.last) for k, x in known]
    )


def _findings(
    devices: Sequence[LabelledDevice],
    findings: Sequence[Finding],
    begun: Mapping[tuple[str, str], int],
) -> Iterator[Family]:
    """Yield active findings, and counts of every rule from 0 on, as `increase` needs.

    A finding's sentence is no label, because it changes with every sample.
    """
    labels = {each.device.uuid: each.labels for each in devices}
    active = [
        (
            {
                **labels[found.device_uuid],
                "rule": found.rule,
                "severity": found.severity.word,
            },
            1.0,
        )
        for found in findings
        if found.device_uuid in labels
    ]
    about = "What slows a device down or is wrong with it now: always 1."
    yield family("gputop_finding_active", about, active)
    counts = [
        ({**own, "rule": rule.name}, float(begun.get((uuid, rule.name), 0)))
        for uuid, own in labels.items()
        for rule in RULES
    ]
    about = "How often a rule began to find something on a device, since this exporter started."
    yield family("gputop_findings_total", about, counts)


def _processes(
    devices: Sequence[LabelledDevice], inventory: Inventory, sample: Sample
) -> Iterator[Family]:
    """Yield the metrics of the processes with the most memory on each device.

    The kubelet does not say which pod a process is in, and /proc knows the uid of its pod alone. So
    it has the names of the pod that holds the device if only one has processes on it.
    """
    largest = []
    for each in devices:
        on_it = _processes_on(each, sample)
        names = _common(each.pods) if len({p.pod for p in on_it if p.pod}) == 1 else {}
        for process in nlargest(
            MOST_PROCESSES, on_it, key=lambda p: p.memory_used_bytes or 0
        ):
            labels = {**_labels(each.device, inventory), **_process_labels(process)}
            largest.append(({**labels, **(names if process.pod else {})}, process))
    return (_measured(reading, largest, "process_") for reading in PROCESS_READINGS)


def _processes_on(each: LabelledDevice, sample: Sample) -> list[Process]:
    return [
        process
        for process in sample.processes
        if process.device_uuid == each.device.uuid
    ]


def _process_labels(process: Process) -> Labels:
    """Return labels without the command line: it changes with every run, and may hold secrets."""
    program, _, _ = (process.command or "").partition(" ")
    labels = {
        "pid": str(process.pid),
        "user": process.user,
        "program": PurePosixPath(program).name,
        "container": process.container,
        "pod": process.pod,
        "slurm_job": process.slurm_job,
    }
    return _present(labels, 64)


def _dcgm(
    devices: Sequence[LabelledDevice], xids: Mapping[XidKey, XidCount]
) -> Iterator[Family]:
    """Yield the readings, and the last Xid of each GPU: 0 where there was none, as in DCGM."""
    labelled = [(each.labels, each.sample) for each in devices]
    for reading in CATALOGUE.values():
        name, about = reading.dcgm
        if name:
            is_mask = reading.name == "clock_event_reasons"
            convert = mask_of if is_mask else reading.dcgm_unit(name)
            series = [
                (own, float(convert(n))) for own, n in values_of(labelled, reading.name)
            ]
            kind: Kind = "counter" if reading.is_counter else "gauge"
            yield family(f"DCGM_FI_{name}", about, series, kind)
    remapped = values_of(labelled, "remapped_rows", "remapped_rows_uncorrected")
    corrected = [
        (own, float(every - uncorrected)) for own, every, uncorrected in remapped
    ]
    about = "Number of remapped rows for correctable errors"
    yield family("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", about, corrected, "counter")
    nvlink = values_of(
        labelled, "nvlink_rx_bytes_per_second", "nvlink_tx_bytes_per_second"
    )
    # DCGM calls it a counter, and gives MB per second: that is none.
    moved = [(own, (received + sent) / 1e6) for own, received, sent in nvlink]
    about = "Total number of NVLink bandwidth counters for all lanes."
    yield family("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", about, moved, "unknown")
    last = []
    for each in (each for each in devices if each.device.parent_uuid is None):
        own = [
            (x.last, code)
            for (of, code), x in xids.items()
            if of == each.device.uuid and code is not None
        ]
        _, code = max(own, default=(0.0, 0))
        words = (
            XIDS[code].what if code in XIDS else "Unknown Error" if code else "No Error"
        )
        last.append(
            ({**each.labels, "err_code": str(code), "err_msg": words}, float(code))
        )
    yield family("DCGM_FI_DEV_XID_ERRORS", XID_HELP, last)


def _dcgm_labels(device: Device, inventory: Inventory) -> Labels:
    """Return the labels of a GPU; a MIG instance adds its profile (`1g.10gb`) to those of its."""
    gpu = (
        inventory.device(device.parent_uuid) if device.parent_uuid is not None else None
    )
    gpu = gpu or device
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.name,
        "Hostname": inventory.hostname,
        "DCGM_FI_DRIVER_VERSION": inventory.driver_version,
    }
    if device.parent_uuid is not None:
        labels["GPU_I_PROFILE"] = device.name.rpartition("MIG ")[2]
        if device.mig_gpu_instance is not None:
            labels["GPU_I_ID"] = str(device.mig_gpu_instance)
    return _present(labels)
