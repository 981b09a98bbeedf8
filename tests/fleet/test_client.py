"""What a server may answer, and what becomes of it: a reading or a problem in one line."""

import gzip
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.fleet import client as module
from gputop.fleet.client import AskError, Client
from gputop.fleet.server import PrometheusServer
from tests.output.test_scrape import Certificate
from tests.prometheus import EMPTY, FakePrometheus, Response, answer, error, vector

HTML = {"Content-Type": "text/html"}
START = b'{"status":"success","data":{"resultType":"vector","result":['
ROW = b'{"metric":{},"value":[1,"90"]}'


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials and no proxy of who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "NETRC"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def refused(response: Response, server: Callable[[str], PrometheusServer] | None = None) -> str:
    with FakePrometheus(lambda _: response) as fake:
        client = Client((server or PrometheusServer)(fake.url))
        with pytest.raises(AskError) as found:
            client.ask("up")
        client.close()
    return f"{found.value} whole={found.value.whole}"


@pytest.mark.parametrize(
    ("response", "said", "whole"),
    [
        (Response(b"", 401), "requires credentials: 401", True),
        (Response(b"", 403), "Check GPUTOP_PROMETHEUS_TOKEN_FILE", True),
        (Response(b"no org id\n", 401), "GPUTOP_PROMETHEUS_HEADERS='X-Scope-OrgID:", True),
        (Response(b"404 page not found", 404), "/prometheus", True),
        (Response(b"<html>", 500, HTML), "answers 500", True),
        (Response(b"upstream", 503), "answers 503", True),
        (error("timeout", "query timed out", 503), "timeout: query timed out", False),
        (error("execution", "found duplicate series", 422), "duplicate series", False),
        (error("bad_data", "parse error", 400), "bad_data: parse error", False),
        (answer({"error": "x"}, 400), "Prometheus not found", True),
        (answer({"status": "error", "error": "x\x1b[31m"}), "x␛[31m", False),
        (Response(b"<!doctype html><title>Grafana</title>", 200, HTML), "something else", True),
        (Response(b'{"status":"success","data":{"resu'), "something else", True),
        (Response(START + b'{"metric":{"a":"\xff"},"value":[1,"2"]}]}}'), "something else", True),
        (Response(b"[" * 100_000), "something else", True),
        (Response(START + b'{"metric":{},"value":[1,2]}]}}'), "something else", True),
        (Response(b"", 302, {"Location": "https://u:pw@login.example/x?t=1"}), "redirects", True),
    ],
)
def test_what_is_no_answer(response: Response, said: str, whole: bool) -> None:
    found = refused(response)
    assert said in found
    assert found.endswith(f"whole={whole}")
    assert "pw" not in found
    assert found.isprintable()
    assert len(found) < 400


def test_an_answer_beyond_a_bound_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = gzip.compress(gzip.compress(b"\n" * 1_000_000))
    assert "compressed more than once" in refused(
        Response(twice, 200, {"Content-Encoding": "gzip, gzip"})
    )
    monkeypatch.setattr(module, "SERIES", 1)
    assert "more than 1 series" in refused(Response(START + ROW + b"," + ROW + b"]}}"))
    monkeypatch.setattr(module, "ANSWER_BYTES", 2 << 20)
    body = gzip.compress(b" " * (3 << 20))
    headers = {"Content-Encoding": "gzip", "Content-Length": str(len(body))}
    assert "larger than 2 MiB" in refused(Response(body, 200, headers))


def test_headers_are_sent_and_not_to_where_a_redirect_leads(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    given = {
        "GPUTOP_PROMETHEUS_HEADERS": "X-Scope-OrgID: a|b",
        "GPUTOP_PROMETHEUS_TOKEN_FILE": str(token),
    }
    with FakePrometheus(lambda _: EMPTY) as other:
        headers = {"Location": f"{other.url}/api/v1/query"}
        with FakePrometheus(lambda _: Response(b"", 307, headers)) as fake:
            client = Client(PrometheusServer.from_environment(fake.url, given))
            with pytest.raises(AskError, match="Give the URL of Prometheus") as failed:
                client.ask("up")
            client.close()
    (sent,) = fake.requests
    assert (sent.headers["X-Scope-OrgID"], sent.headers["Authorization"]) == (
        "a|b",
        "Bearer s3cret",
    )
    assert other.requests == []
    assert "s3cret" not in str(failed.value)


def test_warnings_come_along_and_a_long_query_is_posted() -> None:
    with FakePrometheus(lambda _: vector([({}, 1)], warnings=["partial"])) as fake:
        client = Client(PrometheusServer(fake.url))
        found = client.ask("up", 5.0)
        client.ask("x" * 5000)
        client.close()
    assert found.warnings == ["partial"]
    assert [series.value[1] for series in found.data.result] == ["1"]
    assert [request.method for request in fake.requests] == ["GET", "POST"]
    assert fake.requests[0].parameters["time"] == "5.000"
    assert fake.requests[1].parameters["query"] == "x" * 5000


def test_an_answer_that_drips_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
                    while not over.wait(0.05):
                        connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        client = Client(PrometheusServer(url), seconds=0.5)
        with pytest.raises(AskError, match="Prometheus is slow"):
            client.ask("up")
        over.set()
        thread.join()
        client.close()


@pytest.mark.parametrize("reads_first", [False, True], ids=["while idle", "as the question comes"])
def test_a_connection_that_was_closed_is_opened_again(reads_first: bool) -> None:
    ports: list[int] = []
    closed = threading.Event()
    body = EMPTY.body
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_server(("127.0.0.1", 0)) as listening:

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
                    if reads_first and answers == 2:
                        closed.set()
                        connection.recv(1)
                closed.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = Client(PrometheusServer(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        client.ask("up")
        client.ask("up")
        assert closed.wait(30)
        client.ask("up")
        client.close()
        thread.join(30)
    assert ports[0] == ports[1] != ports[2]


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(AskError, match=r"Cannot reach Prometheus: Connection refused"):
        Client(PrometheusServer(f"http://127.0.0.1:{port}")).ask("up")


def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakePrometheus(lambda _: EMPTY) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//ada:pw@"))
        client = Client(PrometheusServer("http://prometheus.invalid:9090"))
        client.ask("up")
        client.close()
        headers = {name.lower(): value for name, value in proxy.requests[0].headers.items()}
        assert headers["proxy-authorization"].startswith("Basic ")
        assert headers["host"] == "prometheus.invalid:9090"
        monkeypatch.setenv("http_proxy", "ftp://ada:pw@x:y")
        with pytest.raises(AskError, match="http_proxy") as failed:
            Client(PrometheusServer("http://prometheus.invalid:9090")).ask("up")
    assert "pw" not in str(failed.value)


@pytest.mark.parametrize("name", ["authorities", "certificate"])
def test_certificates_that_are_not_there(name: str) -> None:
    server = PrometheusServer("https://127.0.0.1:1", **{name: Path("nowhere.pem")})  # type: ignore[arg-type]
    with pytest.raises(AskError, match=r"No certificate: nowhere\.pem"):
        Client(server).ask("up")


def test_certificates_of_both_ends(tmp_path: Path) -> None:
    made = Certificate(tmp_path)  # its own authority, for both ends
    cert, key = made.cert, made.key
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakePrometheus(lambda _: EMPTY, context) as fake:
        known = Client(PrometheusServer(fake.url, authorities=cert, certificate=cert, key=key))
        known.ask("up")
        known.close()
        stranger = Client(PrometheusServer(fake.url, authorities=cert))
        with pytest.raises(AskError, match="Cannot reach Prometheus"):
            stranger.ask("up")
        stranger.close()
        unknown = Client(PrometheusServer(fake.url, certificate=cert, key=key))
        with pytest.raises(AskError, match=r"(?i)certificate verify failed"):
            unknown.ask("up")
        unknown.close()
    assert len(fake.requests) == 1
