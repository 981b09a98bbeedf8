"""Output that others read: it may gain lines for new readings, and never loses or changes one.

`python -m tests.output.test_public_output` writes the files of `tests/data/output` anew, for a
change that is meant.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zlib import crc32

import pytest
from prometheus_client import generate_latest

from gputop.agent.device import (
    READINGS,
    SERIES_READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
)
from gputop.agent.snapshot import Event
from gputop.fleet.queries import LIMITS, READ_AS, gone_of, names_of, values_of
from gputop.output.prometheus.metrics import families
from gputop.output.prometheus.scrape import dcgm_text, registry_of
from gputop.output.prometheus.state import ExporterState
from gputop.output.status_page import COLUMNS as STATUS_COLUMNS
from gputop.output.status_page import View, document, page
from gputop.schema.labels import GROUPS, LEGEND
from gputop.schema.values import absence_text, value_text
from tests import streams

FOLDER = Path(__file__).parents[1] / "data" / "output"
WORDS = {
    "recovery_action": "drain_p2p",
    "clock_event_reasons": ("hw_thermal", "sw_power_cap", "bit_0x800"),
    "clock_event_seconds": {"sw_power_cap": 5.0, "sw_thermal": 0.002},
    "architecture": "hopper",
    "virtualization": "vgpu",
    "compute_mode": "exclusive_process",
    "pci_device_id": "26b5",
    "machine": "node07",
}


def value_of(cls: type, name: str) -> Any:
    """Return a value of the field's type, the same in each run and another for each name."""
    if name in WORDS:
        return WORDS[name]
    hint = get_type_hints(cls)[name]
    kind = next((each for each in get_args(hint) if each is not type(None)), hint)
    number = crc32(name.encode()) % (90 if "_percent" in name else 9_000) + 1
    number *= 1_234_567 if "_bytes" in name else 1
    if kind is bool:
        return bool(number % 2)
    if kind in (int, float):
        return number if kind is int else number + 1 / 7
    return (number, number + 1) if kind is not str else f"{name} {number}"


def device(number: int, **changes: Any) -> Device:
    own = {f.name for f in dataclasses.fields(Device)} - {"index", "uuid", "absent", "parent_uuid"}
    values = {name: value_of(Device, name) for name in own if not name.startswith("mig_")}
    return dataclasses.replace(Device(number, f"GPU-{number}", ""), **{**values, **changes})


FULL = DeviceSample("GPU-0", **{name: value_of(DeviceSample, name) for name in READINGS})
LOST = DeviceSample("GPU-1", DeviceState.LOST, absent=dict.fromkeys(READINGS, Absence.LOST))
PART = DeviceSample("MIG-2", gpu_utilization_percent=7, memory_used_bytes=5 << 20)
INVENTORY = dataclasses.replace(
    streams.inventory(),
    devices=(
        device(0, memory_is_shared=False),
        device(1, virtualization="none", memory_is_shared=True),
        device(
            2,
            uuid="MIG-2",
            parent_uuid="GPU-0",
            mig_index=1,
            mig_gpu_instance=7,
            memory_is_shared=None,
            machine=None,
        ),
    ),
)
SAMPLE = dataclasses.replace(
    streams.sample(),
    devices=(FULL, LOST, PART),
    processes=(streams.process(71, 0, device_uuid="GPU-0", sm_utilization_percent=5),),
    events=(Event(50.0, "GPU-0", "xid", 79),),
)
SHOWN = sorted(
    {*READINGS, *(f.name for f in dataclasses.fields(Device))} - {*SERIES_READINGS, "absent"}
)


def exporter(*, dcgm: bool) -> Iterator[str]:
    """Yield the lines by metric: their order means nothing to Prometheus."""
    times = [100.0]
    follower = ExporterState(clock=lambda: times[-1])
    for record in (INVENTORY, SAMPLE):
        follower.add_record(record)
    times.append(100.5)
    found = families(follower, processes=True, dcgm=dcgm)
    found.sort(key=lambda each: each.samples[0].name)
    registry = registry_of(lambda: found)
    text = dcgm_text(registry) if dcgm else generate_latest(registry)
    yield from text.decode().splitlines()


def status() -> Iterator[str]:
    """Yield the lines of the devices: what is wrong with them is a matter of `health`."""
    rows = 1 + len(INVENTORY.devices)
    yield from page(INVENTORY, SAMPLE).splitlines()[: 1 + rows]
    for name, column in STATUS_COLUMNS.items():
        lines = page(INVENTORY, SAMPLE, View((column,), colour=True)).splitlines()
        yield f"{name}: {' | '.join(lines[1 : 1 + rows])}"


def status_json() -> Iterator[str]:
    yield from json.dumps(document(INVENTORY, SAMPLE), indent=1).replace(",\n", "\n").splitlines()


def details() -> Iterator[str]:
    for title, rows in GROUPS.items():
        for row, (gpu, readings) in (
            (row, pair)
            for row in rows
            for pair in zip(INVENTORY.devices, SAMPLE.devices, strict=True)
        ):
            shown = row.applies(gpu, readings), row.is_missing(gpu, readings)
            text = f"{row.text(gpu, readings)} {row.reason(gpu, readings, SAMPLE.host)} {shown}"
            yield f"{title}: {row.label}: {text}"
    for name in SHOWN:
        for absence in (Absence.NOT_SUPPORTED, Absence.DISABLED, Absence.NO_DATA_YET):
            texts = {absence_text(name, absence, gpu, SAMPLE.host): 0 for gpu in INVENTORY.devices}
            yield f"{name}: {absence}: {' | '.join(texts)}"
        cls = DeviceSample if name in READINGS else Device
        yield f"{name}: {value_text(name, value_of(cls, name))}"
    yield from (f"{term}: {text}" for term, text in LEGEND.items())


def queries() -> Iterator[str]:
    for scope in ("", 'cluster="a"'):
        for query in (*values_of(scope), names_of(scope), gone_of(scope)):
            yield " ".join(map(str, query))
    for name, metrics in READ_AS.items():
        yield f"{name}: {' '.join(f'{each.name}*{each.factor:.12g}' for each in metrics)}"
    yield from (f"{name}: {limits}" for name, limits in LIMITS.items())


OUTPUTS: dict[str, Callable[[], Iterable[str]]] = {
    "metrics.txt": lambda: exporter(dcgm=False),
    "dcgm.txt": lambda: exporter(dcgm=True),
    "status.txt": status,
    "status.json.txt": status_json,
    "details.txt": details,
    "queries.txt": queries,
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_no_line_is_lost_or_changed(name: str) -> None:
    lines = iter(OUTPUTS[name]())
    for expected in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        assert expected in lines, expected


if __name__ == "__main__":
    for file, make in OUTPUTS.items():
        (FOLDER / file).write_text("".join(f"{line}\n" for line in make()), encoding="utf-8")
