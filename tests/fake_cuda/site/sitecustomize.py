"""Python imports this at its start: gives torch a fake CUDA when the worker imports it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

PACKAGE = "fake_cuda"


def load_fake() -> Any:
    """Import the package from its folder, which is not on the path of modules."""
    folder = Path(__file__).resolve().parent.parent
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{PACKAGE}.install")


def give_torch_a_cuda(_: Any) -> None:
    """Patch the torch that was imported just now."""
    load_fake().install()


def scale_step(module: Any) -> None:
    """Let `step` run the blocks for CPUs: those for GPUs would take minutes here."""
    module.BLOCKS = module.SCALED


class AfterImport(MetaPathFinder):
    """Calls a function with a module, right after the module was imported."""

    def __init__(self, actions: dict[str, Callable[[Any], None]]) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec that the other finders have, with the function behind its loader."""
        action = self._actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_act(module: Any) -> None:
            execute(module)
            action(module)

        loader.exec_module = execute_and_act
        return spec


sys.meta_path.insert(0, AfterImport({"torch": give_torch_a_cuda, "gputop_worker.step": scale_step}))
if "COVERAGE_PROCESS_START" in os.environ:
    import coverage

    coverage.process_startup()
