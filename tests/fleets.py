"""Made-up fleets of any size, the same for the same seed, with a few GPUs that are not well."""

import dataclasses
from functools import cache
from random import Random
from typing import Any

from gputop.agent.problem import Problem
from gputop.fleet.model import Fleet, Gpu
from gputop.health.findings import Finding, Severity
from tests.streams import GIB, NOW

HOST_GPUS, RACK_HOSTS = 8, 8
MODELS = (
    ("NVIDIA H100 80GB HBM3", 80, 700.0),
    ("NVIDIA A100-SXM4-80GB", 80, 400.0),
    ("NVIDIA H200", 141, 700.0),
)
LABELS = ("cluster", "rack", "job", "pod")
AWAY = Problem(
    "Prometheus at prom:9090 does not answer",
    "the connection was refused",
    "Start it, or check the address",
)
WRONG = (
    ("xid", Severity.FAULT, "Xid 79: the GPU has fallen off the bus"),
    ("ecc", Severity.FAULT, "Xid 48: 14 uncorrectable memory errors, rising"),
    ("remap", Severity.FAULT, "Row remapping failed: replace the GPU"),
    ("thermal", Severity.WARNING, "Slowed down by heat: 88 °C"),
    ("slow", Severity.WARNING, "Slower than its job's others: 1410 of 1980 MHz"),
    ("held_idle", Severity.INFORMATION, "Idle for 3 h with 71 GiB held"),
    ("stale", Severity.STALE, "No scrape for 4:10"),
)


def drawn(seed: str | int) -> Random:
    return Random(seed)  # noqa: S311 - nothing is secret here


def gpu(number: int, random: Random, **changes: Any) -> Gpu:
    host, index = divmod(number, HOST_GPUS)
    rack = host // RACK_HOSTS
    name, memory, limit = MODELS[rack // 4 % len(MODELS)]
    job = ("train-llm", "train-vision", "serve-chat", "")[host // 3 % 4]
    load = {"train": random.gauss(96, 2), "serve": random.gauss(55, 12), "": 0.0}[job[:5]]
    load = max(0.0, min(100.0, load))
    held = {"train": 0.92, "serve": 0.7, "": 0.01}[job[:5]]
    made = Gpu(
        key=f"GPU-{number:08d}-aaaa-bbbb-cccc-000000000000",
        uuid=f"GPU-{number:08d}-aaaa-bbbb-cccc-000000000000",
        host=f"node{host:04d}",
        index=str(index),
        name=name,
        labels={
            "cluster": "ab"[rack % 2],
            "rack": f"r{rack:03d}",
            **({"job": job, "pod": f"{job}-{host}"} if job else {}),
        },
        age_seconds=random.uniform(1, 14),
        gpu_utilization_percent=round(load),
        sm_active_percent=load * 0.86,
        tensor_active_percent=load * 0.48,
        memory_used_bytes=held * memory * GIB,
        memory_total_bytes=float(memory * GIB),
        temperature_celsius=round(34 + load * 0.34 + random.gauss(0, 2)),
        power_watts=limit * (0.12 + load * 0.0082) + random.gauss(0, 6),
        power_limit_watts=limit,
        sm_clock_mhz=1980 if load else 345,
    )
    return dataclasses.replace(made, **changes)


def fleet(count: int, *, seed: int = 1, tick: int = 0, **changes: Any) -> Fleet:
    """`count` GPUs after `tick` intervals; something is wrong with one in a thousand, and more."""
    return dataclasses.replace(_made(count, seed, tick), **changes)


@cache
def _made(count: int, seed: int, tick: int) -> Fleet:
    gpus = [gpu(number, drawn(f"{seed} {tick // 4} {number}")) for number in range(count)]
    noise = drawn(f"{seed} {tick}")
    gpus = [
        dataclasses.replace(
            each,
            temperature_celsius=(each.temperature_celsius or 0) + noise.randint(-1, 1),
            power_watts=(each.power_watts or 0) + noise.gauss(0, 4),
            gpu_utilization_percent=max(
                0, min(100, (each.gpu_utilization_percent or 0) + noise.randint(-2, 2))
            ),
        )
        for each in gpus
    ]
    wrong = []
    places = drawn(seed).sample(range(count), min(count, 2 + count // 1000 + count // 64 % 8))
    for n, number in enumerate(sorted(places)):
        kind, severity, text = WRONG[n % len(WRONG)]
        sick = gpus[number]
        wrong.append(Finding(severity, text, rule=kind, device_uuid=sick.key, label=sick.place))
        if severity is Severity.STALE or kind == "xid":
            gpus[number] = without_readings(sick)
    wrong.sort(key=lambda each: -each.severity)
    return Fleet(NOW + 10 * tick, tuple(gpus), tuple(wrong), took_seconds=0.42, label_names=LABELS)


def without_readings(each: Gpu) -> Gpu:
    return dataclasses.replace(
        each,
        age_seconds=250.0,
        gpu_utilization_percent=None,
        sm_active_percent=None,
        tensor_active_percent=None,
        memory_used_bytes=None,
        temperature_celsius=None,
        power_watts=None,
        sm_clock_mhz=None,
    )
