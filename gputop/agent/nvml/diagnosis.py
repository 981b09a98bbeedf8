"""Explain as one problem why NVML cannot be used, from its error and the state of the machine.

The dashboard, `status` and doctor show the same problem. Nothing here loads NVML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec

from gputop.agent.linux.driver_files import (
    CONTROL_FILE,
    LIBRARY,
    WSL_FOLDER,
    Refusal,
    System,
)
from gputop.agent.problem import Problem

BINDINGS, OLDEST_BINDINGS = "nvidia-ml-py", "12.570"
_INSTALLS_PYNVML = r"(?m)^pynvml(?:\.py,|/__init__\.py,|$)"
"""A line of a distribution's RECORD or top_level.txt."""
GIVE_GPUS = {
    "podman": "Start it with --device nvidia.com/gpu=all",
    "kubernetes": "Ask for nvidia.com/gpu in the pod's limits",
    "apptainer": "Start it with --nv",
}


def no_library(system: System) -> Problem:
    """Return the problem of a library that is missing or cannot be loaded."""
    if system.library and system.library_aside:
        folder = system.library.rpartition("/")[0]
        return Problem(
            "NVIDIA library not found",
            f"it is in {folder}",
            f"Try export LD_LIBRARY_PATH={folder}",
            "wsl" if folder == WSL_FOLDER else "library",
        )
    if system.library:
        return Problem(
            "NVIDIA library not loaded",
            f"{LIBRARY} is there, but does not fit",
            "Try sudo ldconfig, or reinstall the driver",
            "library",
        )
    if system.broken_library:
        return _broken_library(system, *system.broken_library)
    if system.container and system.module_version:
        return _bare_container(system, "the library is missing")
    return _no_driver(system)


def _no_driver(system: System) -> Problem:
    what = "No NVIDIA driver"
    why = f"{LIBRARY} is not found"
    if system.wsl:
        remedy = "Install it on Windows, then end all of WSL there by wsl --shutdown"
        return Problem(what, why, remedy, "wsl")
    if system.held_by("nouveau"):
        why += ", nouveau has the GPU"
        return Problem(
            what, why, "Install it, blacklist nouveau, and reboot", "nouveau"
        )
    if system.gpus == () and not system.container:
        why += ", and there is no NVIDIA GPU"
        return Problem(
            what, why, "Plug one in, or try gputop --demo", "library"
        )
    remedy = "Install the driver, or start the container with --gpus all"
    return Problem(what, why, remedy, "library")


def _broken_library(
    system: System,
    file: str,
    why: str,
) -> Problem:
    remedy = "Reinstall the driver, then run sudo ldconfig"
    if system.container:
        # The host's driver was mounted, or copied into the image, only in
        # part.
        remedy = _start_with_gpus(system.container)
    elif system.wsl:
        remedy = "Run wsl --shutdown on Windows, or update the driver there"
    return Problem("NVIDIA library broken", f"{file} {why}", remedy, "library")


def _start_with_gpus(container: str) -> str:
    remedy = GIVE_GPUS.get(container, "Start it with --gpus all")
    return remedy.replace("Start it", "Start the container")


def stub(system: System, file: str) -> Problem:
    """Return the problem of the CUDA toolkit's stub, loaded in place of the driver's library."""
    remedy = "Remove its folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run sudo ldconfig"
    # The driver's own library is missing.
    if system.container and not system.library_version:
        remedy = _start_with_gpus(system.container)
    return Problem(
        "NVIDIA library is a stub",
        f"{file} is the CUDA toolkit's, for building only",
        remedy,
        "library",
    )


def not_loaded(system: System) -> Problem:
    """Return the problem of a kernel module that is not loaded."""
    if system.held_by("nouveau"):
        return _nouveau()
    if system.module_version and CONTROL_FILE not in system.device_files:
        if system.container:
            return _bare_container(system, "no /dev/nvidiactl here")
        return Problem(
            "No NVIDIA device files",
            "the driver is loaded, /dev/nvidiactl is missing",
            "Try sudo nvidia-modprobe -c 0 -u",
            "permission",
        )
    what = "NVIDIA driver not loaded"
    if system.kernel and system.module_is_built is False:
        return Problem(
            what,
            f"it is not built for kernel {system.kernel[:24]}",
            "Reinstall it, or boot another kernel",
            "module",
        )
    remedy = "Try sudo modprobe nvidia, then read dmesg"
    if system.container:
        remedy = "On the host, try sudo modprobe nvidia"
    return Problem(what, "its kernel module does not run", remedy, "module")


def _nouveau() -> Problem:
    return Problem(
        "nouveau is in the way",
        "it has the GPU, so NVIDIA's driver cannot",
        "Blacklist nouveau in /etc/modprobe.d, and reboot",
        "nouveau",
    )


def _bare_container(system: System, why: str) -> Problem:
    return Problem(
        "Container without the GPUs",
        f"the host runs {system.module_version or 'the driver'}, {why}",
        GIVE_GPUS.get(system.container or "", "Start it with --gpus all"),
        "container",
    )


def mismatch(system: System) -> Problem:
    """Return the problem of a library and a kernel module of different versions."""
    why = "the kernel still runs another version of it"
    loaded, library = system.module_version, system.library_version
    if loaded and library and loaded != library:
        why = f"the kernel runs {loaded}, the library is {library}"
    remedy = "Reboot, or reload the nvidia modules"
    if system.container:
        remedy = "Restart the container, or the host"
    return Problem("NVIDIA driver half upgraded", why, remedy, "versions")


def no_permission(system: System) -> Problem:
    """Return the problem of device files that this process may not open."""
    why = "/dev/nvidia* refuses this user or container"
    remedy = "Ask for access to these devices"
    if system.refusals:
        first = system.refusals[0]
        why = f"{first.file}: {first.why}"
        remedy = ask_for(first)
        if system.container:
            remedy = "Restart the container, with the GPUs"
    return Problem("No permission for the GPUs", why, remedy, "permission")


def ask_for(refusal: Refusal) -> str:
    """Return what the user can do to get access."""
    if refusal.group:
        return f"Join the group {refusal.group[:16]}, then log in again"
    return "Ask for access to these devices"


def no_devices(system: System) -> Problem:
    """Return the problem of a driver without a device."""
    if system.held_by("nouveau"):
        return _nouveau()
    given = [file for file in system.device_files if file != "/dev/nvidiactl"]
    why = "the driver is loaded and has none"
    remedy = "`lspci | grep -i nvidia` lists what is plugged in"
    if passed := system.held_by("vfio-pci"):
        why = f"{passed[0]} is held for a virtual machine (vfio-pci)"
        remedy = "Run gputop there, or unbind it"
    elif system.container and not given:
        return _bare_container(system, "its GPUs are missing")
    elif failed := system.held_by("nvidia"):
        why = f"the driver has {failed[0]} and cannot start it"
        remedy = "`sudo dmesg | grep NVRM` says why"
    return Problem("No NVIDIA device", why, remedy, "devices")


def other(system: System, words: str) -> Problem:
    """Return the problem of any other failure; `words` are NVML's own message."""
    # After `systemctl daemon-reload`, a container may no longer open its
    # devices.
    if system.container and system.refusals:
        return no_permission(system)
    return Problem(
        "NVML does not work", words, "Run nvidia-smi, then read dmesg", "nvml"
    )


def too_old(_: System) -> Problem:
    """Return the problem of a driver without a function that gputop calls."""
    return Problem(
        "NVIDIA driver too old",
        "it lacks a function that nvidia-ml-py calls",
        "Upgrade the driver",
        "nvml",
    )


def gone(_: System) -> Problem:
    """Return the problem of a driver that stopped working after it had worked."""
    return Problem(
        "NVIDIA driver gone",
        "it was unloaded or replaced while gputop ran",
        "gputop uses it again as soon as it is loaded",
        "module",
    )


def diagnose_bindings() -> Problem:
    """Return the problem of an environment without a usable nvidia-ml-py."""
    if find_spec("_ctypes") is None:
        return Problem(
            f"No usable {BINDINGS}",
            "this Python was built without ctypes",
            "Put another python3 first on the PATH",
            "bindings",
        )
    found = installed_bindings()
    version = found.get(BINDINGS)
    instead = other_bindings(found)
    why = "it is not installed"
    if version is None and instead:
        why = f"{instead} is there in its place"
    elif version and version_numbers(version) < version_numbers(
        OLDEST_BINDINGS
    ):
        why = f"{version} is older than {OLDEST_BINDINGS}"
    elif version and instead:
        why = f"{instead} overwrote it"
    elif version:
        why = f"the file of {version} is damaged"
    remedy = "Try `pip install --force-reinstall .` in a checkout of gputop"
    return Problem(f"No usable {BINDINGS}", why, remedy, "bindings")


def installed_bindings() -> dict[str, str]:
    """Return the versions of all distributions that install a `pynvml`, by name."""
    from importlib.metadata import distributions

    return {
        each.name: each.version
        # The first distribution on the path counts.
        for each in reversed([*distributions()])
        if re.search(
            _INSTALLS_PYNVML,
            f"{each.read_text('RECORD') or ''}\n{each.read_text('top_level.txt') or ''}",
        )
    }


def other_bindings(found: Mapping[str, str]) -> str:
    """Return the names and versions of the distributions that are not nvidia-ml-py."""
    return " and ".join(
        f"{name} {found[name]}" for name in sorted({*found} - {BINDINGS})
    )


def version_numbers(version: str) -> tuple[int, ...]:
    """Return `580.95.05` as (580, 95), for comparison."""
    return tuple(
        int(part) for part in version.split(".")[:2] if part.isdecimal()
    )
