"""A simulated fleet over HTTP: one page of all of it, or a target for each host, as fleets are."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import parse_qs
from wsgiref.util import application_uri

from gputop.output.fleet_page import FleetPages, zipped
from gputop.output.scrape import TEXT, routed

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from gputop.fleet.simulator import Simulator

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
