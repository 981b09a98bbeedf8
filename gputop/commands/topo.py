"""`gputop topo`: how the GPUs are connected, as `nvidia-smi topo -m` shows it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gputop.commands.arguments import Parser, fail, print_text
from gputop.console import COULD_NOT_RUN, FINE, print_message
from gputop.health.conditions import STATES
from gputop.schema.device import DeviceState

if TYPE_CHECKING:
    from gputop.sources.nvml.topology import GpuTopology

PATIENCE_SECONDS = 30.0
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""  # noqa: E501 - nvidia-smi's lines


def add_arguments(parser: Parser) -> None:
    """Add the options of `gputop topo`."""
    parser.flag("-m --matrix", "print the matrix (the default)")
    parser.flag("--json", "print the topology as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Print the matrix. A driver that does not answer is a problem, and does not hang."""
    found = _read()
    for gpu in found:
        if gpu.state is not DeviceState.OK:
            print_message(f"GPU {gpu.index}: {STATES[gpu.state]}")
    if arguments.json:
        print_text(json.dumps({"gpus": [asdict(gpu) for gpu in found]}, indent=2))
    else:
        print_text("\n".join(_matrix(found)) + f"\n{LEGEND}", end="")
    return FINE


def _read() -> tuple[GpuTopology, ...]:
    """Return the topology, read in a thread: nothing else outlives a call that hangs."""
    from concurrent import futures

    from gputop.sources.interface import DriverError
    from gputop.sources.nvml.topology import read_topology
    from gputop.threads import call_in_thread

    try:
        return call_in_thread(read_topology).result(PATIENCE_SECONDS)
    except DriverError as error:
        fail(f"{error}.", COULD_NOT_RUN)
    except futures.TimeoutError:
        said = f"the driver said nothing for {PATIENCE_SECONDS:g} s"
        fail(f"{said}. Read dmesg, or reboot the machine.", COULD_NOT_RUN)


def _matrix(gpus: Sequence[GpuTopology]) -> Iterator[str]:
    names = [f"GPU{gpu.index}" for gpu in gpus]
    yield "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    for name, gpu in zip(names, gpus, strict=True):
        links = [" X " if link == "X" else link for link in gpu.links]
        near = ["N/A" if each is None else each for each in (gpu.cpu_affinity, gpu.numa_affinity)]
        own = "N/A" if gpu.gpu_numa_id is None else f"{gpu.gpu_numa_id}"
        yield "\t".join([name, *links, *near, "", own])
