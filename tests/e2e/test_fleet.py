"""A simulated fleet, scraped by a real Prometheus, and what gputop says of it.

Debian's is enough, and need not be installed: `apt-get download prometheus`, `dpkg-deb -x`, and its
usr/bin on the PATH.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from gputop.fleet.builder import SETTLE_SECONDS
from tests.demo_fleet.exporter import Simulator
from tests.demo_fleet.site import Flaw
from tests.e2e.shipped import SOON, run
from tests.e2e.test_exporter import BOUND, LISTEN, prometheus, results_of, running

GPUS = 64
PLANTED = {gpu.flaw: gpu for gpu in Simulator(GPUS, started=0.0).gpus if gpu.flaw}
RULES = {
    Flaw.LOST: "xid",
    Flaw.ECC: "xid",
    Flaw.REMAP: "remap",
    Flaw.THERMAL: "thermal",
    Flaw.SLOW: "straggler",
}
SCRAPED = f"count(DCGM_FI_DEV_GPU_UTIL offset {SETTLE_SECONDS + 1:.0f}s) == 63"
"""All are there also for the moment of a refresh, which is a little ago."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no Prometheus on the PATH")
def test_what_is_planted_is_what_is_wrong(tmp_path: Path) -> None:
    expected = {(PLANTED[flaw].uuid, rule) for flaw, rule in RULES.items()}
    document: dict[str, Any] = {}

    def is_found() -> bool:
        document.update(json.loads(run("status", "--prometheus", url, "--json").stdout))
        return {(each["key"], each["kind"]) for each in document["wrong"]} >= expected

    with running(sys.executable, "-m", "tests.demo_fleet", str(GPUS), *LISTEN) as exporter:
        root = exporter.url.removesuffix("metrics")
        with urlopen(f"{root}prometheus.yml", timeout=SOON) as served:  # noqa: S310
            config = served.read().decode()
        with prometheus(tmp_path, config.replace("15s", "1s")) as url:
            exporter.until(lambda: results_of(url, SCRAPED), BOUND)
            exporter.until(is_found, 2 * BOUND)
    assert len(document["gpus"]) == document["totals"]["gpus"] == GPUS
    worst = [each["key"] for each in document["wrong"][:2]]
    assert worst == [PLANTED[Flaw.LOST].uuid, PLANTED[Flaw.ECC].uuid]
    others = {each["key"] for each in document["wrong"] if each["kind"] != "stale"}
    assert others <= {gpu.uuid for gpu in PLANTED.values()}
