"""What a server may answer, and what becomes of it: a reading or a problem in one line."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.fleet.client import ANSWER_BYTES, AskError, Client
from gputop.fleet.server import PrometheusServer
from tests.prometheus import EMPTY, FakePrometheus, Request, Response, answer, error, vector

if TYPE_CHECKING:
    from collections.abc import Mapping

HTML = {"Content-Type": "text/html"}


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials and no proxy of who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "NETRC"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def refused(response: Response, most_bytes: int = ANSWER_BYTES) -> AskError:
    """Return the error that an answer makes."""
    with FakePrometheus(lambda _: response) as fake:
        client = Client(PrometheusServer(fake.url))
        with pytest.raises(AskError) as found:
            client.parse_answer(client.fetch("query", {"query": "up"}, most_bytes=most_bytes))
        client.close()
    return found.value


@pytest.mark.parametrize(
    ("response", "said", "whole"),
    [
        (Response(b"", 401), "requires credentials: 401", True),
        (Response(b"", 403), "denies access: 403", True),
        (Response(b"404 page not found", 404), "/prometheus", True),
        (Response(b"", 405), "No Prometheus there", True),
        (Response(b"<html>", 500, HTML), "answers 500", True),
        (Response(b"upstream", 503), "answers 503", True),
        (Response(b"", 429), "answers 429", True),
        (error("timeout", "query timed out", 503), "timeout: query timed out", True),
        (error("bad_data", "parse error at char 3", 400), "bad_data: parse error", False),
        (error("execution", "found duplicate series", 422), "duplicate series", False),
        (answer({"error": "x"}, 400), "No Prometheus there", True),
        (answer({"status": "error", "error": "x\x1b[31m"}), "x␛[31m", False),
        (Response(b"<!doctype html><title>Grafana</title>", 200, HTML), "other than JSON", True),
        (Response(b"hello"), "other than JSON", True),
        (Response(b"[1,2]"), "other than JSON", True),
        (Response(b'{"status":"success","data":{"resu'), "other than JSON", True),
        (Response(b"[" * 100_000), "other than JSON", True),
        (Response(b"", 200), "other than JSON", True),
        (
            Response(b"", 302, {"Location": "https://u:pw@login.example/x?t=1"}),
            "redirects to",
            True,
        ),
    ],
)
def test_what_is_no_answer(response: Response, said: str, whole: bool) -> None:
    found = refused(response)
    assert said in str(found)
    assert found.whole is whole
    assert "pw" not in str(found)
    assert str(found).isprintable()
    assert len(str(found)) < 400


def test_too_many_headers_are_said_in_words() -> None:
    many = Response(b"{}", headers={f"X-{n}": "a" for n in range(200)})
    assert refused(many).problem.why == "got more than 100 headers"


def test_a_redirect_is_not_followed_and_takes_no_credentials_along(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    with FakePrometheus(lambda _: EMPTY) as other:
        headers = {"Location": f"{other.url}/api/v1/query"}
        with FakePrometheus(lambda _: Response(b"", 307, headers)) as fake:
            client = Client(PrometheusServer(fake.url, token_file=token))
            with pytest.raises(AskError, match="Give the URL of Prometheus") as failed:
                client.ask("query", {"query": "up"})
            client.close()
    assert [request.headers["Authorization"] for request in fake.requests] == ["Bearer s3cret"]
    assert other.requests == []
    assert "s3cret" not in str(failed.value)


def test_a_refusal_names_what_to_look_at(tmp_path: Path) -> None:
    assert "GPUTOP_PROMETHEUS_TOKEN_FILE" in str(refused(Response(b"", 401)))
    token = tmp_path / "token"
    token.write_text("s3cret")
    with FakePrometheus(lambda _: Response(b"s3cret", 401)) as fake:
        client = Client(PrometheusServer(fake.url, token_file=token))
        with pytest.raises(AskError, match="Check GPUTOP_PROMETHEUS_TOKEN_FILE") as failed:
            client.ask("query", {"query": "up"})
        client.close()
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    ("environment", "response", "said"),
    [
        (
            {},
            Response(b"no org id\n", 401),
            "no X-Scope-OrgID header. Set GPUTOP_PROMETHEUS_HEADERS='X-Scope-OrgID: TENANT'",
        ),
        (
            {"HEADERS": "X-Scope-OrgID: team-a"},
            Response(b"no org id\n", 401),
            "Check X-Scope-OrgID in GPUTOP_PROMETHEUS_HEADERS",
        ),
        (
            {},
            Response(b"", 401, {"WWW-Authenticate": 'Bearer realm="x"'}),
            "the request has no Authorization header. Set GPUTOP_PROMETHEUS_TOKEN_FILE, or",
        ),
        ({"USER": "ada"}, Response(b"", 401), "Check GPUTOP_PROMETHEUS_TOKEN_FILE, or"),
        (
            {"HEADERS": "authorization: Custom s3cret"},
            Response(b"s3cret", 401),
            "Check Authorization in GPUTOP_PROMETHEUS_HEADERS",
        ),
    ],
)
def test_a_401_names_the_header_that_is_missing(
    environment: dict[str, str], response: Response, said: str
) -> None:
    given = {f"GPUTOP_PROMETHEUS_{name}": value for name, value in environment.items()}
    with FakePrometheus(lambda _: response) as fake:
        client = Client(PrometheusServer.from_environment(fake.url, given))
        with pytest.raises(AskError) as found:
            client.ask("query", {"query": "up"})
        client.close()
    assert said in str(found.value)
    assert "s3cret" not in str(found.value)


def test_headers_of_the_environment_are_sent_and_not_to_where_a_redirect_leads() -> None:
    given = {"GPUTOP_PROMETHEUS_HEADERS": "X-Scope-OrgID: a|b, X-Key:  s3cret "}
    with FakePrometheus(lambda _: EMPTY) as other:
        headers = {"Location": f"{other.url}/api/v1/query"}
        with FakePrometheus(lambda _: Response(b"", 307, headers)) as fake:
            client = Client(PrometheusServer.from_environment(fake.url, given))
            with pytest.raises(AskError) as failed:
                client.ask("query", {"query": "up"})
            client.close()
    (sent,) = fake.requests
    assert (sent.headers["X-Scope-OrgID"], sent.headers["X-Key"]) == ("a|b", "s3cret")
    assert other.requests == []
    assert "s3cret" not in str(failed.value)


def test_an_answer_is_bounded_unpacked_too() -> None:
    body = gzip.compress(b" " * (3 << 20))
    headers = {"Content-Encoding": "gzip", "Content-Length": str(len(body))}
    found = refused(Response(body, 200, headers), 2 << 20)
    assert "larger than 2 MiB" in str(found)
    assert not found.whole


def test_warnings_come_along_and_gzip_is_asked_for() -> None:
    with FakePrometheus(lambda _: vector([({}, 1)], warnings=["partial"])) as fake:
        client = Client(PrometheusServer(fake.url))
        data, warnings = client.ask("query", {"query": "up"})
        client.ask("query", {"query": "x" * 9000})
        client.close()
    assert data["resultType"] == "vector"
    assert warnings == ("partial",)
    assert [request.method for request in fake.requests] == ["GET", "POST"]
    assert fake.requests[1].parameters["query"] == "x" * 9000
    assert fake.requests[0].headers["Accept-Encoding"] == "gzip"


def test_a_server_that_hangs_is_given_up() -> None:
    with FakePrometheus(lambda _: None) as fake:
        client = Client(PrometheusServer(fake.url), seconds=0.2)
        with pytest.raises(AskError, match="Prometheus is slow"):
            client.ask("query", {"query": "up"})
        client.close()


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n{"])
def test_a_server_that_drips_is_given_up(start: bytes) -> None:
    """Its every byte comes within the time limit of a socket, in the headers or after them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(start)
                    while not over.wait(0.05):
                        connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        client = Client(
            PrometheusServer(f"http://127.0.0.1:{listening.getsockname()[1]}"), seconds=0.5
        )
        with pytest.raises(AskError, match="Prometheus is slow"):
            client.ask("query", {"query": "up"})
        over.set()
        thread.join()
        client.close()


def test_another_thread_ends_a_question() -> None:
    asked = threading.Event()

    def hang(_: Request) -> None:
        asked.set()

    with FakePrometheus(hang) as fake:
        client = Client(PrometheusServer(fake.url), seconds=60)
        failed: list[AskError] = []

        def ask() -> None:
            try:
                client.ask("query", {"query": "up"})
            except AskError as error:
                failed.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert asked.wait(30)
        client.stop()
        thread.join(30)
        assert failed
        with pytest.raises(AskError, match="no longer asked"):
            client.ask("query", {"query": "up"})
        client.close()


def test_a_connection_is_used_again_and_one_that_was_closed_is_opened_again() -> None:
    ports: list[int] = []
    closed = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        body = json.dumps({"status": "success", "data": 1}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

        def serve() -> None:
            for answers in (2, 1):
                connection, (_, port) = listening.accept()
                with connection:
                    for _ in range(answers):
                        asked = b""
                        while b"query=up" not in asked:  # it may come after its headers
                            asked += connection.recv(65536)
                        ports.append(port)
                        connection.sendall(head + body)
                closed.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = Client(PrometheusServer(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        found = [client.ask("query", {"query": "up"})[0] for _ in range(2)]
        assert closed.wait(30)
        found.append(client.ask("query", {"query": "up"})[0])
        thread.join(30)
        client.close()
    assert found == [1, 1, 1]
    assert ports[0] == ports[1] != ports[2]


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(AskError, match=r"Cannot reach Prometheus: Connection refused"):
        Client(PrometheusServer(f"http://127.0.0.1:{port}")).ask("query", {"query": "up"})


def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakePrometheus(lambda _: EMPTY) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//ada:pw@"))
        client = Client(PrometheusServer("http://prometheus.invalid:9090"))
        client.ask("query", {"query": "up"})
        client.close()
        headers = {name.lower(): value for name, value in proxy.requests[0].headers.items()}
        assert headers["proxy-authorization"].startswith("Basic ")
        assert headers["host"] == "prometheus.invalid:9090"
        monkeypatch.setenv("http_proxy", "ftp://ada:pw@x:y")
        with pytest.raises(AskError, match="http_proxy") as failed:
            Client(PrometheusServer("http://prometheus.invalid:9090")).ask("query", {"query": "up"})
    assert "pw" not in str(failed.value)


CERTIFICATES: Mapping[str, PrometheusServer] = {
    "No certificates": PrometheusServer("https://127.0.0.1:1", authorities=Path("nowhere.pem")),
    "No certificate:": PrometheusServer("https://127.0.0.1:1", certificate=Path("nowhere.pem")),
}


@pytest.mark.parametrize("said", CERTIFICATES)
def test_certificates_that_are_not_there(said: str) -> None:
    with pytest.raises(AskError, match=said) as failed:
        Client(CERTIFICATES[said]).ask("query", {"query": "up"})
    assert "nowhere.pem" in str(failed.value)


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A certificate that is its own authority, for both ends, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return tmp_path


def test_certificates_of_both_ends(certified: Path) -> None:
    cert, key = certified / "cert.pem", certified / "key.pem"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakePrometheus(lambda _: EMPTY, context) as fake:
        known = Client(PrometheusServer(fake.url, authorities=cert, certificate=cert, key=key))
        known.ask("query", {"query": "up"})
        known.close()
        stranger = Client(PrometheusServer(fake.url, authorities=cert))
        with pytest.raises(AskError, match="Cannot reach Prometheus"):
            stranger.ask("query", {"query": "up"})
        stranger.close()
        unknown = Client(PrometheusServer(fake.url, certificate=cert, key=key))
        with pytest.raises(AskError, match=r"(?i)certificate verify failed"):
            unknown.ask("query", {"query": "up"})
        unknown.close()
    assert len(fake.requests) == 1


def test_a_plain_server_behind_https_is_named() -> None:
    with FakePrometheus(lambda _: EMPTY) as fake:
        client = Client(PrometheusServer(fake.url.replace("http:", "https:")))
        with pytest.raises(AskError, match="Cannot reach Prometheus"):
            client.ask("query", {"query": "up"})
        client.close()
