"""The guard in the worker: heat, a silent driver and a gone parent end the run, whoever reads."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.device import DeviceState
from gputop.agent.snapshot import Sample
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker.events import DeviceRecord, RunLimit
from gputop.bench.worker.guard import SILENCE_SECONDS, Guard
from gputop.schema.decode import decode
from tests.bench.machines import divided, seen
from tests.streams import device, inventory, readings, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gputop.agent.snapshot import Record

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


def test_an_instance_is_read_by_its_gpu() -> None:
    part = target_choice.choose(divided(), seen(), "3:1")
    asked = worker_request(Request(part, "float32", None, 1.0))
    followed = Followed(divided(), seen(88), uuid=asked.gpu_uuid, of=asked.part_of)
    assert [limit.why.partition(",")[0] for limit in followed.limits] == ["GPU 3 reached 88°C"]


UNHEARD = [
    pytest.param(heated(40, state=DeviceState.NOT_RESPONDING), id="hangs"),
    pytest.param(heated(40, state=DeviceState.LOST), id="lost"),
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


def test_a_guard_that_fails_ends_the_run() -> None:
    def send(*_: object) -> None:
        raise RuntimeError("on purpose")

    limits: list[RunLimit] = []
    Guard(None, [], "", send, limits.append).run()
    assert limits == [RunLimit("unwatched", "Not watched", "RuntimeError: on purpose")]
