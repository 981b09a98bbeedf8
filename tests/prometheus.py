"""A Prometheus that is none: its HTTP API with answers that a test makes, in a thread."""

import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from gputop.fleet.queries import CLOCK, gone_of, names_of, values_of

NOW = 1_763_640_000.0


class Request(NamedTuple):
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    method: str = "GET"

    @property
    def name(self) -> str:
        return NAMES.get(self.parameters.get("query", ""), "")


class Response(NamedTuple):
    body: bytes
    status: int = 200
    headers: Mapping[str, str] = {"Content-Type": "application/json"}


NAMES = {
    query.text: query.name
    for scope in ("", 'cluster="a"')
    for query in (CLOCK, names_of(scope), gone_of(scope), *values_of(scope))
}


def vector(
    rows: Iterable[tuple[Mapping[str, Any], Any]], now: float = NOW, **more: Any
) -> Response:
    result = [{"metric": labels, "value": [now, str(value)]} for labels, value in rows]
    data = {"resultType": "vector", "result": result}
    return answer({"status": "success", "data": data, **more})


def matrix(rows: Iterable[tuple[Mapping[str, Any], list[tuple[float, float]]]]) -> Response:
    result = [{"metric": m, "values": [[t, str(v)] for t, v in points]} for m, points in rows]
    return answer({"status": "success", "data": {"resultType": "matrix", "result": result}})


def answer(document: object, status: int = 200) -> Response:
    return Response(json.dumps(document).encode(), status)


def error(kind: str, text: str, status: int) -> Response:
    return answer({"status": "error", "errorType": kind, "error": text}, status)


EMPTY = vector(())


_zipped = lru_cache(64)(partial(gzip.compress, compresslevel=1))


class FakePrometheus(AbstractContextManager["FakePrometheus"]):
    """Listens on the loopback; `requests` are all that came."""

    def __init__(
        self, respond: Callable[[Request], Response | None], context: ssl.SSLContext | None = None
    ) -> None:
        """Where there is no response it hangs, until the end of the test."""
        self.requests: list[Request] = []
        self.respond = respond
        self.over = threading.Event()

        class Server(ThreadingHTTPServer):
            def handle_error(self, *arguments: Any) -> None:
                """A client that went away is none of the test's business."""

        self._server = Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(fake: FakePrometheus) -> type[BaseHTTPRequestHandler]:

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body at once, or TCP waits between them

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._answer(parts.path, parts.query)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(urlsplit(self.path).path, body.decode())

        def _answer(self, path: str, form: str) -> None:
            given = {name: values[0] for name, values in parse_qs(form).items()}
            request = Request(path, given, dict(self.headers), self.command)
            fake.requests.append(request)
            response = fake.respond(request)
            if response is None:
                fake.over.wait(60)
                self.close_connection = True
            else:
                self._write(response)

        def _write(self, response: Response) -> None:
            body = response.body
            self.send_response(response.status)
            for name, value in response.headers.items():
                self.send_header(name, value)
            if not {"Content-Length", "Transfer-Encoding"} & {*response.headers}:
                if "gzip" in self.headers.get("Accept-Encoding", ""):
                    body = _zipped(body)
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Says nothing."""

    return Handler


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-0000-0000-{number:012x}"


def labels(number: int, **more: str) -> dict[str, str]:
    """Those of dcgm-exporter, of the GPU of that number: eight on each host."""
    host = f"node{number // 8}"
    return {
        "UUID": uuid(number),
        "gpu": str(number % 8),
        "Hostname": host,
        "modelName": "NVIDIA H100 80GB HBM3",
        "instance": f"{host}:9400",
        "job": "dcgm",
        **more,
    }


VALUES = {
    "gpu_utilization_percent": 90,
    "memory_used_bytes": 60 << 30,
    "memory_total_bytes": 80 << 30,
    "temperature_celsius": 60,
    "power_watts": 600.5,
    "sm_clock_mhz": 1900,
    "sm_active_percent": 80,
}


class Site:
    """A fleet of so many GPUs, each well; `changes` are the rows of queries that are otherwise."""

    def __init__(self, many: int, **changes: Any) -> None:
        self.many = many
        self.changes = changes
        self.now = NOW
        self.gone: set[int] = set()
        self._made: dict[tuple[object, ...], Response] = {}

    def __call__(self, request: Request) -> Response:
        name = request.name
        if name in self.changes:
            made = self.changes[name]
            return made if isinstance(made, Response) else vector(made, self.now)
        state = (name, request.path, self.many, self.now, *sorted(self.gone))
        if state not in self._made:
            self._made[state] = self._answer(request, name)
        return self._made[state]

    def _answer(self, request: Request, name: str) -> Response:
        there = [number for number in range(self.many) if number not in self.gone]
        if name == "clock":
            return vector([({}, self.now)], self.now)
        if name == "names":
            return vector(((labels(number), 1) for number in there), self.now)
        if name == "beat":
            return vector((({"UUID": uuid(n)}, self.now - 5) for n in there), self.now)
        if name in VALUES:
            return vector((({"UUID": uuid(n)}, VALUES[name]) for n in there), self.now)
        assert name or "__name__" in request.parameters.get("query", ""), request
        return vector((), self.now) if request.path.endswith("query") else matrix(())
