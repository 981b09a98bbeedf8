"""Simulated fleet as the text that dcgm-exporter writes: its names, types, labels and order.

Format and labels: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. A site adds the
labels `cluster` and `rack` when it scrapes; `simulated` marks the simulation.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any
from urllib.parse import parse_qs
from wsgiref.util import application_uri

from gputop.agent.words import CLOCK_EVENT_BITS
from gputop.output.prometheus.metrics import XID_HELP
from gputop.schema.catalogue import CATALOGUE
from tests.demo_fleet.site import Flaw, SimulatedGpu, hosts_of

Environ = dict[str, Any]
Answer = Callable[[str, list[tuple[str, str]]], Any]
SEED = 9
ORIGIN = 1_750_000_000.0
"""Unix time at which all drivers were loaded, and counters began."""
ERROR_SECONDS = 120.0
"""Seconds between uncorrected errors."""
DcgmReadings = dict[str, float]
"""Readings of a GPU by DCGM's names, in its units and in the order of its exporter."""
COUNTERS = (
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "DEV_PCIE_REPLAY_COUNTER",
    "DEV_ECC_SBE_VOL_TOTAL",
    "DEV_ECC_DBE_VOL_TOTAL",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
)
"""Readings that only grow."""


class Simulator:
    """Simulated fleet. Asking does not change it.

    Readings are a function of seed and time, so that two scrapes, two programs and a restarted
    program agree. Uncorrected memory errors grow in number from the Unix time `started` on.
    """

    def __init__(self, gpus: int, *, started: float) -> None:
        self.started = started
        self.hosts = {gpus[0].host: gpus for gpus in hosts_of(gpus, SEED)}

    @property
    def gpus(self) -> list[SimulatedGpu]:
        return [gpu for gpus in self.hosts.values() for gpu in gpus]

    def readings(self, gpus: Iterable[SimulatedGpu], now: float) -> list[DcgmReadings]:
        seconds = max(0.0, now - ORIGIN)
        return [self._reading(gpu, seconds, now) for gpu in gpus]

    def _reading(self, gpu: SimulatedGpu, seconds: float, now: float) -> DcgmReadings:
        flaw, model, kind = gpu.flaw, gpu.model, gpu.job
        if flaw is Flaw.LOST:
            return {"DEV_XID_ERRORS": 79}
        load = kind.level(seconds)
        level = load * gpu.evenness
        slowed = {Flaw.SLOW: 0.6, Flaw.THERMAL: 0.55}.get(flaw, 1.0) if flaw else 1.0
        swing = (model.limit_watts - model.idle_watts) * kind.draw * gpu.evenness * slowed
        turn = 0.31 * seconds + gpu.phase
        power = model.idle_watts + swing * load + 0.006 * model.limit_watts * math.sin(turn)
        usual = model.idle_watts + swing * kind.load
        celsius = 88 + round(math.sin(turn)) if flaw is Flaw.THERMAL else None
        celsius = celsius or round(gpu.inlet_celsius + 38 * usual / model.limit_watts)
        used = round(model.memory_mib * kind.memory)
        passed = max(0.0, now - self.started)
        errors = 3 + int(passed / ERROR_SECONDS) if flaw is Flaw.ECC else 0
        dram = kind.dram * level
        return {
            "DEV_SM_CLOCK": round(model.sm_mhz * slowed - 0.2 * power) if level else 345,
            "DEV_MEM_CLOCK": model.memory_mhz,
            "DEV_MEMORY_TEMP": celsius + 5 + round(8 * dram),
            "DEV_GPU_TEMP": celsius,
            "DEV_POWER_USAGE": power,
            "DEV_POWER_MGMT_LIMIT": model.limit_watts,
            "DEV_TOTAL_ENERGY_CONSUMPTION": round(1000 * usual * seconds),
            "DEV_PCIE_REPLAY_COUNTER": 0,
            "DEV_GPU_UTIL": round(100 * level),
            "DEV_MEM_COPY_UTIL": round(100 * dram),
            "DEV_XID_ERRORS": 48 if errors else 0,
            "DEV_FB_FREE": model.memory_mib - model.reserved_mib - used,
            "DEV_FB_USED": used,
            "DEV_FB_RESERVED": model.reserved_mib,
            "DEV_CLOCKS_EVENT_REASONS": _reasons(flaw, level, power / model.limit_watts),
            "DEV_ECC_SBE_VOL_TOTAL": 2 * errors,
            "DEV_ECC_DBE_VOL_TOTAL": errors,
            "DEV_UNCORRECTABLE_REMAPPED_ROWS": 8 if flaw is Flaw.REMAP else min(errors, 8),
            "DEV_ROW_REMAP_FAILURE": int(flaw is Flaw.REMAP),
            "DEV_ROW_REMAP_PENDING": int(flaw is Flaw.ECC),
            "PROF_GR_ENGINE_ACTIVE": level,
            "PROF_SM_ACTIVE": 0.93 * level,
            "PROF_PIPE_TENSOR_ACTIVE": kind.tensor * level,
            "PROF_DRAM_ACTIVE": dram,
        }


def _reasons(flaw: Flaw | None, level: float, of_limit: float) -> int:
    if flaw is Flaw.THERMAL:
        return CLOCK_EVENT_BITS["hw_slowdown"] | CLOCK_EVENT_BITS["hw_thermal"]
    if not level:
        return CLOCK_EVENT_BITS["idle"]
    return CLOCK_EVENT_BITS["sw_power_cap"] if of_limit > 0.9 else 0


_HELPS = dict(reading.dcgm for reading in CATALOGUE.values()) | {"DEV_XID_ERRORS": XID_HELP}
_XIDS = {0: "No Error", 48: "Double Bit ECC Error", 79: "GPU has fallen off the bus"}
"""Xids in the words of dcgm-exporter."""


def page(simulator: Simulator, hosts: Iterable[str], now: float) -> Iterator[bytes]:
    gpus = [gpu for host in hosts for gpu in simulator.hosts[host]]
    labels = [_labels(gpu) for gpu in gpus]
    readings = simulator.readings(gpus, now)
    for name in dict.fromkeys(chain.from_iterable(readings)):
        known = [
            (label, each[name])
            for label, each in zip(labels, readings, strict=True)
            if name in each
        ]
        about = f"# HELP DCGM_FI_{name} {_HELPS[name]}\n"
        about += f"# TYPE DCGM_FI_{name} {'counter' if name in COUNTERS else 'gauge'}\n"
        yield f"{about}{''.join(_lines(name, known))}".encode()


def _lines(name: str, series: Sequence[tuple[str, float]]) -> Iterator[str]:
    """Yield the series of a metric: whole numbers, or six decimals as dcgm-exporter has them."""
    form = ".6f" if any(isinstance(value, float) for _, value in series) else "d"
    for label, value in series:
        xid = f',err_code="{value}",err_msg="{_XIDS[int(value)]}"' if "XID" in name else ""
        yield f"DCGM_FI_{name}{{{label}{xid}}} {value:{form}}\n"


@cache
def _labels(gpu: SimulatedGpu) -> str:
    found = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"00000000:{0x1A + 0x10 * gpu.index:02X}:00.0",
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.model.name,
        "Hostname": gpu.host,
        "DCGM_FI_DRIVER_VERSION": "580.95.05",
    }
    if gpu.pod:
        job = gpu.job
        found |= {"container": job.container, "namespace": job.namespace, "pod": gpu.pod}
    found |= {"cluster": gpu.cluster, "rack": gpu.rack, "simulated": "true"}
    return ",".join(f'{name}="{value}"' for name, value in found.items())


TEXT = (("Content-Type", "text/plain; charset=utf-8"),)
"""Headers. Each answer needs its own list, because the server appends the length."""
METRICS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
CONFIG = """\
# Scrapes the simulated fleet of `python -m tests.demo_fleet`: a target for each host.
global: {{scrape_interval: 15s}}
scrape_configs:
  - job_name: dcgm-exporter
    http_sd_configs: [{{url: {url}}}]
"""


def site(simulator: Simulator) -> dict[str, Callable[[Environ, Answer], Iterable[bytes]]]:
    """`/metrics`, also with `?host=NAME`, the targets for Prometheus, and its configuration."""

    def metrics(environ: Environ, start: Answer) -> Iterable[bytes]:
        asked = parse_qs(environ.get("QUERY_STRING", "")).get("host")
        hosts = simulator.hosts if asked is None else asked[:1]
        if any(host not in simulator.hosts for host in hosts):
            start("404 Not Found", [*TEXT])
            return [b"No such host: see /sd.\n"]
        text = page(simulator, hosts, time.time())
        start("200 OK", [METRICS])
        # The page of a host is sent at once, that of all hosts a metric at a time to save memory.
        return text if asked is None else [b"".join(text)]

    def targets(environ: Environ, start: Answer) -> Iterable[bytes]:
        """https://prometheus.io/docs/prometheus/latest/http_sd."""
        start("200 OK", [("Content-Type", "application/json")])
        address = application_uri(environ).removeprefix("http://").rstrip("/")
        labels = [{"__param_host": h, "instance": f"{h}:9400"} for h in simulator.hosts]
        found = [{"targets": [address], "labels": each} for each in labels]
        return [json.dumps(found).encode()]

    def config(environ: Environ, start: Answer) -> Iterable[bytes]:
        start("200 OK", [*TEXT])
        return [CONFIG.format(url=json.dumps(f"{application_uri(environ)}sd")).encode()]

    return {"/metrics": metrics, "/sd": targets, "/prometheus.yml": config}
