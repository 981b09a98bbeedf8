"""What a fleet of 10,000 GPUs costs to watch: `python -m tests.perf.fleet --prometheus PATH`.

The simulated fleet, a real Prometheus that scrapes it, a target for each host, and gputop on it in
a pty; all on this machine, so that each slows down the others.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.perf.measure import Recorder, processor_seconds

GPUTOP = [sys.executable, "-P", "-m", "gputop"]
LISTEN, PROMETHEUS = "127.0.0.1:19835", "127.0.0.1:19090"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prometheus", default="prometheus", metavar="PATH")
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--scraped", type=float, default=60.0, help="seconds before it is asked")
    parser.add_argument("--seconds", type=float, default=60.0, help="over which costs are taken")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        started = []
        try:
            exporter = [*GPUTOP, "exporter", "--demo-fleet", str(options.gpus), "--listen", LISTEN]
            started.append(subprocess.Popen(exporter, stderr=subprocess.DEVNULL))
            config = Path(name, "fleet.yml")
            config.write_bytes(fetched(f"http://{LISTEN}/prometheus.yml"))
            server = [options.prometheus, f"--config.file={config}"]
            server += [f"--storage.tsdb.path={name}/data", f"--web.listen-address={PROMETHEUS}"]
            started.append(subprocess.Popen(server, stderr=subprocess.DEVNULL))
            time.sleep(options.scraped)
            watch(options.gpus, options.seconds)
        finally:
            for process in started:
                process.send_signal(signal.SIGKILL)
                process.wait()
    return 0


def fetched(url: str) -> bytes:
    """As soon as it is there."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
                return bytes(answer.read())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def watch(gpus: int, seconds: float) -> None:
    """Prints when there was what, and what it cost from then on."""
    command = [*GPUTOP, "--prometheus", f"http://{PROMETHEUS}"]
    with Recorder(command, env=dict(os.environ), columns=200, rows=60) as terminal:
        frame = terminal.when(lambda t: "fleet" in t.text)
        shown = terminal.when(lambda t: " hosts" in t.text, timeout=60)
        wrong = terminal.when(lambda t: "Xid 79" in t.text, timeout=60)
        terminal.collect(15)
        sent, used, began = terminal.bytes_received, spent(terminal), time.monotonic()
        terminal.collect(seconds)
        took = time.monotonic() - began
        print(f"{gpus} GPUs, 200x60, a refresh every 10 s")
        print(f"frame after {frame:.2f} s, GPUs after {shown:.2f} s, faults after {wrong:.2f} s")
        print(f"{100 * (spent(terminal) - used) / took:.1f} % of a core", end=", ")
        print(f"{(terminal.bytes_received - sent) / took / 1000:.2f} kB/s")


def spent(terminal: Recorder) -> float:
    return processor_seconds(terminal.processes())


if __name__ == "__main__":
    sys.exit(main())
