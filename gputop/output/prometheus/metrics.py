"""A stream as metrics of Prometheus, with gputop's names or with dcgm-exporter's names.

Names follow https://prometheus.io/docs/practices/naming, in base units: ratios from 0 to 1, hertz,
bytes, watts, joules, seconds, degrees Celsius. Counters end in `_total`. A missing reading has no
series; it is never 0.

DCGM's names, units and help texts come from `etc/default-counters.csv` in dcgm-exporter, or else
from DCGM's field identifiers: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. All
default counters are covered except the licence of virtual GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from prometheus_client import Metric

from gputop.agent.device import READINGS, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import DriverState, Inventory, Process, Sample
from gputop.health.conditions import XIDS
from gputop.health.findings import Bound
from gputop.health.judge import RULES
from gputop.schema.catalogue import CATALOGUE, PROCESS_READINGS, Reading
from gputop.schema.clock_events import mask_of
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.output.prometheus.state import ExporterState

Kind = Literal["gauge", "counter", "unknown"]
Labels = Mapping[str, str]
MOST_PROCESSES = 32
"""Maximum number of exported processes per device. Each process adds a series to each metric."""
LONGEST_LABEL = 64
"""Characters of a label, such as the name of a host or a user."""
XID_HELP = "Value of the last XID error encountered."
_ABOUT = {
    "up": "1 if the newest sample is recent and the driver answers, else 0.",
    "interruptions_total": "Number of restarts of the sampler and of its unreadable lines.",
    "info": "Versions, and the source of the readings: always 1.",
    "device_info": "Identity of a device: always 1.",
    "device_state": "State of a device: 1 for the current state, 0 for the others.",
    "reading_age_seconds": "Age of a device's readings. If it does not answer, the time since "
    "its last answer.",
    "slow_reading_age_seconds": "Age of the oldest reading with an interval of 1 s or 10 s.",
    "processes": "Processes on a device.",
    "xid_errors_total": "Xid errors that the driver reported since this exporter started.",
    "xid_last_timestamp_seconds": "Time of the last Xid error, in Unix time.",
    "bound_by": "Bottleneck of a device now: always 1.",
    "finding_active": "Active finding about a device: always 1.",
    "findings_total": "Number of times that a finding began on a device, since this exporter "
    "started.",
}
"""Help texts by name of the metrics that are not readings."""


class Metrics:
    """Metrics of the official client, in the order in which they were added."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}
        self._series: set[tuple[str, frozenset[tuple[str, str]]]] = set()

    def add(
        self,
        name: str,
        labels: Labels,
        value: float,
        about: str = "",
        kind: Kind = "gauge",
    ) -> None:
        """Add a series unless its labels exist already. A name ending in `_total` is a counter."""
        key = name, frozenset(labels.items())
        if key in self._series:
            return
        self._series.add(key)
        if name not in self._found:
            about = about or _ABOUT[name.removeprefix("gputop_")]
            base = name.removesuffix("_total")
            if base != name:
                kind = "counter"
            self._found[name] = Metric(base, about, kind)
        self._found[name].add_sample(name, dict(labels), value)

    def add_reading(
        self,
        reading: Reading,
        labels: Labels,
        record: object,
        prefix: str = "",
    ) -> None:
        """Add the numbers of a reading of a device or a process, if it has a value."""
        value = known(record, reading.name)
        if value is None:
            return
        name = f"gputop_{prefix}{reading.metric_name}"
        for more, number in parts_of(reading, value):
            self.add(name, {**labels, **more}, number, reading.about)

    def all(self) -> list[Metric]:
        """Return all metrics."""
        return list(self._found.values())


def known(record: Any, name: str) -> Any:
    """Return a field of a record, or None if the field is absent."""
    if name in record.absent:
        return None
    return getattr(record, name)


def parts_of(reading: Reading, value: Any) -> Iterator[tuple[Labels, float]]:
    """Yield the numbers of a value of this reading, in base units.

    Each known word is a series: 1 if it applies, else 0. Words of later drivers have a series only
    while they apply. List items that are None have no series.
    """
    convert, label = reading.base_unit, reading.part_label
    if reading.words:
        current = value
        if isinstance(value, str):
            current = (value,)
        for name in dict.fromkeys((*reading.words, *current)):
            yield {label: visible(name)}, float(name in current)
    elif isinstance(value, Mapping):
        for name, number in value.items():
            yield {label: visible(name)}, number
    elif isinstance(value, tuple):
        for n, part in enumerate(value):
            if part is not None:
                yield {label: str(n)}, convert(part)
    else:
        yield {}, convert(value)


class LabelledDevice(NamedTuple):
    """A device with its readings, and the labels of its series."""

    device: Device
    readings: DeviceSample
    labels: Labels


def families(
    state: ExporterState, *, processes: bool = False, dcgm: bool = False
) -> list[Metric]:
    """Return the current metrics. A silent stream has no readings.

    With `dcgm`, devices have the metrics of dcgm-exporter instead of ours.
    """
    found = Metrics()
    with state.lock:
        _add_all(found, state, processes=processes, dcgm=dcgm)
    return found.all()


def _add_all(
    found: Metrics, state: ExporterState, *, processes: bool, dcgm: bool
) -> None:
    current = state.current()
    up = (
        current is not None
        and current.inventory.driver_state is DriverState.OK
    )
    found.add("gputop_up", {}, float(up))
    found.add("gputop_interruptions_total", {}, state.interruptions)
    if current is None:
        return
    inventory, sample = current
    devices = list(_devices(inventory, sample, _labels))
    if dcgm:
        _add_dcgm(
            found, list(_devices(inventory, sample, _dcgm_labels)), state
        )
    else:
        _add_info(found, inventory)
        _add_states(found, devices, sample, state.waited)
        for name in READINGS:
            if name in CATALOGUE:
                for _, readings, labels in devices:
                    found.add_reading(CATALOGUE[name], labels, readings)
        _add_xids(found, inventory, devices, state)
        _add_findings(found, devices, state)
        _add_bounds(found, devices, state)
    if processes:
        _add_processes(found, devices, sample)


def _devices(
    inventory: Inventory,
    sample: Sample,
    labels_of: Callable[[Device, Inventory], Labels],
) -> Iterator[LabelledDevice]:
    """Yield each device of the inventory that is in the sample, once."""
    known = {device.uuid: device for device in inventory.devices}
    for device in known.values():
        readings = sample.device(device.uuid)
        if readings is not None:
            yield LabelledDevice(
                device, readings, labels_of(device, inventory)
            )


def _present(**values: str | int | None) -> dict[str, str]:
    """Return the labels that have a value. Control characters in texts are made visible."""
    return {
        name: visible(str(value), LONGEST_LABEL)
        for name, value in values.items()
        if value not in (None, "")
    }


def _labels(device: Device, inventory: Inventory) -> Labels:
    """Return the labels that identify a device. A MIG instance also has its GPU's labels."""
    return _present(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        host=inventory.hostname,
        parent=device.parent_uuid,
        mig_index=device.mig_index,
        gpu_instance=device.mig_gpu_instance,
        compute_instance=device.mig_compute_instance,
    )


def _add_info(found: Metrics, inventory: Inventory) -> None:
    labels = _present(
        host=inventory.hostname,
        source=inventory.source,
        version=inventory.gputop_version,
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
    )
    found.add("gputop_info", labels, 1.0)


def _add_states(
    found: Metrics,
    devices: Iterable[LabelledDevice],
    sample: Sample,
    waited: float,
) -> None:
    """Add the metrics of devices that are known even if a device does not answer."""
    held = sample.processes_by_device()
    for device, readings, labels in devices:
        identity = _present(
            pci_bus_id=device.pci_bus_id,
            pci_device_id=device.pci_device_id,
            architecture=device.architecture,
            compute_capability=device.compute_capability,
        )
        found.add("gputop_device_info", {**labels, **identity}, 1.0)
        for state in DeviceState:
            found.add(
                "gputop_device_state",
                {**labels, "state": state},
                float(readings.state is state),
            )
        ages = {
            "gputop_reading_age_seconds": known(readings, "age_seconds"),
            "gputop_slow_reading_age_seconds": known(
                readings, "slow_age_seconds"
            ),
        }
        for name, age in ages.items():
            if age is not None:
                found.add(name, labels, age + waited)
        if "processes" not in readings.absent:
            found.add(
                "gputop_processes", labels, float(len(held[device.uuid]))
            )


def _add_xids(
    found: Metrics,
    inventory: Inventory,
    devices: Iterable[LabelledDevice],
    state: ExporterState,
) -> None:
    """Add the Xids of present devices, and Xids without a device.

    A code has no series before its first Xid, because alerts compare its last time with `time()`.
    """
    labels: dict[str | None, Labels] = {
        None: _present(host=inventory.hostname)
    }
    for device, _, own in devices:
        labels[device.uuid] = own
    for (uuid, code), times in state.xids.items():
        if uuid in labels:
            own = {**labels[uuid], "code": str(code)}
            if code is None:
                own["code"] = "unknown"
            last = state.xid_times[uuid, code]
            found.add("gputop_xid_errors_total", own, float(times))
            found.add("gputop_xid_last_timestamp_seconds", own, last)


def _add_findings(
    found: Metrics, devices: Iterable[LabelledDevice], state: ExporterState
) -> None:
    """Add active findings, and a count for every rule. `increase` needs counts that start at 0.

    A finding's sentence is not a label, because it changes with every sample.
    """
    labels = {each.device.uuid: each.labels for each in devices}
    for finding in state.judgement.findings:
        if finding.device_uuid in labels:
            found.add(
                "gputop_finding_active",
                {
                    **labels[finding.device_uuid],
                    "rule": finding.rule,
                    "severity": finding.severity.word,
                },
                1.0,
            )
    for uuid, own in labels.items():
        for rule in RULES:
            found.add(
                "gputop_findings_total",
                {**own, "rule": rule.name},
                float(state.begun[uuid, rule.name]),
            )


def _add_bounds(
    found: Metrics, devices: Iterable[LabelledDevice], state: ExporterState
) -> None:
    """Add the bottleneck of each device. An unknown bottleneck has no series."""
    for device, _, labels in devices:
        bound_by = state.judgement.bound_by.get(device.uuid)
        if bound_by is not None and bound_by.bound is not Bound.UNKNOWN:
            word = bound_by.bound.value
            found.add("gputop_bound_by", {**labels, "bound_by": word}, 1.0)


def _add_processes(
    found: Metrics, devices: Iterable[LabelledDevice], sample: Sample
) -> None:
    """Add the metrics of the processes with the most memory on each device."""
    held = sample.processes_by_device()
    for device, _, labels in devices:
        largest = nlargest(
            MOST_PROCESSES,
            held[device.uuid],
            key=lambda process: process.memory_used_bytes or 0,
        )
        for reading in PROCESS_READINGS:
            for process in largest:
                own = {**labels, **_process_labels(process)}
                found.add_reading(reading, own, process, "process_")


def _process_labels(process: Process) -> Labels:
    """Return labels without the command line, which differs in each run and may contain secrets."""
    program, _, _ = (process.command or "").partition(" ")
    return _present(
        pid=process.pid,
        user=process.user,
        program=PurePosixPath(program).name,
        container=process.container,
        pod=process.pod,
        slurm_job=process.slurm_job,
        rank=process.rank,
        job_id=process.job_id,
    )


def _add_dcgm(
    found: Metrics, devices: Sequence[LabelledDevice], state: ExporterState
) -> None:
    """Add the readings, and the last Xid of each GPU. As in DCGM it is 0 if there was none."""
    for reading in CATALOGUE.values():
        name, about = reading.dcgm
        if not name:
            continue
        convert = reading.dcgm_unit(name)
        if reading.name == "clock_event_reasons":
            convert = mask_of
        kind: Kind = "gauge"
        if reading.is_counter:
            kind = "counter"
        for _, readings, labels in devices:
            value = known(readings, reading.name)
            if value is not None:
                number = float(convert(value))
                found.add(f"DCGM_FI_{name}", labels, number, about, kind)
    for device, readings, labels in devices:
        _add_dcgm_sums(found, labels, readings)
        if device.parent_uuid is None:
            _add_dcgm_xid(found, labels, device, state)


def _add_dcgm_sums(
    found: Metrics,
    labels: Labels,
    readings: DeviceSample,
) -> None:
    remapped = known(readings, "remapped_rows")
    uncorrected = known(readings, "remapped_rows_uncorrected")
    if remapped is not None and uncorrected is not None:
        found.add(
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
            labels,
            float(remapped - uncorrected),
            "Number of remapped rows for correctable errors",
            "counter",
        )
    received = known(readings, "nvlink_rx_bytes_per_second")
    sent = known(readings, "nvlink_tx_bytes_per_second")
    if received is not None and sent is not None:
        found.add(
            "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
            labels,
            (received + sent) / 1e6,
            "Total number of NVLink bandwidth counters for all lanes.",
            # DCGM calls it a counter, but it is a rate in MB/s.
            "unknown",
        )


def _add_dcgm_xid(
    found: Metrics, labels: Labels, device: Device, state: ExporterState
) -> None:
    times = {}
    for (uuid, number), last in state.xid_times.items():
        if uuid == device.uuid and number is not None:
            times[number] = last
    code = max(times, key=lambda each: times[each], default=0)
    words = "No Error"
    if code in XIDS:
        words = XIDS[code].what
    elif code:
        words = "Unknown Error"
    found.add(
        "DCGM_FI_DEV_XID_ERRORS",
        {**labels, "err_code": str(code), "err_msg": words},
        float(code),
        XID_HELP,
    )


def _dcgm_labels(device: Device, inventory: Inventory) -> Labels:
    """Return DCGM's labels of a GPU. A MIG instance adds its profile (`1g.10gb`) and its id."""
    gpu = inventory.device(device.parent_uuid or "") or device
    labels = _present(
        gpu=gpu.index,
        UUID=gpu.uuid,
        pci_bus_id=gpu.pci_bus_id,
        device=f"nvidia{gpu.index}",
        modelName=gpu.name,
        Hostname=inventory.hostname,
        DCGM_FI_DRIVER_VERSION=inventory.driver_version,
    )
    if device.parent_uuid is not None:
        instance = _present(
            GPU_I_PROFILE=device.name.rpartition("MIG ")[2],
            GPU_I_ID=device.mig_gpu_instance,
        )
        labels.update(instance)
    return labels
