"""A slow line to a port of this machine: a relay with a bandwidth, a latency and no buffer."""

import contextlib
import queue
import socket
import threading
import time
from typing import Self

PIECE_BYTES = 512
"""Carried at once: at 20 kB/s this takes 26 ms."""
BUFFER_BYTES = 4096
"""Of each socket, so that what does not fit on the line waits at its ends, as with a real one."""


class SlowLine:
    """Carries connections to `port`, each way at `bytes_per_second` and `delay` seconds later."""

    def __init__(self, port: int, bytes_per_second: float = 20_000, delay: float = 0.1) -> None:
        self.bytes_per_second = bytes_per_second
        self.delay = delay
        self.carried = 0
        self._target = port
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket()
                for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                    far.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
                near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
                self._ends += [near, far]
                try:
                    far.connect(("127.0.0.1", self._target))
                except OSError:  # nobody listens there any more
                    near.close()
                    continue
                for ends in ((near, far), (far, near)):
                    on_its_way: queue.Queue[tuple[float, bytes]] = queue.Queue()
                    for work, end in zip((self._send, self._deliver), ends, strict=True):
                        threading.Thread(target=work, args=(end, on_its_way), daemon=True).start()

    def _send(self, source: socket.socket, on_its_way: queue.Queue[tuple[float, bytes]]) -> None:
        free = time.monotonic()
        data = b"more"
        while data:
            try:
                data = source.recv(PIECE_BYTES)
            except OSError:
                data = b""
            self.carried += len(data)
            free = max(free, time.monotonic()) + len(data) / self.bytes_per_second
            time.sleep(max(0.0, free - time.monotonic()))
            on_its_way.put((free + self.delay, data))

    def _deliver(self, sink: socket.socket, on_its_way: queue.Queue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = on_its_way.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
