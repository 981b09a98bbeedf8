"""Do the tests find small faults? `python -m tests.mutation [--faults 40] [--seed N] [--list]`.

Each fault changes one random place of the package: a comparison is turned round, a number is
changed, or a call whose result is not used is removed. It is made in a copy of the checkout, where
the tests of the same folder run first, and then all. A fault that no test finds is printed with its
line. The exit status is 1 if more than a seventh of them are not found.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
ALLOWED_MISSES = 1 / 7
COPIED = ("gputop", "tests", "docs", "man", "deploy", "screenshots", ".ci")
FILES = ("*.md", "*.toml", "*.txt", "*.py", "LICENSE")


@dataclass(frozen=True)
class Fault:
    """A place of the package, and its new text."""

    file: Path
    line: int
    begin: int
    end: int
    """Offsets in the text of the file."""
    new: str
    kind: str

    def __str__(self) -> str:
        text = (ROOT / self.file).read_text()
        return f"{self.file}:{self.line}: {self.kind}: {text[self.begin : self.end]} -> {self.new}"


def faults_of(file: Path) -> Iterator[Fault]:
    """Yield all faults that can be made in a file."""
    text = (ROOT / file).read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        changed = changed_node(node)
        if changed is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        new, kind = changed
        begin = starts[node.lineno - 1] + offset(text, node.lineno, node.col_offset)
        end = starts[node.end_lineno - 1] + offset(text, node.end_lineno, node.end_col_offset)
        yield Fault(file, node.lineno, begin, end, new, kind)


def offset(text: str, line: int, column: int) -> int:
    """Return the column in characters: the syntax tree counts bytes."""
    return len(text.splitlines()[line - 1].encode()[:column].decode())


def changed_node(node: ast.expr | ast.stmt) -> tuple[str, str] | None:
    """Return the new text of a node and the kind of fault, or None if it is left alone."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        turned = TURNED[type(node.ops[0])]()
        return ast.unparse(ast.Compare(node.left, [turned], node.comparators)), "comparison"
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return repr(value + 1), "number"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return "pass", "call removed"
    return None


def drawn(count: int, seed: int) -> list[Fault]:
    """Return that many faults, each kind as often as the others."""
    every: dict[str, list[Fault]] = {}
    for path in sorted((ROOT / "gputop").rglob("*.py")):
        for fault in faults_of(path.relative_to(ROOT)):
            every.setdefault(fault.kind, []).append(fault)
    dice = random.Random(seed)  # noqa: S311 - it hides nothing
    kinds = sorted(every)
    return [dice.choice(every[kinds[number % len(kinds)]]) for number in range(count)]


def copy_checkout(folder: Path) -> None:
    """Copy what the tests need."""
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for pattern in FILES:
        for file in ROOT.glob(pattern):
            shutil.copy(file, folder)


def found_by(fault: Fault, folder: Path) -> str | None:
    """Return the first test that fails with the fault, or None."""
    path = folder / fault.file
    text = path.read_text()
    path.write_text(text[: fault.begin] + fault.new + text[fault.end :])
    try:
        near = Path("tests", *fault.file.parts[1:-1])
        first = near if (folder / near).is_dir() else Path("tests", fault.file.parts[1])
        for tests in (first, Path("tests")):
            if (folder / tests).is_dir():
                failed = failing_test(folder, tests)
                if failed is not None:
                    return failed
    finally:
        path.write_text(text)
    return None


def failing_test(folder: Path, tests: Path) -> str | None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", str(tests)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"status {done.returncode}"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the copy is imported, also by children."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="only print the faults")
    options = parser.parse_args()
    faults = drawn(options.faults, options.seed)
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not options.list:
            copy_checkout(folder)
        for fault in faults:
            if options.list:
                print(fault)
                continue
            began = time.monotonic()
            test = found_by(fault, folder)
            missed += test is None
            took = time.monotonic() - began
            print(f"{fault}\n    {test or 'NOT FOUND'} ({took:.0f} s)", flush=True)
    print(f"{len(faults)} faults, {missed} not found")
    return int(missed > ALLOWED_MISSES * len(faults))


if __name__ == "__main__":
    sys.exit(main())
