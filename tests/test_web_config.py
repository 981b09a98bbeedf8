"""The exporter's TLS, sign-in and hosts: by the file of all Prometheus exporters."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import pytest

from gputop.output.scrape import TEXT, listen, routed
from gputop.output.web_config import WebConfig, WebConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

    from gputop.output.scrape import Server

ADA = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()
SIGNED_IN = {"Authorization": f"Basic {base64.b64encode(b'ada:pw').decode()}"}


def page(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    start("200 OK", [*TEXT])
    return [b"here\n"]


@contextmanager
def served(file: Path | None = None, *, ready: bool = True, host: str = "") -> Iterator[Server]:
    config = WebConfig(file) if file else None
    pages = routed({"/metrics": page}, lambda: ready)
    server = listen(host or "127.0.0.1", 0, pages, config)
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


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("certificates")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key)),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


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


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/other"])
def test_nobody_reads_anything_unless_signed_in(tmp_path: Path, path: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users:\n  ada: {ADA}\n")
    wrong = [b"ada:no", b"bob:pw", b"bob:", b"ada", b"\xff:pw", b":"]
    with served(file) as server:
        assert status(server, path, **SIGNED_IN) == (404 if path == "/other" else 200)
        assert status(server, path) == 401
        for login in wrong:
            encoded = base64.b64encode(login).decode()
            assert status(server, path, Authorization=f"Basic {encoded}") == 401
        for header in ("Basic !", "Basic", "Bearer x", f"Bearer {SIGNED_IN['Authorization'][6:]}"):
            assert status(server, path, Authorization=header) == 401
        assert status(server, path, **SIGNED_IN) != 401


def test_a_file_that_changes_counts_at_once_and_a_broken_one_not(tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(f"basic_auth_users: {{ada: {ADA}}}")
    config = WebConfig(file)
    assert config.permits(SIGNED_IN["Authorization"])
    file.write_text("basic_auth_users: {ada: ")
    os.utime(file, (1, 1))
    assert config.permits(SIGNED_IN["Authorization"])
    assert not config.permits("")
    file.write_text(f"basic_auth_users: {{bob: {ADA}}}")
    os.utime(file, (2, 2))
    assert not config.permits(SIGNED_IN["Authorization"])


def test_tls(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    cert, key = pair
    file = tmp_path / "web.yml"
    file.write_text(f"tls_server_config: {{cert_file: {cert}, key_file: {key}}}")
    trusting = ssl.create_default_context(cafile=str(cert))
    with served(file) as server:
        assert server.scheme == "https"
        port = server.server_address[1]
        for _ in range(2):
            connection = HTTPSConnection("localhost", port, context=trusting, timeout=30)
            connection.request("GET", "/metrics")
            assert connection.getresponse().read() == b"here\n"
            connection.close()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"here" not in plain.recv(1000)


def test_a_client_needs_a_certificate_where_the_file_says_so(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    cert, key = pair
    file = tmp_path / "web.yml"
    file.write_text(
        f"tls_server_config:\n  cert_file: {cert}\n  key_file: {key}\n  client_ca_file: {cert}\n"
        "  client_auth_type: RequireAndVerifyClientCert\n"
    )
    with served(file) as server:
        for known in (True, False):
            context = ssl.create_default_context(cafile=str(cert))
            if known:
                context.load_cert_chain(cert, key)
            connection = HTTPSConnection(
                "localhost", server.server_address[1], context=context, timeout=30
            )
            try:
                connection.request("GET", "/metrics")
                assert connection.getresponse().status == 200
                assert known
            except OSError:
                assert not known
            connection.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "no YAML"),
        ("- a", "has to be keys"),
        ("rate_limit: {burst: 1}", "'rate_limit' in the file is not known here"),
        ("tls_server_config: {cert_file: a}", "needs cert_file and key_file"),
        ("tls_server_config: {cert_file: a, key_file: b}", "No such file"),
        ("tls_server_config: {cert_file: a, key_file: b, min_version: TLS10}", "TLS12, TLS13"),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequestClientCert}",
            "has to be one of NoClientCert",
        ),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", "need one another"),
        ("basic_auth_users: {ada: plain}", "the password of 'ada' is no bcrypt hash"),
        ("basic_auth_users: [ada]", "names with bcrypt hashes"),
        ("!!python/object/apply:os.system [true]", "no YAML"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "web.yml"
    file.write_text(text)
    with pytest.raises(WebConfigError) as refused:
        WebConfig(file)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
