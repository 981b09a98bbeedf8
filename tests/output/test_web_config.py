"""The exporter's TLS and its users, by the web configuration file of Prometheus exporters."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING

import bcrypt
import pytest

from gputop.output.prometheus.scrape import MOST_BYTES, TEXT, Server, WebConfig, WebConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SOON = 30.0
HASH = "$2b$04$8/Q.servHV317X24hsq06OPyiqjJK68khXya9PPlet0SYbpZNgpT."
"""Of `pw`."""
USERS = f"basic_auth_users:\n  ada: {HASH}\n"


def basic(login: bytes) -> str:
    return f"Basic {base64.b64encode(login).decode()}"


ADA = basic(b"ada:pw")


class Certificate:
    """A certificate for localhost that signs itself, with its key; each is another one."""

    def __init__(self, folder: Path, *options: str) -> None:
        if (openssl := shutil.which("openssl")) is None:
            pytest.skip("there is no openssl to make a certificate with")
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-days", "2", "-subj", "/CN=localhost", "-keyout", str(self.key)),
                *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", str(self.cert)),
                *(options or ("-nodes",)),
            ],
            check=True,
            capture_output=True,
        )

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.cert))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "web.yml"


def tls(certificate: Certificate, **more: object) -> str:
    fields = {"cert_file": certificate.cert, "key_file": certificate.key, **more}
    return "tls_server_config:\n" + "".join(f"  {name}: {of}\n" for name, of in fields.items())


def page(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    start("200 OK", [*TEXT])
    return [b"here\n"]


@contextmanager
def served(file: Path | None, told: list[str] | None = None) -> Iterator[Server]:
    config = WebConfig(file, ([] if told is None else told).append) if file else None
    server = Server("127.0.0.1", 0, {"/metrics": page}, config)
    server.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=SOON)


def status(
    server: Server, path: str = "/metrics", trust: ssl.SSLContext | None = None, **headers: str
) -> int:
    """The status of the answer; 0 where the connection ends without one."""
    port = server.server_port
    connection = (
        HTTPSConnection("localhost", port, context=trust, timeout=SOON)
        if trust
        else HTTPConnection("localhost", port, timeout=SOON)
    )
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status != 200 or answer.read()
    except OSError:
        return 0
    else:
        return answer.status
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/metrics", "/", "/-/healthy", "/-/ready", "/other"])
def test_nobody_reads_anything_without_signing_in(file: Path, path: str) -> None:
    file.write_text(USERS)
    with served(file) as server:
        assert status(server, path) == 401
        for login in (b"ada:no", b"bob:pw", b"bob:", b"ada", b"\xff:pw", b":", b"ada:pw\0"):
            assert status(server, path, Authorization=basic(login)) == 401
        for header in ("Basic !", "Basic", "Bearer x", f"Bearer {ADA[6:]}", "Basic \xe4", ADA[6:]):
            assert status(server, path, Authorization=header) == 401
        for _ in range(2):
            assert status(server, path, Authorization=ADA) == (404 if path == "/other" else 200)


@pytest.mark.parametrize("prefix", ["$2a$", "$2b$", "$2y$"])
def test_hashes_of_other_programs(file: Path, prefix: str) -> None:
    """Those of htpasswd begin with 2y."""
    file.write_text(USERS.replace("$2b$", prefix))
    config = WebConfig(file, print)
    assert config.refusal(ADA) is None
    assert config.refusal(basic(b"ada:no")) == "401 Unauthorized"


def test_a_long_password_is_compared_as_far_as_bcrypt_does(file: Path) -> None:
    stored = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    file.write_text(f"basic_auth_users: {{ada: {stored}}}")
    assert WebConfig(file, print).refusal(basic(b"ada:" + b"x" * 100)) is None


def test_a_right_login_is_hashed_once_and_waits_for_no_guess(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(USERS)
    config = WebConfig(file, print)
    hashed: list[bytes] = []

    def counted(password: bytes, stored: bytes) -> bool:
        hashed.append(password)
        return check(password, stored)

    check = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", counted)
    for _ in range(3):
        assert config.refusal(ADA) is None
        assert config.refusal(basic(b"bob:no")) == "401 Unauthorized"  # takes as long as for ada
    assert hashed.count(b"pw") == 1
    assert hashed.count(b"no") == 3
    with config._hashing:
        assert config.refusal(ADA) is None


def test_a_user_who_is_gone_is_refused_though_another_has_the_same_hash(file: Path) -> None:
    file.write_text(f"{USERS}  bob: {HASH}\n")
    config = WebConfig(file, print)
    assert config.refusal(ADA) is None
    file.write_text(f"basic_auth_users: {{bob: {HASH}}}")
    assert config.refusal(ADA) == "401 Unauthorized"
    assert config.refusal(basic(b"bob:pw")) is None


def test_a_file_that_changes_counts_at_once(file: Path) -> None:
    told: list[str] = []
    file.write_text(USERS)
    with served(file, told) as server:
        assert status(server, Authorization=ADA) == 200
        stat = file.stat()
        file.write_text(USERS.replace("ada", "bob"))
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as large and as old
        assert status(server, Authorization=ADA) == 401
        assert status(server, Authorization=basic(b"bob:pw")) == 200
    assert told == []


@pytest.mark.parametrize("broken", ["basic_auth_users: {ada: ", "", "# nobody", None])
def test_nobody_is_answered_while_the_file_cannot_be_used(file: Path, broken: str | None) -> None:
    """An empty one is being written, and means by no means that all may read."""
    told: list[str] = []
    file.write_text(USERS)
    with served(file, told) as server:
        for times in (1, 2):
            if broken is None:
                file.unlink()
            else:
                file.write_text(broken)
            assert [status(server, Authorization=ADA) for _ in range(3)] == [500] * 3
            assert len(told) == times
            file.write_text(USERS)
            assert status(server, Authorization=ADA) == 200


def test_tls(file: Path, certificate: Certificate) -> None:
    file.write_text(tls(certificate) + USERS)
    with served(file) as server:
        for _ in range(2):
            assert status(server, "/-/ready", certificate.trusted(), Authorization=ADA) == 200
            assert status(server, "/metrics", certificate.trusted()) == 401
        with connected(server) as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"HTTP" not in plain.recv(1000)


def test_the_end_of_an_answer_is_told_from_a_cut(file: Path, certificate: Certificate) -> None:
    """One of unknown length ends with a notice of TLS."""

    def endless(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [*TEXT])
        yield from [b"x" * 100_000] * 20

    file.write_text(tls(certificate))
    server = Server("127.0.0.1", 0, {"/": endless}, WebConfig(file, print))
    server.start()
    try:
        with (
            connected(server) as plain,
            certificate.trusted().wrap_socket(
                plain, server_hostname="localhost", suppress_ragged_eofs=False
            ) as client,
        ):
            client.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            received = sum(map(len, iter(lambda: client.recv(1 << 16), b"")))
    finally:
        server.shutdown()
        server.server_close()
    assert received > 2_000_000


def test_a_new_certificate_counts_at_once(tmp_path: Path, certificate: Certificate) -> None:
    told: list[str] = []
    first, second = Certificate(tmp_path / "1"), Certificate(tmp_path / "2")
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: 1/cert.pem, key_file: 1/key.pem}")
    with served(file, told) as server:
        assert status(server, trust=first.trusted()) == 200
        first.cert.write_bytes(second.cert.read_bytes())
        assert status(server, trust=second.trusted()) == 0  # its key is still the one before
        assert len(told) == 1
        assert "KEY_VALUES_MISMATCH" in told[0]
        first.key.write_bytes(second.key.read_bytes())
        assert status(server, trust=second.trusted()) == 200
        file.write_text("")
        assert status(server) == 0
    assert len(told) == 2


@pytest.mark.parametrize(
    ("bound", "spoken"), [("min_version: TLS13", "TLSv1.3"), ("max_version: TLS12", "TLSv1.2")]
)
def test_versions(file: Path, certificate: Certificate, bound: str, spoken: str) -> None:
    file.write_text(f"{tls(certificate)}  {bound}\n")
    with served(file) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = certificate.trusted()
            context.minimum_version = context.maximum_version = version
            heard = None
            with ExitStack() as stack:
                plain = stack.enter_context(connected(server))
                try:
                    secure = context.wrap_socket(plain, server_hostname="localhost")
                    heard = stack.enter_context(secure).version()
                except ssl.SSLError:
                    pass
            assert heard in (None, spoken)
            assert (heard == spoken) == (version.name.replace("_", ".") == spoken)


def test_a_client_needs_a_certificate_where_the_file_says_so(
    file: Path, certificate: Certificate, tmp_path: Path
) -> None:
    policy = {"client_ca_file": certificate.cert, "client_auth_type": "RequireAndVerifyClientCert"}
    file.write_text(tls(certificate, **policy))
    stranger = Certificate(tmp_path / "stranger")
    with served(file) as server:
        for shown, enters in ((certificate, True), (stranger, False), (None, False)):
            context = certificate.trusted()
            if shown:
                context.load_cert_chain(shown.cert, shown.key)
            assert status(server, trust=context) == (200 if enters else 0)
        file.write_text(tls(certificate))  # the policy is lost
        assert status(server, trust=certificate.trusted()) == 0


def test_a_certificate_that_is_given_is_verified(
    file: Path, certificate: Certificate, tmp_path: Path
) -> None:
    policy = {"client_ca_file": certificate.cert, "client_auth_type": "VerifyClientCertIfGiven"}
    file.write_text(tls(certificate, **policy))
    stranger = Certificate(tmp_path / "stranger")
    with served(file) as server:
        assert status(server, trust=certificate.trusted()) == 200
        context = certificate.trusted()
        context.load_cert_chain(stranger.cert, stranger.key)
        assert status(server, trust=context) == 0


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"\x16"])
def test_those_who_never_end_their_handshake_hold_up_nobody(
    file: Path, certificate: Certificate, sent: bytes
) -> None:
    file.write_text(tls(certificate))
    with served(file) as server, ExitStack() as slow:
        for _ in range(100):
            client = slow.enter_context(connected(server))
            client.sendall(sent)
        assert status(server, trust=certificate.trusted()) == 200


def test_a_key_with_a_password_is_refused_without_asking_for_it(file: Path, tmp_path: Path) -> None:
    file.write_text(tls(Certificate(tmp_path / "locked", "-passout", "pass:secret")))
    with pytest.raises(WebConfigError, match="cannot be used"):
        WebConfig(file, print)


FIELDS = "cert_file: cert.pem, key_file: key.pem"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "line 1 is not YAML"),
        ("\na: b: c", "line 2 is not YAML"),
        ("\0", "line 1 is not YAML"),
        ("\udcff", "line 1 is not YAML"),
        ("- a", "have to be fields with values"),
        ("a", "have to be fields with values"),
        ("basic_auth_users: [ada]", "have to be fields with values"),
        ("tls_server_config: cert", "have to be fields with values"),
        ("rate_limit: {burst: 1}", "rate_limit is not supported; cert_file, key_file, "),
        ("tls_server_config: {cypher: a}", "cypher is not supported; cert_file, key_file, "),
        ("tls_server_config: {cert_file: a}", "tls_server_config needs cert_file and key_file"),
        (f"tls_server_config: {{{FIELDS}}}", "cannot be used: No such file"),
        (f"tls_server_config: {{{FIELDS}, min_version: TLS10}}", "one of TLS12, TLS13"),
        (f"tls_server_config: {{{FIELDS}, min_version: [a]}}", "one of TLS12, TLS13"),
        (
            f"tls_server_config: {{{FIELDS}, client_auth_type: RequestClientCert}}",
            "client_auth_type has to be one of NoClientCert, VerifyClientCertIfGiven, ",
        ),
        (f"tls_server_config: {{{FIELDS}, client_ca_file: c}}", "need one another"),
        ("basic_auth_users: {ada: plain}", "the password of ada is not a bcrypt hash"),
        ("basic_auth_users: {ada: [a]}", "the password of ada is not a bcrypt hash"),
        (f"basic_auth_users: {{ada: {HASH.replace('$04$', '$32$')}}}", "not a bcrypt hash"),
        ("!!python/object/apply:os.system [false]", "have to be fields with values"),
    ],
)
def test_a_file_that_cannot_be_used(file: Path, text: str, why: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape"))
    told: list[str] = []
    with pytest.raises(WebConfigError) as refused:
        WebConfig(file, told.append)
    assert why in str(refused.value)
    assert [f" cannot be used: {refused.value}. " in line for line in told] == [True]
    assert "\n" not in told[0]
    assert "plain" not in told[0]


def test_what_is_no_file_of_the_kind_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").write_text("[" * MOST_BYTES)
    (tmp_path / "long").write_text("#" * (MOST_BYTES + 1))
    refused = {
        "pipe": "it is a pipe",
        ".": "Is a directory",
        "/dev/zero": "it has over 64 KiB",
        "long": "it has over 64 KiB",
        "deep": "line 1 is not YAML",
        "missing": "No such file",
    }
    for name, why in refused.items():
        with pytest.raises(WebConfigError, match=why):
            WebConfig(tmp_path / name, print)
