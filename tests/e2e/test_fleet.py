"""A simulated fleet, scraped by a real Prometheus, and what gputop says of it.

Debian's is enough, and need not be installed: `apt-get download prometheus`, `dpkg-deb -x`, and its
usr/bin on the PATH.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from gputop.fleet.builder import SETTLE_SECONDS
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import FleetWatch
from gputop.stream.launch import module_command
from tests.demo_fleet.exporter import Simulator
from tests.demo_fleet.site import Flaw
from tests.e2e.shipped import SOON
from tests.e2e.test_exporter import BOUND, demo_fleet, prometheus, results_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gputop.fleet.model import Fleet

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="there is no Prometheus on the PATH"
)
GPUS = 64
PLANTED = {gpu.flaw: gpu for gpu in Simulator(GPUS, started=0.0).gpus if gpu.flaw}
AWAY = {f"{PLANTED[Flaw.AWAY].host}:{index}" for index in range(8)}


@contextlib.contextmanager
def scraped_fleet(folder: Path) -> Iterator[str]:
    """Yield the URL of a Prometheus that scrapes a simulated fleet each second."""
    with demo_fleet(GPUS) as exporter:
        root = exporter.url.removesuffix("metrics")
        with urlopen(f"{root}prometheus.yml", timeout=SOON) as served:  # noqa: S310
            config = served.read().decode()
        with prometheus(folder, config.replace("15s", "1s")) as url:
            # So that they are there for the moment of a refresh, too, which is a little ago.
            there = f"count(DCGM_FI_DEV_GPU_UTIL offset {SETTLE_SECONDS + 1:.0f}s) == 63"
            exporter.until(lambda: results_of(url, there), BOUND)
            yield url


async def until_all_is_found(watch: FleetWatch) -> Fleet:
    """The first fleet in which everything that is planted is seen, and can be seen so soon."""
    async with aclosing(watch.fleets()) as fleets:
        async for fleet in fleets:
            assert fleet.problems == ()
            if wanted(fleet) == {}:
                return fleet
    raise AssertionError


def wanted(fleet: Fleet) -> dict[str, str]:
    """What is missing: by GPU, what should be found of it."""
    gpus = {f"{gpu.host}:{gpu.index}": gpu.key for gpu in fleet.gpus}
    found = {(wrong.device_uuid, wrong.rule) for wrong in fleet.findings}
    kinds = {
        Flaw.LOST: "xid",
        Flaw.ECC: "xid",
        Flaw.REMAP: "remap",
        Flaw.THERMAL: "thermal",
        Flaw.SLOW: "straggler",
    }
    expected = {f"{PLANTED[flaw].host}:{PLANTED[flaw].index}": kind for flaw, kind in kinds.items()}
    expected |= dict.fromkeys(AWAY, "stale")
    return {at: kind for at, kind in expected.items() if (gpus.get(at), kind) not in found}


@pytest.mark.slow
async def test_what_is_planted_is_what_is_wrong(tmp_path: Path) -> None:
    with scraped_fleet(tmp_path) as url:
        watch = FleetWatch(PrometheusServer(url), "", 1.0)
        fleet = await asyncio.wait_for(until_all_is_found(watch), 2 * BOUND)
        done = await asyncio.to_thread(
            subprocess.run,
            [*module_command("gputop"), "status", "--prometheus", url, "--json"],
            capture_output=True,
            check=True,
            timeout=BOUND,
        )
    assert len(fleet.gpus) == GPUS
    assert fleet.simulated
    flaws = {gpu.uuid for gpu in PLANTED.values()}
    first = [wrong.device_uuid for wrong in fleet.findings]
    assert first[:2] == [PLANTED[Flaw.LOST].uuid, PLANTED[Flaw.ECC].uuid]
    away = {gpu.key for gpu in fleet.gpus if f"{gpu.host}:{gpu.index}" in AWAY}
    assert set(first) - away <= flaws
    document = json.loads(done.stdout)
    first_wrong = document["wrong"][0]
    lost = PLANTED[Flaw.LOST]
    assert (first_wrong["key"], first_wrong["host"]) == (lost.uuid, lost.host)
    assert first_wrong["index"] == str(lost.index)
    assert document["totals"]["gpus"] == len(document["gpus"])
