"""Machines in the middle of something, as streams: what the pictures of the screens show."""

import dataclasses
import functools
from typing import Any

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Event, Process, Record, Sample
from tests import streams
from tests.streams import GIB, NOW

MIB = 1 << 20
SAMPLES = 90
"""A minute and a half: charts are neither empty nor full."""
LATENESS = (0, 3, 1, 2, 5, 1, 4, 2)
"""Devices of one job do the same, a little later each."""


@functools.cache
def device(index: int) -> Device:
    return dataclasses.replace(
        streams.device(index),
        video_clock_max_mhz=1545,
        power_limit_min_watts=200.0,
        power_limit_max_watts=700.0,
        temperature_shutdown_celsius=94,
        memory_temperature_max_celsius=95,
        pcie_generation_max=5,
        pcie_width_max=16,
        bar1_total_bytes=128 * GIB,
        architecture="hopper",
        sm_count=132,
        minor_number=index,
        compute_mode="default",
        persistence_mode="enabled",
        mig_mode="disabled",
        ecc_enabled=True,
        virtualization="none",
        memory_is_shared=False,
    )


def training(index: int, tick: int, **changes: Any) -> DeviceSample:
    """An H100 that trains: steps of twenty seconds, each with a pause in which it saves."""
    step = (tick - LATENESS[index % 8]) % 20
    works = 1.0 if step > 2 else 0.15 * step
    wave = (tick * 7 + index * 13) % 11 / 10
    watts = 118 + works * (520 + 40 * wave)
    made = DeviceSample(
        uuid=device(index).uuid,
        age_seconds=0.1,
        gpu_utilization_percent=round(works * (97 + 3 * wave)),
        memory_utilization_percent=round(works * (44 + 9 * wave)),
        encoder_utilization_percent=0,
        decoder_utilization_percent=0,
        jpeg_utilization_percent=0,
        ofa_utilization_percent=0,
        sm_active_percent=works * (84 + 6 * wave),
        sm_occupancy_percent=works * (31 + 2 * wave),
        tensor_active_percent=works * (47 + 8 * wave),
        dram_active_percent=works * (52 + 5 * wave),
        fp64_active_percent=0.0,
        fp32_active_percent=works * 4.2,
        fp16_active_percent=works * 0.6,
        memory_used_bytes=71 * GIB + index % 8 * 300 * MIB,
        memory_total_bytes=80 * GIB,
        memory_free_bytes=8 * GIB - index % 8 * 300 * MIB,
        memory_reserved_bytes=552 * MIB,
        memory_attributed_bytes=70 * GIB + index % 8 * 300 * MIB,
        memory_unattributed_bytes=GIB,
        bar1_used_bytes=3 * GIB,
        temperature_celsius=round(52 + 12 * works + index % 8),
        temperature_margin_celsius=round(35 - 12 * works - index % 8),
        memory_temperature_celsius=round(58 + 14 * works + index % 8),
        power_watts=watts,
        power_average_watts=watts,
        power_instant_watts=watts + 11.5,
        power_limit_watts=700.0,
        power_limit_requested_watts=700.0,
        energy_joules=8.1e8 + 590.0 * tick,
        sm_clock_mhz=round(1980 - works * (150 + 45 * wave)),
        memory_clock_mhz=2619,
        video_clock_mhz=1545,
        performance_state=0,
        clock_event_reasons=("sw_power_cap",) if works == 1 and wave > 0.8 else (),
        clock_event_seconds={"sw_power_cap": 312.0 + tick / 4, "sw_thermal": 0.0},
        pcie_generation=5,
        pcie_width=16,
        pcie_rx_bytes_per_second=round(works * (1.9 + wave) * GIB) + 40 * MIB,
        pcie_tx_bytes_per_second=round(works * (0.4 + wave / 5) * GIB) + 12 * MIB,
        pcie_replays=0,
        nvlink_rx_bytes_per_second=round(works * (86 + 9 * wave) * GIB),
        nvlink_tx_bytes_per_second=round(works * (85 + 9 * wave) * GIB),
        nvlink_link_rx_bytes_per_second=(round(works * (86 + 9 * wave) * GIB / 18),) * 18,
        nvlink_link_tx_bytes_per_second=(round(works * (85 + 9 * wave) * GIB / 18),) * 18,
        ecc_corrected=0,
        ecc_uncorrected=0,
        ecc_corrected_lifetime=3,
        ecc_uncorrected_lifetime=0,
        remapped_rows=0,
        remap_pending=False,
        remap_failed=False,
        recovery_action="none",
        absent=dict.fromkeys(("fan_percent", "fans_percent"), Absence.NOT_SUPPORTED),
    )
    return dataclasses.replace(made, **changes) if changes else made


def rank(index: int) -> Process:
    return streams.process(
        812_400 + index,
        index,
        memory_used_bytes=70 * GIB + index % 8 * 300 * MIB,
        command="/opt/env/bin/python -u pretrain.py --config configs/llama-8b.yaml "
        "--batch-size 4 --resume latest",
        start_time=NOW - 9 * 3600,
        sm_utilization_percent=97 - index % 3,
        memory_utilization_percent=46,
        encoder_utilization_percent=0,
        decoder_utilization_percent=0,
        cpu_percent=103.0 + index,
        memory_resident_bytes=21 * GIB,
        parent_pid=812_390,
        slurm_job="71034",
    )


def notebook(index: int) -> Process:
    return streams.process(
        377_120,
        index,
        user="grace",
        memory_used_bytes=812 * MIB,
        command="python -m ipykernel_launcher -f /home/grace/.local/share/jupyter/kernel-81.json",
        start_time=NOW - 8 * 86_400,
        sm_utilization_percent=0,
        memory_utilization_percent=0,
        encoder_utilization_percent=0,
        decoder_utilization_percent=0,
        cpu_percent=0.3,
        memory_resident_bytes=2 * GIB,
        parent_pid=1,
        container="4f1c9a77b2d0",
    )


def job(devices: int, samples: int = SAMPLES, **changes: Any) -> list[Record]:
    """A job on all devices of a machine, and what the last sample is to have besides."""
    processes = (notebook(0), *(rank(index) for index in range(devices)))
    machine = dataclasses.replace(
        streams.inventory(), devices=tuple(device(n) for n in range(devices))
    )
    records: list[Record] = [machine]
    for tick in range(samples):
        made = tuple(training(index, tick) for index in range(devices))
        records.append(Sample(NOW + tick, streams.host(32), made, processes))
    last = records.pop()
    return [*records, dataclasses.replace(last, **changes)]


def changed(records: list[Record], *readings: DeviceSample, **changes: Any) -> list[Record]:
    *before, last = records
    assert isinstance(last, Sample)
    by_uuid = {sample.uuid: sample for sample in (*last.devices, *readings)}
    made = dataclasses.replace(last, devices=tuple(by_uuid.values()), **changes)
    return [*before, made]


def alarming(devices: int) -> list[Record]:
    """A job on a machine with faults and problems, for the last ten seconds."""
    machine, *told = job(devices)
    records: list[Record] = [machine, *told[:-10]]
    xid = Event(NOW + SAMPLES - 10, device(2).uuid, "xid", 94)
    for tick in range(SAMPLES - 10, SAMPLES):
        sample = told[tick]
        assert isinstance(sample, Sample)
        heat = ("hw_slowdown", "hw_thermal")
        made = (
            training(1, tick, clock_event_reasons=heat, sm_clock_mhz=1215),
            training(2, tick, ecc_uncorrected=2, remap_pending=True),
            training(3, tick, memory_used_bytes=79 * GIB, memory_free_bytes=GIB // 2),
        )
        events = (xid,) if tick == SAMPLES - 10 else ()
        records += changed([sample], *made, events=events)
    return records


def faults() -> list[Record]:
    made = (
        training(0, SAMPLES - 1),
        gone(1, DeviceState.LOST),
        gone(2, DeviceState.NOT_RESPONDING),
        gone(3, DeviceState.NEEDS_RESET),
    )
    processes = (rank(0), streams.unseen(77, 0, memory_used_bytes=None))
    return changed(job(4), *made, processes=processes)


def gone(index: int, state: DeviceState = DeviceState.LOST) -> DeviceSample:
    return dataclasses.replace(streams.lost(index, state), uuid=device(index).uuid)
