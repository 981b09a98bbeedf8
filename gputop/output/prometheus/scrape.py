"""Metrics over HTTP, by the official client: the only module that imports it.

A server on the loopback answers only requests that name the loopback: a web page that a user visits
could have its own name resolved to 127.0.0.1, and read the answer (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from gputop.output.prometheus.family import Family

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from gputop.output.prometheus.web_config import WebConfig

Look = Callable[[], Iterable[Family]]
"""Function that returns the current metrics. Several threads call it; it must not block."""
SILENCE_SECONDS = 10.0
"""Time after which a silent client is disconnected."""
TEXT = (("Content-Type", "text/plain; charset=utf-8"),)
"""Headers. Each answer needs its own list, because the server appends the length."""


class _Families(Collector):
    """Collector of the official client for our metrics."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Yield each metric with its series."""
        for family in self._look():
            # The client adds `_total` to the name of a counter, and not to its series.
            metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for labels, value in family.series:
                metric.add_sample(family.name, dict(labels), value)
            yield metric


def registry_of(look: Look) -> CollectorRegistry:
    """Return the registry that the client writes as text."""
    registry = CollectorRegistry()
    registry.register(_Families(look))
    return registry


def application(look: Look, is_ready: Callable[[], bool]) -> WSGIApplication:
    """Serve `/metrics`, and a page with a link to it."""
    return routed({"/metrics": make_wsgi_app(registry_of(look))}, is_ready)


def routed(
    pages: Mapping[str, WSGIApplication], is_ready: Callable[[], bool] = lambda: True
) -> WSGIApplication:
    """Serve each page at its path, a page with links to them, and two probes.

    `/-/healthy` always answers, `/-/ready` once there is something to scrape.
    """
    links = "".join(f'<p><a href="{path}">{path.removeprefix("/")}</a>\n' for path in pages)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if environ["REQUEST_METHOD"] != "GET":
            start("405 Method Not Allowed", [*TEXT, ("Allow", "GET")])
            return [b"Only GET.\n"]
        if path in pages:
            return pages[path](environ, start)
        if path == "/-/healthy" or (path == "/-/ready" and is_ready()):
            start("200 OK", [*TEXT])
            return [b"gputop exporter is ready.\n" if path == "/-/ready" else b"Healthy.\n"]
        if path == "/-/ready":
            start("503 Service Unavailable", [*TEXT])
            return [b"Nothing has been read yet.\n"]
        if path == "/":
            start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [f"<!doctype html>\n<title>gputop exporter</title>\n{links}".encode()]
        start("404 Not Found", [*TEXT])
        return [b"Not here: see /metrics.\n"]

    return answer


def guarded(
    app: WSGIApplication, *, on_loopback: bool, web_config: WebConfig | None
) -> WSGIApplication:
    """Refuse requests for a foreign `Host` on the loopback, and users without a valid login."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if on_loopback and not _is_loopback(environ.get("HTTP_HOST", "localhost")):
            start("403 Forbidden", [*TEXT])
            return [b"Only for localhost: --listen says who else may ask.\n"]
        login = environ.get("HTTP_AUTHORIZATION", "")
        if web_config is not None and (refusal := web_config.refusal(login)):
            start(refusal, [*TEXT, ("WWW-Authenticate", "Basic")])
            return [b"Only for users in the file of --web-config.\n"]
        return app(environ, start)

    return answer


def _is_loopback(host: str) -> bool:
    """Return True if the content of a `Host` header names this machine's loopback."""
    name = re.sub(r":\d*$", "", host).strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Handler(WSGIRequestHandler):
    """Handler that logs no requests: Prometheus sends one every few seconds."""

    timeout = SILENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class Server(ThreadingWSGIServer):
    """Server with a thread for each request."""

    allow_reuse_port = False
    request_queue_size = 128

    def __init__(
        self,
        family: int,
        address: tuple[Any, ...],
        app: WSGIApplication,
        web_config: WebConfig | None,
    ) -> None:
        """Bind to the address; raises `OSError`."""
        self.address_family = family
        self.web_config = web_config
        super().__init__(address, _Handler)
        bound = ipaddress.ip_address(str(self.server_address[0]))
        self.is_open = bound.is_unspecified
        self.set_app(guarded(app, on_loopback=bound.is_loopback, web_config=web_config))

    def server_bind(self) -> None:
        """Bind like the base class, but without the host name lookup, which can block."""
        if self.address_family == socket.AF_INET6:
            # `::` means all interfaces, even if the system would exclude IPv4.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

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


def listen(
    host: str, port: int, app: WSGIApplication, web_config: WebConfig | None = None
) -> Server:
    """Return a server for this address, or for all interfaces if empty; raises `OSError`."""
    if not host:
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return Server(family, address, app, web_config)
