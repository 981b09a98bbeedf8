"""Cards at their power limit and a stuck one: `gputop bench` with a fake CUDA and a fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gputop.stream.launch import module_command
from tests.driver import FakeDevice
from tests.fake_cuda import PYTHON
from tests.fake_cuda.settings import Settings

if TYPE_CHECKING:
    from tests.driver import FakeDriver

pytestmark = [
    pytest.mark.driver,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

BOUND = 120.0
POWER_CAP = 0x4
SECONDS = "5"
"""Enough for several samples in the second half."""


class Card(NamedTuple):
    """A card as the worker and the driver see it, in TFLOP/s, MHz and watts."""

    name: str
    pci_device_id: str
    capability: str
    cores: int
    dtype: str
    kind: str
    """The kind of product in the fake CUDA."""
    tflops: float
    clock: int
    clock_max: int
    watts: float
    limit: int
    is_capped: bool = True
    size: str = "2048"

    def cuda(self) -> Settings:
        return Settings(self.name, self.capability, rates={self.kind: self.tflops})

    def nvml(self) -> FakeDevice:
        major, _, minor = self.capability.partition(".")
        return FakeDevice(
            name=self.name,
            pci_device_id=self.pci_device_id,
            compute_capability_major=int(major),
            compute_capability_minor=int(minor),
            gpu_cores=self.cores,
            power_milliwatts=round(1000 * self.watts),
            power_limit_milliwatts=1000 * self.limit,
            power_limit_enforced_milliwatts=1000 * self.limit,
            sm_clock_mhz=self.clock,
            graphics_clock_mhz=self.clock,
            sm_clock_max_mhz=self.clock_max,
            clock_event_reasons=POWER_CAP if self.is_capped else 0,
        )


T4 = Card("Tesla T4", "1eb8", "7.5", 2560, "float16", "float16", 24, 915, 1590, 69.5, 70)
CARDS = (
    T4,
    Card("NVIDIA L4", "27b8", "8.9", 7424, "bfloat16", "bfloat16", 56, 1010, 2040, 71.8, 72),
    T4._replace(tflops=8, clock=300, watts=28.0, is_capped=False),
    Card(
        *("NVIDIA H100 PCIe", "2331", "9.0", 14_592, "float8_e4m3", "float8"),
        *(720, 1100, 1755, 348.0, 350),
        size="4096",  # a product of 2048 takes 24 µs: launching it may take longer
    ),
)


@pytest.mark.daily(1)
@pytest.mark.parametrize("card", CARDS, ids=lambda card: f"{card.name}, {card.tflops:g} TFLOP/s")
def test_a_card_at_its_power_limit_is_fine_and_a_stuck_one_is_degraded(
    card: Card, driver: FakeDriver
) -> None:
    driver.write(card.nvml())
    options = ["--dtype", card.dtype, "--size", card.size, "--seconds", SECONDS, "--json"]
    done = subprocess.run(
        [*module_command("gputop"), "bench", "--python", str(PYTHON), "--device", "0", *options],
        env={
            **os.environ,
            **driver.environment(),
            **card.cuda().environment(),
            "FAKE_CUDA_PYTHON": sys.executable,
        },
        capture_output=True,
        check=False,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=BOUND,
    )
    parts = {part["name"]: part for part in json.loads(done.stdout)["verdict"]["parts"]}
    why = parts["datasheet"]["why"]
    if "the host kept it waiting" in why:
        pytest.skip("this machine is too busy to keep a device busy")
    assert done.returncode == (0 if card.is_capped else 4), done.stdout + done.stderr
    if card.is_capped:
        limit = f"its power limit of {card.limit} W holds it back"
        assert why.endswith(f"of the formula at the live clock; {limit}")
    else:
        assert why.endswith("of the dense peak in its datasheet, under 50 %")
