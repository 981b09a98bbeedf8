"""What a fleet of 10,000 GPUs costs to watch: `python -m tests.perf.fleet --prometheus PATH`.

The simulated fleet, a real Prometheus that scrapes it, a target for each host, and gputop on it in
a pty; all on this machine, so that each slows down the others. Also how many of its rows contradict
themselves, as each query of a refresh is for the same moment, and as it would be otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from gputop.fleet.client import Answer, Client
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import Refresher
from gputop.stream.launch import module_command
from tests.demo_fleet.exporter import Simulator
from tests.fleet.moments import contradictions
from tests.perf.measure import Recorder, processor_seconds

if TYPE_CHECKING:
    from typing import Self

GPUTOP = module_command("gputop")
LISTEN, PROMETHEUS = "127.0.0.1:19835", "127.0.0.1:19090"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prometheus", default="prometheus", metavar="PATH")
    parser.add_argument("--gpus", type=int, default=10_000)
    parser.add_argument("--scraped", type=float, default=60.0, help="seconds before it is asked")
    parser.add_argument("--refreshes", type=int, default=12, help="in which rows are checked")
    parser.add_argument("--seconds", type=float, default=60.0, help="over which costs are taken")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        started = []
        try:
            fleet = ("-m", "tests.demo_fleet", str(options.gpus), "--listen", LISTEN)
            exporter = [sys.executable, *fleet]
            started.append(subprocess.Popen(exporter, stderr=subprocess.DEVNULL))
            config = Path(name, "fleet.yml")
            config.write_bytes(fetched(f"http://{LISTEN}/prometheus.yml"))
            server = [options.prometheus, f"--config.file={config}"]
            server += [f"--storage.tsdb.path={name}/data", f"--web.listen-address={PROMETHEUS}"]
            started.append(subprocess.Popen(server, stderr=subprocess.DEVNULL))
            time.sleep(options.scraped)
            start(options.gpus)
            watch(options.seconds)
            for pinned in (True, False):
                rows(options.gpus, options.refreshes, pinned=pinned)
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


def start(gpus: int) -> None:
    """Prints when there was what, after the start and after Prometheus had answered something."""
    with Relay() as relay, opened(relay.address) as terminal:
        began = time.monotonic() - terminal.elapsed
        frame = terminal.when(lambda t: "fleet" in t.text)
        shown = terminal.when(lambda t: " hosts" in t.text, timeout=60)
        wrong = terminal.when(lambda t: "Xid 79" in t.text, timeout=60)
        assert frame is not None
        assert shown is not None
        assert wrong is not None
        first, last = (relay.answered[n] - began for n in (0, FIRST_ANSWERS - 1))
        print(f"{gpus} GPUs, 200x60, a refresh every 10 s")
        print(f"frame after {frame:.2f} s, GPUs after {shown:.2f} s, faults after {wrong:.2f} s")
        print(f"GPUs {shown - first:.2f} s after the first byte of an answer", end=", ")
        print(f"{shown - last:.2f} s after that of the last answer that they need")


FIRST_ANSWERS = 1
"""Answers that are the first on a connection: that with the time."""


def watch(seconds: float) -> None:
    """Prints what it costs once all is there."""
    with opened(PROMETHEUS) as terminal:
        terminal.when(lambda t: "Xid 79" in t.text, timeout=60)
        terminal.collect(15)
        sent, used, began = terminal.bytes_received, spent(terminal), time.monotonic()
        terminal.collect(seconds)
        took = time.monotonic() - began
        print(f"{100 * (spent(terminal) - used) / took:.1f} % of a core", end=", ")
        print(f"{(terminal.bytes_received - sent) / took / 1000:.2f} kB/s")


class Unpinned(Client):
    """Leaves out for which moment it asks, as if each query were evaluated when it comes."""

    def ask(self, query: str, at: float | None = None, seconds: float = 10.0) -> Answer:
        return super().ask(query, None, seconds)


def rows(gpus: int, refreshes: int, *, pinned: bool) -> None:
    """Prints how many rows contradict themselves, in refreshes 10 s apart."""
    simulator = Simulator(gpus, started=0.0)
    client = (Client if pinned else Unpinned)(PrometheusServer(f"http://{PROMETHEUS}"))
    asking = Refresher(client, "")
    counts, checked = [], 0
    for _ in range(refreshes):
        began = time.monotonic()
        fleet = asking.refresh()
        counts.append(len(contradictions(fleet, simulator)))
        checked += len(fleet.gpus)
        time.sleep(max(0.0, 10 - (time.monotonic() - began)))
    client.close()
    how = "one moment" if pinned else "no moment"
    share = 100 * sum(counts) / checked
    print(f"{how}: {sum(counts)} of {checked} rows contradict themselves ({share:.1f} %)", end=", ")
    print(f"at most {max(counts)} in a refresh")


def opened(server: str) -> Recorder:
    command = [*GPUTOP, "--prometheus", f"http://{server}"]
    return Recorder(command, env=dict(os.environ), columns=200, rows=60)


class Relay:
    """Between gputop and Prometheus, to know when answers begin to come."""

    def __init__(self) -> None:
        self.answered: list[float] = []
        """By the monotonic clock, of the answers that came first on each connection."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                host, _, port = PROMETHEUS.partition(":")
                server = socket.create_connection((host, int(port)))
                for each in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=each, daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, answers: bool) -> None:
        noted = not answers
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not noted:
                    noted = True
                    self.answered.append(time.monotonic())
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)


def spent(terminal: Recorder) -> float:
    return processor_seconds(terminal.processes())


if __name__ == "__main__":
    sys.exit(main())
