import json
from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Conditions, Failed
from gputop.bench.plan import target_choice
from gputop.bench.results.outliers import (
    DeviceOutcome,
    device_outcome,
    devices_page,
    joined,
    names,
    outliers,
    outliers_document,
    was_stopped,
)
from gputop.bench.results.verdict import with_verdicts
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, INTERRUPTED
from gputop.output.result_pages import page_text
from tests.bench.workers import RESULT
from tests.runs import ended
from tests.streams import inventory, sample

H100 = "NVIDIA H100 80GB HBM3"
LOST = DeviceOutcome("node-1", "GPU-8", "GPU 0", H100, None, "it was lost\x1b[2J", FAULT, "See it")


def devices_text(members: list[DeviceOutcome], width: int | None = None) -> str:
    return page_text(devices_page(members), width)


def member(n: int, mean: float | None = 700.0, device: str = H100, **changes: Any) -> DeviceOutcome:
    fields: dict[str, Any] = {"device_uuid": f"GPU-{n}", "dtype": "bfloat16", "seconds": 60.0}
    result = replace(RESULT, tflops_mean=mean, device=device, **(fields | changes))
    return DeviceOutcome(f"node-{n // 8}", f"GPU-{n}", f"GPU {n % 8}", device, result)


def fleet(*means: float) -> list[DeviceOutcome]:
    return [member(n, mean) for n, mean in enumerate(means)]


def judged(members: list[DeviceOutcome]) -> list[DeviceOutcome]:
    """Return the devices with verdicts about their results."""
    left = iter(with_verdicts([each.result for each in members if each.result is not None]))
    return [each if each.result is None else replace(each, result=next(left)) for each in members]


def named(members: list[DeviceOutcome]) -> dict[str, tuple[str, ...]]:
    return {each.uuid or "": tuple(each.reasons) for each in outliers(judged(members))}


def test_ten_percent_under_the_median_of_the_others() -> None:
    assert named(fleet(700, 701, 702, 699, 628)) == {
        "GPU-4": ("like devices: 10.3 % under the median of 4 others like it, more than 10 %",)
    }
    assert named(fleet(700, 701, 702, 699, 631)) == {}
    assert list(named(fleet(700, 620))) == ["GPU-1"]
    assert list(named(fleet(*[700] * 7, 420))) == ["GPU-7"]
    assert named(fleet(700, 701, 702, 699, 790)) == {}, "a fast one is none"


def test_what_is_wrong_is_gravest_and_the_slowest_is_before_the_less_slow() -> None:
    wrong = member(9, 1e6, wrong_elements=3, checks=5)
    held = DeviceOutcome("node-1", "GPU-7", "GPU 7", H100, None, "it is in use", COULD_NOT_RUN)
    members = [*fleet(700, 701, 702, 610, 600, 703, 704), held, LOST, wrong]
    found = outliers(judged(members))
    assert [(each.uuid, each.outcome.status) for each in found] == [
        ("GPU-8", FAULT),
        ("GPU-9", FAULT),
        ("GPU-7", COULD_NOT_RUN),
        ("GPU-4", DEGRADED),
        ("GPU-3", DEGRADED),
    ]
    wrong_results = "results: the device computed wrong results: 3 elements in 5 checks"
    assert found[1].reasons == [wrong_results]
    document = outliers_document(judged(members))
    assert [each["device_uuid"] for each in document["outliers"]][:2] == ["GPU-8", "GPU-9"]
    assert json.loads(json.dumps(document))["results"][8]["problem"].startswith("it was")


def test_a_page_has_everything_at_80_columns() -> None:
    limit = Conditions(heat_limit="margin 3°C (slowdown at -2°C)")
    members = [*fleet(700, 701, 702, 699, 600), member(9, 1.0, wrong_elements=1, conditions=limit)]
    text = devices_text(judged(members), 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    for part in (
        "bfloat16, 1024, 1:00: 6 devices on 2 hosts",
        "node-1, GPU 1: results: the device computed wrong results",
        "FAULTY",
        "Heat limit: margin 3°C (slowdown at -2°C)",
        "median 700 TFLOP/s, from 600 TFLOP/s to 702 TFLOP/s",
    ):
        assert part in " ".join(text.split())


@pytest.mark.parametrize(("count", "lines"), [(32, 38), (33, 4)])
def test_many_devices_are_not_listed(count: int, lines: int) -> None:
    text = devices_text(judged([member(n, 700 + n % 3) for n in range(count)]))
    assert len(text.splitlines()) == lines
    many = f"node-0, GPU 0, node-0, GPU 1, node-0, GPU 2 and {count - 3} more: No fault found."
    assert many in text


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (["GPU 0", "GPU 1", "GPU 2"], "GPUs 0–2"),
        (["GPU 0", "GPU 1"], "GPUs 0, 1"),
        (["GPU 3"], "GPU 3"),
        (["CPU", "GPU 1"], "CPU, GPU 1"),
    ],
)
def test_names_of_devices(places: list[str], expected: str) -> None:
    assert names([DeviceOutcome("", None, place, H100) for place in places]) == expected


def test_equal_reasons_are_joined_with_ranges() -> None:
    said = []
    for n, seconds in enumerate((9, 1_450, 43)):
        hot = f"Too hot for {seconds:,} s of 60 s. Check GPU {n}: `nvidia-smi -i {n} -pl 600`."
        said.append((DeviceOutcome("", None, f"GPU {n}", H100), hot))
    other = (DeviceOutcome("", None, "GPU 5", H100), "Faulty: 3 elements.")
    assert [line for _, line in joined([*said, other])] == [
        "GPUs 0–2: Too hot for 9–1,450 s of 60 s. Check GPU 0,1,2: `nvidia-smi -i 0,1,2 -pl 600`.",
        "GPU 5: Faulty: 3 elements.",
    ]


def test_a_page_of_nothing_but_failures() -> None:
    text = devices_text([LOST])
    assert "1 device on 1 host: none has a result" in text
    assert "it was lost␛[2J. See it" in text
    target = target_choice.targets(inventory(1), sample(1, []))[0]
    run = ended(target, Failed(Problem("It failed", "no memory", "Free some"), FAULT))
    found = device_outcome(run)
    assert (found.sentence, found.status) == ("It failed: no memory. Free some", FAULT)


def test_who_was_stopped_is_no_outlier() -> None:
    early = replace(LOST, problem="it was stopped", status=INTERRUPTED)
    members = [*fleet(700, 701), member(5, stopped="user"), early]
    assert named(members) == {}
    assert [was_stopped(each) for each in members] == [False, False, True, True]
    assert devices_text(members).endswith(" stopped")
