import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from wsgiref.simple_server import WSGIServer

import pytest

from gputop.commands.exporter import parse_address
from gputop.output.prometheus.scrape import serve


@pytest.mark.parametrize(
    ("text", "address"), [("a:1", ("a", 1)), (":9835", ("", 9835)), ("[::1]:65535", ("::1", 65535))]
)
def test_an_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert str(parse_address(text)) == text


class Certificate:
    def __init__(self, folder: Path) -> None:
        if (openssl := shutil.which("openssl")) is None:
            pytest.skip("there is no openssl to make a certificate with")
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-days", "2", "-subj", "/CN=localhost", "-keyout", str(self.key)),
                *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(self.cert)),
                "-nodes",
            ],
            check=True,
            capture_output=True,
        )


@contextmanager
def served(*, ready: bool = True, host: str = "127.0.0.1") -> Iterator[WSGIServer]:
    server = serve(host, 0, list, lambda: ready)
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module", name="server")
def server_of_all() -> Iterator[WSGIServer]:
    with served() as server:
        yield server


def status(server: WSGIServer, path: str = "/metrics", **headers: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:9835", 200),
        ("gputop.localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]:9835", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("", 403),
    ],
)
def test_a_foreign_host_is_refused_on_the_loopback(
    host: str, expected: int, server: WSGIServer
) -> None:
    assert status(server, Host=host) == expected
    assert status(server, "/-/healthy", Host=host) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", 200), ("/metrics", 200), ("/metrics?name=a", 200), ("/other", 404), ("/../etc", 404)],
)
def test_only_metrics(path: str, expected: int, server: WSGIServer) -> None:
    assert status(server, path) == expected


@pytest.mark.parametrize("ready", [True, False])
def test_probes(ready: bool) -> None:
    with served(ready=ready) as server:
        assert status(server, "/-/healthy") == 200
        assert status(server, "/-/ready") == (200 if ready else 503)


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.0\r\nHost: "])
def test_those_who_never_end_their_request_hold_up_nobody(sent: bytes) -> None:
    with served() as server, ExitStack() as slow:
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", server.server_port), 30)
            slow.enter_context(client).sendall(sent)
        assert status(server) == 200
