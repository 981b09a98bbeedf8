from collections.abc import Callable
from functools import partial
from typing import Any

from gputop.agent.linux.driver_files import BrokenLibrary, PciGpu, Refusal, System
from gputop.agent.nvml import diagnosis
from gputop.agent.problem import Problem

NOUVEAU = System(nouveau=True, gpus=(PciGpu("0000:17:00.0", "nouveau"),))
VFIO = System(module_version="580.95.05", gpus=(PciGpu("0000:17:00.0", "vfio-pci"),))
STUCK = VFIO._replace(gpus=(PciGpu("0000:17:00.0", "nvidia"),))
BOX = System(container="docker", module_version="580.95.05")
REFUSED = System(refusals=(Refusal("/dev/nvidiactl", "permission denied", "video" * 4),))
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

TABLE: list[tuple[Diagnose, System]] = [
    (diagnosis.no_library, System()),
    (diagnosis.no_library, System(gpus=())),
    (diagnosis.no_library, System(gpus=(), container="docker")),
    (diagnosis.no_library, BOX),
    (diagnosis.no_library, BOX._replace(container="podman")),
    (diagnosis.no_library, BOX._replace(container="kubernetes")),
    (diagnosis.no_library, BOX._replace(container="apptainer")),
    (diagnosis.no_library, WSL_LIBRARY),
    (diagnosis.no_library, System(wsl=True)),
    (diagnosis.no_library, NIX),
    (diagnosis.no_library, KUBERNETES_NODE),
    (diagnosis.no_library, MUSL),
    (diagnosis.no_library, NOUVEAU),
    (diagnosis.no_library, DANGLING),
    (diagnosis.no_library, BOX._replace(broken_library=LINK)),
    (diagnosis.no_library, DANGLING._replace(wsl=True)),
    (STUB, System()),
    (STUB, BOX),
    (diagnosis.not_loaded, System()),
    (diagnosis.not_loaded, System(container="docker")),
    (diagnosis.not_loaded, NOUVEAU),
    (diagnosis.not_loaded, BOX),
    (diagnosis.not_loaded, BOX._replace(container=None)),
    (diagnosis.not_loaded, System(kernel="6.8.0-45-generic" * 2, module_is_built=False)),
    (diagnosis.mismatch, System()),
    (diagnosis.mismatch, HALF),
    (diagnosis.mismatch, HALF._replace(container="docker")),
    (diagnosis.no_permission, System()),
    (diagnosis.no_permission, REFUSED),
    (diagnosis.too_old, System()),
    (diagnosis.no_devices, System()),
    (diagnosis.no_devices, VFIO),
    (diagnosis.no_devices, STUCK),
    (diagnosis.no_devices, NOUVEAU),
    (diagnosis.no_devices, BOX),
    (diagnosis.gone, System()),
    (OTHER, System()),
    (OTHER, REFUSED._replace(container="docker")),
]


def test_a_failure_is_explained(snapshot: Any) -> None:
    told = []
    for diagnose, system in TABLE:
        problem = diagnose(system)
        assert len(str(problem)) <= (200 if "libnvidia-ml.so" in problem.why else 120)
        for phrase in (problem.what, problem.why, problem.remedy):
            assert phrase == phrase.strip() != ""
            assert not phrase.endswith((".", "!"))
        told.append(f"{problem.check}: {problem}")
    assert "\n".join(told) == snapshot
