"""Checks of the driver. Where it cannot be used, the one that `facts.problem` names says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.health.doctor.finding import Check, Group, Judgement, note, ok, warning
from gputop.sources.linux.driver_files import LIBRARY, WSL_FOLDER
from gputop.sources.linux.kernel_log import same_address
from gputop.sources.nvml.diagnosis import ask_for

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts


def library(facts: Facts) -> Iterator[Judgement]:
    """NVML's own file."""
    system = facts.system
    if system.library:
        yield ok(system.library)
    elif facts.driver_answers:
        yield ok(f"{LIBRARY} is loaded")
    else:
        yield note(f"{LIBRARY} is not found")


def module(facts: Facts) -> Iterator[Judgement]:
    """The kernel's side of the driver."""
    if facts.system.module_version:
        yield ok(f"{facts.system.module_version}, loaded")
    elif facts.driver_answers:
        yield ok("the driver of Windows" if facts.system.wsl else "loaded")
    elif not facts.system.wsl:
        yield note("not loaded")


def versions(facts: Facts) -> Iterator[Judgement]:
    """Library and kernel module have to be of one version."""
    if facts.driver_answers:
        yield ok(f"library and kernel module agree: {facts.driver_version or 'no version'}")


def permission(facts: Facts) -> Iterator[Judgement]:
    """Whether the device files may be opened."""
    files, refusals = facts.system.device_files, facts.system.refusals
    if not files:
        return
    if not refusals:
        yield ok(f"{len(files)} device files, all may be opened")
        return
    named = ", ".join(f"{each.file} ({each.why})" for each in refusals[:3])
    more = f" and {len(refusals) - 3} more" if len(refusals) > 3 else ""
    yield warning(f"not to be opened: {named}{more}", ask_for(refusals[0]))


def nouveau(facts: Facts) -> Iterator[Judgement]:
    """The kernel's own driver, beside which NVIDIA's cannot have the same GPU."""
    held = facts.system.held_by("nouveau")
    if held:
        yield warning(
            f"nouveau has {', '.join(held)}",
            "Block nouveau in /etc/modprobe.d and reboot, or leave it that GPU",
        )
    elif facts.system.nouveau:
        yield ok("loaded, and has no GPU")
    else:
        yield ok("not loaded")


def container(facts: Facts) -> Iterator[Judgement]:
    """Whether this is one, and what it was given."""
    kind = facts.system.container
    if kind is None:
        yield ok("not in one")
    elif facts.driver_answers:
        yield ok(f"{kind}, with {_many(len(facts.gpus))}")
    else:
        yield note(f"{kind}: it has the GPUs only where it was given them")


def wsl(facts: Facts) -> Iterator[Judgement]:
    """The Windows Subsystem for Linux, whose driver is that of Windows."""
    system = facts.system
    if not system.wsl:
        yield ok("not in it")
    elif not facts.driver_answers:
        yield note("the driver is that of Windows")
    elif system.library and not system.library.startswith(WSL_FOLDER):
        yield warning(
            f"{system.library} hides that of {WSL_FOLDER}",
            "Remove the Linux driver from this WSL: that of Windows is used",
        )
    else:
        yield ok("the driver of Windows; it tells nothing of single processes")


def nvml(facts: Facts) -> Iterator[Judgement]:
    """Whether the driver answers at all."""
    if facts.driver_answers:
        yield ok(f"answers; CUDA up to {facts.cuda_version or 'an unknown version'}")


def devices(facts: Facts) -> Iterator[Judgement]:
    """What is plugged in, against what the driver has."""
    if not facts.driver_answers:
        return
    plugged = () if facts.system.container else facts.system.gpus or ()
    missing = [
        gpu.address
        for gpu in plugged
        if gpu.driver in (None, "nvidia")
        and not any(same_address(gpu.address, each.pci_bus_id or "") for each in facts.gpus)
    ]
    if missing:
        yield warning(
            f"{_many(len(facts.gpus))}; on the PCI bus also {', '.join(missing)}",
            "`sudo dmesg | grep NVRM` says why it was not started",
        )
    else:
        yield ok(_many(len(facts.gpus)))


def _many(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


CHECKS = (
    Check("library", Group.DRIVER, "NVML library", library),
    Check("module", Group.DRIVER, "kernel module", module),
    Check("versions", Group.DRIVER, "versions", versions),
    Check("permission", Group.DRIVER, "permission", permission),
    Check("nouveau", Group.DRIVER, "nouveau", nouveau),
    Check("container", Group.DRIVER, "container", container),
    Check("wsl", Group.DRIVER, "WSL", wsl),
    Check("nvml", Group.DRIVER, "NVML", nvml),
    Check("devices", Group.DRIVER, "devices", devices),
)
