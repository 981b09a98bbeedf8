"""Hosts, recordings and workers that send too much, too long, or for ever."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gputop.agent.lines import to_line
from tests import streams
from tests.bench.workers import fake_interpreter
from tests.faults.attacks.attack import Attack, Kind, Scene
from tests.faults.processes import HELLO, PLAN, free

if TYPE_CHECKING:
    from gputop.agent.snapshot import Record

GOES_ON = "q Quit"
UNREADABLE = r"1,000 lines in a row|lines? .*cannot be read|it was left out"
LEFT_OUT = r"where [\d,]+ are taken"
"""What is said of a sample or inventory of which only a part is taken."""
TOO_LONG = r"line of it is longer than \d+ MiB"


def slim(record: Record, **more: Any) -> str:
    """Return the line of a record without what it does not say, and with more fields."""
    document = json.loads(to_line(record)) | more

    def kept(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: kept(each) for name, each in value.items() if each is not None}
        return [kept(each) for each in value] if isinstance(value, list) else value

    return json.dumps(kept(document), separators=(",", ":")) + "\n"


INVENTORY, SAMPLE = slim(streams.inventory(2)), slim(streams.sample(2))
TINY = '{"type":"sample","time":1763640001,"host":{}}'


def host(shell: str, *files: str | Callable[[], str], command: tuple[str, ...] = ()) -> Any:
    """A host that does that; `$0`, `$1` and so on are files with these texts."""

    def prepare(scene: Scene) -> list[str]:
        for n, each in enumerate(files):
            scene.file(f"file{n}", each if isinstance(each, str) else each())
        return [*command, *scene.host("one", shell.replace("FILE", f"{scene.folder}/file"))]

    return prepare


def on_screen(name: str, shell: str, says: str, *files: Any, **more: Any) -> Attack:
    """A host on the dashboard."""
    return Attack(
        name=f"a host sends {name}",
        prepare=host(shell, *files),
        kind=Kind.DASHBOARD,
        says=says,
        **{"hold": 2.0, "quick": False, **more},
    )


def many(devices: int) -> list[Callable[[], str]]:
    return [lambda: slim(streams.inventory(devices)), lambda: slim(streams.sample(devices))]


def events(count: int) -> str:
    event = {"time": streams.NOW, "device_uuid": streams.device(0).uuid, "kind": "xid", "code": 31}
    return slim(streams.sample(2), events=[event] * count)


def processes(count: int) -> str:
    each = {"device_uuid": streams.device(0).uuid, "kind": "compute", "command": "python"}
    return slim(streams.sample(2), processes=[{"pid": n, **each} for n in range(count)])


def long_text() -> str:
    return slim(streams.inventory(2), hostname="x" * (10 << 20))


def nested() -> str:
    return '{"type":"sample","time":1,"host":' + '{"a":' * 200_000 + "\n"


EVERY_SECOND = "cat FILE0; while :; do cat FILE1; sleep 1; done"
REPEATED = 'exec yes "$(cat FILE1)"'
BOTH = "yes 'Welcome to the machine' | head -999; cat FILE1"
HOSTS = (
    on_screen("short unreadable lines without end", "exec yes", UNREADABLE, quick=True),
    on_screen("empty lines without end", "exec yes ''", f"{UNREADABLE}|cannot be reached"),
    on_screen(
        "one good line after every 999 that are not",
        f"cat FILE0; while :; do {BOTH}; done",
        GOES_ON,
        *(INVENTORY, SAMPLE),
    ),
    on_screen("tiny samples without end", f"cat FILE0; exec yes '{TINY}'", GOES_ON, INVENTORY),
    on_screen(
        "samples without end", 'cat FILE0; exec yes "$(cat FILE1)"', GOES_ON, INVENTORY, SAMPLE
    ),
    on_screen("inventories without end", 'exec yes "$(cat FILE0)"', GOES_ON, INVENTORY),
    on_screen(
        "one line without end", "exec tr '\\0' x </dev/zero", TOO_LONG, seconds=30.0, mib=200
    ),
    on_screen("errors without end", "cat FILE0 FILE1; exec yes >&2", GOES_ON, INVENTORY, SAMPLE),
    on_screen("5,000 devices", EVERY_SECOND, LEFT_OUT, *many(5000), mib=300, hold=4.0),
    on_screen("20,000 devices", EVERY_SECOND, TOO_LONG, *many(20_000), mib=300, hold=4.0),
    *(
        on_screen(
            f"{count:,} {what} in every sample",
            EVERY_SECOND,
            LEFT_OUT if count < 100_000 else TOO_LONG,
            *(INVENTORY, partial(make, count)),
            mib=250,
            hold=4.0,
        )
        for what, make in (("events", events), ("processes", processes))
        for count in (20_000, 100_000)
    ),
    on_screen("a name of 10 MB", EVERY_SECOND, TOO_LONG, *(long_text, SAMPLE)),
    on_screen(
        "a name of 100 KB",
        EVERY_SECOND,
        UNREADABLE,
        *(slim(streams.inventory(2), hostname="x" * 100_000), SAMPLE),
    ),
    on_screen("objects in objects", f"cat FILE0; {EVERY_SECOND}", UNREADABLE, nested, nested),
    on_screen("random bytes", "exec cat /dev/urandom", UNREADABLE),
    *(
        Attack(
            name=f"a host sends short unreadable lines without end: {' '.join(command)}",
            prepare=host("exec yes", command=command),
            says=UNREADABLE,
            status=(0, 3),
            seconds=20.0,
        )
        for command in (("status",), ("stream", "--count", "1"))
    ),
)


def replay(make: Callable[[Scene], Any], *command: str) -> Callable[[Scene], list[str]]:
    """Play a file that is made so."""

    def prepare(scene: Scene) -> list[str]:
        content = make(scene)
        return [*command, "--replay", str(scene.file("recording", content))]

    return prepare


def newlines(mib: int, *, behind: str = "") -> bytes:
    """Return a gzip of a million newlines in every member."""
    member = gzip.compress(b"\n" * (1 << 20), mtime=0)
    return gzip.compress(behind.encode(), mtime=0) + member * mib


def recording(samples: int = 20) -> bytes:
    made = (slim(replace(streams.sample(2), time=streams.NOW + n)).encode() for n in range(samples))
    return INVENTORY.encode() + b"".join(made)


def cut_off(percent: int, _: Scene) -> bytes:
    data = gzip.compress(recording(), mtime=0)
    return data[: len(data) * percent // 100]


def flipped(seed: int, compressed: bool, _: Scene) -> bytes:
    chance = random.Random(seed)  # noqa: S311 - to be had again
    data = bytearray(gzip.compress(recording(), mtime=0) if compressed else recording())
    for _flip in range(20):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


PLAYED = r"damaged (at|before) line \d+|cannot be played|H100"
RECORDINGS = (
    Attack(
        name="a 1 MB gzip of 1 GiB of newlines: --replay",
        prepare=replay(lambda _: newlines(1024)),
        says="cannot be played",
        status=(2, 3),
    ),
    Attack(
        name="a recording with 1 GiB of newlines behind it: the dashboard",
        prepare=replay(lambda _: newlines(1024, behind=INVENTORY + SAMPLE)),
        kind=Kind.DASHBOARD,
        says=GOES_ON,
        hold=2.0,
        quick=False,
    ),
    Attack(
        name="a recording with 1 GiB of newlines behind it: status",
        prepare=replay(lambda _: newlines(1024, behind=INVENTORY + SAMPLE), "status"),
        says="H100",
        quick=False,
    ),
    Attack(
        name="a gzip of one line of 1 GiB: --replay",
        prepare=replay(lambda _: gzip.compress(b"x" * (1 << 20), mtime=0) * 1024),
        says="cannot be played",
        status=(2, 3),
        seconds=30.0,
        quick=False,
    ),
    Attack(
        name="a recording of a million tiny samples: the dashboard",
        prepare=replay(lambda _: (INVENTORY + f"{TINY}\n" * 1_000_000).encode()),
        kind=Kind.DASHBOARD,
        says=GOES_ON,
        hold=2.0,
        quick=False,
    ),
    Attack(
        name="a recording of 200 samples of 2,000 devices: the dashboard",
        prepare=replay(
            lambda _: gzip.compress(
                (slim(streams.inventory(2000)) + slim(streams.sample(2000)) * 200).encode(), 1
            )
        ),
        kind=Kind.DASHBOARD,
        says=GOES_ON,
        hold=4.0,
        mib=300,
        quick=False,
    ),
    *(
        Attack(
            name=f"a recording cut off at {share} %: status",
            prepare=replay(partial(cut_off, share), "status"),
            says=PLAYED,
            status=(0, 3),
        )
        for share in (1, 30, 80)
    ),
    *(
        Attack(
            name=f"a {'gzip of a ' * zipped}recording with 20 bits flipped, {seed}: status",
            prepare=replay(partial(flipped, seed, zipped), "status"),
            says=PLAYED,
            status=(0, 3),
        )
        for seed in (1, 2, 3)
        for zipped in (False, True)
    ),
)


def worker(body: str) -> Callable[[Scene], list[str]]:
    """A Python whose worker does that, and devices that nobody uses."""

    def prepare(scene: Scene) -> list[str]:
        scene.driver(*free(0))
        return ["--python", fake_interpreter(scene.folder, body)]

    return prepare


def started(scene: Scene) -> None:
    """Start a stress test, and look at it."""
    assert scene.terminal is not None
    scene.terminal.wait_for("2 Test 2")
    scene.send("b2")


def flood(data: str, descriptor: int = 1, begin: str = HELLO) -> str:
    return f"{begin}import os\nwhile True: os.write({descriptor}, {data!r}.encode() * 2000)"


EVENT = '{"event":"verify","checks":1,"wrong_elements":0}\n'
NO_EVENT = "sent something that is not an event"
TOO_MANY = "not an event|events a second"
WORKERS = tuple(
    Attack(
        name=f"a worker writes {name}",
        prepare=worker(body),
        kind=Kind.DASHBOARD,
        act=started,
        says=says,
        hold=2.0,
        quick=False,
    )
    for name, body, says in (
        ("lines that are no events without end", flood("y\n"), NO_EVENT),
        ("empty lines without end", flood("\n"), TOO_MANY),
        ("unknown events without end", flood('{"event":"x"}\n'), TOO_MANY),
        ("events without end", flood(EVENT, begin=PLAN), TOO_MANY),
        ("a line without end", flood("x"), "a line without an end"),
        ("errors without end", flood("y\n", descriptor=2), GOES_ON),
    )
)

ATTACKS = (*HOSTS, *RECORDINGS, *WORKERS)
