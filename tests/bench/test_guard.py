import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.device import Device, DeviceSample, DeviceState
from gputop.agent.snapshot import Process, ProcessKind, Record, Sample
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker.events import DeviceRecord, RunLimit
from gputop.bench.worker.guard import SILENCE_SECONDS, Guard, import_from
from gputop.bench.worker.heat import heat_in_short, heat_in_words, heat_limits, reached_limit
from gputop.schema.decode import decode
from tests.bench.machines import WHOLE, divided, seen
from tests.streams import device, inventory, readings, sample

H100 = {
    "temperature_shutdown_margin_celsius": -8,
    "temperature_slowdown_margin_celsius": -2,
    "temperature_max_margin_celsius": 0,
    "memory_temperature_max_margin_celsius": 0,
}
RTX_2080_SUPER = {"temperature_shutdown_celsius": 100, "temperature_slowdown_celsius": 97}
A100 = {
    "temperature_shutdown_celsius": 92,
    "temperature_slowdown_celsius": 89,
    "memory_temperature_max_celsius": 95,
}
"""Thresholds that `nvidia-smi -q -d TEMPERATURE` prints. The A100's limit of the memory is made up.
"""
BARE: dict[str, int] = {}
DEFAULT = "default 80°C (the driver reports none)"
BOTH = "86°C (slowdown at 89°C), margin 3°C"


def card(thresholds: dict[str, int]) -> Device:
    return device(0, **{"temperature_slowdown_celsius": None} | thresholds)


def read(core: int | None = None, margin: int | None = None, memory: int | None = None) -> Any:
    return readings(
        0,
        temperature_celsius=core,
        temperature_margin_celsius=margin,
        memory_temperature_celsius=memory,
    )


@pytest.mark.parametrize(
    ("thresholds", "seen", "says"),
    [
        pytest.param(H100, read(59, 26, 55), "margin 3°C (slowdown at -2°C)", id="H100"),
        pytest.param(RTX_2080_SUPER, read(38), "94°C (slowdown at 97°C)", id="RTX 2080 Super"),
        pytest.param(
            A100,
            read(62, memory=80),
            "86°C (slowdown at 89°C), memory 92°C (maximum 95°C)",
            id="A100",
        ),
        pytest.param(A100, read(62), "86°C (slowdown at 89°C)", id="memory not read"),
        pytest.param(A100, read(62, 9), BOTH, id="both"),
        pytest.param(BARE, read(50), DEFAULT, id="no limit known"),
        pytest.param(BARE, read(50, 30), "margin 3°C", id="margin alone"),
        pytest.param(BARE, read(), "none, no temperature is read", id="no temperature"),
    ],
)
def test_the_limits_that_hold_are_named(
    thresholds: dict[str, int], seen: DeviceSample, says: str
) -> None:
    assert heat_in_words(heat_limits(card(thresholds), seen)) == says
    assert reached_limit(card(thresholds), seen) is None


@pytest.mark.parametrize(
    ("thresholds", "fine", "hot", "says"),
    [
        (H100, read(83, 4), read(84, 3), "its margin fell to 3°C"),
        (H100, read(87, 4), read(53, -1), "its margin fell to -1°C"),
        (RTX_2080_SUPER, read(93), read(94), "it reached 94°C, and its limit is 94°C"),
        (A100, read(85), read(86), "it reached 86°C, and its limit is 86°C (slowdown at"),
        (
            A100,
            read(60, memory=91),
            read(60, memory=92),
            "its memory reached 92°C, and its limit is 92°C (maximum 95°C)",
        ),
        (BARE, read(79), read(80), "it reached 80°C, and its limit is 80°C (the driver"),
        (A100, read(), read(101), "it reached 101°C, and its limit is 86°C"),
    ],
)
def test_a_run_ends_at_its_limit_and_not_before(
    thresholds: dict[str, int], fine: DeviceSample, hot: DeviceSample, says: str
) -> None:
    assert reached_limit(card(thresholds), fine) is None
    assert (reached_limit(card(thresholds), hot) or "").startswith(says)


def test_the_limits_of_several_gpus_are_named_once_each() -> None:
    h100 = heat_limits(card(H100), read(margin=20))
    a100 = heat_limits(card(A100), read(50, memory=60))
    assert heat_in_short([h100, h100]) == "margin 3°C"
    nothing = "none, no temperature is read"
    assert heat_in_short([h100, a100, ()]) == f"margin 3°C; 86°C, memory 92°C; {nothing}"


def test_an_instance_is_ended_by_the_heat_of_its_gpu() -> None:
    words = "GPU 3 reached 86°C, and its limit is 86°C (slowdown at 89°C)"
    assert reached_limit(WHOLE, read(86), "GPU 3") == words
    words = "the margin of GPU 3 fell to 2°C, and its limit is 3°C"
    assert reached_limit(WHOLE, read(margin=2), "GPU 3") == words


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"state": DeviceState.NOT_RESPONDING}, "its state is not responding"),
        ({"age_seconds": None}, "it has not answered yet"),
    ],
)
def test_only_a_device_that_answers_is_put_under_stress(
    changes: dict[str, Any], why: str | None
) -> None:
    seen = dataclasses.replace(sample(1), devices=(readings(0, **changes),))
    target = target_choice.targets(inventory(2), sample(2))[0]
    problem = target_choice.why_unusable(seen, target)
    assert (problem and problem.why) == why


UUID = device(0).uuid


def heated(celsius: int | None, **changes: Any) -> Any:
    read = readings(0, temperature_celsius=celsius, **changes)
    return dataclasses.replace(sample(1), devices=(read,))


class Followed:
    """A guard that has read these records: what it has sent, and the limits that it has set."""

    def __init__(self, *records: Record, uuid: str | None = UUID, of: str = "") -> None:
        self.sent: list[Record] = []
        self.limits: list[RunLimit] = []

        class Prepared(Guard):
            def _records(self, uuid: str) -> Iterator[Record]:
                yield from records

        def send(record: DeviceRecord) -> None:
            self.sent.append(decode(json.dumps(record.record)))

        self.guard = Prepared(uuid, [], of, send, self.limits.append)
        self.guard.run()


def test_heat_ends_the_run_once() -> None:
    followed = Followed(inventory(1), heated(70), heated(90), heated(91))
    why = "it reached 90°C, and its limit is 86°C (slowdown at 89°C)"
    assert followed.limits == [RunLimit("limit", "Too hot", why)]
    assert followed.sent[0] == inventory(1)
    samples = [record for record in followed.sent if isinstance(record, Sample)]
    assert [each.devices[0].temperature_celsius for each in samples] == [70, 90]


def test_the_first_processes_are_sent_and_the_beginnings_of_their_commands() -> None:
    processes = tuple(Process(n, UUID, ProcessKind.COMPUTE, 1, None, "x" * 99) for n in range(60))
    followed = Followed(inventory(1), dataclasses.replace(heated(70), processes=processes))
    (read,) = (record for record in followed.sent if isinstance(record, Sample))
    assert [each.pid for each in read.processes] == [*range(50)]
    assert {each.command for each in read.processes} == {"x" * 80}


def test_an_instance_is_read_by_its_gpu() -> None:
    part = target_choice.choose(divided(), seen(), "3:1")
    asked = worker_request(Request(part, "float32", None, 1.0))
    followed = Followed(divided(), seen(88), uuid=asked.gpu_uuid, of=asked.part_of)
    assert [limit.why.partition(",")[0] for limit in followed.limits] == ["GPU 3 reached 88°C"]


UNHEARD = [
    pytest.param(heated(40, state=DeviceState.NOT_RESPONDING), id="hangs"),
    pytest.param(heated(None, age_seconds=None), id="never answered"),
    pytest.param(sample(), id="left out"),
]


@pytest.mark.parametrize("record", UNHEARD)
def test_a_device_that_does_not_answer_is_silent(record: Any) -> None:
    _, limit = Followed(inventory(1), record).guard.answer_due
    assert (limit.by, limit.why) == ("silent", "it did not answer for 30 s")


def test_an_answer_is_good_for_a_time_from_its_reading_on() -> None:
    before = time.monotonic()
    followed = Followed(inventory(1), heated(40, age_seconds=5.0))
    due, limit = followed.guard.answer_due
    assert before <= due - (SILENCE_SECONDS - 5.0) <= time.monotonic()
    assert limit.why == "it did not answer for 20 s"


def test_a_module_is_imported_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "an_agent.py").write_text("FOUND = True\n")
    before = [*sys.path]
    import_from("an_agent", [str(tmp_path)])
    assert sys.modules.pop("an_agent").FOUND
    assert sys.path == before, "other modules beside it cannot be imported"
    with pytest.raises(ImportError, match=f"there is no a_driver in {tmp_path}"):
        import_from("a_driver", [str(tmp_path)])


def test_a_guard_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        assert (seconds, len(sent)) == (1.0, 1), "a CPU is read once a second"
        raise RuntimeError("on purpose")

    limits: list[RunLimit] = []
    sent: list[DeviceRecord] = []
    monkeypatch.setattr(time, "sleep", sleep)
    Guard(None, [], "", sent.append, limits.append).run()
    assert limits == [RunLimit("unwatched", "Not watched", "RuntimeError: on purpose")]
