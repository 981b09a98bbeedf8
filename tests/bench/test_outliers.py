"""Which of many devices are not like the others."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from gputop.bench.events import Conditions
from gputop.bench.results.outliers import (
    DeviceOutcome,
    joined,
    outliers,
    outliers_document,
    was_stopped,
)
from gputop.bench.results.verdict import with_verdicts
from gputop.console import COULD_NOT_RUN, DEGRADED, FAULT, INTERRUPTED
from tests.bench.pages import devices_text
from tests.bench.workers import RESULT

H100 = "NVIDIA H100 80GB HBM3"


def member(n: int, mean: float | None = 700.0, device: str = H100, **changes: Any) -> DeviceOutcome:
    fields: dict[str, Any] = {
        "device": device,
        "device_uuid": f"GPU-{n}",
        "dtype": "bfloat16",
        "seconds": 60.0,
    }
    result = dataclasses.replace(RESULT, tflops_mean=mean, **(fields | changes))
    return DeviceOutcome(f"node-{n // 8}", f"GPU-{n}", f"GPU {n % 8}", device, result)


def fleet(*means: float) -> list[DeviceOutcome]:
    return [member(n, mean) for n, mean in enumerate(means)]


def judged(members: list[DeviceOutcome]) -> list[DeviceOutcome]:
    """Return the devices with verdicts about their results."""
    left = iter(with_verdicts([each.result for each in members if each.result is not None]))
    return [
        each if each.result is None else dataclasses.replace(each, result=next(left))
        for each in members
    ]


def named(members: list[DeviceOutcome]) -> dict[str, tuple[str, ...]]:
    return {each.uuid or "": tuple(each.reasons) for each in outliers(judged(members))}


def test_ten_percent_under_the_median_of_the_others() -> None:
    assert named(fleet(700, 701, 702, 699, 620)) == {
        "GPU-4": ("like devices: 11.5 % under the median of 4 others like it, more than 10 %",)
    }
    assert named(fleet(700, 640)) == {}
    assert list(named(fleet(700, 620))) == ["GPU-1"]
    assert list(named(fleet(*[700] * 7, 420))) == ["GPU-7"]
    assert named(fleet(700, 701, 702, 699, 790)) == {}, "a fast one is none"


def test_models_and_data_types_are_compared_among_themselves() -> None:
    others = [member(n, 250.0 + n % 2, "NVIDIA A100-SXM4-80GB") for n in range(8, 12)]
    third = [member(n, 90.0, dtype="float32") for n in range(12, 15)]
    assert named([*fleet(700, 701, 702, 699), *others, *third]) == {}


def test_what_is_wrong_is_gravest_and_says_nothing_about_the_others() -> None:
    wrong = member(9, 1e6, wrong_elements=3, checks=5)
    dead = DeviceOutcome("node-1", "GPU-8", "GPU 0", H100, None, "it was lost", FAULT)
    held = DeviceOutcome("node-1", "GPU-7", "GPU 7", H100, None, "it is in use", COULD_NOT_RUN)
    members = [*fleet(700, 701, 702, 600), held, dead, wrong]
    found = outliers(judged(members))
    assert [(each.uuid, each.outcome.status) for each in found] == [
        ("GPU-8", FAULT),
        ("GPU-9", FAULT),
        ("GPU-7", COULD_NOT_RUN),
        ("GPU-3", DEGRADED),
    ]
    assert found[1].reasons == [
        "results: the device computed wrong results: 3 elements in 5 checks"
    ]


def test_a_page_has_everything_at_80_columns() -> None:
    members = [*fleet(700, 701, 702, 699, 600), member(9, 1.0, wrong_elements=1)]
    text = devices_text(judged(members), 80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "bfloat16, 1024, 1:00: 6 devices on 2 hosts" in text
    assert "node-1, GPU 1: results: the device computed wrong results" in text
    assert "FAULTY" in text
    assert "Heat limit" not in text
    limit = Conditions(heat_limit="margin 3°C (slowdown at -2°C)")
    hot = devices_text([member(n, conditions=limit) for n in range(3)])
    assert "Heat limit: margin 3°C (slowdown at -2°C)" in hot
    many = devices_text(judged([member(n, 700 + n % 3) for n in range(200)]))
    assert len(many.splitlines()) < 10
    assert "node-0, GPU 0, node-0, GPU 1, node-0, GPU 2 and 197 more: No fault found." in many


def test_equal_reasons_are_joined_with_ranges() -> None:
    said = []
    for n, seconds in enumerate((42, 45, 43)):
        hot = f"Too hot for {seconds} s of 60 s. Have GPU {n} checked: `nvidia-smi -i {n} -pl 600`."
        said.append((DeviceOutcome("", None, f"GPU {n}", H100), hot))
    other = (DeviceOutcome("", None, "GPU 5", H100), "Faulty: 3 elements.")
    assert [line for _, line in joined([*said, other])] == [
        (
            "GPUs 0–2: Too hot for 42–45 s of 60 s. "
            "Have GPU 0,1,2 checked: `nvidia-smi -i 0,1,2 -pl 600`."
        ),
        "GPU 5: Faulty: 3 elements.",
    ]
    assert joined([said[0], said[2]])[0][1].startswith("GPUs 0, 2: Too hot for 42–43 s of 60 s.")


def test_a_page_of_nothing_but_failures() -> None:
    dead = [DeviceOutcome("a", None, "GPU 0", H100, None, "it was lost\x1b[2J", FAULT)]
    text = devices_text(dead)
    assert "1 device on 1 host: none has a result" in text
    assert "\x1b" not in text
    assert json.loads(json.dumps(outliers_document(dead)))["results"][0]["problem"].startswith(
        "it was"
    )


def test_who_was_stopped_is_no_outlier() -> None:
    early = DeviceOutcome("a", None, "GPU 1", H100, None, "it was stopped", INTERRUPTED)
    members = [*fleet(700, 701), member(5, stopped="user"), early]
    assert named(members) == {}
    assert [was_stopped(each) for each in members] == [False, False, True, True]
    assert devices_text(members).endswith(" stopped")
