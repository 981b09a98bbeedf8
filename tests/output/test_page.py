import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.device import READINGS, Absence, Device, DeviceSample, DeviceState
from gputop.agent.snapshot import DriverState, Host, Inventory, Process, ProcessKind, Sample, Source
from gputop.health.findings import Bound, BoundBy
from gputop.output import pages
from gputop.output.pages import as_ascii, cell, colour_is_wanted, draw_over, rendered
from gputop.output.process_tables import SORT_KEYS, processes_text, users_document
from gputop.output.status_page import Processes, View, page, parse_columns, users_page
from gputop.text import cells

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

HEADING = "node7 · 1970-01-01 00:00:02 · driver 580.65.06 · CUDA 13.0"
PAGE = f"""\
{HEADING} · CPU 12 % · memory 37.0 of 503 GiB
GPU  name             busy         memory  temp      power     clock   fan  state  processes
  0  H100 80GB HBM3  100 %  71.0/80.0 GiB  64°C  612/700 W  1755 MHz     –         \
ada:python/48211(70.0 GiB) –:–/4000000(–)
  1  RTX 4090          3 %  512M/24.0 GiB  41°C       19 W   210 MHz  30 %         \
root:Xorg/2(300 MiB)
 10  T4                  –              –     –          –         –     –  LOST
"""
BELOW = f"""\
{HEADING} · CPU 12 %
GPU  name             busy         memory  temp      power     clock  state
  0  H100 80GB HBM3  100 %  71.0/80.0 GiB  64°C  612/700 W  1755 MHz
  1  RTX 4090          3 %  512M/24.0 GiB  41°C       19 W   210 MHz
 10  T4                  –              –     –          –         –  LOST

GPU      PID  user    memory  busy  CPU  time  command
  0    48211  ada   70.0 GiB     –    –     –  python train.py --lr 1e-4
  0  4000000  –            –     –    –     –  (gone, or in another namespace: …
  1        2  root   300 MiB     –    –     –  /usr/lib/xorg/Xorg :0
"""
AT_80 = f"""\
{HEADING} · CPU 12 %
GPU  name             busy         memory  temp  state  processes
  0  H100 80GB HBM3  100 %  71.0/80.0 GiB  64°C         ada(70.0 GiB) –(–)
  1  RTX 4090          3 %  512M/24.0 GiB  41°C         root:Xorg/2(300 MiB)
 10  T4                  –              –     –  LOST
"""


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (View(), PAGE),
        (View(processes="below", width=80), BELOW),
        (View(width=80), AT_80),
    ],
)
def test_a_page(view: View, wanted: str) -> None:
    assert page(INVENTORY, SAMPLE, view) + "\n" == wanted


NUMBERS = re.compile(r"[0-9.]+ (?:GiB|MiB|%|W|MHz)|[0-9]+°C|/[0-9]+\(")


@given(st.integers(1, 160), st.sampled_from(["beside", "below", "none"]))
def test_no_line_is_longer_than_the_terminal_and_no_number_is_cut(
    width: int, processes: Processes
) -> None:
    whole = {*NUMBERS.findall(PAGE), *NUMBERS.findall(BELOW)}
    lines = page(INVENTORY, SAMPLE, View(processes=processes, width=width)).split("\n")
    assert max(map(cells, lines)) <= width
    if width >= 40:  # less has no room for a process with its memory
        assert {*NUMBERS.findall("\n".join(lines))} <= whole
    assert [*map(len, lines)] == [len(line.rstrip()) for line in lines]


def test_what_devices_are_bound_by_is_a_column() -> None:
    words = {
        INVENTORY.devices[0].uuid: BoundBy(Bound.FP32, "no tensor cores"),
        INVENTORY.devices[1].uuid: BoundBy(Bound.UNKNOWN, "no SM active"),
    }
    for columns in (View().columns, parse_columns("GPU,bound-by")):
        view = View(columns, bound_by=words, processes="none")
        heading, first, second = page(INVENTORY, SAMPLE, view).split("\n")[1:4]
        at = heading.index("bound-by")
        assert first[at:].split()[0] == "FP32"
        assert second[at:].split()[0] == "–"
    assert "bound-by" not in page(INVENTORY, SAMPLE)


def test_columns_that_were_chosen_are_there_and_those_without_room_are_named() -> None:
    columns = parse_columns("fan, power_watts,SM clock,busy")
    lines = page(INVENTORY, SAMPLE, View(columns, width=30)).split("\n")[1:]
    assert lines == [
        " fan      power  state",
        "   –  612/700 W",
        "30 %       19 W",
        "   –          –  LOST",
        "no room for clock, busy",
    ]
    assert page(INVENTORY, SAMPLE, View(columns, width=20)).endswith("no room for power, …")


def test_alerts_are_under_the_table() -> None:
    readings = dataclasses.replace(SAMPLE.devices[0], ecc_uncorrected=2)
    sample = dataclasses.replace(SAMPLE, devices=(readings, *SAMPLE.devices[1:]))
    assert page(INVENTORY, sample).split("\n")[5:] == ["GPU 0: 2 uncorrected ECC errors"]
    assert page(INVENTORY, sample, View(colour=True)).split("\n")[5].startswith("\x1b[1;31mGPU 0")
    narrow = page(INVENTORY, sample, View(width=24)).split("\n")[5:]
    assert narrow == ["GPU 0: 2 uncorrected ECC", "errors"]


def test_a_driver_that_has_not_answered_yet() -> None:
    inventory = dataclasses.replace(INVENTORY, devices=(), driver_state=DriverState.STARTING)
    assert page(inventory, Sample(2.0, Host())).split("\n")[1:] == [
        "The driver has not answered yet"
    ]


def test_an_instance_has_a_line_of_its_own_and_shared_memory_is_said() -> None:
    gpu = Device(0, "GPU-a", "NVIDIA GB10", memory_is_shared=True)
    part = Device(1, "MIG-b", "NVIDIA A100 MIG 1g.5gb", "GPU-c", 2)
    shared = DeviceSample("GPU-a", age_seconds=0.0, memory_attributed_bytes=3 * GIB)
    own = DeviceSample("MIG-b", age_seconds=0.0, memory_used_bytes=GIB)
    inventory = dataclasses.replace(INVENTORY, devices=(gpu, part))
    text = page(inventory, Sample(2.0, Host(), (shared, own)), View(parse_columns("gpu,memory")))
    assert text.split("\n")[2:] == ["  0  3.00 GiB of the host's", "1:2                1.00 GiB"]


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (None, "cy:run/3(3.00 GiB) bo:run/2(2.00 GiB) ada:run/1(1.00 GiB)"),
        (57, "cy:run/3(3.00 GiB) bo:run/2(2.00 GiB) ada:run/1(1.00 GiB)"),
        (56, "cy/3(3.00 GiB) bo/2(2.00 GiB) ada/1(1.00 GiB)"),
        (44, "cy(3.00 GiB) bo(2.00 GiB) ada(1.00 GiB)"),
        (38, "cy(3.00 GiB) bo(2.00 GiB) +1"),
        (27, "cy(3.00 GiB) +2"),
        (14, "3 proc."),
    ],
)
def test_the_largest_holder_is_named_longest(room: int | None, shown: str) -> None:
    held = [
        Process(n, "GPU-a", ProcessKind.COMPUTE, n * GIB, user, f"/opt/{user}/run -v")
        for n, user in enumerate(("ada", "bo", "cy"), 1)
    ]
    assert processes_text(held, room) == shown
    long = dataclasses.replace(held[1], command=f"/opt/{'run' * 20} -v")
    assert processes_text([long], None) == f"bo:{'run' * 13}r/2(2.00 GiB)"


def test_ascii_is_for_terminals_that_have_no_more() -> None:
    text = as_ascii(PAGE + "…")
    assert text.isascii()
    assert text.splitlines()[0].startswith("node7 | 1970-01-01 00:00:02 | driver 580")
    assert "  64 C  612/700 W  1755 MHz     -  " in text


@pytest.mark.parametrize(
    ("order", "pids"),
    [
        ("memory", [48211, 2, 4000000]),
        ("gpu", [2, 48211, 4000000]),
        ("cpu", [48211, 2, 4000000]),
        ("pid", [2, 48211, 4000000]),
        ("user", [48211, 2, 4000000]),
    ],
)
def test_processes_are_sorted_and_those_without_the_value_are_last(
    order: str, pids: list[int]
) -> None:
    xorg, train, unknown = SAMPLE.processes
    xorg = dataclasses.replace(xorg, sm_utilization_percent=9, cpu_percent=1.5, start_time=-7200.0)
    train = dataclasses.replace(train, sm_utilization_percent=3, cpu_percent=99.0, start_time=-58.0)
    sample = dataclasses.replace(SAMPLE, processes=(unknown, xorg, train))

    def shown(top: int | None) -> list[list[str]]:
        view = View(processes="below", sort=SORT_KEYS[order], top=top)
        text = page(INVENTORY, sample, view)
        return [line.split() for line in text.split("\n\n")[1].splitlines()[1:]]

    assert [int(words[1]) for words in shown(None)] == pids
    assert [int(words[1]) for words in shown(2)] == pids[:2]
    by_pid = {int(words[1]): words for words in shown(None)}
    assert by_pid[48211][:11] == [
        *("0", "48211", "ada", "70.0", "GiB", "3", "%", "99", "%", "1:00", "python")
    ]


def test_containers_are_a_column_if_there_are_any_and_time_if_there_is_room() -> None:
    assert "container" not in page(INVENTORY, SAMPLE, View(processes="below"))
    narrow = [page(INVENTORY, SAMPLE, View(processes="below", width=room)) for room in (62, 63)]
    assert ["  time  command" in each for each in narrow] == [False, True]
    xorg, train, unknown = SAMPLE.processes
    command = f"python train.py {'x' * 200}"
    container = f"\x1b[2J{'c' * 65}"
    train = dataclasses.replace(train, user="u" * 65, container=container, command=command)
    sample = dataclasses.replace(SAMPLE, processes=(xorg, train, unknown))
    lines = page(INVENTORY, sample, View(processes="below")).splitlines()
    assert re.search("  container +command$", lines[6])
    assert f"  {'u' * 64}  70.0 GiB" in lines[7]
    assert lines[7].endswith(f"  ␛[2J{'c' * 60}  {command[:200]}")


def test_totals_by_user() -> None:
    xorg, train, unknown = SAMPLE.processes
    second = dataclasses.replace(train, device_uuid="GPU-b", memory_used_bytes=GIB)
    half_known = dataclasses.replace(xorg, pid=3, memory_used_bytes=None)
    sample = dataclasses.replace(SAMPLE, processes=(xorg, half_known, train, second, unknown))
    nobody = dataclasses.replace(sample, processes=())
    assert users_page(INVENTORY, nobody).endswith("No process uses a GPU")
    lines = users_page(INVENTORY, sample).splitlines()
    assert lines[1:] == [
        "user  GPUs  processes            memory      busiest",
        "ada      2          1          71.0 GiB  GPU 0 100 %",
        "root     1          2  at least 300 MiB    GPU 1 3 %",
        "–        1          1                 –  GPU 0 100 %",
    ]
    made = json.loads(json.dumps(users_document(INVENTORY, sample)))
    assert made["hostname"] == "node7"
    assert made["users"][0] == {
        "user": "ada",
        "devices": ["GPU-a", "GPU-b"],
        "processes": 1,
        "memory_used_bytes": 71 * GIB,
        "memory_is_partial": False,
        "busiest_device": "GPU-a",
        "busiest_percent": 100,
    }
    assert made["users"][1]["memory_is_partial"] is True
    assert made["users"][2]["user"] is None
    assert made["users"][2]["memory_used_bytes"] is None


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({}, False),  # standard output is no terminal here
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_when_there_are_colours(
    environment: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colour_is_wanted() is colour


def test_text_is_never_markup() -> None:
    table = pages.table()
    pages.add_column(table, "[bold]name[/]", left=True)
    table.add_row(cell("[red]x[/] :smile:"))
    assert rendered(table, width=None, colour=False).splitlines() == [
        "[bold]name[/]",
        "[red]x[/] :smile:",
    ]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [(4, ["1", "2", "3", "4"]), (3, ["1", "2", "– 2 more lines"]), (1, ["– 4 more lines"])],
)
def test_a_page_taller_than_the_terminal_says_what_is_left_out(
    rows: int, shown: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINES", str(rows))
    monkeypatch.setenv("COLUMNS", "20")
    draw_over("1\n2\n3\n4", first=False)
    drawn = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", capsys.readouterr().out)
    assert [line.strip() for line in drawn.splitlines()] == shown
    draw_over("1", first=True)  # what was there is scrolled up
    assert capsys.readouterr().out.count("\n") >= rows
