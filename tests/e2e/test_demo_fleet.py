"""The shipped exporter with a simulated fleet: over HTTP, and by a real Prometheus."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections import Counter
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.demo_fleet.exporter import Simulator
from tests.demo_fleet.site import Flaw
from tests.e2e.shipped import SOON
from tests.e2e.test_exporter import BOUND, answer, demo_fleet

FLEET = Simulator(64, started=0.0)
"""As the one that is served, but for what develops."""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_fleet_and_the_end(number: int, status: int) -> None:
    with demo_fleet(64) as exporter:
        exporter.says("a simulated fleet of 64 GPUs, 8 on each host, some with faults")
        found = exporter.series()
        assert exporter.samplers() == []
        assert exporter.end(number) == status
        assert len(exporter.errors) == 3
    labels = [dict(labels) for name, labels in found if name == "DCGM_FI_DEV_XID_ERRORS"]
    assert {each["UUID"] for each in labels} == {gpu.uuid for gpu in FLEET.gpus}
    assert {each["simulated"] for each in labels} == {"true"}
    xids = Counter(value for (name, _), value in found.items() if name == "DCGM_FI_DEV_XID_ERRORS")
    assert xids == {0.0: 62, 48.0: 1, 79.0: 1}


def test_the_targets_that_it_lists_answer() -> None:
    with demo_fleet(20) as exporter:
        root = exporter.url.removesuffix("metrics")
        with urlopen(f"{root}sd", timeout=SOON) as listed:  # noqa: S310
            targets = json.load(listed)
        assert len(targets) == 3
        for each in targets:
            (address,), host = each["targets"], each["labels"]["__param_host"]
            with urlopen(f"http://{address}/metrics?host={host}", timeout=SOON) as page:
                assert f'Hostname="{host}"'.encode() in page.read()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no Prometheus on the PATH")
def test_a_real_prometheus_with_the_configuration_that_it_serves(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        web = f"127.0.0.1:{free.getsockname()[1]}"
    with demo_fleet(64) as exporter:
        root = exporter.url.removesuffix("metrics")
        with urlopen(f"{root}prometheus.yml", timeout=SOON) as served:  # noqa: S310
            config = served.read().decode()
        assert exporter.url.startswith("http://127.0.0.1:")
        (tmp_path / "fleet.yml").write_text(config.replace("15s", "1s"))
        with subprocess.Popen(
            [  # noqa: S607
                "prometheus",
                f"--config.file={tmp_path / 'fleet.yml'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address={web}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as prometheus:
            try:
                exporter.until(lambda: answer(web, "count(up)") == ["8"], BOUND)
                exporter.until(lambda: answer(web, "count(DCGM_FI_DEV_GPU_UTIL)") == ["63"], BOUND)
                # The host that goes away: its series end, and its target says so.
                exporter.until(lambda: answer(web, "count(up == 0)") == ["1"], BOUND)
                exporter.until(lambda: answer(web, "count(DCGM_FI_DEV_GPU_UTIL)") == ["55"], BOUND)
                gone = answer_labels(web, "up == 0")
            finally:
                prometheus.kill()
    (host,) = {gpu.host for gpu in FLEET.gpus if gpu.flaw is Flaw.AWAY}
    assert [each["instance"] for each in gone] == [f"{host}:9400"]


def answer_labels(web: str, query: str) -> list[dict[str, str]]:
    from urllib.parse import quote

    with urlopen(f"http://{web}/api/v1/query?query={quote(query)}", timeout=SOON) as found:
        return [result["metric"] for result in json.load(found)["data"]["result"]]
