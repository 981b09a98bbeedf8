"""Serves a simulated fleet for Prometheus: `python -m tests.demo_fleet 512 [--listen ADDRESS]`.

Each host is a target of its own, as with dcgm-exporter: its page is /metrics?host=NAME, and /sd
lists them all. /metrics alone is the whole fleet on one page. Every series has the label
simulated="true". /prometheus.yml is the configuration of a Prometheus that scrapes it.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterable
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client.exposition import ThreadingWSGIServer

from gputop.commands.exporter import DEFAULT, parse_address
from gputop.console import FINE, INTERRUPTED, print_message
from tests.demo_fleet.exporter import TEXT, Answer, Environ, Simulator, site


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gpus", type=int, metavar="GPUS")
    parser.add_argument("--listen", type=parse_address, default=DEFAULT, metavar="HOST:PORT")
    options = parser.parse_args()
    pages = site(Simulator(options.gpus, started=time.time()))

    def answer(environ: Environ, start: Answer) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path in pages:
            return pages[path](environ, start)
        start("404 Not Found", [*TEXT])
        return [b"Not here: see /metrics, /sd and /prometheus.yml.\n"]

    host, port = options.listen
    server = make_server(host, port, answer, ThreadingWSGIServer, Quiet)
    url = "http://{}:{}".format(*server.server_address[:2])
    print_message(f"a simulated fleet of {options.gpus} GPUs, some with faults")
    fetch = f"curl -o fleet.yml {url}/prometheus.yml"
    print_message(f"for Prometheus: {fetch} && prometheus --config.file=fleet.yml")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FINE))
    print_message(f"metrics at {url}/metrics")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return INTERRUPTED
    return FINE


if __name__ == "__main__":
    sys.exit(main())
