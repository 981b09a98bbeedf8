"""A kubelet's pod-resources service on a real gRPC server, and its messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

METHOD = "/v1.PodResourcesLister/List"


def field(number: int, content: bytes | str) -> bytes:
    """A field with a length, as protobuf writes it."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    low, number = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(number) if number else bytes([low])


def devices(*ids: str, resource: str = "nvidia.com/gpu", node: int = 1) -> bytes:
    """`ContainerDevices`, with the NUMA node of each in its topology."""
    topology = field(3, field(1, b"\x08" + varint(node)))
    return field(1, resource) + b"".join(field(2, each) for each in ids) + topology


def container(name: str, *held: bytes) -> bytes:
    """`ContainerResources`, with the numbers of its CPUs."""
    cpus = field(3, b"\x00\x01\x82\x01")
    return field(1, name) + b"".join(field(2, each) for each in held) + cpus


def pod(namespace: str, name: str, *containers: bytes) -> bytes:
    """`PodResources` as a field of the answer."""
    names = field(1, name) + field(2, namespace)
    return field(1, names + b"".join(field(3, each) for each in containers))


@contextmanager
def kubelet(socket: Path, answer: Callable[[], bytes]) -> Iterator[grpc.Server]:
    """Serve until the end; a server removes its socket."""

    def respond(request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request == b""
        return answer()

    def find(call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.unary_unary_rpc_method_handler(respond) if call.method == METHOD else None

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        service = staticmethod(find)

    with ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads, [Handler()])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield server
        finally:
            server.stop(0).wait()


class Hang:
    """An answer that comes once it is let go, or after a minute."""

    def __init__(self) -> None:
        self.asked, self.let_go = threading.Event(), threading.Event()

    def __call__(self) -> bytes:
        self.asked.set()
        self.let_go.wait(60.0)
        return b""
