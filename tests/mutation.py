"""Do the tests find small faults? `python -m tests.mutation [--faults 40] [--folder F]`.

Each fault changes one random place of the package: a comparison is turned round, a number is
changed (one more, or twice as much from 10 on), or a call whose result is not used is removed. It
is made in a copy of the checkout. The tests that import the changed module or have its name run
first, then those of the folder that mirrors its own. A fault is found if one of them fails or
exceeds the time limit. The faults that are not found are listed at the end, and the exit status is
1 if they are more than a seventh.
"""

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
TURNED = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
LARGE = 10
"""Numbers from here on are doubled.

One more of a width, a time limit or a cut of a text is no fault that anybody notices.
"""
ALLOWED_MISSES = 1 / 7
COPIED = ("gputop", "tests", "docs", "man", "deploy", "screenshots", ".ci")
FILES = ("*.md", "*.toml", "*.txt", "*.py", "LICENSE")
ELSEWHERE = {
    "gputop/bench/run": ("tests/ui/test_benchmark.py", "tests/ui/test_kinds.py"),
    "gputop/bench/worker": (
        "tests/bench/test_cuda_kinds.py",
        "tests/bench/test_worker.py",
        "tests/bench/test_worker_runs.py",
    ),
    "gputop/agent/sender.py": ("tests/faults/test_kills.py",),
    "gputop/cli.py": ("tests/e2e/test_terminals.py",),
    "gputop/commands": ("tests/test_reference.py",),
    "gputop/commands/bench.py": ("tests/bench/test_command.py",),
    "gputop/commands/bench_check.py": ("tests/bench/test_check.py",),
    "gputop/commands/bench_history.py": ("tests/bench/test_history.py",),
    "gputop/commands/bench_results.py": ("tests/bench/test_history.py",),
    "gputop/commands/fleet.py": ("tests/fleet/test_status.py",),
    "gputop/commands/run.py": ("tests/training/test_outliving.py",),
    "gputop/commands/stream.py": (
        "tests/e2e/test_hosts.py",
        "tests/e2e/test_recordings.py",
        "tests/faults/test_kills.py",
    ),
    "gputop/fleet/screens": ("tests/ui/test_fleet_screen.py",),
    "gputop/output": ("tests/commands/test_status.py", "tests/commands/test_why.py"),
    "gputop/output/why_page.py": ("tests/commands/test_why.py", "tests/health/test_why.py"),
    "gputop/stream/crash_note.py": ("tests/commands/test_stream.py",),
}
"""Tests of packages and modules that they do not import.

Workers run in another interpreter, a screen is tested as a whole, and a command by its words.
"""


@dataclass(frozen=True)
class Fault:
    file: Path
    line: int
    begin: int
    end: int
    """Offsets in the bytes of the file."""
    new: str
    kind: str

    def __str__(self) -> str:
        old = (ROOT / self.file).read_bytes()[self.begin : self.end].decode()
        text = " ".join(f"{self.kind}: {old} -> {self.new}".split())
        return f"{self.file}:{self.line}: {text[:120]}"


def faults_of(file: Path) -> Iterator[Fault]:
    content = (ROOT / file).read_bytes()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(ast.parse(content)):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        changed = changed_node(node)
        if changed is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        yield Fault(file, node.lineno, begin, end, *changed)


def changed_node(node: ast.expr | ast.stmt) -> tuple[str, str] | None:
    """Return the new text of a node and the kind of fault, or None if it is left alone."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = TURNED[type(node.ops[0])]()
        return ast.unparse(ast.Compare(node.left, [turned], node.comparators)), "comparison"
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value + 1 if abs(value) < LARGE else 2 * value), "number"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "pass", "call removed"
    return None


def drawn(count: int, seed: int, folder: str) -> list[Fault]:
    """Return that many faults of the files below a folder, each kind as often as the others."""
    every: dict[str, list[Fault]] = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for fault in faults_of(path.relative_to(ROOT)):
            every.setdefault(fault.kind, []).append(fault)
    dice = random.Random(seed)  # noqa: S311 - it hides nothing
    kinds = sorted(every)
    return [dice.choice(every[kinds[number % len(kinds)]]) for number in range(count)]


def tests_of(file: Path) -> list[list[str]]:
    """Return the tests that may find a fault in that file, in two groups: the nearest first.

    These import the module or have its name.
    """
    module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    imported = re.compile(
        rf"^\s*(?:from {re.escape(module)} import|import {re.escape(module)}\b"
        rf"|from {re.escape(package)} import .*\b{name}\b)",
        re.MULTILINE,
    )
    near = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.stem.startswith(f"test_{name}") or imported.search(path.read_text()):
            near.append(str(path.relative_to(ROOT)))
    near += [*ELSEWHERE.get(str(file.parent), ()), *ELSEWHERE.get(str(file), ())]
    folder = Path("tests", *file.parts[1:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    if folder == Path("tests"):  # the root: its own tests, without those of the folders
        return [near, sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))]
    return [near, [str(folder), *(f"--ignore={each}" for each in near)]]


def copy_checkout(folder: Path) -> None:
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            shutil.copy(file, folder)


def found_by(fault: Fault, folder: Path, seconds: float) -> str | None:
    path = folder / fault.file
    content = path.read_bytes()
    path.write_bytes(content[: fault.begin] + fault.new.encode() + content[fault.end :])
    try:
        deadline = time.monotonic() + seconds
        for tests in tests_of(fault.file):
            if tests and (failed := failing_test(folder, tests, deadline)):
                return failed
    finally:
        path.write_bytes(content)
        # Of the same second and size, it would pass for that of the restored file.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink(missing_ok=True)
    return None


def failing_test(folder: Path, tests: list[str], deadline: float) -> str | None:
    """Return the first of the tests that fails, or None; the deadline counts as a failure."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "--no-header"]
    command.append("--snapshot-warn-unused")  # those of slow tests
    with subprocess.Popen(
        [*command, "-p", "no:cacheprovider", f"--basetemp={folder / 'temp'}", *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return "the time limit"
    if process.returncode in (0, 5):  # 5: none of the tests is chosen
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[1] if failed else f"status {process.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--faults", type=int, default=40)
    add("--seed", type=int, default=1)
    add("--folder", default="gputop", help="the part of the package to change (default: all)")
    add("--jobs", type=int, default=1, help="copies that run at once")
    add("--seconds", type=float, default=600.0, help="time limit of each fault")
    options = parser.parse_args()
    faults = drawn(options.faults, options.seed, options.folder)
    copies: SimpleQueue[Path] = SimpleQueue()

    def judge(fault: Fault) -> tuple[Fault, str | None]:
        folder = copies.get()
        began = time.monotonic()
        try:
            test = found_by(fault, folder, options.seconds)
        finally:
            copies.put(folder)
        took = time.monotonic() - began
        print(f"{took:5.0f} s  {fault}\n         {test or 'NOT FOUND'}", flush=True)
        return fault, test

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        for number in range(options.jobs):
            folder = Path(name, str(number))
            folder.mkdir()
            copy_checkout(folder)
            copies.put(folder)
        survivors = [fault for fault, test in pool.map(judge, faults) if test is None]
    print(
        f"\n{len(faults)} faults, seed {options.seed}: {len(survivors)} not found",
        *survivors,
        sep="\n",
    )
    return int(len(survivors) > ALLOWED_MISSES * len(faults))


if __name__ == "__main__":
    sys.exit(main())
