"""Client of Prometheus's HTTP API, with limits on time and size. Only this module uses urllib3.

urllib3 uses half the CPU of httpx per answer and needs no other packages. Redirects are not
followed, so that credentials reach no other server.
"""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from gputop import __version__
from gputop.agent.problem import Problem, ProblemError
from gputop.fleet.server import (
    CA,
    CERT,
    HEADERS,
    PASSWORD,
    TENANT,
    TOKEN_FILE,
    USER,
    PrometheusServer,
)
from gputop.text import visible

ANSWER_BYTES = 64 << 20
"""Most bytes of one answer from a Prometheus server, decompressed."""
SERIES = 100_000
"""Most series of one answer, and most GPUs of a fleet."""
SECONDS = 10.0
"""Most seconds for one answer, from the request to its last byte."""
LONGEST_GET = 4000
PIECE = 1 << 13
"""Bytes to read at a time. gzip can expand them a thousandfold."""
NOT_PROMETHEUS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
AWAY = "Cannot reach Prometheus"


class AskError(ProblemError):
    """A request without an answer. `whole` is true if the server failed, not just one query."""

    def __init__(
        self,
        what: str,
        why: str,
        remedy: str = "Check that it is up, and the URL",
        *,
        whole: bool = True,
    ) -> None:
        super().__init__(Problem(what, visible(why).rstrip(". "), remedy))
        self.whole = whole


@dataclass(frozen=True, slots=True)
class Series:
    """Series of an answer: its labels, and the time and value of its newest sample."""

    metric: dict[str, str]
    value: tuple[float, str]


@dataclass(frozen=True, slots=True)
class Vector:
    """Result of an instant query."""

    result: list[Series]
    resultType: Literal["vector"] = "vector"  # noqa: N815 - Prometheus' name


@dataclass(frozen=True, slots=True)
class Answer:
    """Document that Prometheus returns."""

    status: Literal["success", "error"]
    data: Vector = Vector([])
    warnings: list[str] = field(default_factory=list)
    errorType: str = "error"  # noqa: N815
    error: str = ""


class Client:
    """Client of one server, with a persistent connection."""

    def __init__(
        self, server: PrometheusServer, seconds: float = SECONDS
    ) -> None:
        self._server = server
        self._seconds = seconds
        self._pool: urllib3.PoolManager | None = None
        self._shown = visible(server.url)

    def ask(
        self, query: str, at: float | None = None, seconds: float = SECONDS
    ) -> Answer:
        """Return the answer to a query, evaluated for a Unix time. Raises `ProblemError`."""
        seconds = min(seconds, self._seconds)
        parameters = {"query": query}
        if at is not None:
            parameters["time"] = f"{at:.3f}"
        deadline = time.monotonic() + seconds
        try:
            send = self._request(urlencode(parameters), max(0.001, seconds))
            try:
                answer = send()
            except (ProtocolError, SSLError):
                # Prometheus closes idle connections, and may do so while a
                # request is in transit.
                answer = send()
            with answer:
                body = self._read(answer, deadline)
        except (HTTPError, OSError, ValueError) as error:
            if time.monotonic() >= deadline or isinstance(
                error, urllib3.exceptions.ReadTimeoutError
            ):
                raise AskError(
                    "Prometheus is slow",
                    f"it took longer than {seconds:.0f} s to answer",
                    "Select fewer GPUs with --match, or try later",
                    whole=False,
                ) from None
            raise AskError(AWAY, _why(error)) from None
        if answer.status != 200:
            raise self._refusal(answer, body)
        return self._parse(body)

    def close(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            self._pool.clear()

    def _request(
        self, form: str, seconds: float
    ) -> Callable[[], urllib3.BaseHTTPResponse]:
        """Return a function that sends the request. Credentials are read anew."""
        if self._pool is None:
            self._pool = _connect(self._server)
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "User-Agent": f"gputop/{__version__}",
            **self._server.request_headers(),
        }
        method, url = "GET", f"{self._server.url}/api/v1/query"
        # Some proxies block POST, others a long GET.
        if len(form) > LONGEST_GET:
            method = "POST"
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        else:
            url, form = f"{url}?{form}", ""
        return partial(
            self._pool.request,
            method,
            url,
            body=form or None,
            headers=headers,
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=seconds,
        )

    def _read(
        self, answer: urllib3.BaseHTTPResponse, deadline: float
    ) -> bytes:
        if "," in answer.headers.get("Content-Encoding", ""):
            raise _left_out("it is compressed more than once")
        body = bytearray()
        # A socket's time limit restarts with each byte, so read in pieces.
        while piece := answer.read1(PIECE, decode_content=True):
            body += piece
            if time.monotonic() >= deadline:
                raise TimeoutError
            if len(body) > ANSWER_BYTES:
                raise _left_out(f"it is larger than {ANSWER_BYTES >> 20} MiB")
        return bytes(body)

    def _parse(self, body: bytes) -> Answer:
        try:
            answer = msgspec.json.decode(body, type=Answer)
        except NOT_PROMETHEUS as error:
            raise AskError(
                "No answer from Prometheus",
                f"{self._shown} returns something else, {error}",
                "Check what is at that URL",
            ) from None
        if answer.status == "error":
            raise _failed(answer)
        if len(answer.data.result) > SERIES:
            raise _left_out(f"it has more than {SERIES} series")
        return answer

    def _refusal(
        self, answer: urllib3.BaseHTTPResponse, body: bytes
    ) -> AskError:
        """Return the error for a status other than 200."""
        status = answer.status
        if 300 <= status < 400:
            to = answer.headers.get("Location", "nowhere").partition("?")[0]
            return AskError(
                AWAY,
                f"{self._shown} redirects to {to.rpartition('@')[2]}, "
                "and credentials are not sent there",
                "Give the URL of Prometheus itself",
            )
        if status in (401, 403):
            remedy = (
                f"Check {TOKEN_FILE}, or {USER} and {PASSWORD}, or ~/.netrc"
            )
            if b"org id" in body.lower():
                remedy = f"Check {HEADERS}='{TENANT}: TENANT'"
            return AskError(
                "Prometheus requires credentials",
                f"{status} of {self._shown}",
                remedy,
            )
        if status in (400, 422, 503):
            try:
                return _failed(msgspec.json.decode(body, type=Answer))
            except NOT_PROMETHEUS:
                # The answer is not from Prometheus itself.
                pass
        return AskError(
            "Prometheus not found",
            f"{self._shown} answers {status}",
            f"Check that it is up, and the path, as in {self._shown}/prometheus",
        )


def _failed(answer: Answer) -> AskError:
    return AskError(
        "Prometheus could not answer",
        f"{answer.errorType}: {answer.error}",
        "No remedy is known",
        whole=False,
    )


def _left_out(why: str) -> AskError:
    return AskError(
        "An answer from Prometheus was ignored",
        why,
        "Select fewer GPUs with --match",
        whole=False,
    )


def _why(error: Exception) -> str:
    """Return the cause in words, preferably the system's, because the client's contain code."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str((type(error).__name__, *error.args)[-1])


def _connect(server: PrometheusServer) -> urllib3.PoolManager:
    """Return a pool of connections to a server, through the environment's proxy if there is one."""
    parts = urlsplit(server.url)
    context = _context(server) if parts.scheme == "https" else None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return urllib3.PoolManager(ssl_context=context)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        login = urllib3.util.parse_url(proxy).auth
        return urllib3.ProxyManager(
            proxy,
            proxy_headers=urllib3.make_headers(proxy_basic_auth=login),
            ssl_context=context,
        )
    except (ValueError, HTTPError):
        raise AskError(
            AWAY,
            f"{parts.scheme}_proxy in the environment cannot be used",
            "Correct it, or name the host in no_proxy",
        ) from None


def _context(server: PrometheusServer) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=server.authorities)
        if server.certificate is not None:
            # Without a password, the library would ask for one at the
            # terminal.
            context.load_cert_chain(
                server.certificate, server.key, password=""
            )
    except (OSError, ValueError) as error:
        raise AskError(
            "No certificate",
            f"{server.authorities or server.certificate} cannot be used, {error}",
            f"Check {CERT} and {CA}",
        ) from None
    return context
