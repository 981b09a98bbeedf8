"""Other monitors of NVIDIA GPUs, for comparisons, and the keys that they answer."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path

from tests.driver import FakeDriver
from tests.e2e.shipped import GPUTOP, MARK, TAB
from tests.terminal import Terminal

FROM_PYPI = {"nvitop": "1.7.2", "gpustat": "1.1.1"}
NAMES = ("gputop", "stream", *FROM_PYPI, "nvtop")
UNMARKED = {"default", "000000"}


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    name: str
    version: str
    command: tuple[str, ...]
    """How it is started to be watched, with new values each second."""
    answers_keys: bool = True
    draws: bool = True
    """False for a command that prints records: only its costs are measured."""
    to_processes: str = ""
    """The keys after which arrows move over the processes."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def environment(self, driver: FakeDriver, home: Path) -> dict[str, str]:
        folders = {f"XDG_{kind}_HOME": str(home) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        neutral = {"LANG": "C.UTF-8", "LC_ALL": "", "COLORTERM": ""}
        return {**neutral, **folders, "HOME": str(home), **driver.environment()}


def peers(folder: Path, names: Iterable[str] = NAMES) -> list[Peer]:
    """Return the monitors that are there, and name the others. Packages go into the folder."""
    os.environ.pop("NO_COLOR", None)  # to some it is a wish even where it is empty
    wanted = [name for name in NAMES if name in set(names)]
    version = _version([*GPUTOP, "--version"])
    own = Peer("gputop", version, (*GPUTOP, *_SECOND), to_processes=TAB)
    stream = Peer(
        "gputop stream",
        version,
        (*GPUTOP, "stream", *_SECOND),
        answers_keys=False,
        draws=False,
    )
    there = {"gputop": own, "stream": stream}
    there |= _from_pypi(folder, [name for name in wanted if name in FROM_PYPI])
    nvtop = shutil.which("nvtop")
    if nvtop is not None:
        version = _version([nvtop, "--version"])
        there["nvtop"] = Peer("nvtop", version, (nvtop, "--delay", "10"))
    for name in wanted:
        if name not in there:
            print(f"without {name}: it is not there", file=sys.stderr)
    return [there[name] for name in wanted if name in there]


def _from_pypi(folder: Path, names: list[str]) -> dict[str, Peer]:
    if not names:
        return {}
    home = folder / "venv"
    if not (home / "bin" / "pip").exists():
        venv.create(home, with_pip=True)
    requirements = [f"{name}=={FROM_PYPI[name]}" for name in names]
    done = subprocess.run(
        [home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"pip install {' '.join(requirements)}:\n{done.stderr}", file=sys.stderr)
        return {}
    return {
        name: Peer(
            name,
            FROM_PYPI[name],
            (str(home / "bin" / name), *_SECOND),
            answers_keys=name != "gpustat",
        )
        for name in names
    }


_SECOND = ("--interval", "1")


def _version(command: list[str]) -> str:
    """The first number with a point that it prints about itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"\d+(\.\d+)+\S*", done.stdout + done.stderr)
    return found[0] if found else "of unknown version"


def arrow(terminal: Terminal, letter: str) -> str:
    """The sequence of an arrow key (A is up, B is down) in the mode that the program has set."""
    application = terminal.raw.rfind(b"\x1b[?1h") > terminal.raw.rfind(b"\x1b[?1l")
    return f"\x1b{'O' if application else '['}{letter}"


def marked(terminal: Terminal) -> frozenset[int]:
    """The rows that a program has marked, however it does that: by a sign, or by their colours."""
    screen = terminal.screen
    half = screen.columns // 2
    found = set()
    for row in range(screen.lines):
        cells = screen.buffer[row]
        shown = [cells[column] for column in range(screen.columns)]
        coloured = sum(cell.reverse or cell.bg not in UNMARKED for cell in shown)
        if shown[0].data == MARK or coloured >= half:
            found.add(row)
    return frozenset(found)
