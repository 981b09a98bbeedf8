"""Load the worker from the files beside this one, under its own package name, and run it.

It needs neither gputop nor any entry of `sys.path`, and adds nothing to `sys.path`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "gputop_worker"


def load() -> None:
    """Make the package importable as `gputop_worker`."""
    here = Path(__file__).resolve().parent
    spec = spec_from_file_location(
        NAME, str(here / "__init__.py"), submodule_search_locations=[str(here)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)
    # Python puts the folder of a script first in sys.path, where its modules
    # would hide modules that torch imports.
    sys.path[:] = [
        entry for entry in sys.path if entry and Path(entry).resolve() != here
    ]


if __name__ == "__main__":
    load()
    import_module(f"{NAME}.main").main()
