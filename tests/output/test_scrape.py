"""The exporter's server: the hosts that it answers for, and its probes."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from gputop.output.prometheus.scrape import TEXT, Server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed.wsgi import StartResponse, WSGIEnvironment


def page(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    start("200 OK", [*TEXT])
    return [b"here\n"]


@contextmanager
def served(*, ready: bool = True, host: str = "") -> Iterator[Server]:
    server = Server(host or "127.0.0.1", 0, {"/metrics": page}, is_ready=lambda: ready)
    server.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def status(server: Server, path: str = "/metrics", **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:9835", 200),
        ("LOCALHOST.", 200),
        ("gputop.localhost", 200),
        ("127.0.0.1", 200),
        ("127.8.9.1:80", 200),
        ("[::1]:9835", 200),
        ("evil.example", 403),
        ("evil.example:9835", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1:9835", 403),
        ("", 403),
    ],
)
def test_a_foreign_host_is_refused_on_the_loopback(host: str, expected: int) -> None:
    with served() as server:
        assert status(server, Host=host) == expected
        assert status(server, "/-/healthy", Host=host) == expected


def test_all_hosts_are_answered_on_other_interfaces() -> None:
    with served(host="0.0.0.0") as server:  # noqa: S104
        assert status(server, Host="gpu-1.example:9835") == 200


@pytest.mark.parametrize("ready", [True, False])
def test_probes(ready: bool) -> None:
    with served(ready=ready) as server:
        assert status(server, "/-/healthy") == 200
        assert status(server, "/-/ready") == (200 if ready else 503)


def test_clients_that_come_at_once_are_taken_up() -> None:
    """Linux drops what is over the backlog, and the client tries again after a second and more."""
    server = Server("127.0.0.1", 0, {"/metrics": page})
    with server, ExitStack() as clients:  # it has not begun to accept
        for _ in range(100):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.server_port), 1))


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.0\r\nHost: "])
def test_those_who_never_end_their_request_hold_up_nobody(sent: bytes) -> None:
    with served() as server, ExitStack() as slow:
        for _ in range(400):
            client = socket.create_connection(("127.0.0.1", server.server_port), 30)
            slow.enter_context(client).sendall(sent)
        assert status(server) == 200
