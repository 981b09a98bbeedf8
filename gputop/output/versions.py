"""Versions, driver and terminal for a bug report, read without NVML."""

import os
import platform
from importlib.metadata import distributions

from gputop.sources.linux.driver_files import inspect_system
from gputop.text import visible


def report() -> str:
    """Return a line each for Python, packages, driver and terminal."""
    found = {each.name: each.version for each in distributions()}
    packages = (f"{name} {found.get(name)}" for name in ("textual", "rich", "nvidia-ml-py"))
    text = f"Python {platform.python_version()}, {platform.platform()}\n{', '.join(packages)}\n"
    system = inspect_system()
    text += f"NVIDIA kernel module {system.module_version}, library {system.library_version}"
    size = "x".join(map(str, os.get_terminal_size(0))) if os.isatty(0) else "size unknown"
    names = ("TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "LC_ALL")
    terminal = [size, *(f"{name}={os.environ[name]}" for name in names if name in os.environ)]
    terminal += [name for name in ("TMUX", "STY", "SSH_TTY") if name in os.environ]
    return f"{text}, {system.container or 'no container'}\n{visible(', '.join(terminal))}"
