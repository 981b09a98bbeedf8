"""Measures what the tests on the fake CUDA execute of the worker.

    python -m tests.fake_cuda.coverage [OPTIONS OF PYTEST]

It runs all tests that use the fake CUDA, the slow ones too, with coverage.py in each worker, and
writes COVERAGE.md: a line for each module, and the lines that no test executes. Each of those has a
reason in `REASONS`, or the script ends with status 1.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gputop.bench.run import session

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "gputop" / "bench" / "worker"
REPORT = Path(__file__).with_name("COVERAGE.md")
CONFIGURATION = f"""\
[run]
include = {WORKER}/*
data_file = {{folder}}/data
parallel = true
patch = _exit
[report]
exclude_also =
    if TYPE_CHECKING:
"""
FAKE = re.compile(r"tests\.bench\.cuda|fake_cuda")
"""Names that a test of the fake CUDA imports."""
PLUGIN = "tests.fake_cuda.coverage"
"""Name of this module, which is also a plugin of pytest."""
MODULE = "module"
"""Name of the code outside of functions."""
CPU = "only with a CPU"
NODES = "only between nodes of a cluster, on a CPU in `tests/bench/test_collective.py`"
PROCESS = "no CUDA: about processes, in `tests/bench/test_worker.py`"
REASONS = {
    "backends.py: Cpu": CPU,
    "collective.py: Ranks.__init__": NODES,
    "collective.py: interface_to": NODES,
    "collective.py: device.torch.set_num_threads(1)": CPU,
    "collective.py: _seconds_of_each": CPU,
    "copies.py: ways = _cpu_ways": CPU,
    "copies.py: _cpu_ways": CPU,
    'formats.py: self.accumulate = "as the CPU library does"': CPU,
    "formats.py: Float4.empty": "no plan has an odd size of float4",
    "latency.py: ended = ": CPU,
    "latency.py: run.notes += [": CPU,
    "loads.py: torch.set_num_threads(1)": CPU,
    "main.py: read_request": PROCESS,
    "main.py: end_with_parent": PROCESS,
    "main.py: device = Cpu(": CPU,
    "memory.py: with contextlib.suppress(OSError)": CPU,
    'memory.py: Path("/proc/self/oom_score_adj")': CPU,
    "product.py: Checksums._sums_of_b": f"B row-major: {CPU}",
    "step.py: blocks = SCALED": CPU,
    'step.py: run.notes.append("the blocks are scaled': CPU,
    "step.py: _tidy": "no CUDA: ends compilers, which the fake has none of",
}
"""Reasons by `module.py: function`, or by `module.py: ` and the beginning of the line."""


@dataclass(frozen=True)
class Missing:
    """A line that was not executed, and the function that it is in."""

    module: str
    function: str
    number: int
    text: str

    @property
    def reason(self) -> str:
        """The reason why no test executes it, or nothing."""
        for key, reason in REASONS.items():
            module, _, what = key.partition(": ")
            if module != self.module:
                continue
            in_function = f"{self.function}.".startswith(f"{what}.")
            if in_function or self.text.startswith(what):
                return reason
        return ""


def main() -> int:
    """Run the tests, and write the report; return 1 if a test failed or a line has no reason."""
    with tempfile.TemporaryDirectory() as folder:
        status = run_tests(Path(folder), sys.argv[1:])
        files = measured(Path(folder))
    missing = [line for name in files for line in lines_of(name, files[name]["missing_lines"])]
    text = report(files, missing)
    print(text)
    REPORT.write_text(text)
    return int(status != 0 or any(not line.reason for line in missing))


def pytest_configure() -> None:
    """Give ended workers the time to write what they executed. pytest calls this in a plugin."""
    session.STOP_SECONDS = 20.0


def run_tests(folder: Path, arguments: list[str]) -> int:
    """Run the tests with coverage in each worker; return the status of pytest."""
    configuration = folder / "coveragerc"
    configuration.write_text(CONFIGURATION.format(folder=folder))
    paths = sorted((ROOT / "tests").glob("*/test_*.py"))
    tests = [str(path) for path in paths if FAKE.search(path.read_text())]
    options = ["-q", "-m", "slow or not slow", "-p", PLUGIN, *arguments]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "COVERAGE_PROCESS_START": str(configuration)}
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def measured(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Return the lines of each module of the worker that were executed, and those that were not."""
    coverage = [sys.executable, "-m", "coverage"]
    options = [f"--rcfile={folder / 'coveragerc'}"]
    found = folder / "found.json"
    subprocess.run([*coverage, "combine", "-q", *options], cwd=ROOT, check=True)
    subprocess.run([*coverage, "json", "-q", *options, "-o", found], cwd=ROOT, check=True)
    files = json.loads(found.read_text())["files"]
    return {Path(name).name: files[name] for name in sorted(files)}


def lines_of(module: str, numbers: list[int]) -> Iterator[Missing]:
    """Yield these lines of a module with their functions."""
    text = (WORKER / module).read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    for number in numbers:
        yield Missing(module, function_at(tree, number), number, lines[number - 1].strip())


def function_at(tree: ast.AST, number: int) -> str:
    """Return the qualified name of the function that has a line."""
    for child in ast.walk(tree):
        if child is tree or not isinstance(child, ast.ClassDef | ast.FunctionDef):
            continue
        if child.lineno <= number <= (child.end_lineno or 0):
            inner = function_at(child, number)
            return child.name if inner == MODULE else f"{child.name}.{inner}"
    return MODULE


def report(files: dict[str, dict[str, list[int]]], missing: list[Missing]) -> str:
    """Return the report in Markdown."""
    lines = [
        "# What the tests on the fake CUDA execute of the worker",
        "",
        "Written by `python -m tests.fake_cuda.coverage`. Statements, in percent.",
        "",
        "| module | statements | not executed | executed |",
        "|---|---:|---:|---:|",
    ]
    all_executed = all_missing = 0
    for name, found in files.items():
        executed, absent = len(found["executed_lines"]), len(found["missing_lines"])
        all_executed += executed
        all_missing += absent
        lines.append(row(name, executed, absent))
    lines.append(row("all", all_executed, all_missing))
    lines += [
        "",
        "## Lines that are not executed",
        "",
        "| line | function | why |",
        "|---|---|---|",
    ]
    for line in missing:
        place = f"`{line.module}:{line.number}` `{line.text.replace('|', chr(92) + '|')}`"
        lines.append(f"| {place} | {line.function} | {line.reason or '**no reason**'} |")
    return "\n".join(lines) + "\n"


def row(name: str, executed: int, missing: int) -> str:
    """Return a row of the table."""
    percent = 100 * executed / max(1, executed + missing)
    return f"| `{name}` | {executed + missing} | {missing} | {percent:.1f} % |"


if __name__ == "__main__":
    sys.exit(main())
