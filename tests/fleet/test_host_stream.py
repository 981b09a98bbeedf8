"""One host of a fleet in the ordinary monitor: its stream, from the same server."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from gputop.agent.device import Absence, DeviceState
from gputop.agent.lines import to_line
from gputop.agent.snapshot import DriverState, Inventory, Sample
from gputop.fleet.host_stream import HostStream
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import FleetWatch
from gputop.schema.decode import decode
from gputop.stream.child import Interruption
from gputop.ui.telemetry import Telemetry
from tests.prometheus import (
    NOW,
    FakePrometheus,
    Request,
    Response,
    Site,
    labels,
    matrix,
    uuid,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.agent.snapshot import Record


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials of who runs the tests."""
    monkeypatch.setenv("NETRC", "/dev/null")


def site(request: Request) -> Response:
    """Ten GPUs on two hosts; what is asked of one host besides."""
    if request.path.endswith("query_range"):
        points = [(NOW - 30, 1.0), (NOW - 15, 2.0), (NOW, 3.0)]
        power = {"__name__": "DCGM_FI_DEV_POWER_USAGE"}
        return matrix(
            [
                ({**power, "UUID": uuid(8)}, points),
                ({**power, "UUID": uuid(9)}, points[1:]),
                ({"__name__": "DCGM_FI_DEV_GPU_TEMP", "UUID": uuid(8)}, points),
            ]
        )
    if "__name__=~" in request.parameters["query"] and not request.name:
        return vector(
            [
                ({"__name__": "DCGM_FI_DEV_MEM_CLOCK", "UUID": uuid(8)}, 2619),
                ({"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": uuid(8)}, 1),
                ({"__name__": "DCGM_FI_DEV_ROW_REMAP_FAILURE", "UUID": uuid(8)}, 1),
                ({"__name__": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "UUID": uuid(8)}, 5000),
            ],
            NOW,
        )
    return TEN(request)


TEN = Site(
    10,
    xid=[({"UUID": uuid(9)}, 79)],
    beat=[({"UUID": uuid(n)}, NOW - (400 if n == 9 else 5)) for n in range(10)],
    names_0=[(labels(n, DCGM_FI_DRIVER_VERSION="580.95"), 1) for n in range(10)],
)


async def records(
    respond: Callable[[Request], Response | None], host: str, until: int
) -> tuple[list[Record | Interruption], FakePrometheus]:
    """So many records of the stream of that host."""
    found: list[Record | Interruption] = []
    with FakePrometheus(respond) as fake:
        watch = FleetWatch(PrometheusServer(fake.url), interval=600.0, at_once=True)
        stream = HostStream(watch, host)
        async with aclosing(stream.records()) as stream_of:
            async for record in stream_of:
                found.append(record)
                if len(found) == until:
                    break
        await stream.close()
        await watch.close()
    return found, fake


async def test_the_stream_of_a_host() -> None:
    found, fake = await records(site, "node1", 4)
    inventory, first, second, sample = found
    assert isinstance(inventory, Inventory)
    assert (inventory.hostname, inventory.driver_version) == ("node1", "580.95")
    assert inventory.driver_state is DriverState.OK
    assert [device.uuid for device in inventory.devices] == [uuid(8), uuid(9)]
    assert [device.number for device in inventory.devices] == ["0", "1"]
    assert inventory.devices[0].memory_total_bytes == 80 << 30
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert [first.time, second.time] == [NOW - 30, NOW - 15]
    assert [(d.uuid, d.power_watts, d.temperature_celsius) for d in second.devices] == [
        (uuid(8), 2.0, 2),
        (uuid(9), 2.0, None),
    ]
    assert isinstance(sample, Sample)
    device, lost = sample.devices
    assert (device.state, lost.state) == (DeviceState.OK, DeviceState.LOST)
    assert (device.power_watts, device.memory_clock_mhz) == (600.5, 2619)
    assert device.remap_failed is True
    assert device.energy_joules == pytest.approx(5)
    assert device.absent["fan_percent"] is Absence.NOT_SCRAPED
    assert sample.host.absent["cpu_percent"] is Absence.NOT_SCRAPED
    assert [(event.kind, event.code) for event in sample.events] == [("xid", 79)]
    ranges = [r.parameters for r in fake.requests if r.path.endswith("query_range")]
    assert [float(r["end"]) - float(r["start"]) for r in ranges].count(3600.0) == 1


async def test_its_records_are_those_of_any_stream() -> None:
    """They go through the codec, and the dashboard takes them."""
    found, _ = await records(site, "node1", 4)
    telemetry = Telemetry()
    for record in found:
        assert not isinstance(record, Interruption)
        assert to_line(decode(to_line(record))) == to_line(record)  # but for rounding
        telemetry.receive(record)
    power = telemetry.history.series(uuid(8), "power_watts")
    assert [value for value in power if value is not None] == [1.0, 2.0, 600.5]


async def test_a_mig_instance_is_a_part_of_its_gpu() -> None:
    rows = [labels(0), labels(0, GPU_I_ID="7", GPU_I_PROFILE="1g.10gb")]
    found, _ = await records(Site(1, names_0=[(row, 1) for row in rows]), "node0", 1)
    (inventory,) = found
    assert isinstance(inventory, Inventory)
    gpu, instance = inventory.devices
    assert (instance.parent_uuid, instance.mig_index, instance.index) == (gpu.uuid, 7, 0)
    assert instance.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"


async def test_a_host_that_is_not_there_says_so() -> None:
    ((inventory,), _) = await records(site, "nowhere", 1)
    assert isinstance(inventory, Inventory)
    assert inventory.problem is not None
    assert inventory.devices == ()


async def test_a_server_that_is_away_interrupts() -> None:
    found, _ = await records(lambda _: Response(b"", 401), "node1", 2)
    assert isinstance(found[0], Interruption)
    assert "401" in str(found[0].problem)
    assert isinstance(found[1], Inventory)
    assert found[1].driver_state is DriverState.STARTING


async def test_without_its_details_the_fleets_readings_are_there() -> None:
    def respond(request: Request) -> Response:
        return TEN(request) if request.name else Response(b"", 503)

    found, _ = await records(respond, "node1", 2)
    sample = found[1]
    assert isinstance(sample, Sample)
    assert sample.devices[0].power_watts == 600.5
    assert sample.devices[0].absent["fan_percent"] is Absence.TIMED_OUT
