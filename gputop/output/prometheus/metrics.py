"""A stream as metrics of Prometheus: what is missing has no series, and never is 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gputop.health.judge import RULES
from gputop.output.prometheus.dcgm import dcgm_families
from gputop.output.prometheus.family import Family, Labels, Read, family, series_of, word
from gputop.output.prometheus.names import METRICS, PROCESS_METRICS, Metric
from gputop.schema.snapshot import Device, DeviceState, DriverState, Inventory, Process, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputop.health.findings import Finding
    from gputop.health.judge import ActiveFindings
    from gputop.schema.snapshot import DeviceSample
    from gputop.stream.latest import Latest

MOST_PROCESSES = 32
"""On each device: every process is a series of each metric, and a new one each time it starts."""


def families(
    latest: Latest,
    now: float,
    active: ActiveFindings | None = None,
    *,
    processes: bool = False,
    dcgm: bool = False,
) -> list[Family]:
    """What is known at that monotonic time; of a stream that is silent, that it is.

    `active` has what the rules find, if they are asked. With `dcgm` devices have the metrics of
    dcgm-exporter instead of ours.
    """
    current = latest.current(now)
    up = current is not None and current[0].driver_state is DriverState.OK
    found = [
        family("gputop_up", _UP, [({}, float(up))]),
        family("gputop_interruptions_total", _INTERRUPTIONS, [({}, latest.interruptions)]),
    ]
    if current is None:
        return found
    inventory, sample = current
    read = _read(inventory, sample)
    if dcgm:
        found += dcgm_families(inventory, read, latest.xids)
    else:
        found += [_info(inventory), *_devices(read, sample, now - latest.received)]
        samples = [(each.labels, each.sample) for each in read]
        found += [_measured(name, metric, samples) for name, metric in METRICS.items()]
        found += _xids(inventory, read, latest)
        if active is not None:
            found += _findings(read, active)
    if processes:
        found += _processes(read, sample)
    return [each for each in found if each.series]


_UP = "Whether the newest sample is recent and the driver answers: 1 or 0."
_INTERRUPTIONS = "How often the sampler was started again, or a line of it could not be read."


def _read(inventory: Inventory, sample: Sample) -> list[Read]:
    """The devices that there are, each once."""
    known = {device.uuid: device for device in inventory.devices}
    return [
        Read(device, readings, _labels(device, inventory.hostname))
        for device in known.values()
        if (readings := sample.device(device.uuid)) is not None
    ]


def _labels(device: Device, host: str) -> Labels:
    """Which device it is: of a MIG instance, also the GPU that it is a part of."""
    found = {
        "index": str(device.index),
        "uuid": word(device.uuid),
        "name": word(device.name),
        "host": word(host),
    }
    instance = {
        "parent": device.parent_uuid and word(device.parent_uuid),
        "mig_index": device.mig_index,
        "gpu_instance": device.mig_gpu_instance,
        "compute_instance": device.mig_compute_instance,
    }
    return found | {name: str(value) for name, value in instance.items() if value is not None}


def _info(inventory: Inventory) -> Family:
    labels = {
        "host": inventory.hostname,
        "source": inventory.source,
        "version": inventory.gputop_version,
        "driver_version": inventory.driver_version,
        "cuda_version": inventory.cuda_version,
    }
    about = "Versions, and whether the devices are simulated: always 1."
    return family("gputop_info", about, [({k: word(v) for k, v in labels.items() if v}, 1.0)])


def _devices(read: Sequence[Read], sample: Sample, waited: float) -> Iterator[Family]:
    """What is there of a device that answers nothing, too."""
    identity = [({**each.labels, **_identity(each.device)}, 1.0) for each in read]
    yield family("gputop_device_info", "What a device is: always 1.", identity)
    states = [
        ({**each.labels, "state": state}, float(each.sample.state is state))
        for each in read
        for state in DeviceState
    ]
    about = "Whether a device answers: 1 for the state it is in, 0 for the others."
    yield family("gputop_device_state", about, states)
    ages = [
        (each.labels, each.sample.age_seconds + waited)
        for each in read
        if each.sample.age_seconds is not None
    ]
    about = "Age of a device's readings; of one that does not answer, how long it has not."
    yield family("gputop_reading_age_seconds", about, ages)
    listed = [
        (each.labels, float(len(_on(each, sample))))
        for each in read
        if "processes" not in each.sample.absent
    ]
    yield family("gputop_processes", "Processes on a device.", listed)


def _identity(device: Device) -> Labels:
    known = {
        "pci_bus_id": device.pci_bus_id,
        "pci_device_id": device.pci_device_id,
        "architecture": device.architecture,
        "compute_capability": device.compute_capability,
    }
    return {name: word(value) for name, value in known.items() if value}


def _measured(
    name: str, metric: Metric, records: Iterable[tuple[Labels, DeviceSample | Process]]
) -> Family:
    series = series_of(records, name, metric.parts)
    return family(f"gputop_{metric.name}", metric.help, series)


def _xids(inventory: Inventory, read: Sequence[Read], latest: Latest) -> Iterator[Family]:
    """Those of devices that are there, and those of which the driver does not say whose they are.

    No series until the first of a code: an alert compares the time of the last with `time()`.
    """
    labels: dict[str | None, Labels] = {each.device.uuid: each.labels for each in read}
    labels[None] = {"host": word(inventory.hostname)}
    known = [
        ({**labels[uuid], "code": "unknown" if code is None else str(code)}, xids)
        for (uuid, code), xids in latest.xids.items()
        if uuid in labels
    ]
    about = "Xid errors that the driver reported since this exporter started."
    yield family("gputop_xid_errors_total", about, [(k, float(x.times)) for k, x in known])
    about = "When the last of them was reported, in Unix time."
    yield family("gputop_xid_last_timestamp_seconds", about, [(k, x.last) for k, x in known])


def _findings(read: Sequence[Read], tracked: ActiveFindings) -> Iterator[Family]:
    """Yield active findings, and counts of every rule from 0 on, as `increase` needs."""
    labels = {each.device.uuid: each.labels for each in read}
    active = [
        ({**labels[found.device_uuid], **_which(found)}, 1.0)
        for found in tracked.findings
        if found.device_uuid in labels
    ]
    about = "What slows a device down or is wrong with it now: always 1."
    yield family("gputop_finding_active", about, active)
    begun = [
        ({**of_device, "rule": rule.name}, float(tracked.begun.get((uuid, rule.name), 0)))
        for uuid, of_device in labels.items()
        for rule in RULES
    ]
    about = "How often a rule began to find something on a device, since this exporter started."
    yield family("gputop_findings_total", about, begun)


def _which(found: Finding) -> Labels:
    """Not its sentence, which changes with every sample."""
    return {"rule": found.rule, "severity": found.severity.word}


def _processes(read: Sequence[Read], sample: Sample) -> Iterator[Family]:
    """Those with the most memory on each device."""
    largest = [
        ({**each.labels, **_who(process)}, process)
        for each in read
        for process in sorted(_on(each, sample), key=lambda p: -(p.memory_used_bytes or 0))[
            :MOST_PROCESSES
        ]
    ]
    return (_measured(name, metric, largest) for name, metric in PROCESS_METRICS.items())


def _on(each: Read, sample: Sample) -> list[Process]:
    return [process for process in sample.processes if process.device_uuid == each.device.uuid]


def _who(process: Process) -> Labels:
    """No command line: it changes with every run, and may hold what is secret."""
    program, _, _ = (process.command or "").partition(" ")
    named = {
        "pid": str(process.pid),
        "user": process.user,
        "program": PurePosixPath(program).name,
        "container": process.container,
        "pod": process.pod,
        "slurm_job": process.slurm_job,
    }
    return {name: word(value, 64) for name, value in named.items() if value}
