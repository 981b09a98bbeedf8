import json
import math
from dataclasses import replace
from typing import Any

import pytest

from gputop.agent.lines import to_line, to_plain
from gputop.agent.problem import Problem
from gputop.agent.snapshot import Host, Process, ProcessKind, Record, Sample
from gputop.agent.times import is_old, silence_limit
from gputop.schema.decode import decode, from_plain
from gputop.schema.limits import DecodeError
from tests import streams

LARGEST_REAL = math.nextafter(2.0**63, 0)

INVENTORY = streams.inventory(1, problem=Problem("What", "why", "remedy"))
SAMPLE = streams.sample(1)


def plain(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_line(record))
    return document


def refusal(document: object) -> str:
    with pytest.raises(DecodeError) as raised:
        decode(json.dumps(document))
    return str(raised.value)


@pytest.mark.parametrize("text", ["", "Ä", "\0\x1b[2J\n", "\u202e", "[red]x", "train\udcff"])
def test_what_is_encoded_is_decoded(text: str) -> None:
    process = Process(1, text, ProcessKind.MPS, (1 << 63) - 1, user=text, command=text)
    host = Host(cpu_percent=-LARGEST_REAL, load_average=(LARGEST_REAL, 0.001, 2.0))
    for record in (
        replace(INVENTORY, hostname=text, problem=Problem(text, text, text)),
        replace(SAMPLE, host=host, processes=(process, *SAMPLE.processes)),
    ):
        line = to_line(record)
        assert "\n" not in line
        assert line.isascii()
        assert decode(line) == decode(line.encode()) == record


@pytest.mark.parametrize(
    ("value", "sent"),
    [(9.12345, 9.123), (9.9996, 10.0), (math.nan, None), (math.inf, None), (-math.inf, None)],
)
def test_floats_are_rounded_and_what_is_no_number_is_missing(
    value: float, sent: float | None
) -> None:
    line = to_line(Sample(1.23456, Host(cpu_percent=value)))
    assert decode(line) == Sample(1.235, Host(cpu_percent=sent))


NO_RECORDS: tuple[str | bytes, ...] = (
    *("", "null", "[]", "{}", '"sample"', '{"type":"sample"', '{"type":"other"}'),
    *('{"type":["sample"]}', '{"type":null}', "[" * 100_000, "\ufeff{}"),
    '{"type":"sample","time":1,"host":' + '{"a":' * 100_000,
    '{"type":"sample","time":' + "9" * 5000 + ',"host":{}}',
    *(b"\xff\xfe\xfd", b'{"type":"sample\xff"}'),
    '\ufeff{"type":"sample","time":1,"host":{},"unknown":"\\ud800"}',
    '{"type":"sample","time":1,"host":{},"unknown":NaN}',
    to_line(INVENTORY).replace("node", "x" * 17_000),
)


@pytest.mark.parametrize("line", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_what_is_no_record(line: str | bytes) -> None:
    with pytest.raises(DecodeError) as raised:
        decode(line)
    assert len(str(raised.value)) <= 300


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"time": True}, "`$.time`"),
        ({"host": None}, "`$.host`"),
        ({"host": {"memory_used_bytes": 1.5}}, "`$.host.memory_used_bytes`"),
        ({"host": {"load_average": [1, "2"]}}, "`$.host.load_average[1]`"),
        ({"host": {"absent": {"x": 7}}}, "`$.host.absent[...]`"),
        ({"devices": {}}, "`$.devices`"),
        ({"devices": [{"uuid": "a"}, {"uuid": 1}]}, "`$.devices[1].uuid`"),
        ({"devices": [{"uuid": "a", "state": "fine"}]}, "`$.devices[0].state`"),
    ],
)
def test_the_message_names_the_place(change: dict[str, Any], place: str) -> None:
    message = refusal(plain(SAMPLE) | change)
    assert message.endswith(f" - at {place}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("field", "value", "number"),
    [
        ("power_watts", 1e19, "1e+19"),
        ("fans_percent", [1, 10**19], f"{10**19}"),
        ("clock_event_seconds", {"a": -1e19}, "-1e+19"),
    ],
)
def test_a_number_that_is_too_large_is_named(field: str, value: Any, number: str) -> None:
    document = plain(SAMPLE)
    document["devices"][0][field] = value
    assert refusal(document) == f"number out of range: {number}"


def test_a_line_of_too_many_objects_is_refused() -> None:
    line = to_line(SAMPLE)[:-1] + ',"moon":[' + "{}," * 50_000 + "{}]}"
    with pytest.raises(DecodeError, match=r"^more than 40,000 objects$"):
        decode(line)


def test_unknown_fields_are_ignored() -> None:
    document = plain(SAMPLE)
    document["moon"] = {"phase": math.pi}
    document["host"]["moon"] = [None]
    document["devices"][0]["moon"] = 1
    document["devices"][0]["nvidia_smi"] = {"serial": "16"}  # a field of gputop 0.1
    assert decode(json.dumps(document)) == SAMPLE


def test_a_problem_is_one_line() -> None:
    assert str(INVENTORY.problem) == "What: why. remedy"
    said = {"what": "a", "why": "b", "remedy": "c"}
    assert to_plain(Problem("a", "b", "c", "nvml")) == {**said, "check": "nvml"}
    assert from_plain(Problem, said) == Problem("a", "b", "c")  # as earlier versions have it
    with pytest.raises(DecodeError, match="text of more than 16,384 characters"):
        from_plain(Problem, said | {"what": "x" * 17_000})


@pytest.mark.parametrize(("interval", "limit"), [(0.25, 3.0), (1.0, 3.0), (2.0, 6.0), (60, 180)])
def test_silence_limit(interval: float, limit: float) -> None:
    assert silence_limit(interval) == limit


@pytest.mark.parametrize("interval", [0.25, 1.0, 60.0])
def test_readings_are_old_from_the_second_tick_that_was_missed(interval: float) -> None:
    assert not is_old(None, interval)
    assert not is_old(interval + min(0.15, interval / 2), interval)  # one, and the wait for it
    assert is_old(2 * interval - 0.01, interval)
