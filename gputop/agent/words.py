"""Words of the stream for NVML's numbers and bits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

ARCHITECTURES: Mapping[int, str] = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
COMPUTE_MODES: Mapping[int, str] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
ON_OR_OFF: Mapping[int, str] = {0: "disabled", 1: "enabled"}
VIRTUALIZATIONS: Mapping[int, str] = {
    0: "none",
    1: "passthrough",
    2: "vgpu",
    3: "host_vgpu",
    4: "host_vsga",
}
RECOVERY_ACTIONS: Mapping[int, str] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
CLOCK_EVENT_BITS: Mapping[str, int] = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
"""Bit of each clock event reason that nvml.h defines (`nvmlClocksEventReason…`)."""
_CLOCK_EVENTS = {bit: word for word, bit in CLOCK_EVENT_BITS.items()}


@lru_cache(1 << 12)
def clock_event_words(mask: int) -> tuple[str, ...]:
    """Return a word for each bit of NVML's mask, lowest bit first.

    A bit without a name becomes a word such as `bit_0x200`, so that the mask can be restored.
    """
    bits = (1 << n for n in range(mask.bit_length()))
    return tuple(
        _CLOCK_EVENTS.get(bit, f"bit_{bit:#x}") for bit in bits if mask & bit
    )
