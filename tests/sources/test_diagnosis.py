"""A driver's failure and what the machine shows, as the one problem behind both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.health.doctor import BY_NAME as NAMES
from gputop.sources.linux.driver_files import PciGpu, Refusal, System
from gputop.sources.nvml.diagnosis import Failure, diagnose

if TYPE_CHECKING:
    from gputop.problem import Problem

NOUVEAU = System(nouveau=True, gpus=(PciGpu("0000:17:00.0", "nouveau"),))
VFIO = System(module_version="580.95.05", gpus=(PciGpu("0000:17:00.0", "vfio-pci"),))
STUCK = replace(VFIO, gpus=(PciGpu("0000:17:00.0", "nvidia"),))
BOX = System(container="docker", module_version="580.95.05")
REFUSED = System(refusals=(Refusal("/dev/nvidiactl", "permission denied", "video"),))
WSL_LIBRARY = System(wsl=True, library="/usr/lib/wsl/lib/libnvidia-ml.so.1", library_aside=True)
NIX = System(library="/run/opengl-driver/lib/libnvidia-ml.so.1", library_aside=True)
KUBERNETES_NODE = System(library="/usr/local/nvidia/lib64/libnvidia-ml.so.1", library_aside=True)
MUSL = System(library="/usr/lib/libnvidia-ml.so.1")
HALF = System(module_version="550.54.14", library_version="580.95.05")

TABLE: list[tuple[Failure, System, str, str]] = [
    (Failure.NO_LIBRARY, System(), "library", "Install the driver"),
    (Failure.NO_LIBRARY, System(gpus=()), "library", "there is no NVIDIA GPU"),
    (Failure.NO_LIBRARY, System(gpus=(), container="docker"), "library", "--gpus all"),
    (Failure.NO_LIBRARY, BOX, "container", "the host runs 580.95.05, the library is missing"),
    (Failure.NO_LIBRARY, replace(BOX, container="podman"), "container", "nvidia.com/gpu=all"),
    (Failure.NO_LIBRARY, replace(BOX, container="kubernetes"), "container", "the pod's limits"),
    (Failure.NO_LIBRARY, replace(BOX, container="apptainer"), "container", "with --nv"),
    (Failure.NO_LIBRARY, WSL_LIBRARY, "wsl", "LD_LIBRARY_PATH=/usr/lib/wsl/lib"),
    (Failure.NO_LIBRARY, System(wsl=True), "wsl", "Install it on Windows"),
    (Failure.NO_LIBRARY, NIX, "library", "LD_LIBRARY_PATH=/run/opengl-driver/lib"),
    (Failure.NO_LIBRARY, KUBERNETES_NODE, "library", "it is in /usr/local/nvidia/lib64"),
    (Failure.NO_LIBRARY, MUSL, "library", "does not fit"),
    (Failure.NO_LIBRARY, NOUVEAU, "nouveau", "nouveau has the GPU"),
    (Failure.NOT_LOADED, System(), "module", "sudo modprobe nvidia"),
    (Failure.NOT_LOADED, System(container="docker"), "module", "On the host"),
    (Failure.NOT_LOADED, NOUVEAU, "nouveau", "Block nouveau"),
    (Failure.NOT_LOADED, BOX, "container", "no /dev/nvidiactl here"),
    (Failure.NOT_LOADED, replace(BOX, container=None), "permission", "nvidia-modprobe"),
    (
        Failure.NOT_LOADED,
        System(kernel="6.8.0-45-generic", module_is_built=False),
        "module",
        "not built for kernel 6.8.0-45-generic",
    ),
    (Failure.MISMATCH, System(), "versions", "another version"),
    (Failure.MISMATCH, HALF, "versions", "the kernel runs 550.54.14, the library is 580.95.05"),
    (Failure.MISMATCH, replace(HALF, container="docker"), "versions", "Restart the container"),
    (Failure.NO_PERMISSION, System(), "permission", "/dev/nvidia* refuses"),
    (Failure.NO_PERMISSION, REFUSED, "permission", "Join the group video"),
    (Failure.NO_PERMISSION, replace(REFUSED, container="docker"), "permission", "Restart"),
    (Failure.TOO_OLD, System(), "nvml", "Upgrade the driver"),
    (Failure.NO_DEVICES, System(), "devices", "lspci"),
    (Failure.NO_DEVICES, VFIO, "devices", "0000:17:00.0 is held for a virtual machine"),
    (Failure.NO_DEVICES, STUCK, "devices", "cannot start it"),
    (Failure.NO_DEVICES, NOUVEAU, "nouveau", "Block nouveau"),
    (Failure.NO_DEVICES, BOX, "container", "its GPUs are missing"),
    (Failure.GONE, System(), "module", "as soon as it is loaded"),
    (Failure.OTHER, System(), "nvml", "words of NVML"),
    (Failure.OTHER, replace(REFUSED, container="docker"), "permission", "Restart the container"),
]


def check_words(problem: Problem) -> None:
    """Three short phrases, in all at most as long as one line and a half of a small terminal."""
    assert len(str(problem)) <= 120
    for phrase in (problem.what, problem.why, problem.remedy):
        assert phrase == phrase.strip()
        assert phrase
        assert not phrase.endswith((".", "!"))


@pytest.mark.parametrize(("failure", "system", "check", "words"), TABLE)
def test_a_failure_is_explained(failure: Failure, system: System, check: str, words: str) -> None:
    problem = diagnose(failure, system, "words of NVML")
    assert problem.check == check
    assert words in str(problem)
    check_words(problem)


def test_the_table_has_every_failure() -> None:
    assert {failure for failure, *_ in TABLE} == set(Failure)


DRIVERS = st.sampled_from([None, "nvidia", "nouveau", "vfio-pci"])
SYSTEMS = st.builds(
    System,
    kernel=st.sampled_from([None, "6.8.0-45-generic", "5.15.0-1064-nvidia-64k-a-long-name"]),
    module_version=st.sampled_from([None, "580.95.05"]),
    module_is_built=st.sampled_from([None, False, True]),
    gpus=st.none() | st.lists(DRIVERS.map(lambda d: PciGpu("0000:17:00.0", d))).map(tuple),
    device_files=st.sampled_from([(), ("/dev/nvidiactl",), ("/dev/nvidia0", "/dev/nvidiactl")]),
    refusals=st.sampled_from([(), REFUSED.refusals]),
    container=st.sampled_from([None, "docker", "podman", "kubernetes", "apptainer", "lxc"]),
    wsl=st.booleans(),
    library=st.sampled_from([None, NIX.library, WSL_LIBRARY.library, KUBERNETES_NODE.library]),
    library_version=st.sampled_from([None, "580.95.05", "550.54.14"]),
    library_aside=st.booleans(),
)


@given(st.sampled_from(Failure), SYSTEMS)
def test_whatever_a_machine_shows_there_is_a_short_problem(
    failure: Failure, system: System
) -> None:
    problem = diagnose(failure, system, "Unknown Error (code 999)")
    check_words(problem)
    assert problem.check in NAMES
    assert "None" not in str(problem)
