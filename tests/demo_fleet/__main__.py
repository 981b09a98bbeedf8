"""Serves a simulated fleet for Prometheus: `python -m tests.demo_fleet 512 [--listen ADDRESS]`.

Each host is a target of its own, as with dcgm-exporter: its page is /metrics?host=NAME, and /sd
lists them all. /metrics alone is the whole fleet on one page. Every series has the label
simulated="true". /prometheus.yml is the configuration of a Prometheus that scrapes it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from gputop.commands.exporter import DEFAULT, parse_address, until_stopped, url_of
from gputop.console import print_message
from gputop.output.prometheus.scrape import Server
from tests.demo_fleet.exporter import Simulator, site
from tests.demo_fleet.site import GPUS_OF_HOST


def main() -> int:
    """Serve until a signal, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gpus", type=int, metavar="GPUS")
    parser.add_argument("--listen", type=parse_address, default=DEFAULT, metavar="HOST:PORT")
    options = parser.parse_args()
    host, port = options.listen
    server = Server(host, port, site(Simulator(options.gpus, started=time.time())))
    print_message(
        f"a simulated fleet of {options.gpus} GPUs, {GPUS_OF_HOST} on each host, some with faults"
    )
    fetch = f"curl -o fleet.yml {url_of(server, 'prometheus.yml')}"
    run = "prometheus --config.file=fleet.yml"
    print_message(f"for Prometheus: {fetch} && {run}")
    return asyncio.run(until_stopped(server))


if __name__ == "__main__":
    sys.exit(main())
