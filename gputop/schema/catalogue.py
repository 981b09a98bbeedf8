"""Catalogue of readings: one row for each field of a device, with all its names and formats.

The device page, `gputop status --columns`, CSV, the exporter (with gputop's and with DCGM's names),
the fleet's queries and the history use this table. A new reading needs a row here, a typed field in
`agent.device`, a question in `agent.nvml.device_queries`, and a test.

This module is only data, because the first screen imports it. `schema.values` has the functions
that format a value, by the reading's `form` or else by its unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gputop.agent.units import Limits, limits_of, unit_of
from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.schema.clock_events import BY_WORD

OF = "{} of {}"
Convert = Callable[[Any], float]
_BASE_UNITS: Mapping[str, Convert] = {
    "percent": lambda percent: round(percent / 100, 6),
    "mhz": lambda mhz: mhz * 1e6,
}
_DCGM_UNITS: Mapping[str, Convert] = {
    "bytes": lambda value: float(value >> 20),
    "joules": lambda joules: float(round(joules * 1000)),
}


class Reading(NamedTuple):
    """Names and formats of a field of `Device` or `DeviceSample`."""

    name: str
    label: str = ""
    """Label on the device page and in the columns of `gputop status --columns`. A reading without a
    label is in the row of the previous reading."""
    about: str = ""
    """Help text of the metric. A field without it is not a metric."""
    form: str = ""
    """Key of the function that formats the value; if empty, the unit is the key."""
    words: Mapping[str, str] | None = None
    """Texts by value, for a reading in words. As a metric, each word is a series of 1 or 0."""
    template: str = "{}"
    """Text of the row, with a placeholder for each of its readings."""
    term: str = ""
    """Name of the reading in a row with several readings."""
    is_optional: bool = False
    """True if the row is left out when it has neither a value nor a reason."""
    legend: str = ""
    """Explanation in the help, for the term `legend_term` or else the label."""
    legend_term: str = ""
    not_supported: str = ""
    """Text if the reading is not supported; empty for the common text."""
    metric: str = ""
    """Name in Prometheus without unit and `_total`; if empty, the reading's name."""
    part_label: str = ""
    """Label in Prometheus that distinguishes the numbers of a reading with several numbers."""
    dcgm: tuple[str, str] = ("", "")
    """Name without `DCGM_FI_`, and help text, in dcgm-exporter."""
    dcgm_fallback: str = ""
    """Field of DCGM that the fleet reads if `dcgm` is missing."""
    in_history: bool = False
    """True if the history keeps the reading, for charts or for rules."""
    is_counter: bool = False
    """True if the value only grows. It is a counter in Prometheus."""
    fastest: float = float("inf")
    """Largest plausible increase of a counter per second. A larger increase is not counted."""

    @property
    def unit(self) -> str:
        """Unit at the end of the name; empty for none."""
        return unit_of(self.name)

    @property
    def limits(self) -> Limits:
        """Smallest and largest plausible number."""
        return limits_of(self.name)

    @property
    def metric_name(self) -> str:
        """Name in Prometheus after `gputop_`, in base units."""
        unit = {"percent": "ratio", "mhz": "hertz"}.get(self.unit, self.unit)
        name = self.metric or self.name.removesuffix(f"_{self.unit}")
        if unit:
            name += f"_{unit}"
        return f"{name}_total" if self.is_counter else name

    @property
    def base_unit(self) -> Convert:
        """Conversion into the base unit of Prometheus."""
        return _BASE_UNITS.get(self.unit, float)

    def dcgm_unit(self, field: str) -> Convert:
        """Return the conversion into the unit of this field of DCGM, such as MiB or mJ."""
        if self.unit == "percent" and field.startswith("PROF_"):
            return self.base_unit
        return _DCGM_UNITS.get(self.unit, float)


class Recovery(NamedTuple):
    """A recovery action that the driver recommends."""

    need: str
    """Words after "GPU 0 needs"."""
    remedy: str = ""
    """Template for `advice.fill_in`."""


# fmt: off
RECOVERIES = {
    "none": Recovery("nothing to do"),
    "gpu_reset": Recovery("a reset", "{reset}"),
    "node_reboot": Recovery("a reboot of its machine", "reboot its machine"),
    "drain_p2p": Recovery("its peer-to-peer processes to end",
                          "end the processes that copy between it and other GPUs, then check "
                          "again"),
    "drain_and_reset": Recovery("a reset when its work has ended",
                                "start no new work on it; when its work has ended, {reset}"),
    "recover_imex_domain": Recovery("a recovery of its IMEX domain",
                                    "recover its IMEX domain: see the log of nvidia-imex"),
    "bus_reset": Recovery("a reset of its bus", "reboot its machine: that resets its bus"),
    "system_reboot": Recovery("a reboot of its machine", "reboot its machine"),
}
# fmt: on
"""Recovery actions by the words in `agent.words`."""
VIRTUALIZATIONS = {
    "none": "none",
    "passthrough": "passed through to this guest",
    "vgpu": "a virtual GPU in a guest",
    "host_vgpu": "host of virtual GPUs",
    "host_vsga": "host of shared graphics",
}
"""Texts for the virtualization by the words in `agent.words`."""
_GPM = "Average since the previous reading, by GPM."
_LOADED = "since the driver was loaded"

# fmt: off
PAGE_GROUPS: Mapping[str, tuple[Reading, ...]] = {
    "Activity": (
        Reading("gpu_utilization_percent", "busy",
            "Share of time in which at least one kernel ran, 0 to 1.",
            legend="share of time in which at least one kernel ran; 100 % may be one SM of 132: "
            "look at SM active", dcgm=("DEV_GPU_UTIL", "GPU utilization (in %)."),
            dcgm_fallback="PROF_GR_ENGINE_ACTIVE", in_history=True),
        Reading("graphics_active_percent", "engine active",
            f"Share of time in which a compute or graphics engine worked, 0 to 1. {_GPM}",
            is_optional=True,
            dcgm=("PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.")),
        Reading("sm_active_percent", "SM active",
            f"Share of the SMs' time in which one had a warp, 0 to 1. {_GPM}",
            legend="share of the SMs' time in which they had work: busy does not show this",
            dcgm=("PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned."),
            in_history=True),
        Reading("sm_occupancy_percent", "SM occupancy",
            f"Warps on the SMs as a share of the maximum, 0 to 1. {_GPM}",
            legend="warps on the SMs as a share of the maximum; half is often enough",
            dcgm=("PROF_SM_OCCUPANCY", "The ratio of number of warps resident on an SM."),
            in_history=True),
        Reading("tensor_active_percent", "tensor active",
            f"Share of time in which the tensor cores worked, 0 to 1. {_GPM}",
            legend="share of time in which the tensor cores worked: matmuls should run there",
            dcgm=("PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active."),
            in_history=True),
        Reading("dram_active_percent", "DRAM active",
            f"Share of the device memory's bandwidth in use, 0 to 1. {_GPM}",
            legend="share of the memory bandwidth in use", dcgm=("PROF_DRAM_ACTIVE",
            ("Ratio of cycles the device memory interface is active "
            "sending or receiving data.")), in_history=True),
        Reading("fp64_active_percent", "FP64 active",
            f"Share of time with FP64 outside tensor cores, 0 to 1. {_GPM}",
            legend="share of time in which these units worked, without tensor cores",
            legend_term="FP64/32/16 active",
            dcgm=("PROF_PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipes are active."),
            in_history=True),
        Reading("fp32_active_percent", "FP32 active",
            f"Share of time with FP32 outside tensor cores, 0 to 1. {_GPM}",
            dcgm=("PROF_PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipes are active."),
            in_history=True),
        Reading("fp16_active_percent", "FP16 active",
            f"Share of time with FP16 outside tensor cores, 0 to 1. {_GPM}",
            dcgm=("PROF_PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipes are active."),
            in_history=True),
        Reading("memory_utilization_percent", "memory busy",
            "Share of time in which device memory was read or written, 0 to 1.",
            legend="share of time in which device memory was read or written, not how much of it",
            dcgm=("DEV_MEM_COPY_UTIL", "Memory utilization (in %)."),
            in_history=True),
        Reading("encoder_utilization_percent", "encoder",
            "Utilization of the video encoder, 0 to 1.",
            dcgm=("DEV_ENC_UTIL", "Encoder utilization (in %).")),
        Reading("decoder_utilization_percent", "decoder",
            "Utilization of the video decoder, 0 to 1.",
            dcgm=("DEV_DEC_UTIL", "Decoder utilization (in %).")),
        Reading("jpeg_utilization_percent", "JPEG", "Utilization of the JPEG engine, 0 to 1."),
        Reading("ofa_utilization_percent", "optical flow",
            "Utilization of the optical flow accelerator, 0 to 1."),
    ),
    "Memory": (
        Reading("memory_used_bytes", "used",
            "Device memory in use. Includes the reserved part if that has no metric.", template=OF,
            term="used",
            legend="memory of processes and of the driver's contexts; a driver before 510 adds "
            "the reserved part", dcgm=("DEV_FB_USED", "Framebuffer memory used (in MiB)."),
            in_history=True),
        Reading("memory_total_bytes", about="Total device memory.", term="total",
            dcgm_fallback="DEV_FB_TOTAL"),
        Reading("memory_free_bytes", "free", "Device memory that is free.",
            dcgm=("DEV_FB_FREE", "Framebuffer memory free (in MiB).")),
        Reading("memory_reserved_bytes", "reserved", "Device memory that driver and firmware keep.",
            not_supported="not reported by this driver: used includes it",
            legend="memory that driver and firmware keep: page tables, ECC",
            dcgm=("DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).")),
        Reading("memory_attributed_bytes", "attributed",
            "Device memory that the listed processes hold.",
            legend="memory that the listed processes hold together"),
        Reading("memory_unattributed_bytes", "unattributed",
            "Device memory in use that no listed process holds.",
            legend="memory in use that no listed process holds: held in another pid "
            "namespace, or by ended processes", in_history=True),
        Reading("bar1_used_bytes", "BAR1 used", "BAR1 memory in use.", template=OF, term="used",
            legend="the window through which the host and other devices reach its memory",
            legend_term="BAR1"),
        Reading("bar1_total_bytes", term="total"),
        Reading("memory_is_shared", "memory is", form="shared"),
    ),
    "Power and temperature": (
        Reading("power_watts", "power",
            "Power draw; on most devices since Ampere the average of a second.",
            legend="on most devices since Ampere an average over a second; instant is the moment",
            dcgm=("DEV_POWER_USAGE", "Power draw (in W)."), in_history=True),
        Reading("power_average_watts", "power average", "Power draw, over a second."),
        Reading("power_instant_watts", "power instant", "Power draw at the moment."),
        Reading("power_limit_watts", "power limit", "Power limit that is enforced.",
            template="{}, default {}", term="limit",
            dcgm=("DEV_ENFORCED_POWER_LIMIT", "Enforced power limit (in W).")),
        Reading("power_limit_default_watts", term="default"),
        # Recordings of gputop 0.1 do not have this reading.
        Reading("power_limit_requested_watts", "limit set to",
            "Power limit that was set; others can be lower.", is_optional=True,
            dcgm=("DEV_POWER_MGMT_LIMIT", "Current power limit (in W).")),
        Reading("power_limit_min_watts", "limit can be", template="{} to {}", term="minimum"),
        Reading("power_limit_max_watts", term="maximum"),
        Reading("energy_joules", "energy", f"Energy used {_LOADED}.", is_counter=True, fastest=1e5,
            dcgm=("DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).")),
        Reading("temperature_celsius", "temperature", "Temperature of the GPU.",
            dcgm=("DEV_GPU_TEMP", "GPU temperature (in C)."),
            in_history=True),
        Reading("temperature_margin_celsius", "margin",
            "Degrees left until the GPU slows itself down.",
            legend="degrees left until the GPU slows itself down"),
        Reading("temperature_slowdown_celsius", "slowdown at"),
        Reading("temperature_shutdown_celsius", "shutdown at"),
        # The label is nvidia-smi's name. A device has either this scale or the
        # absolute thresholds above.
        Reading("temperature_slowdown_margin_celsius", "T.Limit", is_optional=True,
            template="slowdown {}, shutdown {}", term="slowdown"),
        Reading("temperature_shutdown_margin_celsius", term="shutdown"),
        Reading("temperature_max_margin_celsius", "T.Limit max", is_optional=True,
            template="{}, of the memory {}", term="GPU"),
        Reading("memory_temperature_max_margin_celsius", term="memory"),
        Reading("memory_temperature_celsius", "memory temp.", "Temperature of the device memory.",
            template=OF, term="now", dcgm=("DEV_MEMORY_TEMP", "Memory temperature (in C).")),
        Reading("memory_temperature_max_celsius", term="maximum"),
        Reading("fan_percent", "fan", "Target speed of the fans; 1 is their nominal maximum.",
            not_supported="no fan reported", metric="fan_speed"),
        Reading("fans_percent", "each fan", "Target speed of each fan; 1 is its nominal maximum.",
            form="percentages", not_supported="no fan reported",
            metric="each_fan_speed", part_label="fan"),
    ),
    "Clocks": (
        Reading("sm_clock_mhz", "SM clock", "Clock of the SMs.", template=OF, term="now",
            dcgm=("DEV_SM_CLOCK", "SM clock frequency (in MHz)."),
            in_history=True),
        Reading("sm_clock_max_mhz", term="maximum"),
        # Recordings of gputop 0.1 do not have this reading.
        Reading("graphics_clock_mhz", "gfx clock",
            "Clock of the graphics engine; since Kepler that of the SMs.", template=OF, term="now",
            is_optional=True),
        Reading("graphics_clock_max_mhz", term="maximum"),
        Reading("memory_clock_mhz", "memory clock", "Clock of the device memory.", template=OF,
            term="now", dcgm=("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).")),
        Reading("memory_clock_max_mhz", term="maximum"),
        Reading("video_clock_mhz", "video clock", "Clock of the video engines.", template=OF,
            term="now"),
        Reading("video_clock_max_mhz", term="maximum"),
        Reading("performance_state", "P-state", "Performance state, 0 (P0, the fastest) to 15.",
            form="p_state", legend="P0 is the fastest, P15 the slowest"),
        Reading("clock_event_reasons", "held back by",
            "1 if this reason holds the clocks back now, else 0.", form="reasons",
            legend="why clocks are not higher; a power cap is normal at full load, heat is not",
            words={word: BY_WORD[word].label for word in CLOCK_EVENT_BITS},
            metric="clock_event_active",
            part_label="reason", dcgm=("DEV_CLOCKS_EVENT_REASONS",
            "Reasons for which the clocks are held back (bit mask).")),
        Reading("clock_event_seconds", "held back for",
            f"Time for which this reason held the clocks back, {_LOADED}.", form="durations",
            part_label="reason", is_counter=True),
    ),
    "Links": (
        Reading("pcie_generation", "PCIe link",
            "Generation of the PCIe link now; lower while idle.", template="gen {} {} of gen {} {}",
            term="generation", legend="the current state: an idle link slows down",
            in_history=True),
        Reading("pcie_width", about="Lanes of the PCIe link now.", form="width", term="width",
            metric="pcie_width_lanes", in_history=True),
        Reading("pcie_generation_max", term="maximum generation"),
        Reading("pcie_width_max", form="width", term="maximum width"),
        Reading("pcie_rx_bytes_per_second", "PCIe rx", "Data that the device receives over PCIe.",
            legend="data that the device receives and sends", legend_term="PCIe rx, tx",
            dcgm=("PROF_PCIE_RX_BYTES", ("The rate of data received over the PCIe bus - including "
            "both protocol headers and data payloads - in bytes per second.")), in_history=True),
        Reading("pcie_tx_bytes_per_second", "PCIe tx", "Data that the device sends over PCIe.",
            dcgm=("PROF_PCIE_TX_BYTES", ("The rate of data transmitted over the PCIe bus - "
            "including both protocol headers and data payloads - in bytes per second.")),
            in_history=True),
        Reading("pcie_replays", "PCIe replays", f"PCIe packets sent again {_LOADED}.",
            legend="packets that were sent again: many mean a bad slot or riser",
            legend_term="replays", is_counter=True,
            dcgm=("DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.")),
        Reading("nvlink_rx_bytes_per_second", "NVLink rx",
            "Data that the device receives over all NVLinks.", dcgm=("PROF_NVLINK_RX_BYTES",
            "The rate of data received over NVLink in bytes per second."), in_history=True),
        Reading("nvlink_tx_bytes_per_second", "NVLink tx",
            "Data that the device sends over all NVLinks.", dcgm=("PROF_NVLINK_TX_BYTES",
            "The rate of data transmitted over NVLink in bytes per second."), in_history=True),
        Reading("nvlink_link_rx_bytes_per_second", "each link rx",
            "Data that the device receives over each NVLink that is up.", form="links",
            part_label="link"),
        Reading("nvlink_link_tx_bytes_per_second", "each link tx",
            "Data that the device sends over each NVLink that is up.", form="links",
            part_label="link"),
    ),
    "Health": (
        Reading("ecc_enabled", "ECC", form="enabled"),
        Reading("ecc_corrected", "ECC corrected", f"Corrected memory errors {_LOADED}.",
            legend="corrected memory errors since the driver was loaded; uncorrected errors end "
            "the affected program; `ever` counts the device's lifetime",
            metric="ecc_corrected_errors",
            is_counter=True, in_history=True,
            dcgm=("DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.")),
        Reading("ecc_uncorrected", "ECC uncorr.", f"Uncorrected memory errors {_LOADED}.",
            metric="ecc_uncorrected_errors", is_counter=True,
            dcgm=("DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.")),
        Reading("ecc_corrected_lifetime", "ever corr.",
            "Corrected memory errors over the device's lifetime.",
            metric="ecc_corrected_errors_lifetime",
            is_counter=True,
            dcgm=("DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.")),
        Reading("ecc_uncorrected_lifetime", "ever uncorr.",
            "Uncorrected memory errors over the device's lifetime.",
            metric="ecc_uncorrected_errors_lifetime", is_counter=True,
            dcgm=("DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.")),
        Reading("remapped_rows", "remapped rows",
            "Rows of memory replaced by spare ones over the device's lifetime.",
            legend="rows of memory replaced by spare ones", is_counter=True),
        Reading("remapped_rows_uncorrected", "uncorr. rows",
            "Rows of memory replaced after an uncorrected error over the device's lifetime.",
            is_optional=True, is_counter=True, dcgm=("DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "Number of remapped rows for uncorrectable errors")),
        Reading("remap_pending", "remap pending",
            "1 if the next reset replaces a row of memory, else 0.", form="remap_pending",
            dcgm=("DEV_ROW_REMAP_PENDING", "Whether remapping of rows is due")),
        Reading("remap_failed", "remap failed",
            "1 if no spare row of memory was left, else 0.", form="remap_failed",
            dcgm=("DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed")),
        Reading("recovery_action", "to recover",
            "Recovery that the driver recommends: 1 for this action, 0 for the others.",
            form="word",
            words={word: each.need for word, each in RECOVERIES.items()}, part_label="action"),
    ),
    "Identity": (
        Reading("name", "name"),
        Reading("index", "index"),
        Reading("machine", "host", is_optional=True),
        Reading("mig_index", "MIG instance", template="{}, GPU instance {}, compute {}",
            term="index", is_optional=True),
        Reading("mig_gpu_instance", term="GPU instance"),
        Reading("mig_compute_instance", term="compute instance"),
        Reading("parent_uuid", "part of", is_optional=True),
        Reading("uuid", "UUID"),
        Reading("pci_bus_id", "PCI bus id"),
        Reading("pci_device_id", "PCI device id", form="pci_device"),
        Reading("minor_number", "device file", form="device_file"),
        Reading("architecture", "architecture", form="title"),
        Reading("compute_capability", "compute cap."),
        Reading("sm_count", "SMs"),
        Reading("compute_mode", "compute mode", form="words"),
        Reading("persistence_mode", "persistence"),
        Reading("mig_mode", "MIG mode"),
        Reading("virtualization", "virtualized", form="word", words=VIRTUALIZATIONS),
    ),
}
# fmt: on
"""Readings by group of the device page, the most important groups first."""
CATALOGUE: Mapping[str, Reading] = {
    r.name: r for group in PAGE_GROUPS.values() for r in group
}
PROCESS_READINGS = (
    Reading(
        "memory_used_bytes", about="Device memory that the process holds."
    ),
    Reading(
        "sm_utilization_percent",
        about="Share of time in which its kernels ran, 0 to 1.",
    ),
    Reading(
        "memory_utilization_percent",
        about="Share of time in which it read or wrote device memory, 0 to 1.",
    ),
    Reading(
        "encoder_utilization_percent",
        about="Its use of the video encoder, 0 to 1.",
    ),
    Reading(
        "decoder_utilization_percent",
        about="Its use of the video decoder, 0 to 1.",
    ),
)
"""Fields of a process that are metrics. Other exporters cover its use of the host."""
