from collections.abc import Callable
from functools import partial

import pytest

from gputop.agent.linux.driver_files import BrokenLibrary, PciGpu, Refusal, System
from gputop.agent.nvml import diagnosis
from gputop.agent.problem import Problem

NOUVEAU = System(nouveau=True, gpus=(PciGpu("0000:17:00.0", "nouveau"),))
VFIO = System(module_version="580.95.05", gpus=(PciGpu("0000:17:00.0", "vfio-pci"),))
STUCK = VFIO._replace(gpus=(PciGpu("0000:17:00.0", "nvidia"),))
BOX = System(container="docker", module_version="580.95.05")
REFUSED = System(refusals=(Refusal("/dev/nvidiactl", "permission denied", "video"),))
WSL_LIBRARY = System(wsl=True, library="/usr/lib/wsl/lib/libnvidia-ml.so.1", library_aside=True)
NIX = System(library="/run/opengl-driver/lib/libnvidia-ml.so.1", library_aside=True)
LINK = BrokenLibrary(
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "links to libnvidia-ml.so.535.54.03, which is missing",
)
DANGLING = System(broken_library=LINK)
STUB = partial(diagnosis.stub, file="/usr/local/cuda/lib64/stubs/libnvidia-ml.so")
Diagnose = Callable[[System], Problem]
OTHER = partial(diagnosis.other, words="words of NVML")
KUBERNETES_NODE = System(library="/usr/local/nvidia/lib64/libnvidia-ml.so.1", library_aside=True)
MUSL = System(library="/usr/lib/libnvidia-ml.so.1")
HALF = System(module_version="550.54.14", library_version="580.95.05")

TABLE: list[tuple[Diagnose, System, str, str]] = [
    (diagnosis.no_library, System(), "library", "Install the driver"),
    (diagnosis.no_library, System(gpus=()), "library", "there is no NVIDIA GPU"),
    (diagnosis.no_library, System(gpus=(), container="docker"), "library", "--gpus all"),
    (diagnosis.no_library, BOX, "container", "the host runs 580.95.05, the library is missing"),
    (diagnosis.no_library, BOX._replace(container="podman"), "container", "nvidia.com/gpu=all"),
    (diagnosis.no_library, BOX._replace(container="kubernetes"), "container", "the pod's limits"),
    (diagnosis.no_library, BOX._replace(container="apptainer"), "container", "with --nv"),
    (diagnosis.no_library, WSL_LIBRARY, "wsl", "LD_LIBRARY_PATH=/usr/lib/wsl/lib"),
    (diagnosis.no_library, System(wsl=True), "wsl", "Install it on Windows"),
    (diagnosis.no_library, NIX, "library", "LD_LIBRARY_PATH=/run/opengl-driver/lib"),
    (diagnosis.no_library, KUBERNETES_NODE, "library", "it is in /usr/local/nvidia/lib64"),
    (diagnosis.no_library, MUSL, "library", "does not fit"),
    (diagnosis.no_library, NOUVEAU, "nouveau", "nouveau has the GPU"),
    (
        diagnosis.no_library,
        DANGLING,
        "library",
        "535.54.03, which is missing. Reinstall the driver, then run sudo ldconfig",
    ),
    (
        diagnosis.no_library,
        BOX._replace(broken_library=LINK),
        "library",
        "Start the container with --gpus all",
    ),
    (diagnosis.no_library, DANGLING._replace(wsl=True), "library", "wsl --shutdown"),
    (STUB, System(), "library", "/usr/local/cuda/lib64/stubs/libnvidia-ml.so is the CUDA toolkit"),
    (STUB, BOX, "library", "Start the container with --gpus all"),
    (diagnosis.not_loaded, System(), "module", "sudo modprobe nvidia"),
    (diagnosis.not_loaded, System(container="docker"), "module", "On the host"),
    (diagnosis.not_loaded, NOUVEAU, "nouveau", "Blacklist nouveau"),
    (diagnosis.not_loaded, BOX, "container", "no /dev/nvidiactl here"),
    (diagnosis.not_loaded, BOX._replace(container=None), "permission", "nvidia-modprobe"),
    (
        diagnosis.not_loaded,
        System(kernel="6.8.0-45-generic", module_is_built=False),
        "module",
        "not built for kernel 6.8.0-45-generic",
    ),
    (diagnosis.mismatch, System(), "versions", "another version"),
    (diagnosis.mismatch, HALF, "versions", "the kernel runs 550.54.14, the library is 580.95.05"),
    (diagnosis.mismatch, HALF._replace(container="docker"), "versions", "Restart the container"),
    (diagnosis.no_permission, System(), "permission", "/dev/nvidia* refuses"),
    (diagnosis.no_permission, REFUSED, "permission", "Join the group video"),
    (diagnosis.too_old, System(), "nvml", "Upgrade the driver"),
    (diagnosis.no_devices, System(), "devices", "lspci"),
    (diagnosis.no_devices, VFIO, "devices", "0000:17:00.0 is held for a virtual machine"),
    (diagnosis.no_devices, STUCK, "devices", "cannot start it"),
    (diagnosis.no_devices, NOUVEAU, "nouveau", "Blacklist nouveau"),
    (diagnosis.no_devices, BOX, "container", "its GPUs are missing"),
    (diagnosis.gone, System(), "module", "as soon as it is loaded"),
    (OTHER, System(), "nvml", "words of NVML"),
    (OTHER, REFUSED._replace(container="docker"), "permission", "Restart the container"),
]


@pytest.mark.parametrize(("diagnose", "system", "check", "words"), TABLE)
def test_a_failure_is_explained(diagnose: Diagnose, system: System, check: str, words: str) -> None:
    problem = diagnose(system)
    assert problem.check == check
    assert words in str(problem)
    assert len(str(problem)) <= (200 if "libnvidia-ml.so" in problem.why else 120)
    for phrase in (problem.what, problem.why, problem.remedy):
        assert phrase == phrase.strip() != ""
        assert not phrase.endswith((".", "!"))
