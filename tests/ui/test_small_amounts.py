"""A value that is not zero never reads as zero, nor one that is not full as full, on any page."""

import dataclasses
import re
from collections.abc import Iterable

import pytest

from gputop.agent.device import GPM_READINGS, DeviceSample
from gputop.agent.snapshot import Host, Sample
from gputop.fleet.model import BUSY, MEMORY, Gpu
from gputop.fleet.screens import panels
from gputop.fleet.screens.state import FleetState
from gputop.health.findings import Evidence
from gputop.output.status_page import page
from gputop.ui.device.readings import DetailsView
from gputop.ui.device.timeline import TimelineView
from gputop.ui.drawing import cells
from gputop.ui.drawing.cells import Row
from gputop.ui.monitor import panel
from gputop.ui.monitor.device_list import DevicesView
from gputop.ui.monitor.layout import Density
from gputop.ui.monitor.screen import HostView
from gputop.ui.monitor.shown_device import ShownDevice
from gputop.ui.processes.columns import CPU, ProcessRow
from gputop.ui.shell.header import Header
from gputop.ui.telemetry import Telemetry
from tests import streams
from tests.ui import scenes
from tests.ui.pilots import rendered

GIB, MIB = 1 << 30, 1 << 20
TOTAL = round(79.647 * GIB)
ACTIVITY = sorted(name for name in GPM_READINGS if name.endswith("_percent"))
ZERO = re.compile(r"(?<![\d.+-])0+(\.0+)?( ?%|/| of | [KMGT]?i?B|$)", re.MULTILINE)
FULL = re.compile(r"(?<![\d.>])(?<!of )(100(\.0)? ?%|79\.6(/| of | GiB of )79\.6)")


def readings(percent: float, used: int) -> DeviceSample:
    """All that is a share has that one; what NVML counts in whole numbers is far from both ends."""
    whole = ("gpu", "memory", "encoder", "decoder", "jpeg", "ofa")
    return scenes.training(
        0,
        10,
        **dict.fromkeys((f"{name}_utilization_percent" for name in whole), 50),
        **dict.fromkeys(ACTIVITY, percent),
        memory_used_bytes=used,
        memory_total_bytes=TOTAL,
        memory_free_bytes=MIB,
        bar1_used_bytes=used,
        power_watts=0.3,
    )


def text_of(rows: Iterable[Row]) -> str:
    return "\n".join(cells.text_of(row) for row in rows)


def shown(percent: float, used: int) -> dict[str, str]:
    host = Host(
        cpu_percent=percent,
        cpu_core_percent=(percent,) * 2,
        memory_used_bytes=used,
        memory_total_bytes=TOTAL,
        load_average=(0.004, 0.004, 0.004),
    )
    device = dataclasses.replace(scenes.device(0), memory_total_bytes=TOTAL, bar1_total_bytes=TOTAL)
    inventory = dataclasses.replace(streams.inventory(1), devices=(device,))
    process = streams.process(1, 0, memory_used_bytes=MIB, cpu_percent=0.3)
    sample = Sample(streams.NOW, host, (readings(percent, used),), (process,))
    known = Telemetry()
    known.receive(inventory)
    known.receive(sample)
    device = known.devices[0]
    made = ShownDevice(known, device)
    devices = DevicesView(known)
    devices.state.fill([made])
    alone = Telemetry()
    alone.receive(streams.no_driver())
    alone.receive(Sample(streams.NOW, host))
    details, timeline = DetailsView(known), TimelineView(known)
    details.device = timeline.device = device
    gpu = Gpu(
        *("k", "GPU-1", "node", "0", "H100"),
        gpu_utilization_percent=percent,
        memory_used_bytes=used,
        memory_total_bytes=TOTAL,
        sm_active_percent=percent,
    )
    return {
        **{
            f"panel {width} {density.name}": text_of(panel.draw(made, density, width, 22))
            for density in (Density.COMPACT, Density.FULL)
            for width in (52, 60, 100)
        },
        **{
            f"row {width}": text_of([devices.line(made, devices.slots(width), selected=False)])
            for width in (80, 120, 200)
        },
        "header": text_of(Header(known).draw(200, 3)[1:]),
        "host": text_of(HostView(alone).draw(120, 40)),
        "details": rendered(details.page(), 110).replace("\n", " \n"),
        "timeline": text_of(timeline.draw(100, 40)[:-1]),
        "status": page(inventory, sample),
        "process": CPU.text(ProcessRow(process)),
        "fleet": text_of([*panels._readings(gpu, FleetState())]),
        "fleet map": "\n".join(m.text(m.value(gpu)) for m in (BUSY, MEMORY)),
        "evidence": Evidence("x", "x", percent, "%").text,
    }


SMALL, LARGE = shown(0.3, 51 * MIB), shown(99.97, TOTAL - 20 * MIB)


@pytest.mark.parametrize("view", [*SMALL])
def test_what_is_small_is_not_zero(view: str) -> None:
    counts = r"(?m)^.*(enc|dec|reserved|ECC|uncorr|replays|index|P0|remap).*$"
    text = re.sub(counts, "", SMALL[view])
    assert not ZERO.search(text), ZERO.search(text)


@pytest.mark.parametrize("view", [view for view in LARGE if view != "process"])
def test_what_is_not_full_does_not_read_so(view: str) -> None:
    assert not FULL.search(LARGE[view]), FULL.search(LARGE[view])
