"""Run the worker from the request to the last event."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from .backends import Cpu, open_cuda
from .copies import copy
from .errors import explain
from .latency import latency
from .peak import peak
from .run import Run, end_with_parent, own_channel, read_request
from .soak import soak
from .sweep import sweep

KINDS: dict[str, Callable[[Any, Run], None]] = {
    "soak": soak,
    "sweep": sweep,
    "latency": latency,
    "peak": peak,
    "copy": copy,
}


def open_device(torch: Any, run: Run) -> Any:
    """Return the requested device, ready to use; raise `RunError` if it is not available."""
    if run.request["device"] == "cpu":
        return Cpu(torch, run.halt)
    return open_cuda(torch, run.halt, run.request["free_bytes"])


def main() -> NoReturn:
    """Read the request, run it and end the process."""
    end_with_parent()
    fd = own_channel()
    request, rest = read_request()
    run = Run(fd, request)
    threading.Thread(target=run.watch, args=(rest,), daemon=True).start()
    place = None
    try:
        import torch

        device = open_device(torch, run)
        place = device.place
        cuda = place == "cuda"
        run.send(
            "hello",
            python=sys.version.split()[0],
            torch_version=str(torch.__version__),
            cuda_version=torch.version.cuda,
            device_name=torch.cuda.get_device_name(0) if cuda else request["name"],
            threads=torch.get_num_threads(),
            pid=os.getpid(),
        )
        KINDS[request["kind"]](device, run)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told in one line
        run.end("error", **explain(error, place, request).fields)
    run.finish()
