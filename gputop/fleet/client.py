"""Client of the HTTP API of Prometheus, bounded in time and size. Only this module uses urllib3.

urllib3 takes half the CPU of httpx for an answer and needs no other packages. Redirects are not
followed, so that credentials reach no other server.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from gputop import __version__
from gputop.agent.problem import Problem, ProblemError
from gputop.fleet.server import AUTHORIZATION, CA, CERT, PrometheusServer
from gputop.text import visible

ANSWER_BYTES = 64 << 20
"""Bytes of one answer of a Prometheus server, decompressed."""
JSON_VALUES = 1 << 20
"""Values of one such answer, roughly. Each takes some 100 bytes of memory."""
SERIES = 100_000
"""Series of one such answer, and GPUs of a fleet."""

SECONDS = 10.0
"""Seconds for one answer, from its question to its last byte."""
CONNECT_SECONDS = 5.0
LONGEST_ERROR = 1 << 16
LONGEST_GET = 4000
PIECE = 1 << 13
"""Bytes read at a time. gzip can expand them a thousandfold."""
FEWER = "Ask for fewer GPUs with --match"
AWAY = "Cannot reach Prometheus"
LATER = "Check that it is up, and the URL"


class AskError(ProblemError):
    """A question without an answer. `whole` if the server is at fault, not the one question."""

    def __init__(self, problem: Problem, *, whole: bool = True) -> None:
        super().__init__(problem)
        self.whole = whole


class Client:
    """Client of one server over connections that stay open. Any thread may `stop` it."""

    def __init__(self, server: PrometheusServer, seconds: float = SECONDS) -> None:
        self._server = server
        self._seconds = seconds
        self._pool: urllib3.PoolManager | None = None
        self._headers: dict[str, str] = {}
        self._opened: WeakSet[socket.socket] = WeakSet()
        self._stopped = threading.Event()

    def load_credentials(self) -> None:
        """Read the credentials again, before a group of questions; raises `AskError`."""
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip"}
        headers["User-Agent"] = f"gputop/{__version__}"
        try:
            authorization = self._server.authorization()
        except ProblemError as error:
            raise AskError(error.problem) from None
        if authorization is not None:
            headers[AUTHORIZATION] = authorization
        self._headers = {**headers, **self._server.headers}
        if self._pool is None:
            self._pool = self._connect()
            self._pool.pool_classes_by_scheme = _pools(self._opened)

    def ask(
        self, path: str, parameters: Mapping[str, str], seconds: float | None = None
    ) -> tuple[Any, tuple[str, ...]]:
        """Return the `data` of the answer and its warnings; raises `AskError`."""
        return self.parse_answer(self.fetch(path, parameters, seconds))

    def parse_answer(self, body: bytes) -> tuple[Any, tuple[str, ...]]:
        """Return the `data` of an answer and its warnings; raises `AskError`."""
        if sum(map(body.count, (b",", b"[", b"{"))) > JSON_VALUES:
            raise _left_out(f"it has more than {JSON_VALUES} values")
        document = _document(body)
        if "status" not in document:
            url = visible(self._server.url, 200)
            why = f"{url} answers with something other than JSON"
            raise AskError(
                Problem("No answer of Prometheus", why, "Check what is at that URL")
            )
        if document["status"] != "success":
            raise AskError(_failed(_words(document)), whole=False)
        warnings = document.get("warnings")
        data = document.get("data")
        result = data.get("result") if isinstance(data, dict) else None
        if isinstance(result, list) and len(result) > SERIES:
            raise _left_out(f"it has more than {SERIES} series")
        listed = warnings if isinstance(warnings, list) else ()
        return data, tuple(each for each in listed if isinstance(each, str))

    def stop(self) -> None:
        """End what is under way, and refuse what follows."""
        self._stopped.set()
        self._shut()

    def close(self) -> None:
        """Close all connections."""
        self.stop()
        if self._pool is not None:
            self._pool.clear()

    def _shut(self) -> None:
        """Wake up threads that wait for an answer."""
        for each in [*self._opened]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> urllib3.PoolManager:
        server = self._server
        options: dict[str, Any] = {
            "retries": False,
            "maxsize": 5,  # questions at a time, for the first screen
        }
        parts = urlsplit(server.url)
        if parts.scheme == "https":
            options["ssl_context"] = _context(server)
        host = parts.hostname or ""
        proxy = urllib.request.getproxies().get(parts.scheme)
        if not proxy or urllib.request.proxy_bypass(host):
            return urllib3.PoolManager(**options)
        try:
            found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            login = (
                f"{found.username}:{found.password or ''}" if found.username else None
            )
            port = f":{found.port}" if found.port else ""
            headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
            bare = f"{found.scheme}://{found.hostname}{port}"
            return urllib3.ProxyManager(bare, proxy_headers=headers, **options)
        except (ValueError, HTTPError):
            why = f"{parts.scheme}_proxy in the environment cannot be used"
            raise AskError(
                Problem(AWAY, why, "Correct it, or name the host in no_proxy")
            ) from None

    def fetch(
        self,
        path: str,
        parameters: Mapping[str, str],
        seconds: float | None = None,
        most_bytes: int = ANSWER_BYTES,
    ) -> bytes:
        """Return an answer of at most so many bytes, decompressed; raises `AskError`."""
        seconds = min(self._seconds, seconds if seconds is not None else self._seconds)
        if self._pool is None:
            self.load_credentials()
        if self._stopped.is_set():
            raise AskError(Problem(AWAY, "it is no longer asked", LATER))
        deadline = time.monotonic() + seconds
        # The time limit of a socket restarts with each byte.
        alarm = threading.Timer(seconds, self._shut)
        alarm.daemon = True
        alarm.start()
        try:
            return self._read(
                self._send(path, parameters, seconds), deadline, most_bytes
            )
        except (HTTPError, OSError, ValueError) as error:
            if time.monotonic() >= deadline or isinstance(error, ReadTimeoutError):
                raise slow(seconds) from None
            raise AskError(Problem(AWAY, _why(error), LATER)) from None
        finally:
            alarm.cancel()

    def _send(
        self, path: str, parameters: Mapping[str, str], seconds: float
    ) -> urllib3.BaseHTTPResponse:
        assert self._pool is not None
        url, form = f"{self._server.url}/api/v1/{path}", urlencode(parameters)
        options: dict[str, Any] = {
            "preload_content": False,
            "redirect": False,
            "timeout": urllib3.Timeout(
                connect=min(CONNECT_SECONDS, seconds), read=seconds
            ),
        }
        # Some proxies block POST, others a long GET.
        if len(form) <= LONGEST_GET:
            return self._pool.request(
                "GET", f"{url}?{form}", headers=self._headers, **options
            )
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        return self._pool.request("POST", url, body=form, headers=headers, **options)

    def _read(
        self, answer: urllib3.BaseHTTPResponse, deadline: float, most_bytes: int
    ) -> bytes:
        good = answer.status == 200
        largest = most_bytes if good else LONGEST_ERROR
        if "," in answer.headers.get("Content-Encoding", ""):
            answer.close()
            raise _left_out(
                "it is compressed more than once", "Check the proxies in between"
            )
        parts, size = [], 0
        for part in answer.stream(PIECE, decode_content=True):
            size += len(part)
            parts.append(part)
            if size > largest or time.monotonic() >= deadline:
                break
        if time.monotonic() >= deadline:
            raise TimeoutError  # the connection was shut, which looks like an end
        if size > largest:
            answer.close()  # with what is left of it
            if good:
                raise _left_out(f"it is larger than {largest >> 20} MiB")
        body = b"".join(parts)
        if not good:
            raise self._refusal(answer, body)
        return body

    def _refusal(self, answer: urllib3.BaseHTTPResponse, body: bytes) -> AskError:
        """Return the error for a status other than 200."""
        status, url = answer.status, visible(self._server.url, 200)
        document = _document(body)
        words = _words(document) if document.get("status") == "error" else None
        if 300 <= status < 400:
            to = visible(answer.headers.get("Location", "nowhere"), 120).partition("?")[
                0
            ]
            to = to.rpartition("@")[2]  # without a login
            why = f"{url} redirects to {to}, and credentials are not sent there"
            return AskError(Problem(AWAY, why, "Give the URL of Prometheus itself"))
        if status in (401, 403):
            what = "requires credentials" if status == 401 else "denies access"
            text = body[:1000].decode("utf-8", "replace")
            signed = AUTHORIZATION in self._headers
            lacks, remedy = self._server.sign_in(text, signed=signed)
            without = (
                f": the request has no {lacks} header"
                if lacks and status == 401
                else ""
            )
            return AskError(
                Problem(f"Prometheus {what}", f"{status} of {url}{without}", remedy)
            )
        if words is not None and status in (400, 422, 503):
            return AskError(_failed(words), whole=status == 503)
        if status in (404, 405, 400, 422):
            remedy = f"Give the URL with its path, such as {url}/prometheus"
            return AskError(
                Problem("No Prometheus there", f"{url} answers {status}", remedy)
            )
        return AskError(Problem(AWAY, f"{url} answers {status}", LATER))


def _document(body: bytes) -> Mapping[str, Any]:
    """Return an answer as an object, which is empty if it is not one."""
    with contextlib.suppress(ValueError, RecursionError):
        # As floats, numbers of hundreds of digits are infinite, and are left out.
        document = json.loads(body, parse_int=float)
        return document if isinstance(document, dict) else {}
    return {}


def _words(document: Mapping[str, Any]) -> str:
    words = (document.get("errorType", "error"), document.get("error", ""))
    return visible(": ".join(word for word in words if isinstance(word, str)), 200)


def _failed(words: str) -> Problem:
    return Problem(
        "Prometheus could not answer", words.rstrip(". "), "What it asks for is unknown"
    )


def _left_out(why: str, remedy: str = FEWER) -> AskError:
    return AskError(
        Problem("An answer of Prometheus was left out", why, remedy), whole=False
    )


def slow(seconds: float) -> AskError:
    """Return the error for answers that did not come in time."""
    why = f"it took longer than {seconds:.0f} s to answer"
    return AskError(
        Problem("Prometheus is slow", why, "Ask for fewer GPUs with --match, or later")
    )


def _why(error: Exception) -> str:
    """Return the cause in words: that of the system, as those of the client are full of code."""
    seen: BaseException | None = error
    while seen is not None:
        words = getattr(seen, "strerror", None)
        if words and not isinstance(seen, HTTPError):
            return visible(str(words).rstrip(". "), 160)
        seen = getattr(seen, "reason", None) or seen.__cause__ or seen.__context__
        if not isinstance(seen, BaseException):
            break
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "it does not answer"
    words = error.args[-1] if isinstance(error, ProtocolError) and error.args else error
    return visible(str(words).rstrip(". "), 160) or type(error).__name__


def _context(server: PrometheusServer) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=server.authorities)
    except (OSError, ssl.SSLError):
        why = f"{visible(str(server.authorities), 100)} holds no certificates that can be read"
        raise AskError(
            Problem("No certificates", why, f"Check it, or unset {CA}")
        ) from None
    if server.certificate is not None:
        try:
            # Without a password it would ask at the terminal.
            context.load_cert_chain(server.certificate, server.key, password="")
        except (OSError, ssl.SSLError, ValueError) as error:
            shown = visible(str(server.certificate), 100)
            why = f"{shown} or its key cannot be used, {getattr(error, 'reason', None) or error}"
            raise AskError(
                Problem("No certificate", visible(why, 200), f"Check {CERT}")
            ) from None
    return context


def _pools(opened: WeakSet[socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
    """Return pools that add their sockets to `opened`, so that another thread can end them.

    A connection forgets its socket when the answer ends with it.
    """

    def pool(cls: Any, connection: Any) -> Any:
        class Connection(connection):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                opened.add(self.sock)

        return type(cls.__name__, (cls,), {"ConnectionCls": Connection})

    return {
        "http": pool(HTTPConnectionPool, HTTPConnection),
        "https": pool(HTTPSConnectionPool, HTTPSConnection),
    }
