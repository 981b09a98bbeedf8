import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.driver import FakeDevice, FakeDriver
from tests.e2e.shipped import GPUTOP, NO_DRIVER, SOON, run
from tests.output.test_scrape import Certificate
from tests.waiting import until

pytestmark = pytest.mark.driver

BOUND = 60.0
ENDS = 5.0
"""Seconds in which it has ended, however busy this machine is; alone it takes a tenth of one."""
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


LISTEN = ("--listen", "127.0.0.1:0")


class Exporter:
    def __init__(self, *command: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    def says(self, text: str) -> str:
        def found() -> list[str]:
            return [line for line in self.errors if text in line]

        until(found, BOUND, lambda: self.errors)
        return found()[0]

    @property
    def url(self) -> str:
        return self.says("metrics at ").split("metrics at ")[1].split()[0].rstrip(",")

    def text(self) -> str:
        with urlopen(self.url, timeout=SOON) as answer:  # noqa: S310
            return str(answer.read().decode())

    def series(self) -> Series:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The one number with that name and at least these labels; None where there is none."""
        found = [
            value
            for (of, has), value in self.series().items()
            if of == name and labels.items() <= set(has)
        ]
        assert len(found) <= 1, found
        return found[0] if found else None

    def until(self, there: Callable[[], object], seconds: float = 2 * SOON) -> None:
        until(there, seconds, lambda: (self.text(), self.errors))

    def up(self) -> bool:
        return self.value("gputop_up") == 1.0

    def sampler(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(ENDS)

    def close(self) -> None:
        self.process.kill()
        self._reader.join()
        with self.process:
            pass


def exporting(
    *arguments: str, env: dict[str, str] | None = None
) -> contextlib.AbstractContextManager[Exporter]:
    return running(*GPUTOP, "exporter", *LISTEN, "--interval", "0.25", *arguments, env=env)


@contextlib.contextmanager
def running(*command: str, env: dict[str, str] | None = None) -> Iterator[Exporter]:
    exporter = Exporter(*command, env=env or NO_DRIVER)
    try:
        yield exporter
    finally:
        exporter.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_scrape_and_the_end(driver: FakeDriver, number: int, status: int) -> None:
    driver.write(FakeDevice(), FakeDevice(power_milliwatts=99_500, temperature_celsius=None))
    with exporting(env=driver.environment()) as exporter:
        exporter.until(exporter.up)
        exporter.until(lambda: exporter.value("gputop_power_watts", index="1") == 99.5)
        assert exporter.value("gputop_power_watts", index="0") == 612.34
        assert exporter.value("gputop_energy_joules_total", index="0") == 918_273.645
        assert exporter.value("gputop_temperature_celsius", index="0") == 64
        assert exporter.value("gputop_temperature_celsius", index="1") is None
        assert exporter.value("gputop_info", driver_version="580.95.05") == 1
        exporter.until(lambda: exporter.value("gputop_tensor_active_ratio", index="0") == 0.6875)
        sampler = exporter.sampler()
        assert exporter.end(number) == status
        assert not sampler.is_running()
        assert len(exporter.errors) == 1


def test_where_there_is_no_driver_it_says_so_and_goes_on() -> None:
    with exporting() as exporter:
        said = exporter.says("error: ")
        assert "libnvidia-ml.so.1" in said
        assert exporter.value("gputop_up") == 0
        exporter.until(lambda: exporter.value("gputop_info", source="nvml") == 1)
        assert exporter.value("gputop_up") == 0
        assert exporter.end(signal.SIGTERM) == 0
        assert len(exporter.errors) == 2


def refused(*arguments: str) -> str:
    done = run("exporter", "--demo", *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    return line


def test_where_it_cannot_listen_it_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused("--listen", address) == (
            f"gputop: error: cannot listen on {address}: Address already in use. "
            "Name another with --listen HOST:PORT."
        )
    assert "cannot listen on 192.0.2.1:9835: " in refused("--listen", "192.0.2.1:9835")
    assert "it is not a name" in refused("--listen", f"{'a' * 70}:9835")


def test_tls_needs_files_that_can_be_used(tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    cert.write_text("no certificate")
    said = refused(*LISTEN, "--certfile", str(cert), "--keyfile", str(tmp_path / "key.pem"))
    begin = f"gputop: error: TLS cannot be used: Cannot load server certificate file '{cert}'"
    assert said.startswith(begin)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on the PATH")
def test_tls(tmp_path: Path) -> None:
    """As another program sees it, which speaks TLS by another library in another process."""
    server, client = Certificate(tmp_path / "server"), Certificate(tmp_path / "client")
    options = ["--certfile", str(server.cert), "--keyfile", str(server.key)]
    options += ["--client-cafile", str(client.cert)]
    with exporting("--demo", "--listen", ":0", *options) as exporter:
        port = exporter.url.rsplit(":", 1)[1].removesuffix("/metrics")
        assert exporter.says("metrics at ").endswith(f":{port}/metrics\n")  # not that all can read
        assert exporter.url.startswith("https://")

        def asked(*more: str) -> tuple[int, str]:
            done = subprocess.run(
                [
                    *("curl", "--silent", "--max-time", "30", "--cacert", str(server.cert)),
                    *(*more, f"https://localhost:{port}/metrics"),
                ],
                capture_output=True,
                check=False,
                text=True,
            )
            return done.returncode, done.stdout

        code, text = asked("--cert", str(client.cert), "--key", str(client.key))
        assert code == 0
        assert "gputop_up" in text
        assert asked()[0] != 0
        assert len(exporter.errors) == 1


@contextlib.contextmanager
def prometheus(folder: Path, config: str) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        web = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "prometheus.yml").write_text(config)
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={web}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            yield f"http://{web}"
        finally:
            running.kill()


def results_of(url: str, query: str) -> list[dict[str, Any]]:
    try:
        with urlopen(f"{url}/api/v1/query?query={quote(query)}", timeout=SOON) as found:  # noqa: S310
            return list(json.load(found)["data"]["result"])
    except HTTPError as error:
        assert error.code == 503, query  # noqa: PT017 - while it starts
    except OSError:  # it does not listen yet
        pass
    return []
