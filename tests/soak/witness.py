"""What a process of the soak notes down, loaded as its `sitecustomize`; the program is as shipped.

Every exception that nobody caught, wherever it was, goes to `faults` in the folder that
`GPUTOP_SOAK` names, and what was left open.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
import warnings
from pathlib import Path

NAME = "GPUTOP_SOAK"


def _install(folder: Path) -> None:
    def note(what: str) -> None:
        with (folder / "faults").open("a") as file:
            file.write(f"{os.getpid()} {' '.join(sys.argv)}: {what}\n")

    class Faults(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(self.format(record))

    warnings.simplefilter("always", ResourceWarning)
    warnings.showwarning = lambda message, category, *_: note(f"{category.__name__}: {message}")
    threading.excepthook = lambda fault: note(
        "".join(traceback.format_exception(fault.exc_type, fault.exc_value, fault.exc_traceback))
    )
    sys.unraisablehook = lambda fault: note(
        f"{fault.err_msg} {fault.object!r}: "
        + "".join(traceback.format_exception(fault.exc_type, fault.exc_value, fault.exc_traceback))
    )
    sys.excepthook = lambda kind, error, trace: note(
        "".join(traceback.format_exception(kind, error, trace))
    )
    logging.getLogger("asyncio").addHandler(Faults(logging.WARNING))


if NAME in os.environ and "gputop" in sys.orig_argv:  # not in its workers, whose Python has torch
    _install(Path(os.environ[NAME]))
