"""Start the sampler and other children. Each ends with its parent, however the parent dies.

The kernel kills a child when its parent ends (PDEATHSIG). End of file on standard input is not
enough: a child that is stopped, or hangs in the driver, does not read it. This module imports
little, so that the sampler can start while asyncio is loaded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from gputop.agent.options import AgentOptions

PARENT = "GPUTOP_PARENT"
"""Environment variable with the parent's pid. A child of gputop's own ends with that parent."""
PR_SET_PDEATHSIG = 1
# exec keeps the PDEATHSIG setting.
_BECOME = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def module_command(module: str) -> list[str]:
    """Return the words that run a module in this interpreter.

    `-P` keeps the working directory out of `sys.path`: a file there could shadow a module.
    """
    return [sys.executable, "-P", "-m", module]


class StreamOptions(AgentOptions):
    """Options of `gputop stream`, and the words of its command line."""

    @property
    def flags(self) -> list[str]:
        """The interval, and the options that differ from their defaults, as words."""
        wanted = {
            "--control": self.control,
            "--no-gpm": self.control or not self.gpm,
            "--demo": self.demo,
            "--only-visible": self.only_visible,
            "--unmasked": self.secrets,
        }
        flags = ["--interval", f"{self.interval:g}"]
        if self.count is not None:
            flags += ["--count", str(self.count)]
        flags += [flag for flag in wanted if wanted[flag]]
        if self.ids:
            flags += ["--id", ",".join(self.ids)]
        return flags

    @property
    def words(self) -> list[str]:
        """Command `stream` and its options."""
        return ["stream", *self.flags]

    @property
    def command(self) -> list[str]:
        """Command line of this gputop's own stream, whatever is on the PATH."""
        return [*module_command("gputop"), *self.words]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a child with pipes to all its streams. It ends when its standard input closes.

    It also ends when the thread that started it ends. Raises `OSError` if it cannot be started.
    """
    # Another program, such as `ssh`, cannot call `end_with_parent`: `_BECOME` does it first.
    if arguments[0] != sys.executable:
        # This import is slow and rarely needed.
        import shutil

        if shutil.which(arguments[0]) is None:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), arguments[0]
            )
        arguments = [
            sys.executable,
            "-S",
            "-I",
            "-c",
            _BECOME,
            str(os.getpid()),
            *arguments,
        ]
    return subprocess.Popen(
        arguments,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl+C must reach only the dashboard.
        start_new_session=True,
    )


def child_environment() -> Mapping[str, str]:
    """Return the environment of a child that calls `end_with_parent`.

    The kernel kills the child when the thread that started it ends.
    """
    # `ssh` to a jump host does not inherit these options, and must not open a
    # password window.
    ask_nothing = {"SSH_ASKPASS_REQUIRE": "never"}
    return {**os.environ, PARENT: str(os.getpid()), **ask_nothing}


def is_child_of_gputop() -> bool:
    """Return True if this process was started with `child_environment`."""
    return os.environ.get(PARENT) == str(os.getppid())


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, if the parent has set `PARENT`."""
    import ctypes

    parent = os.environ.pop(PARENT, None)
    if parent != str(os.getppid()):
        # The process was started by hand, or by another program that may end
        # first.
        return
    # The system has no prctl.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent != str(os.getppid()):
        os._exit(0)
