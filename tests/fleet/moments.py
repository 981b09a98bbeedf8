"""Find rows of a simulated fleet whose readings cannot be of one moment.

The simulator derives a GPU's readings from one load, so that at each moment they fit each other:
a clock that does not belong to the power beside it was read at another time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.demo_fleet.exporter import IDLE_MHZ, RIPPLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gputop.fleet.model import Fleet, Gpu
    from tests.demo_fleet.exporter import Simulator
    from tests.demo_fleet.site import SimulatedGpu

ROUNDED = 1e-3
"""Percent by which a ratio of six decimals may be off, and more."""
BUSY, CLOCK, POWER = "gpu_utilization_percent", "sm_clock_mhz", "power_watts"
SM, TENSOR, DRAM = "sm_active_percent", "tensor_active_percent", "dram_active_percent"
SM_OF_LOAD = 0.93


def contradictions(fleet: Fleet, simulator: Simulator) -> dict[str, list[str]]:
    """Return what does not fit, by the key of each GPU that has such readings.

    Only readings that the fleet presents as being of the same moment are compared.
    """
    simulated = {gpu.uuid: gpu for gpu in simulator.gpus if gpu.flaw is None}
    read_at: Mapping[str, float] = getattr(fleet, "read_at", {})
    found = {}
    for gpu in fleet.gpus:
        if gpu.uuid in simulated:
            misfits = [
                f"{one} and {other}"
                for one, other, fits in _relations(gpu, simulated[gpu.uuid])
                if not fits and read_at.get(one) == read_at.get(other)
            ]
            if misfits:
                found[gpu.key] = misfits
    return found


def _relations(gpu: Gpu, made: SimulatedGpu) -> Iterator[tuple[str, str, bool]]:
    """Pairs of readings, and whether they fit each other."""
    busy, clock, power = gpu.gpu_utilization_percent, gpu.sm_clock_mhz, gpu.power_watts
    sm, tensor, dram = gpu.sm_active_percent, gpu.tensor_active_percent, gpu.dram_active_percent
    model, kind = made.model, made.job.kind
    if clock is not None and power is not None and clock != IDLE_MHZ:
        yield CLOCK, POWER, abs(clock - (model.sm_mhz - 0.2 * power)) <= 0.5 + ROUNDED
    if busy is not None and power is not None:
        swing = (model.limit_watts - model.idle_watts) * kind.draw
        expected = model.idle_watts + swing * busy / 100
        tolerance = swing * 0.005 + RIPPLE * model.limit_watts + ROUNDED
        yield BUSY, POWER, abs(power - expected) <= tolerance
    if busy is not None and sm is not None:
        yield BUSY, SM, abs(busy - sm / SM_OF_LOAD) <= 0.5 + ROUNDED
    for share, name, value in ((kind.tensor, TENSOR, tensor), (kind.dram, DRAM, dram)):
        if sm is not None and value is not None:
            yield SM, name, abs(value - share * sm / SM_OF_LOAD) <= ROUNDED
