"""The readers that are fuzzed: how a case is made, and what must be true whatever it holds.

A case is bytes, so that one that finds something can be kept as a file and tried again.
"""

import io
import json
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from gputop.agent.lines import to_line
from gputop.agent.snapshot import Inventory, Record, Sample
from gputop.fleet.client import Answer, AskError, Client
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.page import page
from gputop.fleet.queries import CLOCK, gone_of, names_of, values_of
from gputop.fleet.server import PrometheusServer
from gputop.fleet.watch import Refresher
from gputop.recording.reader import RecordingError
from tests import recordings, streams
from tests.fuzz import mutation
from tests.fuzz.invariants import check_line, check_shown
from tests.prometheus import Request, Site, labels, uuid, vector

CORPUS = Path(__file__).with_name("corpus")
SHM = Path("/dev/shm")
MADE: tuple[Record, ...] = (
    *(streams.inventory(n) for n in (2, 0, 1)),
    *(streams.sample(n) for n in (2, 0, 1)),
    streams.no_driver(),
    streams.sample(2, streams.crowd(6, 2)),
    replace(streams.sample(2), devices=(streams.readings(0), streams.lost(1))),
)


class Target(NamedTuple):
    make: Callable[[Random], bytes]
    check: Callable[[bytes], bool]
    """Returns True if it was accepted, False if refused with the reader's own error."""


@cache
def _lines() -> tuple[bytes, ...]:
    kept = chain.from_iterable(file.read_bytes().splitlines() for file in sorted(CORPUS.iterdir()))
    whole = [line for line in kept if line.startswith(b'{"type":') and line.endswith(b"}")]
    return (*(to_line(record).encode() for record in MADE), *filter(_is_json, whole))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(json.dumps(json.loads(line)))
    except (ValueError, RecursionError):
        return False
    return True


def _line(chance: Random) -> bytes:
    lines = _lines()
    line = chance.choice(lines[: len(MADE)] if chance.random() < 0.8 else lines)
    if chance.random() < 0.8:
        line = mutation.tampered(chance, line, lines)
    if chance.random() < 0.3:
        line = mutation.damaged(chance, line, lines)
    return line


def check_record(line: bytes) -> bool:
    record = check_line(line)
    if record is None:
        return False
    check_shown([record] if isinstance(record, Inventory) else [MADE[0], record])
    return True


def _recording(chance: Random) -> bytes:
    lines = [to_line(MADE[0]).encode()] if chance.random() < 0.9 else []
    for n in range(chance.choice((0, 1, 2, 3, 5))):
        if chance.random() < 0.4:
            lines.append(_line(chance))
        else:
            time = streams.NOW + n * chance.choice((1, 1, 1, -1, 1e6, 0))
            lines.append(to_line(streams.sample(1, time=time)).encode())
    data = b"\n".join([*lines, b""])
    if data and chance.random() < 0.3:
        data = mutation.damaged(chance, data, [data, *_lines()])
    if chance.random() < 0.02:
        data += chance.choice((b"\n", b"\0", b"{}\n")) * 2000
    return mutation.zipped(chance, data) if chance.random() < 0.5 else data


@cache
def _place() -> Path:
    """Return a file for this process, in memory where that is possible."""
    folder = tempfile.mkdtemp(prefix="gputop-fuzz-", dir=SHM if SHM.is_dir() else None)
    return Path(folder) / "case"


def check_recording(data: bytes) -> bool:
    """A recording: it is refused, or played, in order, up to its damage."""
    path = _place()
    path.write_bytes(data)
    try:
        recording = recordings.scanned(path)
        records = list(recording.records())
    except RecordingError as error:
        assert 0 < len(str(error)) < 1000  # noqa: PT017 - either way is right
        return False
    assert all(isinstance(record, Inventory | Sample) for record in records)
    samples = [each for each in records if isinstance(each, Sample)]
    positions = [*recording.positions]
    assert positions == sorted(positions)
    assert all(0 <= position < math.inf for position in positions)
    many = len(positions)
    assert many == len(samples)
    for first in {0, many // 2, max(0, many - 1)}:
        played = [each for each in recording.records_from(first) if isinstance(each, Sample)]
        assert played == samples[first:]
    assert recording.last()[1] == samples[-1]
    check_shown([each for each in records if each != MADE[0]][:3])
    return True


SITE = Site(4)
SCOPE = ""
QUERIES = {q.name: q.text for q in (CLOCK, names_of(SCOPE), gone_of(SCOPE), *values_of(SCOPE))}


@cache
def _answers() -> dict[str, bytes]:
    """Return one answer to every query, with rows where a healthy site has none, too."""
    both = [
        *((labels(n, state="lost", code="79", reason="hw_thermal_slowdown"), 7) for n in (0, 1)),
        *(({"uuid": uuid(n), "host": "a", "mig_index": "1"}, 0.5) for n in (2, 3)),
    ]
    found = {}
    for name, text in QUERIES.items():
        body = SITE(Request("/api/v1/query", {"query": text}, {})).body
        found[name] = body if b'"metric": {"' in body or name == "clock" else vector(both).body
    return found


def _answer(chance: Random) -> bytes:
    answers = _answers()
    name = chance.choice([*answers, "names", "names"])
    body, others = answers[name], [*answers.values()]
    if chance.random() < 0.85:
        body = mutation.tampered(chance, body, others)
    if chance.random() < 0.25:
        body = mutation.damaged(chance, body, others)
    coding = chance.choice(("identity", "identity", "gzip"))
    if coding == "gzip":
        body = mutation.zipped(chance, body)
    return f"{name} {coding}\n".encode() + body


class _Prepared(Client):
    """A client whose server answers one query with what was prepared, and the others well."""

    def __init__(self, name: str, coding: str, body: bytes) -> None:
        super().__init__(PrometheusServer("http://fake"))
        self._prepared = name, coding, body

    def ask(self, query: str, at: float | None = None, seconds: float = 0.0) -> Answer:
        name, coding, body = self._prepared
        if query != QUERIES.get(name):
            return self._parse(SITE(Request("/api/v1/query", {"query": query}, {})).body)
        headers = {"Content-Encoding": coding}
        answer = HTTPResponse(io.BytesIO(body), headers, 200, preload_content=False)
        try:
            return self._parse(self._read(answer, float("inf")))
        except HTTPError as error:
            raise AskError("damaged", str(error)) from None


def check_answer(case: bytes) -> bool:
    """An answer of Prometheus: a fleet that can be shown, or a problem; the next one is well."""
    head, _, body = case.partition(b"\n")
    name, coding = head.decode().split(" ")
    client = _Prepared(name, coding, body)
    asking = Refresher(client, "")
    fleet = asking.refresh()
    _check_fleet(fleet)
    refused = bool(fleet.problems) or not fleet.fresh
    client._prepared = "", "", b""
    again = asking.refresh()
    _check_fleet(again)
    assert again.fresh, str(again.problems)
    return not refused


def _check_fleet(fleet: Fleet) -> None:
    for problem in fleet.problems:
        assert str(problem).isprintable(), ascii(problem)
        assert "Internal error" not in str(problem), str(problem)
    for gpu in fleet.gpus:
        for name in NUMBERS:
            value = getattr(gpu, name)
            assert value is None or math.isfinite(value), f"{name}: {value}"
    text = page(fleet, "http://fake", "", 120, colour=False)
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


NUMBERS = [f.name for f in fields(Gpu) if str(f.type) in ("float | None", "int | None")]


def clean() -> None:
    shutil.rmtree(_place().parent)
    _place.cache_clear()


TARGETS = {
    "codec": Target(_line, check_record),
    "recording": Target(_recording, check_recording),
    "prometheus": Target(_answer, check_answer),
}
