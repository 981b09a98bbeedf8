"""Devices to test: names, selection, and the processes that use them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from gputop.agent.device import Device, DeviceState
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.selection import Selection, device_with, parse_ids
from gputop.agent.snapshot import Inventory, Process, ProcessKind, Sample
from gputop.agent.visible_devices import VARIABLE, seen
from gputop.bench.plan import request as plan
from gputop.bench.plan.kinds import KINDS
from gputop.bench.plan.request import (
    Request,
    RunRefusedError,
    Target,
    cpu_target,
    short_labels,
)
from gputop.console import print_message
from gputop.schema.advice import fill_index, shared_command, state_advice
from gputop.schema.derived import label_of
from gputop.text import visible

ALL, CPU = "all", "cpu"
HIDDEN = f"{VARIABLE} hides every GPU"
LISTED = 8
"""Most processes named in a question on the screen."""
UNKNOWN = "The driver does not list its processes."


def targets(inventory: Inventory, sample: Sample | None) -> tuple[Target, ...]:
    """Return every testable device of a stream, in its order, then the CPU."""
    cpu, whole = cpu_target(), gpus_in_mig_mode(inventory)
    found = []
    for device in inventory.devices:
        if device.uuid in whole:
            continue
        target = _target(device, inventory.device(device.parent_uuid or ""))
        readings = sample.device(device.uuid) if sample else None
        if device.memory_is_shared:
            free, share = cpu.memory_free_bytes, cpu.memory_share
            target = replace(
                target, memory_free_bytes=free, memory_share=share
            )
        elif readings is not None:
            target = replace(
                target, memory_free_bytes=readings.memory_free_bytes
            )
        found.append(target)
    return (*found, cpu)


def _target(device: Device, gpu: Device | None) -> Target:
    """Return the target of a device. A MIG instance has the bus id and the mode of its `gpu`."""
    gpu = gpu or device
    return Target(
        "cuda",
        device.uuid,
        device.index,
        device.name,
        device.compute_capability,
        None,
        device.parent_uuid,
        device.mig_index,
        pci_bus_id=device.pci_bus_id or gpu.pci_bus_id,
        compute_mode=device.compute_mode or gpu.compute_mode,
    )


def gpus_in_mig_mode(inventory: Inventory) -> dict[str, Problem]:
    """Return the GPUs in MIG mode by UUID, with the reasons why they can't be tested as a whole."""
    instances: dict[str, list[Device]] = {}
    for device in inventory.devices:
        instances.setdefault(device.parent_uuid or "", []).append(device)
    found = {}
    for gpu in inventory.devices:
        named = []
        for each in instances.get(gpu.uuid, ()):
            # The profile, such as `MIG 3g.20gb`, follows the GPU's name.
            profile = visible(each.name.removeprefix(gpu.name).strip())
            named.append(f"{label_of(each)} ({profile})")
        if gpu.mig_mode != "enabled" and not named:
            continue
        what = f"GPU {label_of(gpu)}, {gpu.name}, cannot be stress-tested as a whole"
        why = "MIG is on, and it has no instance"
        create = shared_command("-cgi PROFILE -C", gpu, "nvidia-smi mig")
        remedy = f"Create one with {fill_index(create, [gpu])}"
        if named:
            why = "MIG is on, and CUDA runs on its instances only"
            remedy = f"Choose one: {', '.join(named)}"
        found[gpu.uuid] = Problem(what, why, remedy)
    return found


def choose(
    inventory: Inventory,
    sample: Sample | None,
    device: str | None,
) -> Target:
    """Return the target with the name `device` (from `parse_devices`), or the first one for None.

    Raise `ProblemError` if none or several match, or for a GPU in MIG mode.
    """
    among = targets(inventory, sample)
    if device is None:
        return among[0]
    if device == CPU:
        return among[-1]
    found = device_with(device, inventory.devices).uuid
    problem = gpus_in_mig_mode(inventory).get(found)
    if problem is not None:
        raise ProblemError(problem)
    return next(target for target in among if target.uuid == found)


def visible_to_cuda(inventory: Inventory) -> Inventory:
    """Return the inventory without the devices that CUDA_VISIBLE_DEVICES hides.

    Print a message if that list has an error. Raise `ProblemError` if its numbers are ambiguous.
    """
    try:
        left = seen(inventory.devices)
    except ValueError as error:
        why, _, remedy = str(error).rpartition(". ")
        remedy += ", or choose one with --device"
        raise ProblemError(Problem("No GPU was chosen", why, remedy)) from None
    if left.note is not None:
        print_message(left.note)
    devices = tuple(
        device for device in inventory.devices if device.uuid in left.uuids
    )
    return replace(inventory, devices=devices)


def parse_devices(text: str) -> tuple[str, ...]:
    """Parse devices separated by commas: `cpu`, `all` or ids of `--id`; raise `ValueError`."""
    found: dict[str, None] = {}
    for name in text.split(","):
        word = name.strip().lower()
        devices = (word,) if word in (CPU, ALL) else parse_ids(name)
        found |= dict.fromkeys(devices)
    return tuple(found)


def why_unusable(sample: Sample | None, target: Target) -> Problem | None:
    """Return why a device cannot be tested, or None if it answers."""
    if target.kind == "cpu":
        return None
    readings = sample.device(target.uuid or "") if sample else None
    what = f"{target.label} cannot be stress-tested"
    if readings is None or (
        readings.state is DeviceState.OK and readings.age_seconds is None
    ):
        return Problem(
            what,
            "it has not answered yet",
            "Try again; `dmesg` may have an Xid",
        )
    if readings.state is DeviceState.OK:
        return None
    device = Device(
        index=target.index or 0,
        uuid=readings.uuid,
        name=target.name,
        compute_capability=target.compute_capability,
        machine=target.host,
    )
    why = f"its state is {readings.state.replace('_', ' ')}"
    return Problem(what, why, state_advice(device, readings))


def shared_dtypes(targets: Sequence[Target]) -> tuple[str, ...]:
    """Return the data types that all targets support, in the usual order."""
    first, *others = map(plan.offered_dtypes, targets)
    common = set(first).intersection(*others)
    return tuple(dtype for dtype in first if dtype in common)


def common_dtype(targets: Sequence[Target]) -> str:
    """Return a target's default data type that all targets support, or float32 with a CPU."""
    shared = shared_dtypes(targets)
    with_cpu = any(target.kind == "cpu" for target in targets)
    if not with_cpu:
        for dtype in map(plan.default_dtype, targets):
            if dtype in shared:
                return dtype
    return "float32"


def copies_to_others(target: Target) -> bool:
    """True for a whole GPU of this machine. A process on any other target sees only one device."""
    return (
        target.kind == "cuda"
        and target.host is None
        and not target.parent_uuid
    )


def with_peers(requests: Sequence[Request]) -> list[Request]:
    """Return the requests of a collective, or of copies between GPUs, with their peers set.

    Copies have equal shares of the host's memory. MIG instances and GPUs of a cluster have no peers
    for copies, because their process sees only one device.
    """
    targets = tuple(each.target for each in requests)
    if requests[0].kind == "collective":
        return [replace(each, ranks=targets) for each in requests]
    gpus = [
        each for each in targets if each.kind == "cuda" and each.host is None
    ]
    if requests[0].kind != "copy" or not gpus:
        return list(requests)
    whole = tuple(filter(copies_to_others, gpus))
    free = plan.cpu_target().memory_free_bytes
    found = []
    for request in requests:
        target = request.target
        if target in gpus and free:
            room = int(target.memory_share * free) // len(gpus)
            request = replace(request, host_bytes=room)  # noqa: PLW2901
        if target in whole and len(whole) > 1:
            request = replace(request, ranks=whole)  # noqa: PLW2901
        found.append(request)
    return found


def select_targets(
    named: Sequence[str] | None, kind: str, *, ignore_busy: bool
) -> list[Target]:
    """Return the named devices, and ask the user first if another process uses one of them.

    Without names it is the first GPU that CUDA_VISIBLE_DEVICES does not hide, or else the CPU.
    `collective` takes every such GPU, or else the CPU. Raise `RunRefusedError`.
    """
    if named == (CPU,):
        return [plan.cpu_target()]
    # These imports are here because a test of the CPU does not need them.
    import asyncio

    from gputop.stream.child import StreamError, one_snapshot

    # A device that is named by number or UUID is used even if
    # CUDA_VISIBLE_DEVICES hides it.
    by_name = named is not None and ALL not in named
    ids = tuple(each for each in named or () if each not in (CPU, ALL))
    selection = Selection(ids, only_visible=not by_name)
    try:
        inventory, sample = asyncio.run(
            one_snapshot(identified=selection.needs_identities)
        )
    except StreamError as error:
        raise RunRefusedError(f"{error}. Or choose --device cpu.") from None
    try:
        left = inventory if by_name else visible_to_cuda(inventory)
        found = _found(inventory, left, sample, named, kind)
    except ProblemError as error:
        if inventory.problem is not None and not inventory.devices:
            raise RunRefusedError(
                f"{inventory.problem}, or choose --device cpu."
            ) from None
        raise RunRefusedError(f"{error}.") from None
    for target in found:
        problem = why_unusable(sample, target)
        if problem is not None:
            raise RunRefusedError(f"{problem}.")
    on_cpu = named is None and found[0].kind == CPU
    if on_cpu and not KINDS[kind].several_devices:
        _say_why_cpu(inventory, left)
    if not ignore_busy:
        _refuse_busy(sample, found)
    return found


def _found(
    inventory: Inventory,
    left: Inventory,
    sample: Sample,
    named: Sequence[str] | None,
    kind: str,
) -> list[Target]:
    """Return the named devices, or the default ones without names. `all` is every GPU in `left`."""
    *gpus, cpu = targets(left, sample)
    usable = [
        target for target in gpus if why_unusable(sample, target) is None
    ]
    if named is None and not KINDS[kind].several_devices:
        return [choose(left, sample, None)]
    if named is None:
        return usable or [cpu]
    if ALL in named and not usable:
        why = "there is none"
        if inventory.devices and not left.devices:
            why = HIDDEN
        elif gpus:
            why = "none of them answers"
        raise ProblemError(
            Problem("No GPU can be used", why, "Choose --device cpu")
        )
    found: dict[Target, None] = {}
    for name in named:
        chosen = usable if name == ALL else [choose(inventory, sample, name)]
        found |= dict.fromkeys(chosen)
    return list(found)


def _say_why_cpu(inventory: Inventory, left: Inventory) -> None:
    problems = (inventory.problem, *gpus_in_mig_mode(left).values())
    whys = [problem.why for problem in problems if problem]
    if inventory.devices and not left.devices:
        whys.append(HIDDEN)
    reasons = "; ".join(dict.fromkeys(whys))
    why = f" ({reasons})" if reasons else ""
    print_message(f"no GPU can be used{why}: the CPU is tested")


def processes_on(
    sample: Sample | None, target: Target
) -> list[Process] | None:
    """Return the processes that compute on the device, or None if unknown."""
    if target.kind == "cpu":
        return []
    readings = sample.device(target.uuid or "") if sample else None
    if sample is None or readings is None or "processes" in readings.absent:
        return None
    found = []
    for process in sample.processes:
        computes = process.kind is not ProcessKind.GRAPHICS
        if computes and process.device_uuid == target.uuid:
            found.append(process)
    return found


def _refuse_busy(sample: Sample, found: Sequence[Target]) -> None:
    """Raise `RunRefusedError` for devices in use, unless the user confirms the test."""
    asked = busy_question(sample, found)
    if asked is None:
        return
    title, lines = asked
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        holders = "; ".join(" ".join(line.split()) for line in lines)
        raise RunRefusedError(
            f"{title} {holders.rstrip('.')}. "
            "Wait for it to end, choose another --device, or add --ignore-busy."
        )
    for line in (title, *lines):
        print(line, file=sys.stderr)
    question = "Start the stress test anyway? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RunRefusedError(
            "nothing was started: the device is in use. Choose another --device."
        )


def usable_requests(
    sample: Sample | None, requests: Sequence[Request], *, of_all: bool
) -> tuple[list[Request], str]:
    """Return the requests whose devices answer, and a text about the devices that do not.

    With `of_all` (all GPUs were selected) such devices are left out. Raise `ValueError` if no
    device answers, if a named device does not answer, or if the run is impossible.
    """
    left, problems = [], {}
    for request in requests:
        problem = why_unusable(sample, request.target)
        if problem is None:
            left.append(request)
        else:
            problems[request.target.label] = problem
    if problems and (not left or not of_all):
        raise ValueError(str(next(iter(problems.values()))))
    problem = plan.check_together(left)
    if problem is None and len(left) == 1:
        problem = plan.check_request(left[0])
    if problem is not None:
        raise ValueError(str(problem))
    said = [f"{label}: {problem.why}" for label, problem in problems.items()]
    return with_peers(left), "; ".join(said)


def busy_question(
    sample: Sample | None, targets: Sequence[Target]
) -> tuple[str, list[str]] | None:
    """Return the title and lines of the question before a busy device is tested, or None.

    Each process has one line, even if it uses several devices.
    """
    busy, unknown = [], []
    holding: dict[int, tuple[Process, list[Target]]] = {}
    for target in targets:
        processes = processes_on(sample, target)
        if processes != []:
            busy.append(target)
        if processes is None:
            unknown.append(target)
        for process in processes or ():
            holding.setdefault(process.pid, (process, []))[1].append(target)
    if not busy:
        return None
    alone = len(targets) == 1
    lines = _holders([*holding.values()], alone=alone)
    for target in unknown:
        lines.append(
            UNKNOWN if alone else f"{short_labels([target])}: {UNKNOWN}"
        )
    who = f"{len(busy)} of {len(targets)} devices"
    if alone:
        who = visible(busy[0].label)
    if not holding:
        return f"{who} may be in use:", lines
    be = "are" if len(busy) > 1 else "is"
    return f"{who} {be} in use. A stress test would slow down:", lines


def _holders(
    holding: Sequence[tuple[Process, Sequence[Target]]], *, alone: bool
) -> list[str]:
    """Return a line for each process. With several devices, a line begins with its devices."""
    shown = holding[:LISTED]
    labels = ["" if alone else f"{short_labels(on)} " for _, on in shown]
    wide = max(map(len, labels), default=0)
    lines = []
    for (process, _), label in zip(shown, labels, strict=True):
        lines.append(f"{label:<{wide}}{_line(process)}")
    if len(holding) > LISTED:
        lines.append(f"          and {len(holding) - LISTED} more")
    return lines


def _line(process: Process) -> str:
    user = visible(process.user or "–")
    command = visible(process.command or "(not visible)", 160)
    return f"{process.pid:>8}  {user:<10} {command}"
