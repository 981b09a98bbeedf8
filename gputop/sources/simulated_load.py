"""Simulated stress test of a simulated GPU: its readings as a function of time.

The sampler and the simulated worker make the same one, so that readings and throughput agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

NAME, COMPUTE_CAPABILITY, SM_COUNT = "NVIDIA H100 80GB HBM3", "9.0", 132
STRESS_PID = 50_001
"""Pid of the test of device 0; the others follow."""
THROTTLE_CELSIUS = 84.0
"""Temperature that the device holds by slowing down."""
FREE_CELSIUS, WARM_SECONDS = 95.0, 15.0
"""Temperature that it would come to, and the time constant of that."""
BOOST_MHZ, CAPPED_MHZ, THROTTLED_MHZ = 1755.0, 1650.0, 1380.0
CAPPED_WATTS, THROTTLED_WATTS = 698.0, 585.0
CAP_SECONDS, THROTTLE_SECONDS = 0.3, 3.0
"""Time constants of the slowdowns by power and by heat."""


class LoadReadings(NamedTuple):
    """Readings of a device under load."""

    power_watts: float
    sm_clock_mhz: float
    celsius: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """A stress test that begins at a time of the monotonic clock, on a device that warm."""

    began: float
    celsius: float

    def at(self, now: float) -> LoadReadings:
        """Return the readings at a time of the monotonic clock."""
        since = max(0.0, now - self.began)
        hot_at = self._seconds_until_hot
        clock = CAPPED_MHZ + (BOOST_MHZ - CAPPED_MHZ) * math.exp(-since / CAP_SECONDS)
        if since < hot_at:
            cold = FREE_CELSIUS - self.celsius
            celsius = FREE_CELSIUS - cold * math.exp(-since / WARM_SECONDS)
            return LoadReadings(CAPPED_WATTS, clock, celsius, ("sw_power_cap",))
        left = math.exp((hot_at - since) / THROTTLE_SECONDS)
        watts = THROTTLED_WATTS + (CAPPED_WATTS - THROTTLED_WATTS) * left
        clock = THROTTLED_MHZ + (clock - THROTTLED_MHZ) * left
        return LoadReadings(watts, clock, max(THROTTLE_CELSIUS, self.celsius), ("sw_thermal",))

    @property
    def _seconds_until_hot(self) -> float:
        if self.celsius >= THROTTLE_CELSIUS:
            return 0.0
        way = (FREE_CELSIUS - self.celsius) / (FREE_CELSIUS - THROTTLE_CELSIUS)
        return WARM_SECONDS * math.log(way)
