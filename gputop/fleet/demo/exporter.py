"""A simulated fleet as the text that dcgm-exporter writes: its names, types, labels and order.

Format and labels: https://github.com/NVIDIA/dcgm-exporter, release 4.5.3-4.8.2. `cluster` and
`rack` are what a site adds where it scrapes; `simulated` says that it is none.

Over HTTP it is one page of all of it, or a target for each host, as fleets are.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs
from wsgiref.util import application_uri

from gputop.fleet.demo.readings import Reading
from gputop.fleet.demo.site import DRIVER
from gputop.output.prometheus import dcgm
from gputop.output.prometheus.scrape import TEXT, routed

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from gputop.fleet.demo.readings import Simulator
    from gputop.fleet.demo.site import SimulatedGpu


class Field(NamedTuple):
    """A metric, and the reading that it is."""

    name: str
    kind: str
    reading: str
    form: str = "d"
    """Whole numbers as they are, others with six decimals: as dcgm-exporter has them."""


FIELDS = (
    Field("DEV_SM_CLOCK", "gauge", "sm_clock_mhz"),
    Field("DEV_MEM_CLOCK", "gauge", "memory_clock_mhz"),
    Field("DEV_MEMORY_TEMP", "gauge", "memory_celsius"),
    Field("DEV_GPU_TEMP", "gauge", "gpu_celsius"),
    Field("DEV_POWER_USAGE", "gauge", "power_watts", ".6f"),
    Field("DEV_POWER_MGMT_LIMIT", "gauge", "power_limit_watts", ".6f"),
    Field("DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "energy_millijoules"),
    Field("DEV_PCIE_REPLAY_COUNTER", "counter", "pcie_replays"),
    Field("DEV_GPU_UTIL", "gauge", "gpu_percent"),
    Field("DEV_MEM_COPY_UTIL", "gauge", "memory_percent"),
    Field("DEV_XID_ERRORS", "gauge", "xid"),
    Field("DEV_FB_FREE", "gauge", "memory_free_mib"),
    Field("DEV_FB_USED", "gauge", "memory_used_mib"),
    Field("DEV_FB_RESERVED", "gauge", "memory_reserved_mib"),
    Field("DEV_CLOCKS_EVENT_REASONS", "gauge", "clock_event_reasons"),
    Field("DEV_ECC_SBE_VOL_TOTAL", "counter", "ecc_corrected"),
    Field("DEV_ECC_DBE_VOL_TOTAL", "counter", "ecc_uncorrected"),
    Field("DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "remapped_rows"),
    Field("DEV_ROW_REMAP_FAILURE", "gauge", "remap_failed"),
    Field("DEV_ROW_REMAP_PENDING", "gauge", "remap_pending"),
    Field("PROF_GR_ENGINE_ACTIVE", "gauge", "engine_active", ".6f"),
    Field("PROF_SM_ACTIVE", "gauge", "sm_active", ".6f"),
    Field("PROF_PIPE_TENSOR_ACTIVE", "gauge", "tensor_active", ".6f"),
    Field("PROF_DRAM_ACTIVE", "gauge", "dram_active", ".6f"),
)
"""In the order of dcgm-exporter's page."""
_HELPS = {field.name: field.help for field in dcgm.FIELDS} | {"DEV_XID_ERRORS": dcgm.XID_HELP}
_XIDS = {0: "No Error", 48: "Double Bit ECC Error", 79: "GPU has fallen off the bus"}
"""In dcgm-exporter's words."""


class FleetPages:
    """The text of any of a fleet's hosts; labels are written once, numbers at each scrape."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self._labels = {gpu: _labels(gpu) for gpu in simulator.gpus}

    def text(self, hosts: Iterable[str], now: float) -> Iterator[bytes]:
        """The metrics of those hosts at that time, each when it is asked for."""
        gpus = [gpu for host in hosts for gpu in self.simulator.hosts[host]]
        labels = [self._labels[gpu] for gpu in gpus]
        # By reading, not by GPU: going through a column is cheaper than asking for each number.
        columns = zip(*self.simulator.readings(gpus, now), strict=True)
        numbers = dict(zip(Reading._fields, columns, strict=True)) if gpus else {}
        for field in FIELDS:
            if text := "".join(_lines(field, labels, numbers.get(field.reading, ()))):
                name = f"DCGM_FI_{field.name}"
                about = f"# HELP {name} {_HELPS[field.name]}\n# TYPE {name} {field.kind}\n"
                yield f"{about}{text}".encode()


def _lines(field: Field, labels: Iterable[str], values: Iterable[float | None]) -> list[str]:
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
    """The same in gzip, at its quickest: text that repeats itself gains little by more."""
    packer = zlib.compressobj(1, wbits=31)
    for chunk in chunks:
        yield packer.compress(chunk)
    yield packer.flush()


def _labels(gpu: SimulatedGpu) -> str:
    """As they stand between the braces."""
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
    """As https://prometheus.io/docs/instrumenting/exposition_formats wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


METRICS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
DCGM_EXPORTER_PORT = 9400
"""Where a real one would answer: of the name of an instance alone."""
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
            return [b"This host's exporter is away: the simulation wants it so.\n"]
        text, headers = pages.text(answering, now), [METRICS]
        if _takes_gzip(environ):
            text, headers = zipped(text), [METRICS, ("Content-Encoding", "gzip")]
        start("200 OK", headers)
        # A host's page goes out in one piece; of that of all, a metric at a time is in memory.
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
