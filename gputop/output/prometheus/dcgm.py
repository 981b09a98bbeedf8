"""The metrics under dcgm-exporter's names and labels, for dashboards that were made for it.

Names, units and helps are those of its `etc/default-counters.csv`, or else of DCGM's field
identifiers: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. What it counts is
`untyped` here, as its counters do not end in `_total`; queries are the same. Left out is what no
reading is the same as: of the default counters only the licence of virtual GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gputop.health.conditions import XIDS
from gputop.output.prometheus.family import (
    Family,
    Kind,
    Parts,
    Read,
    family,
    plain,
    ratio,
    series_of,
    word,
)
from gputop.schema.clock_events import mask_of

if TYPE_CHECKING:
    from gputop.output.prometheus.family import Part
    from gputop.schema.snapshot import Device, DeviceSample, Inventory
    from gputop.stream.latest import XidKey, Xids


class Field(NamedTuple):
    """A field of DCGM, and the reading that it is."""

    name: str
    help: str
    reading: str
    parts: Parts = plain
    kind: Kind = "gauge"


def _mib(value: int) -> Iterator[Part]:
    yield {}, float(value >> 20)


def _millijoules(joules: float) -> Iterator[Part]:
    yield {}, round(joules * 1000, 0)


def _mask(reasons: Sequence[str]) -> Iterator[Part]:
    yield {}, float(mask_of(reasons))


# fmt: off
FIELDS = (
    Field("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "sm_clock_mhz"),
    Field("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "memory_clock_mhz"),
    Field("DEV_MEMORY_TEMP", "Memory temperature (in C).", "memory_temperature_celsius"),
    Field("DEV_GPU_TEMP", "GPU temperature (in C).", "temperature_celsius"),
    Field("DEV_POWER_USAGE", "Power draw (in W).", "power_watts"),
    Field("DEV_ENFORCED_POWER_LIMIT", "Enforced power limit (in W).", "power_limit_watts"),
    Field("DEV_POWER_MGMT_LIMIT", "Current power limit (in W).", "power_limit_requested_watts"),
    Field("DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).",
          "energy_joules", _millijoules, "unknown"),
    Field(
        "DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie_replays", kind="unknown"
    ),
    Field("DEV_GPU_UTIL", "GPU utilization (in %).", "gpu_utilization_percent"),
    Field("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "memory_utilization_percent"),
    Field("DEV_ENC_UTIL", "Encoder utilization (in %).", "encoder_utilization_percent"),
    Field("DEV_DEC_UTIL", "Decoder utilization (in %).", "decoder_utilization_percent"),
    Field("DEV_CLOCKS_EVENT_REASONS", "Reasons for which the clocks are held back (bit mask).",
          "clock_event_reasons", _mask),
    Field("DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory_free_bytes", _mib),
    Field("DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory_used_bytes", _mib),
    Field(
        "DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "memory_reserved_bytes", _mib
    ),
    Field("DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.",
          "ecc_corrected", kind="unknown"),
    Field("DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.",
          "ecc_uncorrected", kind="unknown"),
    Field("DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.",
          "ecc_corrected_lifetime", kind="unknown"),
    Field("DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.",
          "ecc_uncorrected_lifetime", kind="unknown"),
    Field("DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors",
          "remapped_rows_uncorrected", kind="unknown"),
    Field("DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "remap_failed"),
    Field("DEV_ROW_REMAP_PENDING", "Whether remapping of rows is due", "remap_pending"),
    Field("PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.",
          "graphics_active_percent", ratio),
    Field("PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.",
          "sm_active_percent", ratio),
    Field("PROF_SM_OCCUPANCY", "The ratio of number of warps resident on an SM.",
          "sm_occupancy_percent", ratio),
    Field("PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.",
          "tensor_active_percent", ratio),
    Field("PROF_DRAM_ACTIVE",
          "Ratio of cycles the device memory interface is active sending or receiving data.",
          "dram_active_percent", ratio),
    Field("PROF_PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipes are active.",
          "fp64_active_percent", ratio),
    Field("PROF_PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipes are active.",
          "fp32_active_percent", ratio),
    Field("PROF_PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipes are active.",
          "fp16_active_percent", ratio),
    Field(
        "PROF_PCIE_TX_BYTES",
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data "
        "payloads - in bytes per second.",
        "pcie_tx_bytes_per_second",
    ),
    Field("PROF_PCIE_RX_BYTES",
          "The rate of data received over the PCIe bus - including both protocol headers and data "
          "payloads - in bytes per second.", "pcie_rx_bytes_per_second"),
    Field("PROF_NVLINK_TX_BYTES", "The rate of data transmitted over NVLink in bytes per second.",
          "nvlink_tx_bytes_per_second"),
    Field("PROF_NVLINK_RX_BYTES", "The rate of data received over NVLink in bytes per second.",
          "nvlink_rx_bytes_per_second"),
)
# fmt: on
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
    for field in FIELDS:
        series = series_of(labelled, field.reading, field.parts)
        yield family(f"DCGM_FI_{field.name}", field.help, series, field.kind)
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
