"""Serve metrics over HTTP with the official client.

A server on the loopback answers only requests for a loopback name. Otherwise a web page could
resolve its own name to 127.0.0.1 and read the answer (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Metric,
    generate_latest,
    make_wsgi_app,
    start_http_server,
)
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

Look = Callable[[], Iterable[Metric]]
"""Function that returns the current metrics. Several threads call it; it must not block."""


class _Current(Collector):
    """Collector of the official client for the current metrics."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Return the current metrics."""
        return self._look()


def registry_of(look: Look) -> CollectorRegistry:
    """Return a registry of the official client for our metrics."""
    registry = CollectorRegistry()
    registry.register(_Current(look))
    return registry


def dcgm_text(registry: CollectorRegistry) -> bytes:
    """Return metrics as text. The client adds `_total` to a counter's header: DCGM has none."""
    header = rb"^(# (?:HELP|TYPE) DCGM_FI_\w+)_total "
    text = generate_latest(registry)
    return re.sub(header, rb"\1 ", text, flags=re.MULTILINE)


def serve(
    host: str,
    port: int,
    look: Look,
    is_ready: Callable[[], bool],
    *,
    dcgm: bool = False,
    **tls: Any,
) -> WSGIServer:
    """Start to answer requests in threads, and return the server. Raises `OSError`.

    An empty host means all interfaces. `tls` are the options of `start_http_server`.
    """
    if not host:
        host = "0.0.0.0"  # noqa: S104
        if socket.has_dualstack_ipv6():
            host = "::"
    registry = registry_of(look)
    metrics = make_wsgi_app(registry)
    if dcgm:
        metrics = _dcgm_page(registry)
    server, _ = start_http_server(port, host, registry, **tls)
    is_local = ipaddress.ip_address(str(server.server_address[0])).is_loopback
    server.set_app(_guarded(metrics, is_ready, is_local=is_local))
    server.handle_error = _ignore  # type: ignore[method-assign]
    return server


def _ignore(request: object, client_address: object) -> None:
    """Ignore a client that disconnects early, instead of printing a traceback."""


def _dcgm_page(registry: CollectorRegistry) -> WSGIApplication:
    def page(_: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        kind = "text/plain; version=0.0.4; charset=utf-8"
        start("200 OK", [("Content-Type", kind)])
        return [dcgm_text(registry)]

    return page


def _guarded(
    metrics: WSGIApplication, is_ready: Callable[[], bool], *, is_local: bool
) -> WSGIApplication:
    """Return an application with the metrics and two probes that refuses foreign host names.

    `/-/healthy` always succeeds, `/-/ready` as soon as there are metrics.
    """

    def say(
        start: StartResponse,
        status: str,
        text: str,
    ) -> list[bytes]:
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    def answer(
        environ: WSGIEnvironment, start: StartResponse
    ) -> Iterable[bytes]:
        if is_local and not _is_loopback(
            environ.get("HTTP_HOST", "localhost")
        ):
            text = "Only for localhost. Use --listen to allow other clients."
            return say(start, "403 Forbidden", text)
        path = environ.get("PATH_INFO", "")
        if path == "/-/healthy":
            return say(start, "200 OK", "Healthy.")
        if path == "/-/ready":
            if is_ready():
                return say(start, "200 OK", "gputop exporter is ready.")
            return say(
                start, "503 Service Unavailable", "There are no readings yet."
            )
        if path not in ("/", "/metrics"):
            return say(start, "404 Not Found", "Not found: see /metrics.")
        return metrics(environ, start)

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
