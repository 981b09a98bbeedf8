"""Workers that are forked from the process of the tests, which has imported torch once.

A new process takes seconds of processor time to import torch, more than the run of most tests. A
forked worker is a child like any other, with pipes, environment, session and status of its own, and
it runs the same file. How users start one is tested by those tests that run the command.
"""

import contextlib
import faulthandler
import gc
import importlib
import os
import runpy
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from gputop.bench.run.worker_launch import WORKER

OWN = ("CUDA_", "GPUTOP_", "HOME", "PYTEST_", "SSH_", "TEXTUAL", "XDG_")
"""Variables that differ from test to test; torch reads none of them when it is loaded."""


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what torch and its libraries may read once, when they are loaded."""
    return {name: text for name, text in environment.items() if not name.startswith(OWN)}


def _others() -> int:
    """Return the number of threads that Python does not know."""
    return len([*Path("/proc/self/task").iterdir()]) - threading.active_count()


_settings_at_first, _others_at_first = _settings(os.environ), _others()


def load_torch() -> Any:
    """torch in the process of the tests. Without numpy it warns, once, while it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("torch")


def forking(program: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """Options of `subprocess.Popen` that run a Python program, or the worker, by a fork alone.

    There are none where that would differ: other variables, which torch read when it was loaded,
    or threads of torch in this process, which a fork does not take along.
    """
    if _settings(environment) != _settings_at_first:
        return {}
    load_torch()
    if _others() > _others_at_first:
        return {}
    return {"preexec_fn": lambda: _become(program, dict(environment))}


def _become(program: str | None, environment: Mapping[str, str]) -> NoReturn:
    """What a new interpreter would be, but for the modules that it has."""
    status = 1
    try:
        _forget_the_tests()
        os.environ.clear()
        os.environ.update(environment)
        if "COVERAGE_PROCESS_START" in environment:
            importlib.import_module("coverage").process_startup()
        sys.argv = [str(WORKER)]
        if program is None:
            runpy.run_path(str(WORKER), run_name="__main__")
        else:
            exec(program, {"__name__": "__main__"})  # noqa: S102
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)


def _forget_the_tests() -> None:
    """Drop files, hooks and filters of pytest and of the event loop."""
    faulthandler.disable()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout, sys.stderr = (
        open(fd, mode, closefd=False)  # noqa: SIM115
        for fd, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    warnings.resetwarnings()
    for name in [*sys.modules]:
        if name.partition(".")[0] == "gputop_worker":
            del sys.modules[name]
    gc.freeze()
    gc.enable()
