"""What torch says of CUDA: asked of the interpreter that has it, in a process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gputop.bench.interpreters import NoAnswerError, ask
from gputop.telemetry.codec import DecodeError, from_json

if TYPE_CHECKING:
    from gputop.bench.interpreters import Interpreter

ASK_SECONDS = 60.0
"""Importing torch from a network file system, and starting CUDA on many devices, can take long."""

# `uuid` is there since torch 2.5, the bus id since 2.9. No device gets a context by this.
PROBE = """
import json, os
channel = os.dup(1)
os.dup2(2, 1)
answer = {}
def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
try:
    import torch
    answer["version"] = str(torch.__version__)
    answer["cuda_version"] = torch.version.cuda
    if torch.version.cuda:
        answer["architectures"] = torch.cuda.get_arch_list()
        try:
            torch.cuda.init()
            answer["devices"] = []
            for index in range(torch.cuda.device_count()):
                each = torch.cuda.get_device_properties(index)
                bus = None
                if hasattr(each, "pci_bus_id"):
                    numbers = each.pci_domain_id, each.pci_bus_id, each.pci_device_id
                    bus = "%04x:%02x:%02x.0" % numbers
                answer["devices"].append({
                    "index": index,
                    "name": each.name,
                    "uuid": str(each.uuid) if hasattr(each, "uuid") else None,
                    "pci_bus_id": bus,
                    "compute_capability": "%d.%d" % (each.major, each.minor),
                })
        except Exception as error:
            answer["fault"] = first_line(error)
except BaseException as error:
    answer["failure"] = type(error).__name__ + ": " + first_line(error)
os.write(channel, json.dumps(answer).encode())
"""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A device as CUDA numbers it, under this environment's `CUDA_VISIBLE_DEVICES`."""

    index: int
    name: str
    uuid: str | None = None
    """As torch has it, without the `GPU-` that NVML puts before it."""
    pci_bus_id: str | None = None
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """A torch that was imported, unless `failure` says why it was not."""

    version: str | None = None
    cuda_version: str | None = None
    """That it is built for; None for a build without CUDA."""
    architectures: tuple[str, ...] = ()
    devices: tuple[CudaDevice, ...] = ()
    fault: str | None = None
    """Why it cannot use CUDA, in its own words."""
    failure: str | None = None


async def torch_facts(interpreter: Interpreter, seconds: float = ASK_SECONDS) -> TorchFacts:
    """What the torch of that interpreter says, within the time."""
    try:
        output, status = await ask(interpreter.path, PROBE, seconds)
    except NoAnswerError as error:
        return TorchFacts(failure=str(error))
    try:
        answer: Any = json.loads(output)
        return from_json(TorchFacts, answer)
    except (DecodeError, ValueError, RecursionError):
        return TorchFacts(failure=f"it ended without an answer (status {status})")
