"""`gputop status` as a page of text."""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from gputop.output.page import document, page
from gputop.telemetry.snapshot import (
    READINGS,
    Absence,
    Device,
    DeviceSample,
    DeviceState,
    DriverState,
    Host,
    Inventory,
    Process,
    ProcessKind,
    Sample,
    Source,
)

GIB = 1 << 30
INVENTORY = Inventory(
    time=1.0,
    hostname="node7",
    source=Source.NVML,
    driver_state=DriverState.OK,
    interval_seconds=1.0,
    driver_version="580.65.06",
    cuda_version="13.0",
    devices=(
        Device(0, "GPU-a", "NVIDIA H100 80GB HBM3"),
        Device(1, "GPU-b", "NVIDIA GeForce RTX 4090"),
        Device(10, "GPU-c", "Tesla T4"),
    ),
)
SAMPLE = Sample(
    time=2.0,
    host=Host(cpu_percent=12.4, memory_used_bytes=37 * GIB, memory_total_bytes=503 * GIB),
    devices=(
        DeviceSample(
            "GPU-a",
            age_seconds=0.0,
            gpu_utilization_percent=100,
            memory_used_bytes=71 * GIB,
            memory_total_bytes=80 * GIB,
            temperature_celsius=64,
            power_watts=612.4,
            power_limit_watts=700.0,
            sm_clock_mhz=1755,
            absent={"fan_percent": Absence.NOT_SUPPORTED},
        ),
        DeviceSample(
            "GPU-b",
            age_seconds=0.0,
            gpu_utilization_percent=3,
            memory_used_bytes=512 << 20,
            memory_total_bytes=24 * GIB,
            temperature_celsius=41,
            power_watts=18.6,
            sm_clock_mhz=210,
            fan_percent=30,
            absent={"power_limit_watts": Absence.NO_PERMISSION},
        ),
        DeviceSample("GPU-c", DeviceState.LOST, absent=dict.fromkeys(READINGS, Absence.LOST)),
    ),
    processes=(
        Process(2, "GPU-b", ProcessKind.GRAPHICS, 300 << 20, "root", "/usr/lib/xorg/Xorg :0"),
        Process(48211, "GPU-a", ProcessKind.COMPUTE, 70 * GIB, "ada", "python train.py --lr 1e-4"),
        Process(
            4000000,
            "GPU-a",
            ProcessKind.COMPUTE,
            absent={"user": Absence.LOST, "memory_used_bytes": Absence.NOT_SUPPORTED},
        ),
    ),
)

PAGE = """\
node7 · driver 580.65.06 · CUDA 13.0 · CPU 12 % · memory 37.0 GiB of 503 GiB
 [0]  H100 80GB HBM3  busy 100 %  71.0/80.0 GiB  64°C  612/700 W  1755 MHz     fan –
       48211  ada        70.0 GiB  python train.py --lr 1e-4
     4000000  –                 –  (in another pid namespace: run with --pid=host)
 [1]  RTX 4090          busy 3 %   0.5/24.0 GiB  41°C       19 W   210 MHz  fan 30 %
           2  root        300 MiB  /usr/lib/xorg/Xorg :0
[10]  T4                  busy –              –     –          –         –     fan –  LOST
"""


def test_a_page() -> None:
    assert page(INVENTORY, SAMPLE) + "\n" == PAGE


def test_lines_are_cut_where_a_terminal_would_break_them() -> None:
    cut = page(INVENTORY, SAMPLE, 60).splitlines()
    for line, whole in zip(cut, PAGE.splitlines(), strict=True):
        assert line == (whole if len(whole) <= 60 else f"{whole[:59]}…")


def test_a_host_alone() -> None:
    inventory = dataclasses.replace(INVENTORY, devices=(), driver_version=None, cuda_version=None)
    sample = Sample(2.0, Host(absent={"cpu_percent": Absence.NO_DATA_YET}))
    assert page(inventory, sample) == "node7 · CPU – · memory –"


def test_simulated_numbers_are_marked() -> None:
    inventory = dataclasses.replace(INVENTORY, source=Source.SIMULATED)
    assert page(inventory, SAMPLE).splitlines()[0].startswith("node7 · SIMULATED · ")


def test_a_device_without_a_sample_takes_no_other_ones_processes() -> None:
    sample = dataclasses.replace(SAMPLE, devices=SAMPLE.devices[1:])
    lines = [line.split() for line in page(INVENTORY, sample).splitlines()[1:]]
    assert [line[0] for line in lines] == ["[1]", "2", "[10]"]


def test_every_state_that_is_not_well_is_said() -> None:
    for state in DeviceState:
        sample = dataclasses.replace(SAMPLE, devices=(DeviceSample("GPU-a", state, 0.0),))
        line = page(INVENTORY, sample).splitlines()[1]
        assert line.endswith(
            "fan –" if state is DeviceState.OK else state.upper().replace("_", " ")
        )


def test_a_device_that_has_not_answered_yet_says_so() -> None:
    sample = dataclasses.replace(SAMPLE, devices=(DeviceSample("GPU-a"),))
    assert page(INVENTORY, sample).splitlines()[1].endswith("fan –  no answer yet")


def test_foreign_text_is_inert() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 [red]\u202e\n[9]  fake row"
    inventory = dataclasses.replace(
        INVENTORY,
        hostname=evil,
        driver_version=evil,
        cuda_version=evil,
        devices=(Device(0, "GPU-a", evil),),
    )
    process = Process(1, "GPU-a", ProcessKind.COMPUTE, 1, evil, evil)
    text = page(inventory, dataclasses.replace(SAMPLE, processes=(process,)))
    lines = text.split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert all("␛[2J␛]0;owned␇ [red]⟨202e⟩␊[9]" in line for line in lines)


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_any_text_makes_a_line_each(user: str, command: str) -> None:
    process = Process(1, "GPU-a", ProcessKind.COMPUTE, 1, user, command)
    text = page(INVENTORY, dataclasses.replace(SAMPLE, processes=(process,)))
    lines = text.split("\n")
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines)
    text.encode()


def test_a_long_command_is_cut() -> None:
    process = Process(1, "GPU-a", ProcessKind.COMPUTE, 1, "ada", "x" * 10_000)
    text = page(INVENTORY, dataclasses.replace(SAMPLE, processes=(process,)))
    assert max(map(len, text.splitlines())) < 300


def test_the_document_has_the_fields_of_the_stream() -> None:
    made = json.loads(json.dumps(document(INVENTORY, SAMPLE)))
    assert made.keys() == {"inventory", "sample"}
    assert made["inventory"]["devices"][1]["name"] == "NVIDIA GeForce RTX 4090"
    first = made["sample"]["devices"][0]
    assert (first["fan_percent"], first["absent"]) == (None, {"fan_percent": "not_supported"})
    assert first["power_watts"] == 612.4
