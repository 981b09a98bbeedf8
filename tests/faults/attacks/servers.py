"""Prometheus servers that answer with hostile data, and clients that attack the exporter."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from tests.faults.attacks.attack import Attack, Kind, Scene
from tests.prometheus import FakePrometheus, Request, Response, Site, labels, uuid, vector

GOES_ON = "q Quit"
JSON = {"Content-Type": "application/json"}
LARGE = 60 << 20
SITE = Site(8)


def server(respond: Callable[[Request], Response | None], *command: str) -> Any:
    """Ask a server that answers so."""

    def prepare(scene: Scene) -> list[str]:
        fake = scene.stack.enter_context(FakePrometheus(respond))
        return [*command, "--prometheus", fake.url]

    return prepare


def raw(answer: Callable[[], Iterator[bytes]], *command: str) -> Any:
    """Ask a server that writes these bytes to every request, and never closes."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(1 << 16)
            for data in answer():
                connection.sendall(data)
            time.sleep(30)

    def accept(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def prepare(scene: Scene) -> list[str]:
        listening = scene.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        scene.stack.callback(listening.shutdown, socket.SHUT_RDWR)
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        return [*command, "--prometheus", f"http://127.0.0.1:{listening.getsockname()[1]}"]

    return prepare


def but_the_clock(make: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """Answer so to everything but what time it is: that is asked first, and alone."""
    return lambda request: SITE(request) if request.name == "clock" else make(request)


def large_rows() -> bytes:
    """Return 60 MB of series that are all of one GPU."""
    row = json.dumps({"metric": {"UUID": uuid(0), "a": "x" * 900}, "value": [1.0, "1"]}).encode()
    inside = b",".join([row] * (LARGE // (len(row) + 1)))
    head = b'{"status":"success","data":{"resultType":"vector","result":['
    return head + inside + b"]}}"


def many_rows() -> bytes:
    """Return 60 MB of small series, each of another GPU: the most objects."""
    rows = (f'{{"metric":{{"UUID":"{n}"}},"value":[1,"1"]}}' for n in range(LARGE // 48))
    head = b'{"status":"success","data":{"resultType":"vector","result":['
    return head + ",".join(rows).encode() + b"]}}"


def prepared(make: Callable[[], bytes], **headers: str) -> Callable[[Request], Response]:
    """Make the body once, when it is asked for."""
    made: list[bytes] = []

    def answer(_: Request) -> Response:
        made[:] = made or [make()]
        length = {"Content-Length": str(len(made[0]))}
        return Response(made[0], headers={**JSON, **length, **headers})

    return but_the_clock(answer)


def bomb() -> bytes:
    """Return a gzip of 4 GiB of blanks in one answer."""
    return gzip.compress(b" " * (1 << 20), mtime=0) * 4096


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def endless() -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    while True:
        yield b" " * (1 << 16)


def endless_headers() -> Iterator[bytes]:
    yield HEAD
    while True:
        yield b"X-A: y\r\n" * 1000


def drip() -> Iterator[bytes]:
    yield HEAD + b"Content-Length: 100000\r\n\r\n"
    while True:
        yield b"["
        time.sleep(0.2)


def wrong_values(value: float | str) -> Callable[[Request], Response]:
    """All readings have that value."""

    def respond(request: Request) -> Response:
        name = request.name
        if name == "clock" or name.startswith("names") or name in ("beat", "down", "", "gone"):
            return SITE(request)
        return vector((({"UUID": uuid(n)}, value) for n in range(8)), SITE.now)

    return respond


NASTY = "x\x1b]52;c;aGk=\x07\x1b[2J\x1b[31m\u202e[red]"


def nasty_labels(request: Request) -> Response:
    if request.name == "names_0":
        named = {"Hostname": NASTY, "modelName": NASTY, "pod": NASTY, "cluster": NASTY}
        return vector([(labels(n) | named, 1) for n in range(8)], SITE.now)
    return SITE(request)


TOO_LARGE = r"larger than|too (large|much)|MiB"
BAD = r"(?i)-1 W|-\d+ W|e\+?\d\d\d|\d{20}|nan|\binf\b|Traceback"
SERVERS = (
    *(
        Attack(
            name=f"{title}: {' '.join(command) or 'the dashboard'}",
            prepare=make(*command),
            kind=Kind.COMMAND if command else Kind.DASHBOARD,
            says=says,
            status=(0, 3) if command else (0,),
            seconds=45.0,
            hold=4.0,
            mib=mib,
            quick=False,
        )
        for title, make, says, mib in (
            (
                "five answers of 60 MB at once, few series",
                partial(server, prepared(large_rows)),
                rf"{TOO_LARGE}|GPU",
                400,
            ),
            (
                "five answers of 60 MB at once, a million series each",
                partial(server, prepared(many_rows)),
                rf"{TOO_LARGE}|GPU",
                600,
            ),
            (
                "gzip of 4 GiB of blanks",
                partial(server, prepared(bomb, **{"Content-Encoding": "gzip"})),
                "larger than 64 MiB",
                300,
            ),
        )
        for command in (("status",), ())
    ),
    *(
        Attack(
            name=f"{title}: {' '.join(command) or 'the dashboard'}",
            prepare=raw(answer, *command),
            kind=Kind.COMMAND if command else Kind.DASHBOARD,
            says="Prometheus is slow|Cannot reach Prometheus|larger than|left out",
            never=r"Traceback \(most|Exception\(",
            status=(3,) if command else (0,),
            seconds=45.0,
            quick=False,
            mib=200,
        )
        for title, answer in (
            ("an answer without end", endless),
            ("headers without end", endless_headers),
            ("an answer of one byte at a time", drip),
        )
        for command in (("status",), ())
    ),
    Attack(
        name="an answer of arrays in arrays: status",
        prepare=server(prepared(lambda: b"[" * (1 << 20)), "status"),
        says="other than JSON",
        status=(3,),
    ),
    *(
        Attack(
            name=f"every reading is {value}: {' '.join(command) or 'the dashboard'}",
            prepare=server(wrong_values(value), *command),
            kind=Kind.COMMAND if command else Kind.DASHBOARD,
            says="node0|8 GPUs",
            never=BAD,
        )
        for value in (-1, 1e308, "NaN", "1e999")
        for command in (("status",), ())
    ),
    *(
        Attack(
            name=f"escape sequences in labels: {' '.join(command) or 'the dashboard'}",
            prepare=server(nasty_labels, *command),
            kind=Kind.COMMAND if command else Kind.DASHBOARD,
            says="␛|GPU",
            never=r"\x1b\]52|\x1b\[2J\x1b\[31m|\x07|\u202e|Traceback",
        )
        for command in (("status",), ())
    ),
)


MOST_BYTES = 1 << 20


def asked(request: bytes, *, most: float = 5.0) -> Callable[[Scene], None]:
    """Send that to the exporter; what it answers is what the attack says."""

    def act(scene: Scene) -> None:
        scene.said += exchanged(scene, request, most)

    return act


def exchanged(scene: Scene, request: bytes, most: float) -> str:
    """Return the first bytes of the answer, and how long they took to come."""
    answer = b""
    with contextlib.suppress(OSError), connected(scene) as client:
        client.settimeout(most)
        client.sendall(request)
        while len(answer) < MOST_BYTES and (data := client.recv(1 << 16)):
            answer += data
    return answer.decode(errors="replace")


def connected(scene: Scene) -> socket.socket:
    found = re.search(r"metrics at (http://[^\s,]+)", scene.said)
    assert found is not None, scene.said
    parts = urlsplit(found[1])
    return socket.create_connection((parts.hostname or "", parts.port or 0), 5.0)


def get(path: str = "/metrics", host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def slow_connections(scene: Scene) -> None:
    """Open 900 connections that say nothing, then ask as anybody does."""
    address = connected(scene).getpeername()
    for _ in range(900):
        client = scene.stack.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(address)
    began = time.monotonic()
    scene.said += exchanged(scene, get(), 30.0)
    scene.said += f"answered after {time.monotonic() - began:.1f} s"


ARGUMENTS = ["exporter", "--demo", "--listen", "127.0.0.1:0"]


def exporter(name: str, act: Callable[[Scene], None], says: str, **more: Any) -> Attack:
    return Attack(
        name=f"exporter: {name}",
        prepare=lambda _: ARGUMENTS,
        kind=Kind.SERVICE,
        act=act,
        says=says,
        **more,
    )


EXPORTERS = (
    *(
        exporter(f"Host: {host}", asked(get(host=host)), r"HTTP/1\.\d (4\d\d|4)")
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80")
    ),
    *(
        exporter(f"GET {path}", asked(get(path)), r"HTTP/1\.\d (4\d\d|4)", never="root:|Traceback")
        for path in ("/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd")
    ),
    exporter(
        "a request line of 10 MB", asked(b"GET /" + b"a" * (10 << 20)), r"HTTP/1\.\d 4|^", mib=100
    ),
    exporter(
        "headers without end",
        asked(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 500_000),
        r"HTTP/1\.\d 4|^",
    ),
    exporter("random bytes", asked(bytes(range(128, 256)) * 100 + b"\r\n\r\n"), "metrics at "),
    exporter("900 connections that say nothing", slow_connections, r"200 OK", quick=False),
)

ATTACKS = (*SERVERS, *EXPORTERS)
