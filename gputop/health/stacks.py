"""Stacks of a Python process, sampled by py-spy for two seconds."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gputop import from_checkout
from gputop.agent.problem import Problem, ProblemError
from gputop.text import visible

SECONDS = 2
SAMPLES_PER_SECOND = 50
PATIENCE_SECONDS = 20.0
DATA_LOADER = "torch/utils/data/dataloader.py"
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_STANDARD = re.compile(
    r"(?:^<frozen |/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/))"
)
_FRAME = re.compile(
    r"(?P<function>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)$"
)


class StacksError(ProblemError):
    """The stacks cannot be read."""


class Frame(NamedTuple):
    """A function on a stack."""

    function: str
    file: str
    line: str

    @property
    def is_standard(self) -> bool:
        """True for Python's own modules, such as `selectors`."""
        return _STANDARD.search(self.file) is not None

    @property
    def text(self) -> str:
        """The function as it is shown, with its file and line."""
        if self.file.endswith(DATA_LOADER):
            return f"DataLoader `{self.function.rpartition('.')[2]}`"
        name = self.file.rpartition("/")[2]
        place = f"{name}:{self.line}" if self.line else name
        return f"`{self.function}` ({place})"


class Stacks(NamedTuple):
    """Shares of the functions in which the main thread was."""

    shares: tuple[tuple[str, float], ...]
    """Functions with their percentages, the largest first."""

    @property
    def sentence(self) -> str:
        """One line that says where the time goes."""
        if not self.shares:
            return "No Python code was running"
        parts = [
            f"{percent:.0f} % in {name}" for name, percent in self.shares[:3]
        ]
        return ", ".join(parts)


def summarize(raw: str) -> Stacks:
    """Return the shares of functions, from py-spy's folded stacks: `thread;a;b;c COUNT`.

    A sample counts for the innermost function that is not of Python's standard library.
    """
    of_main: Counter[str] = Counter()
    of_all: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, number = line.rpartition(" ")
        if not number.isdecimal():
            continue
        thread, *frames = stack.split(";")
        place = _place(frames)
        of_all[place] += int(number)
        if thread.endswith(": MainThread"):
            of_main[place] += int(number)
    # A program without `threading` has no names of threads
    counts = of_main or of_all
    total = counts.total()
    return Stacks(
        tuple((name, 100 * n / total) for name, n in counts.most_common())
    )


def _place(frames: Iterable[str]) -> str:
    """Return the function that a stack, the outermost first, counts for."""
    found = ""
    for text in frames:
        match = _FRAME.match(text)
        if match is None:
            continue
        frame = Frame(match["function"], match["file"], match["line"] or "")
        if not frame.is_standard:
            found = frame.text
    return found or "Python itself"


def find_py_spy() -> str | None:
    """Return the path of py-spy: beside this interpreter, or in PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


async def sample_stacks(pid: int) -> Stacks:
    """Sample the stacks of a process for two seconds. Raises `StacksError`."""
    what = f"The stacks of process {pid} were not read"
    if not _is_there(pid):
        raise StacksError(
            Problem(what, "it has ended", "Choose another process")
        )
    program = find_py_spy()
    if program is None:
        install = from_checkout("'.[stacks]'")
        raise StacksError(
            Problem(what, "py-spy is not installed", f"Type {install}")
        )
    words = [
        "record",
        "--pid",
        str(pid),
        "--duration",
        str(SECONDS),
        "--idle",
        "--threads",
    ]
    words += [
        "--rate",
        str(SAMPLES_PER_SECOND),
        "--format",
        "raw",
        "--full-filenames",
    ]
    words += ["--output", "/dev/stdout"]
    process = await asyncio.create_subprocess_exec(
        program, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        why = f"py-spy did not answer in {PATIENCE_SECONDS:g} s"
        raise StacksError(Problem(what, why, "Try again")) from None
    if process.returncode != 0:
        raise StacksError(_refusal(what, pid, errors.decode(errors="replace")))
    return summarize(output.decode(errors="replace"))


def _refusal(what: str, pid: int, errors: str) -> Problem:
    """Return the problem behind py-spy's messages."""
    if "ermission" in errors or "not permitted" in errors:
        why = "this user must not trace it"
        remedy = f"Try `sudo py-spy dump --pid {pid}`"
        if _is_restricted():
            why = "the kernel lets only parents trace a process (kernel.yama.ptrace_scope is 1)"
            remedy += ", or allow it: `sudo sysctl kernel.yama.ptrace_scope=0`"
        return Problem(what, why, remedy)
    if "ython" in errors:
        return Problem(
            what,
            "it is no Python process that py-spy knows",
            "Try `gdb -p PID`",
        )
    line = errors.strip().rpartition("\n")[2]
    return Problem(what, visible(line) or "py-spy failed", "Try again")


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _is_restricted() -> bool:
    try:
        return PTRACE_SCOPE.read_text().strip() == "1"
    except OSError:
        return False
