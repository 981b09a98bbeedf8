"""Patches torch: `torch.cuda`, the functions that make tensors, products, copies, NCCL."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

from . import driver
from .memory import HOST, PINNED, Memory, device_of
from .products import Products, Results
from .settings import from_environment
from .timeline import Event, Machine, Stream, number_of, sleep_until

FACTORIES = (
    *("empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange"),
    *("linspace", "tensor", "as_tensor", "eye"),
)
LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "randn_like")
READERS = ("item", "tolist", "__int__", "__float__", "__bool__")
"""Methods that bring a value to the host, for which they wait."""
SLEEP_HERTZ = 1.98e9
FLIPPED_WORD, FLIPPED_BIT = 5, 3
DEVICE, HOST_LINK, PAGEABLE = 3e12, 5e10, 1.25e10
"""Bytes per second of the device's memory, and of pinned and pageable host memory."""


def install() -> None:
    """Give the torch of this process a CUDA, as the environment describes it."""
    import torch

    settings = from_environment()
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    machine = Machine(torch, settings, len(names) or 1)
    memory = Memory(machine)
    results = Results(memory.reference)
    shown = settings.torch or torch.__version__.partition("+")[0]
    torch.version.cuda = "12.8"
    torch.__version__ = type(torch.__version__)(f"{shown}+cu128")
    major, minor, *_ = shown.split(".")
    products = Products(machine, results, (int(major), int(minor)))
    _patch_tensors(machine, memory, results)
    torch.mm, torch._scaled_mm, torch._int_mm = products.mm, products.scaled_mm, products.int_mm
    torch.backends.cuda.matmul = products.matmul
    torch.backends.cuda.preferred_blas_library = _library(machine)
    _patch_cuda(machine, memory)
    _patch_collectives(machine)
    driver.install(machine)


def _patch_tensors(machine: Machine, memory: Memory, results: Results) -> None:
    torch = machine.torch
    for name in FACTORIES:
        setattr(torch, name, _factory(memory, getattr(torch, name)))
    for name in LIKE:
        setattr(torch, name, _factory(memory, getattr(torch, name), like=True))
    for name in READERS:
        setattr(torch.Tensor, name, _reader(machine, memory, getattr(torch.Tensor, name)))
    moves = Moves(machine, memory, results)
    torch.equal = moves.equal
    torch.bitwise_xor = _written(machine, torch.bitwise_xor)
    for name in ("clone", "to", "pin_memory", "copy_"):
        setattr(torch.Tensor, name, _method(getattr(moves, name)))


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that becomes a method of a class: a bound method does not."""

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return function(self, *arguments, **options)

    return call


def _is_cuda(argument: object) -> bool:
    is_name = isinstance(argument, str) or type(argument).__name__ == "device"
    return is_name and str(argument).startswith("cuda")


def _factory(memory: Memory, make: Callable[..., Any], *, like: bool = False) -> Callable[..., Any]:
    """Return a function of torch that also takes a fake device, and pinned memory.

    Where no device is named, a tensor like another one is where that is.
    """

    def made(*arguments: Any, **options: Any) -> Any:
        place = memory.place(arguments[0]) if like else HOST
        if _is_cuda(options.get("device")):
            place = str(options.pop("device"))
        if options.pop("pin_memory", False):
            place = PINNED
        return memory.put(make(*arguments, **options), place)

    return made


def _written(machine: Machine, write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch that writes words, of which a fault flips a bit."""

    def written(*arguments: Any, out: Any, **options: Any) -> Any:
        fault = machine.faults.reach("write")
        write(*arguments, out=out, **options)
        if fault == "wrong":
            out.view(-1)[FLIPPED_WORD] ^= 1 << FLIPPED_BIT
        return out

    return written


def _reader(machine: Machine, memory: Memory, read: Callable[..., Any]) -> Callable[..., Any]:
    def wait_and_read(self: Any) -> Any:
        device = device_of(memory.place(self))
        if device is not None:
            machine.need(machine.devices[device])
            sleep_until(machine.current_stream.tail)
            machine.need(machine.devices[device])
        return read(self)

    return wait_and_read


class Moves:
    def __init__(self, machine: Machine, memory: Memory, results: Results) -> None:
        self._machine, self._memory, self._results = machine, memory, results
        tensor = machine.torch.Tensor
        self._copy, self._clone, self._to = tensor.copy_, tensor.clone, tensor.to
        self._equal = machine.torch.equal

    def equal(self, one: Any, other: Any) -> Any:
        self._machine.synchronize()
        return self._equal(one, other)

    def clone(self, source: Any, **options: Any) -> Any:
        made = self._memory.put(self._clone(source, **options), self._memory.place(source))
        if made.stride() == source.stride():
            self._results.note_same(made, source)
        return made

    def to(self, source: Any, *arguments: Any, **options: Any) -> Any:
        named = [each for each in (*arguments, *options.values()) if _is_cuda(each)]
        left = [each for each in arguments if not _is_cuda(each)]
        options = {name: each for name, each in options.items() if not _is_cuda(each)}
        options.pop("non_blocking", None)
        moved = self._to(source, *left, **options) if left or options else source
        if not named:
            return moved
        if moved is source:
            moved = self._clone(source)
        return self._memory.put(moved, str(named[0]))

    def pin_memory(self, source: Any) -> Any:
        return self._memory.put(self._clone(source), PINNED)

    def copy_(self, to: Any, source: Any, non_blocking: bool = False) -> Any:
        wrong = self._time(to, source, non_blocking=non_blocking) == "wrong"
        if to.shape != source.shape or to.dtype != source.dtype or to.requires_grad:
            return self._copy(to, source)
        # The same copy again, as in a benchmark, changes nothing.
        if not self._results.has("copy", (source,), to):
            self._copy(to, source)
            self._results.keep("copy", (source,), to)
        if wrong:
            to.view(-1)[0] += 1
        return to

    def _time(self, to: Any, source: Any, *, non_blocking: bool) -> str:
        """Put the copy on the timeline, and return what goes wrong."""
        machine = self._machine
        places = self._memory.place(to), self._memory.place(source)
        devices = {device_of(place) for place in places}
        if devices == {None}:
            return ""
        fault = machine.faults.reach("copy")
        size = to.numel() * to.element_size()
        if None not in devices:
            if len(devices) == 1:
                machine.launch(2 * size / DEVICE)
            else:
                machine.launch(size / driver.PEER_LINK, engine="link")
            return fault
        pageable = HOST in places
        machine.launch(size / (PAGEABLE if pageable else HOST_LINK), engine="link")
        if pageable or not non_blocking:
            machine.current_stream.synchronize()
        return fault


def _library(machine: Machine) -> Callable[..., Any]:
    backends = machine.torch._C._BlasBackend
    chosen = [backends.Cublas]
    by_name = {"cublas": backends.Cublas, "cublaslt": backends.Cublaslt}

    def preferred_blas_library(backend: Any = None) -> Any:
        if backend is not None:
            machine.faults.reach("library", kind=backend)
            chosen[0] = by_name.get(backend, backend)
        return chosen[0]

    return preferred_blas_library


def _patch_cuda(machine: Machine, memory: Memory) -> None:
    cuda, settings = machine.torch.cuda, machine.settings

    def free_and_total(device: Any = None) -> tuple[int, int]:
        number = number_of(device, machine.current_device)
        machine.need(machine.devices[number])
        return memory.free(number), memory.total

    def properties(device: Any = None) -> Any:
        major, minor = settings.compute_capability
        return types.SimpleNamespace(
            name=settings.name,
            total_memory=memory.total,
            major=major,
            minor=minor,
            multi_processor_count=132,
            is_integrated=0,
        )

    def new_stream(device: Any = None, priority: int = 0) -> Stream:
        number = number_of(device, machine.current_device)
        machine.need(machine.devices[number])
        return Stream(machine, machine.devices[number])

    cuda.init = lambda: machine.faults.reach("init")
    cuda.is_available = cuda.is_initialized = lambda: True
    cuda.device_count = lambda: len(machine.devices)
    cuda.get_device_capability = lambda *_: settings.compute_capability
    cuda.get_device_name = lambda *_: settings.name
    cuda.get_device_properties = properties
    cuda.get_arch_list = settings.archs.split
    cuda.current_device = lambda: machine.current_device
    cuda.can_device_access_peer = lambda *_: settings.peer_access
    cuda.is_current_stream_capturing = lambda: False
    cuda.synchronize = machine.synchronize
    cuda.mem_get_info = free_and_total
    cuda.empty_cache = lambda: None
    cuda.Stream = new_stream
    cuda.Event = lambda **_: Event(machine)
    cuda.current_stream = lambda *_: machine.current_stream
    cuda.stream = machine.using
    cuda._sleep = lambda cycles: machine.launch(cycles / SLEEP_HERTZ)


def _patch_collectives(machine: Machine) -> None:
    """Let gloo do what NCCL would do."""
    distributed = machine.torch.distributed
    if not distributed.is_available():
        return
    begin = distributed.init_process_group

    def init_process_group(backend: Any = None, *arguments: Any, **options: Any) -> Any:
        machine.faults.reach("collective")
        return begin("gloo" if backend == "nccl" else backend, *arguments, **options)

    distributed.init_process_group = init_process_group
