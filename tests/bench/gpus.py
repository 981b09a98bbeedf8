"""A CUDA of several GPUs whose memories are the host's: its copies are made for real."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

FREE_BYTES = 1 << 30


class FakeTorch:
    """torch, with a `torch.cuda` that has GPUs; the words for devices are kept."""

    def __init__(self, torch: Any, *, access: bool = True, free: int = FREE_BYTES) -> None:
        self._torch, self.stream = torch, 0
        self.made_on: list[str] = []
        self.cuda = SimpleNamespace(
            Stream=FakeStream,
            stream=self._using,
            synchronize=lambda *_: None,
            can_device_access_peer=lambda *_: access,
            mem_get_info=lambda *_: (free, free),
            _sleep=lambda _: None,
        )
        torch.Tensor.cuda = torch.Tensor.pin_memory = torch.Tensor.clone
        torch.cuda.get_device_name = lambda _: "a GPU"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def arange(self, *numbers: int, device: str, **options: Any) -> Any:
        self.made_on.append(device)
        return self._torch.arange(*numbers, **options)

    def randint(self, *numbers: Any, device: str) -> Any:
        del device  # all memory is the host's
        return self._torch.randint(*numbers)

    def empty(self, *sides: Any, device: str, **options: Any) -> Any:
        del device
        return self._torch.empty(*sides, **options)

    @contextlib.contextmanager
    def _using(self, stream: FakeStream) -> Iterator[None]:
        before, self.stream = self.stream, stream.cuda_stream
        COPYING.append(self)
        yield
        COPYING.pop()
        self.stream = before


class FakeStream:
    """A stream, whose handle is its GPU's number and 100."""

    def __init__(self, device: str) -> None:
        self.cuda_stream = 100 + int(device.removeprefix("cuda:"))

    def wait_stream(self, other: FakeStream) -> None:
        assert other is not self


def on_gpus(cpu: type[Any], torch: Any, halt: threading.Event, **options: Any) -> Any:
    """A GPU among others, from the worker's class of a CPU."""

    class Gpu(cpu):  # type: ignore[misc]
        def free_bytes(self) -> int:
            return FREE_BYTES

    gpu = Gpu(torch, halt)
    gpu.torch, gpu.place = FakeTorch(torch, **options), "cuda"
    return gpu


COPIES: list[tuple[int, int]] = []
"""Bytes and stream of each copy of the driver."""
COPYING: list[FakeTorch] = []
"""Those that have chosen a stream, the last one at the end."""


def copy(to: int, source: int, size: int, stream: int) -> None:
    """What the driver does, at once."""
    assert stream == COPYING[-1].stream, "its GPU is the current one"
    COPIES.append((size, stream))
    ctypes.memmove(to, source, size)
