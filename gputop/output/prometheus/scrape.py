"""Metrics over HTTP, by the official client: the only module that imports it.

TLS and basic authentication are set by the web configuration of Prometheus exporters:
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md says what the
fields mean. As there, the files are read for each connection, and all requests are refused while
they are invalid.

A server on the loopback answers only requests that name the loopback: a web page that a user visits
could have its own name resolved to 127.0.0.1, and read the answer (DNS rebinding).
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

import bcrypt
import yaml
from prometheus_client import CollectorRegistry, Metric, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gputop.agent.threads import start_daemon
from gputop.files import read_at_once

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from gputop.output.prometheus.metrics import Family

Look = Callable[[], "Iterable[Family]"]
"""Function that returns the current metrics. Several threads call it; it must not block."""
SILENCE_SECONDS = 10.0
"""Time after which a silent client is disconnected."""
TEXT = (("Content-Type", "text/plain; charset=utf-8"),)
"""Headers. Each answer needs its own list, because the server appends the length."""

MOST_BYTES = 1 << 16
HASH = r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}"
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
POLICIES = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
"""Go has two more, which accept unverified certificates."""
FILES = ("cert_file", "key_file", "client_ca_file")
CHOICES: dict[str, tuple[str, Mapping[str, object]]] = {
    "client_auth_type": ("verify_mode", POLICIES),
    "min_version": ("minimum_version", VERSIONS),
    "max_version": ("maximum_version", VERSIONS),
}
"""Attributes of the TLS context, with the values of their fields."""
TLS, USERS = "tls_server_config", "basic_auth_users"
REMEDY = "Mend it: nobody is answered until then."


class _Families(Collector):
    """Collector of the official client for our metrics."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Yield each metric with its series."""
        for family in self._look():
            # The client adds `_total` to the name of a counter, and not to its series.
            is_named = family.kind != "counter" or family.name.endswith("_total")
            kind = family.kind if is_named else "unknown"
            metric = Metric(family.name.removesuffix("_total"), family.help, kind)
            for labels, value in family.series:
                metric.add_sample(family.name, dict(labels), value)
            yield metric


def registry_of(look: Look) -> CollectorRegistry:
    """Return the registry that the client writes as text."""
    registry = CollectorRegistry()
    registry.register(_Families(look))
    return registry


def metrics_page(look: Look) -> WSGIApplication:
    """Return the page with these metrics."""
    return make_wsgi_app(registry_of(look))


def dcgm_page(look: Look) -> WSGIApplication:
    """Return the page with metrics of dcgm-exporter, as text, which is all that it has, too.

    Its counters do not end in `_total`. OpenMetrics does not allow that, and the client has no type
    for them.
    """

    def page(_: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        start("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
        return [dcgm_text([*look()])]

    return page


def dcgm_text(found: Sequence[Family]) -> bytes:
    """Return metrics as text, with the type of counters whose names do not end in `_total`."""
    text = generate_latest(registry_of(lambda: found))
    for family in found:
        if family.kind == "counter":
            untyped, typed = (
                f"# TYPE {family.name} {it}\n" for it in ("untyped", "counter")
            )
            text = text.replace(untyped.encode(), typed.encode())
    return text


def _is_loopback(host: str) -> bool:
    """Return True if the content of a `Host` header names this machine's loopback."""
    name = re.sub(r":\d*$", "", host).strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class WebConfigError(Exception):
    """The file is not valid; the text says why."""


class WebConfig:
    """A web configuration file, read for each connection, by several threads."""

    def __init__(self, file: Path, tell: Callable[[str], None]) -> None:
        """Read the file; reports errors to `tell`, and raises `WebConfigError`."""
        self._file, self._tell, self._told = file, tell, ""
        self._hashing = threading.Lock()
        self._signed_in: dict[str, bytes] = {}
        """Digest of each user's last valid login, because bcrypt is slow on purpose."""
        self._protection: tuple[ssl.VerifyMode | None, bool] | None = None
        context, _ = self._read()
        self.has_tls = context is not None

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """Shake hands with a client where TLS is on; raises `OSError` or `WebConfigError`."""
        context, _ = self._read()
        assert context is not None
        return context.wrap_socket(connection, server_side=True)

    def refusal(self, authorization: str) -> str | None:
        """Return the HTTP status that refuses an `Authorization` header, or None."""
        try:
            _, users = self._read()
        except WebConfigError:
            return "500 Internal Server Error"
        return (
            None
            if not users or self._is_user(users, authorization)
            else "401 Unauthorized"
        )

    def _is_user(self, users: Mapping[str, str], authorization: str) -> bool:
        scheme, _, encoded = authorization.partition(" ")
        try:
            name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
            user = name.decode()
        except ValueError:
            return False
        if scheme.lower() != "basic":
            return False
        # An unknown user takes as long as a known one: timing must not tell which users exist.
        stored = users.get(user, next(iter(users.values()))).encode()
        login = sha256(stored + password).digest()
        if user in users and compare_digest(self._signed_in.get(user, b""), login):
            return True
        with self._hashing:  # guessing passwords uses one core at most
            if not bcrypt.checkpw(password[:72], stored) or user not in users:
                return False
        self._signed_in[user] = login
        return True

    def _read(self) -> tuple[ssl.SSLContext | None, Mapping[str, str]]:
        try:
            tls, users = _parsed(read_at_once(self._file, MOST_BYTES))
            context = _context(self._file.parent, tls) if tls else None
            self._check_protection(
                (context.verify_mode if context else None, bool(users))
            )
        except (OSError, WebConfigError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if why != self._told:
                self._tell(f"error: {self._file} cannot be used: {why}. {REMEDY}")
            self._told = why
            raise WebConfigError(why) from None
        self._told = ""
        return context, users

    def _check_protection(self, now: tuple[ssl.VerifyMode | None, bool]) -> None:
        """Refuse a file with another kind of protection: it may be half written."""
        if self._protection not in (None, now):
            raise WebConfigError(
                "TLS, client certificates or users begin or end at a restart"
            )
        self._protection = now


def _parsed(content: bytes) -> tuple[dict[str, str], dict[str, str]]:
    try:
        read = yaml.load(content, yaml.BaseLoader) or {}  # noqa: S506 - all is text, nothing is run
        tls, users = ({**(read.pop(name, None) or {})} for name in (TLS, USERS))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise WebConfigError(f"line {line} is not YAML") from None
    except (TypeError, AttributeError):
        raise WebConfigError(
            f"{TLS} and {USERS} have to be fields with values"
        ) from None
    for name in (*read, *(tls.keys() - {*FILES, *CHOICES})):
        raise WebConfigError(
            f"{name} is not supported; {', '.join((*FILES, *CHOICES))} are"
        )
    for user, stored in users.items():
        if not re.fullmatch(HASH, str(stored)):
            raise WebConfigError(f"the password of {user} is not a bcrypt hash")
    return {name: str(value) for name, value in tls.items()}, users


def _context(folder: Path, tls: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in CHOICES.keys() & tls.keys():
        attribute, choices = CHOICES[name]
        if tls[name] not in choices:
            raise WebConfigError(f"{name} has to be one of {', '.join(choices)}")
        setattr(context, attribute, choices[tls[name]])
    if not {"cert_file", "key_file"} <= tls.keys():
        raise WebConfigError(f"{TLS} needs cert_file and key_file")
    verifies = context.verify_mode is not ssl.CERT_NONE
    if ("client_ca_file" in tls) != verifies:
        raise WebConfigError("client_ca_file and client_auth_type need one another")
    cert, key, authorities = (folder / tls.get(name, "") for name in FILES)
    try:
        # Without this password, that of a key would be asked for on the terminal.
        context.load_cert_chain(cert, key, password="")
        if verifies:
            context.load_verify_locations(authorities)
    except (OSError, ValueError) as error:
        why = (
            getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        )
        raise WebConfigError(f"a file of {TLS} cannot be used: {why}") from None
    return context


class _Handler(WSGIRequestHandler):
    """Handler that logs no requests: Prometheus sends one every few seconds."""

    timeout = SILENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class Server(ThreadingWSGIServer):
    """Server with a thread for each request.

    It has some pages by their paths, one with links to them, and two probes: `/-/healthy` always
    answers, `/-/ready` once there is something to scrape.
    """

    allow_reuse_port = False
    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, WSGIApplication],
        web_config: WebConfig | None = None,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Bind to this address, or to all interfaces if the host is empty; raises `OSError`."""
        if not host:
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        address: Any
        self.address_family, _, _, _, address = found[0]
        self._pages, self.web_config, self._is_ready = pages, web_config, is_ready
        super().__init__(address, _Handler)
        bound = ipaddress.ip_address(str(self.server_address[0]))
        self.is_open, self._is_on_loopback = bound.is_unspecified, bound.is_loopback
        self.set_app(self._answer)

    def _answer(
        self, environ: WSGIEnvironment, start: StartResponse
    ) -> Iterable[bytes]:
        """Answer a request.

        On the loopback those for a foreign `Host` are refused, and users without a valid login.
        """

        def say(status: str, text: bytes, *headers: tuple[str, str]) -> list[bytes]:
            start(status, [*TEXT, *headers])
            return [text]

        if self._is_on_loopback and not _is_loopback(
            environ.get("HTTP_HOST", "localhost")
        ):
            return say(
                "403 Forbidden",
                b"Only for localhost: --listen says who else may ask.\n",
            )
        login = environ.get("HTTP_AUTHORIZATION", "")
        if self.web_config is not None and (refusal := self.web_config.refusal(login)):
            words = b"Only for users in the file of --web-config.\n"
            return say(refusal, words, ("WWW-Authenticate", "Basic"))
        if environ["REQUEST_METHOD"] != "GET":
            return say("405 Method Not Allowed", b"Only GET.\n", ("Allow", "GET"))
        path = environ.get("PATH_INFO", "")
        if path in self._pages:
            return self._pages[path](environ, start)
        if path == "/-/healthy":
            return say("200 OK", b"Healthy.\n")
        if path == "/-/ready":
            if self._is_ready():
                return say("200 OK", b"gputop exporter is ready.\n")
            return say("503 Service Unavailable", b"Nothing has been read yet.\n")
        if path != "/":
            return say("404 Not Found", b"Not here: see /metrics.\n")
        start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
        links = "".join(f'<p><a href="{each}">{each[1:]}</a>\n' for each in self._pages)
        return [f"<!doctype html>\n<title>gputop exporter</title>\n{links}".encode()]

    def server_bind(self) -> None:
        """Bind like the base class, but without the host name lookup, which can block."""
        if self.address_family == socket.AF_INET6:
            # `::` means all interfaces, even if the system would exclude IPv4.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        start_daemon(self.process_request_thread, request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in its thread, because a TLS handshake can be slow."""
        if self.web_config is None or not self.web_config.has_tls:
            super().finish_request(request, client_address)
            return
        request.settimeout(SILENCE_SECONDS)
        with self.web_config.wrap(request) as secure:
            super().finish_request(secure, client_address)
            with contextlib.suppress(OSError):  # the client may have left
                secure.unwrap()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that leave before they are answered."""

    def start(self) -> None:
        """Answer requests until the program ends."""
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()
