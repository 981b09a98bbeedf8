"""Simulated devices for `--demo`: jobs on eight GPUs, the same at every start.

Six devices train together and write a checkpoint every few minutes. One of them runs hot and slow.
GPU 6 has a job of its own and waits for its data loader, and an idle notebook holds the last GPU.
The simulated worker of a stress test uses the same `SimulatedLoad`, so that readings and throughput
agree.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gputop.agent.device import (
    GPM_READINGS,
    READINGS,
    Absence,
    Device,
    DeviceSample,
)
from gputop.agent.interface import DeviceReading, Facts
from gputop.agent.snapshot import Event, Process, ProcessKind

GIB = 1 << 30
MIB = 1 << 20
SEED = 8
DEVICES = 8
TOTAL_BYTES = 81_559 * MIB
RESERVED_BYTES = 624 * MIB
OTHER_BYTES = 530 * MIB
"""Memory in use that belongs to no process."""
IDLE_WATTS, LIMIT_WATTS = 71.0, 700.0
CHECKPOINT_EVERY_SECONDS, CHECKPOINT_SECONDS = 90.0, 6.0
HOT_DEVICE, STARVED_DEVICE, NOTEBOOK_DEVICE = 5, 6, 7
STARVED_EVERY_SECONDS, STARVED_WORK = 11.0, 0.36
"""Time between batches on the device that waits, and the share of it with work."""
FIRST_PID = 48_211
SLOWDOWN_CELSIUS = 89
SAMPLE_SECONDS = 1 / 6
"""Seconds between two of the driver's own samples."""
LINKS = 18
STRESS_BYTES = 2 * GIB
ZERO_READINGS: dict[str, Any] = dict.fromkeys(
    (
        *(
            f"{unit}_utilization_percent"
            for unit in ("encoder", "decoder", "jpeg", "ofa")
        ),
        *(
            "ecc_corrected",
            "ecc_uncorrected",
            "ecc_corrected_lifetime",
            "ecc_uncorrected_lifetime",
        ),
        *("pcie_replays", "remapped_rows", "remapped_rows_uncorrected"),
    ),
    0,
)

NAME, COMPUTE_CAPABILITY, SM_COUNT = "NVIDIA H100 80GB HBM3", "9.0", 132
STRESS_PID = 50_001
"""Pid of the stress test on device 0; the other devices have the next ones."""
THROTTLE_CELSIUS = 84.0
"""Temperature that the device holds by slowing down."""
COOLED_CELSIUS, FREE_CELSIUS, WARM_SECONDS = 74.0, 95.0, 15.0
"""Final temperatures: with good cooling, and with bad cooling if the device did not slow down. The
third number is their time constant. A device that starts above the first one has bad cooling."""
BOOST_MHZ, CAPPED_MHZ, THROTTLED_MHZ = 1755.0, 1650.0, 1380.0
CAPPED_WATTS, THROTTLED_WATTS = 698.0, 585.0
CAP_SECONDS, THROTTLE_SECONDS = 0.3, 3.0
"""Time constants of the slowdowns by power and by heat."""


class LoadReadings(NamedTuple):
    """Readings of a device under load."""

    power_watts: float
    sm_clock_mhz: float
    celsius: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class SimulatedLoad:
    """A stress test on a device that has the temperature `warm` at its start, by monotonic time."""

    began: float
    celsius: float

    def at(self, now: float) -> LoadReadings:
        """Return the readings at a time of the monotonic clock."""
        since = max(0.0, now - self.began)
        free, hot_at = COOLED_CELSIUS, math.inf
        if self.celsius > COOLED_CELSIUS:
            free = FREE_CELSIUS
            way = (free - self.celsius) / (free - THROTTLE_CELSIUS)
            hot_at = WARM_SECONDS * math.log(max(1.0, way))
        clock = CAPPED_MHZ + (BOOST_MHZ - CAPPED_MHZ) * math.exp(
            -since / CAP_SECONDS
        )
        if since < hot_at:
            celsius = free - (free - self.celsius) * math.exp(
                -since / WARM_SECONDS
            )
            return LoadReadings(
                CAPPED_WATTS, clock, celsius, ("sw_power_cap",)
            )
        left = math.exp((hot_at - since) / THROTTLE_SECONDS)
        watts = THROTTLED_WATTS + (CAPPED_WATTS - THROTTLED_WATTS) * left
        clock = THROTTLED_MHZ + (clock - THROTTLED_MHZ) * left
        return LoadReadings(
            watts, clock, max(THROTTLE_CELSIUS, self.celsius), ("sw_thermal",)
        )


class SimulatedReader:
    """One device of the training run. Its state is a function of the time since the start."""

    heard_at = 0.0

    def __init__(
        self, index: int, began: float, loads: Mapping[str, SimulatedLoad]
    ) -> None:
        """Start at that monotonic time. `loads` has the stress tests by UUID."""
        self.index, self.began, self.loads = index, began, loads
        self._noise = random.Random(f"{SEED}:{index}")  # noqa: S311 - a picture, not a secret
        # The training has run for a long time.
        warm = {HOT_DEVICE: 86.0, STARVED_DEVICE: 46.0, NOTEBOOK_DEVICE: 33.0}
        self._temperature = warm.get(index, 64.0)
        self._at = 0.0
        self._joules = 0.0
        self._held = {"sw_power_cap": 0.0, "sw_thermal": 0.0}
        self._sample_noise = random.Random(f"{SEED}:{index}:samples")  # noqa: S311 - the same
        self.device = Device(
            index=index,
            uuid=f"GPU-51a0{index:04x}-{self._noise.getrandbits(16):04x}-4d0e-8c11-{index:012x}",
            name=NAME,
            pci_bus_id=f"00000000:{0x1A + 0x10 * index:02X}:00.0",
            pci_device_id="2330",
            memory_total_bytes=TOTAL_BYTES,
            compute_capability=COMPUTE_CAPABILITY,
            sm_clock_max_mhz=1980,
            graphics_clock_max_mhz=1980,
            memory_clock_max_mhz=2619,
            video_clock_max_mhz=1545,
            power_limit_default_watts=LIMIT_WATTS,
            power_limit_min_watts=200.0,
            power_limit_max_watts=LIMIT_WATTS,
            temperature_slowdown_celsius=SLOWDOWN_CELSIUS,
            temperature_shutdown_celsius=92,
            memory_temperature_max_celsius=95,
            pcie_generation_max=5,
            pcie_width_max=16,
            bar1_total_bytes=128 * GIB,
            architecture="hopper",
            minor_number=index,
            compute_mode="default",
            persistence_mode="enabled",
            mig_mode="disabled",
            ecc_enabled=True,
            memory_is_shared=False,
            sm_count=SM_COUNT,
        )

    def read(self, *, gpm: bool) -> tuple[DeviceReading, ...]:
        """Return the device, with the time since the last read simulated."""
        now = time.monotonic() - self.began
        load = self.loads.get(self.device.uuid)
        busy = 100 if load else self._busy(now, self._noise)
        samples = self._samples(now, busy)
        hot = self.index == HOT_DEVICE
        power = IDLE_WATTS + busy / 100 * (
            575 + 12 * math.sin(now / 7 + self.index)
        )
        power = min(LIMIT_WATTS, power + self._noise.gauss(0, 6) * (busy > 0))
        clock = (
            345 if not busy else 1980 - round(power / 12) - (180 if hot else 0)
        )
        reasons = ("sw_thermal",) * hot if busy else ("idle",)
        seconds = now - self._at
        if load is None:
            target = 28 + power / (10.9 if hot else 17.5)
            self._temperature += (target - self._temperature) * (
                1 - math.exp(-seconds / 25)
            )
        # The training waits during a stress test.
        else:
            power, exact, self._temperature, reasons = load.at(
                self.began + now
            )
            clock = round(exact)
        self._at = now
        self._joules += power * seconds
        for reason in self._held.keys() & {*reasons}:
            self._held[reason] += seconds
        used = (
            18_432
            if self.index == NOTEBOOK_DEVICE
            else 71_300 + 37 * self.index
        ) * MIB
        processes = [
            self._process(FIRST_PID, used - OTHER_BYTES, 0 if load else busy)
        ]
        if load:
            used += STRESS_BYTES
            processes.append(self._process(STRESS_PID, STRESS_BYTES, busy))
        per_link = busy * 190_000_000 // 99
        # The job of this device uses no other device.
        if self.index == STARVED_DEVICE:
            per_link = 0
        sample = DeviceSample(
            uuid=self.device.uuid,
            age_seconds=0.0,
            gpu_utilization_percent=busy,
            gpu_utilization_samples_percent=samples,
            gpu_utilization_samples_seconds=SAMPLE_SECONDS,
            memory_utilization_percent=round(busy * 0.46),
            **ZERO_READINGS,
            **(self._gpm(busy) if gpm else {}),
            memory_used_bytes=used,
            memory_total_bytes=TOTAL_BYTES,
            memory_free_bytes=TOTAL_BYTES - RESERVED_BYTES - used,
            memory_reserved_bytes=RESERVED_BYTES,
            memory_attributed_bytes=used - OTHER_BYTES,
            memory_unattributed_bytes=OTHER_BYTES,
            bar1_used_bytes=2 * MIB,
            temperature_celsius=round(self._temperature),
            temperature_margin_celsius=SLOWDOWN_CELSIUS
            - round(self._temperature),
            memory_temperature_celsius=round(self._temperature) + 6,
            power_watts=round(power, 1),
            power_average_watts=round(power, 1),
            power_instant_watts=round(power, 1),
            energy_joules=round(self._joules, 1),
            power_limit_watts=LIMIT_WATTS,
            power_limit_requested_watts=LIMIT_WATTS,
            sm_clock_mhz=clock - clock % 15,
            graphics_clock_mhz=clock - clock % 15,
            memory_clock_mhz=2619,
            video_clock_mhz=1545 if busy else 345,
            performance_state=0,
            clock_event_reasons=reasons,
            clock_event_seconds=dict(self._held),
            pcie_generation=5,
            pcie_width=16,
            pcie_rx_bytes_per_second=busy * 3_100_000,
            pcie_tx_bytes_per_second=busy * 1_200_000,
            nvlink_rx_bytes_per_second=LINKS * per_link,
            nvlink_tx_bytes_per_second=LINKS * per_link,
            nvlink_link_rx_bytes_per_second=(per_link,) * LINKS,
            nvlink_link_tx_bytes_per_second=(per_link,) * LINKS,
            remap_pending=False,
            remap_failed=False,
            recovery_action="none",
        )
        absent = {
            name: Absence.DISABLED
            if name in GPM_READINGS
            else Absence.NOT_SUPPORTED
            for name in READINGS
            if getattr(sample, name) is None
        }
        sample = replace(sample, absent=absent)
        return (DeviceReading(self.device, sample, tuple(processes)),)

    def _gpm(self, busy: int) -> dict[str, Any]:
        """Return readings of a bfloat16 run: SMs well used, tensor cores half used."""
        shares = {
            "sm_active": 0.91,
            "sm_occupancy": 0.34,
            "tensor_active": 0.52,
        }
        shares |= {
            "dram_active": 0.46,
            "fp64_active": 0.0,
            "fp32_active": 0.07,
        }
        shares |= {"fp16_active": 0.02, "graphics_active": 0.99}
        return {
            f"{name}_percent": round(
                min(100, max(0, self._noise.gauss(share * busy, share))), 1
            )
            for name, share in shares.items()
        }

    def _samples(self, now: float, busy: int) -> tuple[int, ...]:
        """Return the samples since the last read. The newest is the current utilization."""
        first, end = (
            int(time / SAMPLE_SECONDS) + 1 for time in (self._at, now)
        )
        earlier = (
            self._busy(number * SAMPLE_SECONDS, self._sample_noise)
            for number in range(first, end - 1)
        )
        return (*earlier, busy) if end > first else ()

    def _busy(self, now: float, noise: random.Random) -> int:
        if self.index == NOTEBOOK_DEVICE:
            return 0
        if self.index == STARVED_DEVICE:
            works = (
                now % STARVED_EVERY_SECONDS
                < STARVED_WORK * STARVED_EVERY_SECONDS
            )
            return min(100, round(noise.gauss(97, 1.2))) if works else 0
        into = now % CHECKPOINT_EVERY_SECONDS
        if into > CHECKPOINT_EVERY_SECONDS - CHECKPOINT_SECONDS:
            # Rank 0 writes the checkpoint, and the others wait.
            return 3 if self.index == 0 else 0
        return min(100, round(noise.gauss(98, 1.2)))

    def _process(
        self,
        first_pid: int,
        used: int,
        busy: int,
    ) -> Process:
        return Process(
            first_pid + self.index,
            self.device.uuid,
            ProcessKind.COMPUTE,
            used,
            sm_utilization_percent=busy,
            memory_utilization_percent=round(busy * 0.46),
            encoder_utilization_percent=0,
            decoder_utilization_percent=0,
        )


def simulated_owners(pids: Iterable[int]) -> Iterator[tuple[int, Facts]]:
    """Yield the owner of each simulated process. The processes began some hours ago."""
    for pid in pids:
        yield pid, _owner_of(pid)


_BEGAN = float(int(time.time()))


def _owner_of(pid: int) -> Facts:
    """Return the owner: a rank of the training, the notebook or the stress test."""
    rank = pid - FIRST_PID
    if pid >= STRESS_PID:
        return {
            "user": "you",
            "command": "gputop stress test (simulated)",
            "start_time": _BEGAN,
            "cpu_percent": 1.0,
            "memory_resident_bytes": GIB,
        }
    if rank == NOTEBOOK_DEVICE:
        return {
            "user": "bo",
            "command": "python -m ipykernel_launcher -f kernel-5c1f.json",
            "start_time": _BEGAN - 40_000,
            "cpu_percent": 0.3,
            "memory_resident_bytes": 1_240 * MIB,
            "parent_pid": 2_210,
        }
    if rank == STARVED_DEVICE:
        return {
            "user": "eve",
            "command": "python finetune.py --data /mnt/nfs/images --workers 1",
            "start_time": _BEGAN - 3_100,
            "cpu_percent": 64.0,
            "children_cpu_most_percent": 99.0,
            "memory_resident_bytes": 6_100 * MIB,
            "parent_pid": 2_377,
        }
    options = f"--config llama-8b.yaml --local-rank {rank} --resume latest"
    return {
        "user": "ada",
        "command": f"python train.py {options}",
        "start_time": _BEGAN + rank - 7_200,
        "cpu_percent": 100.0 + 7 * rank,
        "memory_resident_bytes": 9_300 * MIB + rank * 41 * MIB,
        "parent_pid": FIRST_PID - 1,
        "parent_command": f"torchrun --nproc-per-node {STARVED_DEVICE} train.py",
        "parent_start_time": _BEGAN - 7_204,
        "slurm_job": "71524",
        "rank": rank,
        "world_size": STARVED_DEVICE,
        "job_id": "node01:29500",
    }


class SimulatedDriver:
    """Eight simulated H100s."""

    driver_version = "580.65.06"
    cuda_version = "13.0"

    def __init__(self) -> None:
        self._loads: dict[str, SimulatedLoad] = {}

    def simulate(self, loads: Mapping[str, tuple[float, float]]) -> None:
        """Put exactly these devices under load. Raises TypeError or ValueError."""
        wanted = {
            uuid: SimulatedLoad(*map(float, each))
            for uuid, each in loads.items()
        }
        for uuid in self._loads.keys() - wanted.keys():
            self._loads.pop(uuid)
        self._loads |= wanted

    def unlisted_gpus(self) -> tuple[str, ...]:
        """Return none, because simulated devices are on no bus."""
        return ()

    def readers(self) -> tuple[SimulatedReader, ...]:
        now = time.monotonic()
        return tuple(
            SimulatedReader(index, now, self._loads)
            for index in range(DEVICES)
        )

    def events(self) -> tuple[Event, ...]:
        """Wait a second and return no events."""
        threading.Event().wait(1.0)
        return ()

    def close(self) -> None:
        """Do nothing, because there is nothing to release."""
