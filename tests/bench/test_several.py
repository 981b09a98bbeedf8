import dataclasses
import json
from typing import Any

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.problem import Problem
from gputop.bench.events import Conditions, Done, Failed, Progress
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Target
from gputop.bench.results import store
from gputop.bench.run.device_run import DeviceRun
from gputop.commands.bench_results import report_runs
from gputop.stream.child import StreamError
from tests import runs
from tests.bench.commands import parsed, run
from tests.bench.machines import divided, seen, trainer, undivided
from tests.sessions import RESULT
from tests.streams import inventory, process, readings, sample

GPUS = target_choice.targets(inventory(3), sample(3, []))[:3]
QUIET = (inventory(3), sample(3, []))
BUSY = (inventory(3), sample(3, [process(7, 1)]))
LOST = (
    inventory(3),
    dataclasses.replace(
        sample(3, []), devices=(readings(0), readings(1, state=DeviceState.LOST), readings(2))
    ),
)
ALL_LOST = (
    inventory(1),
    dataclasses.replace(sample(1, []), devices=(readings(0, state=DeviceState.LOST),)),
)
NONE = (inventory(0), sample(0, []))
NO_DRIVER = (
    dataclasses.replace(
        inventory(0), problem=Problem("No NVIDIA driver", "no library was found", "Install it")
    ),
    sample(0, []),
)
HANGS = StreamError(Problem("It hangs", "it does", "Reboot"))


def ended(target: Target, mean: float = 700.0, **changes: Any) -> DeviceRun:
    fields: dict[str, Any] = {"dtype": "bfloat16", "n": 8192, "tflops_mean": mean, **changes}
    made = dataclasses.replace(RESULT, device=target.name, device_uuid=target.uuid, **fields)
    return runs.ended(target, Progress(1.0, 1.0, 10, mean), Done(made))


def failed(target: Target, status: int = 3) -> DeviceRun:
    return runs.ended(target, Failed(Problem("It broke", "it did", "Mend it"), status))


@pytest.mark.parametrize(
    ("stream", "named", "chosen"),
    [
        (QUIET, "0,2", ["0", "2"]),
        (QUIET, "1,1,GPU-00000001", ["1"]),
        (QUIET, "cpu,all", [None, "0", "1", "2"]),
        (QUIET, "cpu,cpu", [None]),
        (LOST, "all", ["0", "2"]),
        ((divided(), seen()), "ALL", ["0", "3:0", "3:1", "3:3"]),
    ],
)
def test_who_is_chosen(
    asked: dict[str, Any], stream: object, named: str, chosen: list[str | None]
) -> None:
    asked["stream"] = stream
    assert run("--device", named, "--memory-share", "0.5") == 0
    assert [request.target.number for request in asked["requests"]] == chosen
    assert {request.target.memory_share for request in asked["requests"]} == {0.5}


def test_the_first_gpu_is_the_default_and_a_busy_one_may_be_shared(asked: dict[str, Any]) -> None:
    asked["stream"] = (inventory(1), sample(1, [process(7, 0)]))
    assert run("--seconds", "2", "--ignore-busy") == 0
    (request,) = asked["requests"]
    assert (request.target.number, request.dtype, request.size) == ("0", "bfloat16", None)
    assert (request.seconds, request.python, request.target.memory_share) == (2.0, None, 0.9)


HIDES = "CUDA_VISIBLE_DEVICES hides every GPU"
ON_THE_CPU = f"gputop: no GPU can be used ({HIDES}): the CPU is tested"
UNLIKE = dataclasses.replace(
    inventory(2),
    devices=(inventory(2).devices[0], dataclasses.replace(inventory(2).devices[1], name="T4")),
)


@pytest.mark.parametrize(
    ("value", "arguments", "chosen", "says"),
    [
        ("1,2", [], ["1"], []),
        ("GPU-00000002", [], ["2"], []),
        ("1,2", ["--device", "all"], ["1", "2"], []),
        ("1,2", ["--device", "0"], ["0"], []),
        ("1,2", ["collective"], ["1", "2"], []),
        ("2,7,1", ["--device", "all"], ["2"], ["ends at '7': there is no such device"]),
        ("", [], [None], [ON_THE_CPU]),
        ("-1", [], [None], ["ends at '-1': there is no such device", ON_THE_CPU]),
    ],
)
def test_what_cuda_sees_is_what_is_chosen_where_none_is_named(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    value: str,
    arguments: list[str],
    chosen: list[str | None],
    says: list[str],
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert run(*arguments) == 0
    assert [request.target.number for request in asked["requests"]] == chosen
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(says)
    assert all(line.endswith(words) for line, words in zip(lines, says, strict=True))


def test_without_a_gpu_it_is_the_cpu_and_says_so(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked["stream"] = (undivided(), seen())
    assert run() == 0
    assert asked["requests"][0].target.kind == "cpu"
    assert asked["requests"][0].target.memory_share == 0.5, "other programs need some"
    assert "(MIG is on, and it has no instance)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stream", "arguments", "status", "says"),
    [
        (QUIET, "--device 0,7", 3, "There is no GPU 7"),
        (BUSY, "--device all", 3, "slow down: GPU 1 7 ada python train.py --rank 1. Wait"),
        (LOST, "--device 0,1", 3, "its state is lost"),
        ((divided(), seen()), "--device 3", 3, "Choose one: 3:0 (MIG 3g.20gb), 3:1 (MIG 2g."),
        ((undivided(), seen()), "--device 3", 3, "nvidia-smi mig -i 3 -cgi PROFILE -C"),
        ((divided(), seen(processes=(trainer(72, 1),))), "--device 3:1", 3, "72 ada train. Wait"),
        (NONE, "--device all", 3, "there is none"),
        (NONE, "--device cpu,all", 3, "there is none"),
        (ALL_LOST, "--device all", 3, "none of them answers"),
        (NO_DRIVER, "--device 0", 3, "No NVIDIA driver: no library was found. Install it"),
        (HANGS, "", 3, "It hangs: it does. Reboot. Or choose --device cpu"),
        (QUIET, "--device 0,1 --report page.html", 2, "--report is a page about one"),
        (QUIET, "--device 0,1 --history", 2, "--history lists one device, or all"),
        (QUIET, "collective --device 1", 2, "is the only device"),
    ],
)
def test_what_is_refused(
    asked: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    stream: object,
    arguments: str,
    status: int,
    says: str,
) -> None:
    asked["stream"] = stream
    assert run(*arguments.split()) == status
    assert asked["requests"] == []
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("gputop: error: ")
    assert says in line


@pytest.mark.parametrize(
    ("stream", "value", "says"),
    [
        (QUIET, "", f"No GPU can be used: {HIDES}. Choose --device cpu."),
        (
            (UNLIKE, sample(2, [])),
            "1",
            "or name devices by their UUIDs, or choose one with --device.",
        ),
    ],
)
def test_what_cuda_sees_is_nothing_or_is_not_known(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stream: object,
    value: str,
    says: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    test_what_is_refused(asked, capsys, stream, "--device all", 3, says)


def test_a_line_for_each_device_and_who_is_behind(capsys: pytest.CaptureFixture[str]) -> None:
    known = Conditions(
        power_watts_mean=698.2,
        temperature_celsius_max=71,
        percent_of_peak={"datasheet dense": 70.8},
    )
    ends = [ended(GPUS[0], conditions=known), ended(GPUS[1], 600.0), ended(GPUS[2], 698.0)]
    assert report_runs(ends, parsed("--verbose")) == 4
    said = capsys.readouterr().out
    summaries, title, rows, reasons, *_ = said.split("\n\n")
    assert summaries.splitlines() == [
        "GPUs 0, 2: No fault found. Computes correctly, as fast as the others.",
        (
            "GPU 1: Computes correctly. Slower than the others: 14.2 % under the median of 2 "
            "others like it, more than 10 %. Compare power limit, clock and temperature of the "
            "GPU with theirs."
        ),
    ]
    assert title.startswith("soak in bfloat16, 1024×8192×1024, 2 s: 3 devices on 1 host\n")
    _, first, second, third = rows.splitlines()
    assert all(each in first for each in ("70.8 %", "698 W", "71°C"))
    assert "DEGRADED" in second
    assert "698" in third
    assert reasons.startswith("GPU 1: like devices: 14.2 % under the median of 2 others like it")
    assert said.count("torch.mm") == 3, "each has its method"


def test_json_is_a_list_also_where_one_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_runs([ended(GPUS[0]), failed(GPUS[1])], parsed("--json")) == 3
    said = capsys.readouterr()
    first, second = json.loads(said.out)
    assert first["tflops_mean"] == 700.0
    assert second["device_uuid"] == GPUS[1].uuid
    assert second["problem"] == {"what": "It broke", "why": "it did", "remedy": "Mend it"}
    assert second["status"] == 3
    assert said.err == "gputop: error: It broke: it did. Mend it\n"
    assert report_runs([failed(each) for each in GPUS], parsed("collective")) == 3
    assert capsys.readouterr().err == said.err


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([ended(GPUS[0]), ended(GPUS[1], 600.0)], 4),
        ([ended(GPUS[0]), ended(GPUS[1], 690.0)], 0),
        ([ended(GPUS[0], stopped="limit"), ended(GPUS[1])], 4),
        ([ended(GPUS[0], stopped="unwatched"), ended(GPUS[1])], 3),
        ([ended(GPUS[0], stopped="unwatched", wrong_elements=1), ended(GPUS[1])], 1),
        ([ended(GPUS[0], 600.0), failed(GPUS[1])], 3),
        ([ended(GPUS[0], 600.0), ended(GPUS[1], stopped="user")], 130),
        ([failed(GPUS[0]), failed(GPUS[1], 1)], 1),
    ],
)
def test_one_that_is_degraded_is_enough(
    ends: list[DeviceRun], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in GPUS[:2]:
        before = ended(target).result
        assert before is not None
        for n in range(4):
            store.append(dataclasses.replace(before, started_at=before.started_at - 3600 - n))
    assert report_runs(ends, parsed()) == status
    means = [end.result.tflops_mean for end in ends if end.result is not None]
    assert capsys.readouterr().out.count("earlier runs: 600") == means.count(600.0)
