"""Simulated fleet as the text that dcgm-exporter writes: its names, types, labels and order.

Format and labels: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. A site adds the
labels `cluster` and `rack` when it scrapes; `simulated` marks the simulation.

Over HTTP there is one page of the whole fleet, and a target for each host.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs
from wsgiref.util import application_uri

from gputop.fleet.demo.site import DRIVER, Flaw, SimulatedGpu, hosts_of
from gputop.output.prometheus.metrics import XID_HELP
from gputop.output.prometheus.scrape import TEXT, routed
from gputop.schema.catalogue import CATALOGUE
from gputop.schema.clock_events import BITS

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from gputop.fleet.demo.site import Wave

SEED = 9
ORIGIN = 1_750_000_000.0
"""Unix time at which all drivers were loaded, and counters began."""
AWAY_AFTER_SECONDS = 30.0
"""Seconds until an exporter goes away: enough for a scrape every 15 s to have seen it."""
ERROR_SECONDS = 120.0
"""Seconds between uncorrected errors."""
WARM_SECONDS = 60.0
"""Window of the mean power that the temperature follows."""
RIPPLE, RIPPLE_PER_SECOND = 0.006, 0.31
"""Amplitude as a share of the power limit, and radians per second."""
IDLE_MHZ = 345


class DcgmReading(NamedTuple):
    """Readings of a GPU in the units of DCGM; None if unreadable."""

    xid: int
    """Last Xid; 0 for none."""
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_celsius: int | None = None
    gpu_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_millijoules: int | None = None
    pcie_replays: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None
    memory_free_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    clock_event_reasons: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remapped_rows: int | None = None
    remap_failed: int | None = None
    remap_pending: int | None = None
    engine_active: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None


class Simulator:
    """Simulated fleet. Asking does not change it.

    Readings are a function of seed and time, so that two scrapes, two programs and a restarted
    program agree. Two flaws develop from the start on: the exporter of a host goes away, and
    uncorrected memory errors grow in number.
    """

    def __init__(self, gpus: int, *, started: float, seed: int = SEED) -> None:
        """Let the flaws develop from the Unix time `started`."""
        self.started = started
        self.hosts = {gpus[0].host: gpus for gpus in hosts_of(gpus, seed)}
        """GPUs by host."""

    @property
    def gpus(self) -> list[SimulatedGpu]:
        """All GPUs."""
        return [gpu for gpus in self.hosts.values() for gpu in gpus]

    @property
    def planted(self) -> list[SimulatedGpu]:
        """GPUs with a flaw. A fleet of 64 and more has each kind."""
        return [gpu for gpu in self.gpus if gpu.flaw is not None]

    def is_away(self, host: str, now: float) -> bool:
        """Return True if the exporter of the host does not answer at that time."""
        return now >= self.started + AWAY_AFTER_SECONDS and any(
            gpu.flaw is Flaw.AWAY for gpu in self.hosts[host]
        )

    def readings(self, gpus: Iterable[SimulatedGpu], now: float) -> list[DcgmReading]:
        """Return the readings of each GPU at that time."""
        seconds = max(0.0, now - ORIGIN)
        gpus = tuple(gpus)
        loads = {job: _load(job.wave, seconds) for job in {gpu.job for gpu in gpus}}
        return [self._reading(gpu, loads[gpu.job], seconds, now) for gpu in gpus]

    def _reading(self, gpu: SimulatedGpu, load: _Load, seconds: float, now: float) -> DcgmReading:
        flaw, model, kind = gpu.flaw, gpu.model, gpu.job.kind
        if flaw is Flaw.LOST:
            return DcgmReading(xid=79)
        if flaw is Flaw.IDLE_HELD:
            load = _NONE
        level = load.level * gpu.evenness
        slowed = _CLOCK.get(flaw, 1.0)
        swing = (model.limit_watts - model.idle_watts) * kind.draw * gpu.evenness * slowed
        ripple = RIPPLE * model.limit_watts
        turn = RIPPLE_PER_SECOND * seconds + gpu.phase
        power = model.idle_watts + swing * load.level + ripple * math.sin(turn)
        joules = model.idle_watts * seconds + swing * load.total
        joules += ripple / RIPPLE_PER_SECOND * (math.cos(gpu.phase) - math.cos(turn))
        warm = (model.idle_watts + swing * load.mean) / model.limit_watts
        celsius = 88 + round(math.sin(turn)) if flaw is Flaw.THERMAL else None
        celsius = celsius or round(gpu.inlet_celsius + 38 * warm)
        used = round(model.memory_mib * (0.74 if flaw is Flaw.IDLE_HELD else gpu.job.memory))
        errors = _errors(now - self.started) if flaw is Flaw.ECC else 0
        dram = kind.dram * level
        return DcgmReading(
            xid=48 if errors else 0,
            sm_clock_mhz=round(model.sm_mhz * slowed - 0.2 * power) if level else IDLE_MHZ,
            memory_clock_mhz=model.memory_mhz,
            memory_celsius=celsius + 5 + round(8 * dram),
            gpu_celsius=celsius,
            power_watts=power,
            power_limit_watts=model.limit_watts,
            energy_millijoules=round(joules * 1000),
            pcie_replays=0,
            gpu_percent=round(100 * level),
            memory_percent=round(100 * dram),
            memory_free_mib=model.memory_mib - model.reserved_mib - used,
            memory_used_mib=used,
            memory_reserved_mib=model.reserved_mib,
            clock_event_reasons=_reasons(flaw, level, power / model.limit_watts),
            ecc_corrected=2 * errors,
            ecc_uncorrected=errors,
            remapped_rows=8 if flaw is Flaw.REMAP else min(errors, 8),
            remap_failed=int(flaw is Flaw.REMAP),
            remap_pending=int(flaw is Flaw.ECC),
            engine_active=level,
            sm_active=0.93 * level,
            tensor_active=kind.tensor * level,
            dram_active=dram,
        )


class _Load(NamedTuple):
    """Load of a job: now, in total, and its recent mean."""

    level: float
    total: float
    mean: float


def _load(wave: Wave, seconds: float) -> _Load:
    total = wave.integral(seconds)
    lately = total - wave.integral(seconds - WARM_SECONDS)
    return _Load(wave.level(seconds), total, lately / WARM_SECONDS)


_NONE = _Load(0.0, 0.0, 0.0)
_CLOCK: dict[Flaw | None, float] = {Flaw.SLOW: 0.6, Flaw.THERMAL: 0.55}
"""Factor for clock and power."""


def _errors(seconds: float) -> int:
    return 3 + int(max(0.0, seconds) / ERROR_SECONDS)


def _reasons(flaw: Flaw | None, level: float, of_limit: float) -> int:
    if flaw is Flaw.THERMAL:
        return BITS["hw_slowdown"] | BITS["hw_thermal"]
    if not level:
        return BITS["idle"]
    return BITS["sw_power_cap"] if of_limit > 0.9 else 0


class DcgmMetric(NamedTuple):
    """Metric of dcgm-exporter, and its reading."""

    name: str
    kind: str
    reading: str
    form: str = "d"
    """Format of the number, as in dcgm-exporter: whole, or with six decimals."""


DCGM_METRICS = (
    DcgmMetric("DEV_SM_CLOCK", "gauge", "sm_clock_mhz"),
    DcgmMetric("DEV_MEM_CLOCK", "gauge", "memory_clock_mhz"),
    DcgmMetric("DEV_MEMORY_TEMP", "gauge", "memory_celsius"),
    DcgmMetric("DEV_GPU_TEMP", "gauge", "gpu_celsius"),
    DcgmMetric("DEV_POWER_USAGE", "gauge", "power_watts", ".6f"),
    DcgmMetric("DEV_POWER_MGMT_LIMIT", "gauge", "power_limit_watts", ".6f"),
    DcgmMetric("DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "energy_millijoules"),
    DcgmMetric("DEV_PCIE_REPLAY_COUNTER", "counter", "pcie_replays"),
    DcgmMetric("DEV_GPU_UTIL", "gauge", "gpu_percent"),
    DcgmMetric("DEV_MEM_COPY_UTIL", "gauge", "memory_percent"),
    DcgmMetric("DEV_XID_ERRORS", "gauge", "xid"),
    DcgmMetric("DEV_FB_FREE", "gauge", "memory_free_mib"),
    DcgmMetric("DEV_FB_USED", "gauge", "memory_used_mib"),
    DcgmMetric("DEV_FB_RESERVED", "gauge", "memory_reserved_mib"),
    DcgmMetric("DEV_CLOCKS_EVENT_REASONS", "gauge", "clock_event_reasons"),
    DcgmMetric("DEV_ECC_SBE_VOL_TOTAL", "counter", "ecc_corrected"),
    DcgmMetric("DEV_ECC_DBE_VOL_TOTAL", "counter", "ecc_uncorrected"),
    DcgmMetric("DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "remapped_rows"),
    DcgmMetric("DEV_ROW_REMAP_FAILURE", "gauge", "remap_failed"),
    DcgmMetric("DEV_ROW_REMAP_PENDING", "gauge", "remap_pending"),
    DcgmMetric("PROF_GR_ENGINE_ACTIVE", "gauge", "engine_active", ".6f"),
    DcgmMetric("PROF_SM_ACTIVE", "gauge", "sm_active", ".6f"),
    DcgmMetric("PROF_PIPE_TENSOR_ACTIVE", "gauge", "tensor_active", ".6f"),
    DcgmMetric("PROF_DRAM_ACTIVE", "gauge", "dram_active", ".6f"),
)
"""Metrics in the order of dcgm-exporter's page."""
_HELPS = dict(reading.dcgm for reading in CATALOGUE.values()) | {"DEV_XID_ERRORS": XID_HELP}
_XIDS = {0: "No Error", 48: "Double Bit ECC Error", 79: "GPU has fallen off the bus"}
"""Xids in the words of dcgm-exporter."""


class FleetPages:
    """Pages of the hosts of a fleet. Labels are formatted once, numbers at each scrape."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._labels = {gpu: _labels(gpu) for gpu in simulator.gpus}

    def text(self, hosts: Iterable[str], now: float) -> Iterator[bytes]:
        """Yield the metrics of those hosts at that time, one at a time."""
        gpus = [gpu for host in hosts for gpu in self.simulator.hosts[host]]
        labels = [self._labels[gpu] for gpu in gpus]
        # By reading, not by GPU: going through a column is cheaper than many lookups.
        columns = zip(*self.simulator.readings(gpus, now), strict=True)
        numbers = dict(zip(DcgmReading._fields, columns, strict=True)) if gpus else {}
        for field in DCGM_METRICS:
            if text := "".join(_lines(field, labels, numbers.get(field.reading, ()))):
                name = f"DCGM_FI_{field.name}"
                about = f"# HELP {name} {_HELPS[field.name]}\n# TYPE {name} {field.kind}\n"
                yield f"{about}{text}".encode()


def _lines(field: DcgmMetric, labels: Iterable[str], values: Iterable[float | None]) -> list[str]:
    start, form = f"DCGM_FI_{field.name}{{", field.form
    if field.reading == "xid":
        return [
            f'{start}{label},err_code="{xid}",err_msg="{_XIDS[int(xid)]}"}} {xid}\n'
            for label, xid in zip(labels, values, strict=True)
            if xid is not None
        ]
    return [
        f"{start}{label}}} {value:{form}}\n"
        for label, value in zip(labels, values, strict=True)
        if value is not None
    ]


def zipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress with gzip at its fastest, as repetitive text gains little by more."""
    packer = zlib.compressobj(1, wbits=31)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _labels(gpu: SimulatedGpu) -> str:
    """Return the labels as they stand between the braces."""
    found = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.model.name,
        "Hostname": gpu.host,
        "DCGM_FI_DRIVER_VERSION": DRIVER,
    }
    if gpu.pod:
        kind = gpu.job.kind
        found |= {"container": kind.container, "namespace": gpu.job.namespace, "pod": gpu.pod}
    found |= {"cluster": gpu.cluster, "rack": gpu.rack, "simulated": "true"}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in found.items())


def _escaped(value: str) -> str:
    """Escape a value by https://prometheus.io/docs/instrumenting/exposition_formats."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


METRICS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
DCGM_EXPORTER_PORT = 9400
"""Port of a real exporter, used only in names of instances."""
CONFIG = """\
# Scrapes the simulated fleet of `gputop exporter --demo-fleet`: a target for each host.
global: {{scrape_interval: 15s}}
scrape_configs:
  - job_name: dcgm-exporter
    http_sd_configs: [{{url: {url}}}]
"""


def site(simulator: Simulator) -> WSGIApplication:
    """`/metrics`, also with `?host=NAME`, the targets for Prometheus, and its configuration."""
    pages = FleetPages(simulator)

    def metrics(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        now = time.time()
        asked = parse_qs(environ.get("QUERY_STRING", "")).get("host")
        hosts = simulator.hosts if asked is None else asked[:1]
        if any(host not in simulator.hosts for host in hosts):
            start("404 Not Found", [*TEXT])
            return [b"No such host: see /sd.\n"]
        answering = [host for host in hosts if not simulator.is_away(host, now)]
        if not answering:
            start("503 Service Unavailable", [*TEXT])
            return [b"This host's exporter is away, as simulated.\n"]
        text, headers = pages.text(answering, now), [METRICS]
        if _takes_gzip(environ):
            text, headers = zipped(text), [METRICS, ("Content-Encoding", "gzip")]
        start("200 OK", headers)
        # The page of a host is sent at once, that of all hosts a metric at a time to save memory.
        return text if asked is None else [b"".join(text)]

    def targets(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """https://prometheus.io/docs/prometheus/latest/http_sd."""
        start("200 OK", [("Content-Type", "application/json")])
        address = application_uri(environ).removeprefix("http://").rstrip("/")
        found = [
            {
                "targets": [address],
                "labels": {"__param_host": host, "instance": f"{host}:{DCGM_EXPORTER_PORT}"},
            }
            for host in simulator.hosts
        ]
        return [json.dumps(found).encode()]

    def config(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [*TEXT])
        return [CONFIG.format(url=json.dumps(f"{application_uri(environ)}sd")).encode()]

    return routed({"/metrics": metrics, "/sd": targets, "/prometheus.yml": config})


def _takes_gzip(environ: WSGIEnvironment) -> bool:
    accepted = environ.get("HTTP_ACCEPT_ENCODING", "").split(",")
    return any(each.partition(";")[0].strip() == "gzip" for each in accepted)
