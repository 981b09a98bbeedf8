"""The metrics under dcgm-exporter's names and labels, for dashboards that were made for it.

Names, units and helps are those of its `etc/default-counters.csv`, or else of DCGM's field
identifiers: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. What it counts is
`untyped` here, as its counters do not end in `_total`; queries are the same. Left out is what no
reading is the same as: of the default counters only the licence of virtual GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gputop.output.prometheus.family import Family, Part, Read, family, ratio, series_of, word
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import mask_of
from gputop.schema.remedies import XIDS

if TYPE_CHECKING:
    from gputop.schema.catalogue import Reading
    from gputop.schema.device import Device, DeviceSample
    from gputop.schema.snapshot import Inventory
    from gputop.stream.latest import XidKey, Xids

FIELDS = tuple(reading for reading in CATALOGUE.values() if reading.dcgm[0])
"""Readings that are fields of DCGM."""


def dcgm_unit(field: str, unit: str) -> Callable[[Any], float]:
    """Return what converts a reading in that unit for a field: to MiB, mJ, or a share."""
    if unit == "percent" and field.startswith("PROF_"):
        return ratio
    return {"bytes": _mib, "joules": _millijoules}.get(unit, float)


def _mib(value: int) -> float:
    return float(value >> 20)


def _millijoules(joules: float) -> float:
    return round(joules * 1000, 0)


def _parts(reading: Reading) -> Callable[[Any], list[Part]]:
    if reading.name == "clock_event_reasons":
        return lambda reasons: [({}, float(mask_of(reasons)))]
    convert = dcgm_unit(reading.dcgm[0], reading.unit)
    return lambda value: [({}, convert(value))]


XID_HELP = "Value of the last XID error encountered."


class Derived(NamedTuple):
    """A field of DCGM that several readings make up; None where one of them is missing."""

    name: str
    help: str
    value: Callable[[DeviceSample], float | None]


def _corrected_rows(sample: DeviceSample) -> float | None:
    every, uncorrected = sample.remapped_rows, sample.remapped_rows_uncorrected
    return None if every is None or uncorrected is None else float(every - uncorrected)


def _nvlink_megabytes(sample: DeviceSample) -> float | None:
    """Return the rate in both directions: DCGM calls it a counter, and gives MB per second."""
    rx, tx = sample.nvlink_rx_bytes_per_second, sample.nvlink_tx_bytes_per_second
    return None if rx is None or tx is None else (rx + tx) / 1e6


# fmt: off
DERIVED = (
    Derived("DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors",
            _corrected_rows),
    Derived("DEV_NVLINK_BANDWIDTH_TOTAL",
            "Total number of NVLink bandwidth counters for all lanes.", _nvlink_megabytes),
)
# fmt: on


def dcgm_families(
    inventory: Inventory, read: Sequence[Read], xids: Mapping[XidKey, Xids]
) -> Iterator[Family]:
    """The devices' readings, and the last Xid of each GPU: 0 where there was none, as in DCGM."""
    labelled = [(_labels(each.device, inventory), each.sample) for each in read]
    for reading in FIELDS:
        name, about = reading.dcgm
        series = series_of(labelled, reading.name, _parts(reading))
        yield family(f"DCGM_FI_{name}", about, series, "unknown" if reading.is_counter else "gauge")
    for derived in DERIVED:
        known = [
            (labels, value)
            for labels, sample in labelled
            if (value := derived.value(sample)) is not None
        ]
        yield family(f"DCGM_FI_{derived.name}", derived.help, known, "unknown")
    last = [
        (_labels(each.device, inventory) | _about(code), float(code))
        for each in read
        if each.device.parent_uuid is None
        for code in (_last_code(each.device.uuid, xids),)
    ]
    yield family("DCGM_FI_DEV_XID_ERRORS", XID_HELP, last)


def _about(code: int) -> dict[str, str]:
    """Return the labels that only the last Xid has."""
    words = XIDS[code].what if code in XIDS else "Unknown Error"
    return {"err_code": str(code), "err_msg": words if code else "No Error"}


def _last_code(uuid: str, xids: Mapping[XidKey, Xids]) -> int:
    numbered = [(x.last, code) for (of, code), x in xids.items() if of == uuid and code is not None]
    return max(numbered, default=(0.0, 0))[1]


def _labels(device: Device, inventory: Inventory) -> dict[str, str]:
    """A MIG instance stands under the GPU that it is a part of, with its profile (`1g.10gb`)."""
    gpu = inventory.device(device.parent_uuid) if device.parent_uuid is not None else None
    gpu = gpu or device
    found = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.name,
        "Hostname": inventory.hostname,
        "DCGM_FI_DRIVER_VERSION": inventory.driver_version,
    }
    if device.parent_uuid is not None:
        found["GPU_I_PROFILE"] = device.name.rpartition("MIG ")[2]
        if device.mig_gpu_instance is not None:
            found["GPU_I_ID"] = str(device.mig_gpu_instance)
    return {name: word(value) for name, value in found.items() if value}
