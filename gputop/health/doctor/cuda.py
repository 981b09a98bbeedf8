"""Checks of CUDA and torch: can torch use the GPUs, and by which indices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bench.plan.interpreters import GET_TORCH
from gputop.bench.worker.backends import runs_on
from gputop.health.doctor.checks import Check, CheckGroup, note, ok, problem, warning
from gputop.sources.linux.driver_files import same_address
from gputop.sources.visible_devices import BY_BUS, ORDER, VARIABLE, Seen, seen
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.health.doctor.facts import CudaDevice, DoctorFacts, TorchFacts
    from gputop.health.findings import Finding
    from gputop.schema.device import Device

_BUILD = "Install a CUDA build of torch there, or name another Python with --python"
_BUILDS = f"{GET_TORCH} lists the builds"


def torch(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the torch that stress tests use."""
    chosen, answer, missing = facts.found.chosen, facts.torch, facts.found.problem
    if missing is not None:
        yield warning(f"{missing.what}: stress tests cannot run", missing.remedy)
    if chosen is None or answer is None:
        return
    where = visible(f"{chosen.path} ({chosen.origin})", 300)
    if answer.failure is not None:
        why = visible(answer.failure, 200).rstrip(".")
        yield problem(f"cannot be imported by {where}: {why}", "Reinstall it there")
    else:
        yield ok(f"{visible(answer.version or '', 40)} of {where}")


def build(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch has CUDA support: without it, it computes on the CPU."""
    said = _imported(facts)
    if said is None:
        return
    if said.cuda_version:
        yield ok(f"built for CUDA {visible(said.cuda_version, 20)}")
    elif facts.gpus:
        yield problem(f"torch {visible(said.version or '', 40)} is built without CUDA", _BUILD)
    else:
        yield ok("built without CUDA, and there is no GPU")


def cuda(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch can use the driver."""
    said = _imported(facts)
    if said is None or not said.cuda_version or not facts.gpus or _hides_all(facts):
        return
    newest = facts.inventory.cuda_version
    takes = f"the driver takes CUDA up to {visible(newest or '?', 20)}"
    if said.fault is None and said.devices:
        yield ok(f"{len(said.devices)} of {len(facts.gpus)} GPUs; {takes}")
    elif newest and _major(said.cuda_version) > _major(newest):
        yield problem(
            f"built for CUDA {visible(said.cuda_version, 20)}, {takes}",
            f"Update the driver, or install a build for CUDA {_major(newest)}; {_BUILDS}",
        )
    else:
        why = visible(said.fault or "it sees no device", 200).rstrip(".")
        yield problem(f"torch cannot use the GPUs: {why}", f"See what nvidia-smi says; {takes}")


def architecture(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that this build of torch has code for each device."""
    said = _imported(facts)
    if said is None or not said.architectures:
        return
    for device in facts.gpus:
        capability = device.compute_capability
        if capability is None:
            continue
        major, _, minor = capability.partition(".")
        if runs_on(list(said.architectures), (int(major), int(minor))):
            yield ok(f"it has code for compute capability {capability}", device)
        else:
            built = visible(" ".join(said.architectures), 200)
            yield problem(
                f"it has no code for compute capability {capability}, only for {built}",
                f"Install a build that has; {_BUILDS}",
                device,
            )


def selection(facts: DoctorFacts) -> Iterator[Finding]:
    """Check which GPUs CUDA_VISIBLE_DEVICES leaves visible."""
    value = facts.environment.get(VARIABLE)
    if value is None:
        yield ok("not set: CUDA programs see every GPU")
        return
    shown = f"{VARIABLE}={visible(value, 200)}"
    if not facts.gpus:
        yield note(f"{shown}, and there is no GPU")
        return
    try:
        allowed = _allowed(facts)
    except ValueError as error:
        why, _, remedy = str(error).rpartition(". ")
        yield warning(why, remedy)
        return
    gpus = sum(gpu.uuid in allowed.uuids for gpu in facts.gpus)
    if not allowed.uuids:
        why = f": it {allowed.note.removeprefix(VARIABLE).strip()}" if allowed.note else ""
        yield warning(f"{shown} hides every GPU{why}", "Unset it, or name a GPU in it")
    elif allowed.note is not None:
        yield warning(
            f"{allowed.note}, and what follows is ignored",
            "Name GPUs by index or by UUID, as `gputop status --json` has them",
        )
    elif not gpus:
        yield ok(f"{shown}: a MIG instance")
    else:
        yield ok(f"{shown}: {gpus} of {len(facts.gpus)} GPUs")


def order(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that CUDA's indices are those of NVML."""
    if not facts.gpus:
        return
    chosen = facts.environment.get(VARIABLE) is not None
    by_bus = facts.environment.get(ORDER) == BY_BUS
    found = () if facts.torch is None else facts.torch.devices
    pairs = [(each, device) for each in found if (device := _nvml(each, facts))]
    if not pairs or len(pairs) < len(found):
        if len(facts.gpus) == 1 or (by_bus and not chosen):
            yield ok("CUDA's indices are NVML's")
        else:
            yield note("CUDA's indices may not be NVML's: torch does not say", _remedy(by_bus))
        return
    rows = tuple(_row(each, device) for each, device in pairs)
    if all(each.index == device.index for each, device in pairs):
        can_differ = chosen or (len(facts.gpus) > 1 and not by_bus)
        yield replace(ok("CUDA's indices are NVML's"), rows=rows if can_differ else ())
    else:
        remedy = "Name devices by UUID" if chosen else _remedy(by_bus)
        yield replace(note("CUDA's indices are not NVML's", remedy), rows=rows)


def _remedy(by_bus: bool) -> str:
    return "Name devices by UUID" if by_bus else "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs"


def _row(each: CudaDevice, device: Device) -> str:
    return f"CUDA {each.index} = NVML {device.label}  {visible(device.name, 40)}  {device.uuid}"


def _nvml(each: CudaDevice, facts: DoctorFacts) -> Device | None:
    for device in facts.inventory.devices:
        if each.uuid and _bare(device.uuid) == _bare(each.uuid):
            return device
    for device in facts.gpus:
        if each.pci_bus_id and same_address(each.pci_bus_id, device.pci_bus_id or ""):
            return device
    return None


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _imported(facts: DoctorFacts) -> TorchFacts | None:
    said = facts.torch
    return said if said is not None and said.failure is None else None


def _allowed(facts: DoctorFacts) -> Seen:
    """Return the visible devices; raises `ValueError` if they are not certain."""
    return seen(
        facts.inventory.devices, facts.environment.get(VARIABLE), facts.environment.get(ORDER)
    )


def _hides_all(facts: DoctorFacts) -> bool:
    with contextlib.suppress(ValueError):
        return not _allowed(facts).uuids
    return False


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


CHECKS = (
    Check("torch", CheckGroup.TORCH, "torch", torch),
    Check("torch_build", CheckGroup.TORCH, "build", build),
    Check("torch_cuda", CheckGroup.TORCH, "CUDA", cuda),
    Check("architecture", CheckGroup.TORCH, "architecture", architecture),
    Check("visible_devices", CheckGroup.TORCH, "visible GPUs", selection),
    Check("device_order", CheckGroup.TORCH, "device order", order),
)
