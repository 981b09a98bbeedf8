"""The codec of msgspec: what it writes and reads means the same as with the other one."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from gputop.schema import snapshot
from gputop.schema.device import DeviceSample
from gputop.schema.snapshot import Host, Machine, MachineState, Process, Sample, decode, encode
from tests import codecs, streams
from tests.codecs import CODECS
from tests.fuzz.targets import MADE
from tests.schema.test_snapshot import values_of

pytest.importorskip("msgspec")

SAMPLES = [record for record in MADE if isinstance(record, Sample)]
HOST = b'"host":{}'


def outcomes(call: Any, *arguments: Any) -> list[str]:
    """Return what each codec makes of it: a value, or an error and its message."""
    found = []
    for name in CODECS:
        with codecs.using(name):
            try:
                found.append(repr(call(*arguments)))
            except ValueError as error:
                found.append(f"{type(error)} {error}")
    return found


def eval_line(shown: str) -> Any:
    """Return the JSON of a line: the two write exponents differently."""
    return json.loads(ast.literal_eval(shown))


@given(values_of(Sample))
def test_both_write_the_same(sample: Sample) -> None:
    one, other = map(eval_line, outcomes(encode, sample))
    assert one == other


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_no_reading(number: float) -> None:
    line = codecs.fast().encode(Sample(1.0, Host(cpu_percent=number)))
    assert line is not None
    assert decode(line.encode()) == Sample(1.0, Host())


@given(values_of(Sample))
def test_both_read_the_same(sample: Sample) -> None:
    one, other = outcomes(decode, encode(sample).encode())
    assert one == other


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_what_gputop_sends_takes_the_quick_way(sample: Sample) -> None:
    line = codecs.fast().encode(sample)
    assert line == encode(sample)
    assert codecs.fast().decode(line.encode()) == sample


@pytest.mark.parametrize("text", ["é", "\x7f\x1b[2J\n", "😀 \u202e", '"\\'])
def test_a_text_that_is_not_plain_takes_it_too(text: str) -> None:
    sample = replace(SAMPLES[0], machines=(Machine(text, MachineState.OK, hostname=text),))
    line = codecs.fast().encode(sample)
    assert line == encode(sample)
    assert codecs.fast().decode(line.encode()) == sample


TWICE = b'"type":"inventory"'
LINES = {
    "another type": b'{"type":"inventory","time":1,' + HOST + b"}",
    "the type last": b'{"time":1,' + HOST + b',"type":"sample"}',
    "the type twice": b'{"type":"sample","time":1,' + HOST + b"," + TWICE + b"}",
    "twice, escaped": b'{"type":"sample","time":1,' + HOST + rb',"\u0074ype":"inventory"}',
    "twice, the same": b'{"type":"sample","time":1,' + HOST + b',"type":"sample"}',
    "a field twice": b'{"type":"sample","time":"no","time":2,' + HOST + b"}",
    "unknown": b'{"type":"sample","time":1,' + HOST + b',"moon":{"is":[null,1e999]}}',
    "no number": b'{"type":"sample","time":1,' + HOST + b',"moon":NaN}',
    "many digits": b'{"type":"sample","time":1,' + HOST + b',"moon":' + b"9" * 5000 + b"}",
    "many allowed": b'{"type":"sample","time":1,' + HOST + b',"moon":' + b"9" * 4300 + b"}",
    "bytes": b'{"type":"sample","time":1,' + HOST + b',"moon":"\xff"}',
    "text": '{"type":"sample","time":1,"host":{},"moon":"é"}'.encode(),
    "surrogate": b'{"type":"sample","time":1,' + HOST + rb',"moon":"\ud800"}',
    "depth": b'{"type":"sample","time":1,"moon":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "whole": b'{"type":"sample","time":-0,"host":{"cpu_percent":7}}',
    "whole is a float": b'{"type":"sample","time":1,"host":{"memory_used_bytes":7.0}}',
    "true": b'{"type":"sample","time":true,' + HOST + b"}",
    "nothing": b'{"type":"sample","time":1,"host":null}',
    "infinite": b'{"type":"sample","time":1e999,' + HOST + b"}",
    "largest": b'{"type":"sample","time":1,"host":{"memory_used_bytes":9223372036854775807}}',
    "too large": b'{"type":"sample","time":1,"host":{"memory_used_bytes":9223372036854775808}}',
    "too large a float": b'{"type":"sample","time":9223372036854775807,' + HOST + b"}",
    "smallest": b'{"type":"sample","time":-9223372036854775808,' + HOST + b"}",
    "a later reason": b'{"type":"sample","time":1,"host":{"absent":{"a":"moon"}}}',
    "an unknown word": b'{"type":"sample","time":1,"host":{},"devices":[{"uuid":"a","state":"m"}]}',
    "a long name": b'{"type":"sample","time":1,"host":{},"devices":[{"uuid":"%s"}]}'
    % (b"x" * 20_000),
    "a long item": b'{"type":"sample","time":1,"host":{},"devices":[{"uuid":"a",'
    b'"clock_event_reasons":["%s"]}]}' % (b"x" * 20_000),
    "many items": b'{"type":"sample","time":1,"host":{"cpu_core_percent":[%s]}}'
    % b",".join([b"1"] * 8193),
    "many devices": b'{"type":"sample","time":1,"host":{},"devices":[%s]}'
    % b",".join([b'{"uuid":"a"}'] * 1025),
    "many events": b'{"type":"sample","time":1,"host":{},"events":[%s]}'
    % b",".join([b'{"time":1,"device_uuid":null,"kind":"xid"}'] * 1001),
    "missing": b'{"type":"sample","host":{}}',
    "more": b'{"type":"sample","time":1,"host":{}} {}',
    "a line end": b'{"type":"sample","time":1,"host":{}}\r\n',
}


@pytest.mark.parametrize("name", LINES)
def test_both_say_the_same_of_a_strange_line(name: str) -> None:
    one, other = outcomes(decode, LINES[name])
    assert one == other


def test_a_reader_is_as_strict_about_every_field() -> None:
    """A value of every other type in every field of every record."""
    for cls in (Sample, Host, DeviceSample, Process, Machine):
        for name in cls.__annotations__:
            for value in (
                b"null",
                b"true",
                b"1",
                b"1.5",
                b'"ok"',
                b"[]",
                b"{}",
                b"[1]",
                b'{"a":1}',
            ):
                line = _with(cls, b'"%s":%s' % (name.encode(), value))
                one, other = outcomes(decode, line)
                assert one == other, line


def _with(cls: Any, field: bytes) -> bytes:
    begin = b'{"type":"sample","time":1,'
    return (
        begin
        + {
            Sample: HOST + b",%s}",
            Host: b'"host":{%s}}',
            DeviceSample: HOST + b',"devices":[{"uuid":"a",%s}]}',
            Process: HOST + b',"processes":[{"pid":1,"device_uuid":"a","kind":"mps",%s}]}',
            Machine: HOST + b',"machines":[{"name":"a",%s}]}',
        }[cls]
        % field
    )


def test_without_msgspec_all_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with codecs.using("json"):
        monkeypatch.setitem(sys.modules, "msgspec", None)
        monkeypatch.delitem(sys.modules, "gputop.schema.fast_codec", raising=False)
        snapshot.load_fast()
        assert snapshot._FAST == []
        assert decode(encode(SAMPLES[0]).encode()) == SAMPLES[0]


def test_the_stream_runs_without_msgspec() -> None:
    program = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from gputop.schema import snapshot\nfrom gputop.stream import launch, sender\n"
        "snapshot.LOADED_AFTER = 3\n"
        "sender.run(launch.StreamOptions(0.25, count=4, demo=True))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    lines = done.stdout.splitlines()
    assert [type(decode(line)) for line in lines].count(Sample) >= 4
    assert not done.stderr


@pytest.mark.parametrize(("ids", "loaded"), [((), True), (("0", "1", "2"), False)])
def test_few_devices_are_not_worth_its_memory(ids: tuple[str, ...], loaded: bool) -> None:
    program = (
        "import sys\n"
        "from gputop.schema import snapshot\nfrom gputop.stream import launch, sender\n"
        "snapshot.MANY_DEVICES, snapshot.LOADED_AFTER = 4, 3\n"
        f"sender.run(launch.StreamOptions(0.25, count=4, demo=True, ids={ids}))\n"
        "print('msgspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{loaded}".encode()


def test_a_msgspec_that_overlooks_the_bounds_is_not_used() -> None:
    program = (
        "import contextlib\n"
        "from gputop.schema import fast_codec, snapshot\n"
        "fast_codec._bounded_annotations = lambda _: contextlib.nullcontext()\n"
        "snapshot.load_fast()\n"
        "assert not snapshot._FAST"
    )  # in a process of its own, since msgspec remembers classes
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_annotations_are_what_they_were() -> None:
    codecs.fast()
    assert Sample.__annotations__["devices"] == "tuple[DeviceSample, ...]"
    assert Host.__annotations__["memory_used_bytes"] == "int | None"


def test_a_stream_of_many_processes() -> None:
    sample = streams.sample(8, streams.crowd(64, 8))
    assert codecs.fast().encode(sample) == encode(sample)
