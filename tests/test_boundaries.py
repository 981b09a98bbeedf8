"""Who imports what: as a contract over the source, and as it is at run time."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.commands.parser import COMMANDS

ROOT = Path(__file__).parents[1]
BOUND = 120.0
HEAVY = {"asyncio", "plotext", "prometheus_client", "pynvml", "rich", "textual", "torch"}
HEAVY |= {"gputop.fleet", "urllib3"}


def loaded_by(program: str, among: set[str]) -> set[str]:
    """Which of the modules are there after the program."""
    report = (
        f"\nimport json, sys; print(json.dumps(sorted(set(sys.modules) & set({sorted(among)})))) "
    )
    done = subprocess.run(
        [sys.executable, "-c", program + report], stdout=subprocess.PIPE, check=True, timeout=BOUND
    )
    return set(json.loads(done.stdout))


def modules_of(package: str) -> list[str]:
    folder = importlib.import_module(package).__path__
    return [module.name for module in pkgutil.walk_packages(folder, f"{package}.")]


FIRST_SCREEN = (
    "import gputop.__main__; import gputop.cli; gputop.cli.parse([]); "
    "import gputop.ui.shell.start, gputop.stream.child, gputop.ui.shell.app; "
    "import gputop.ui.shell.dashboard"
)
"""What `gputop` loads until it draws."""
CORE = ("agent", "schema", "stream", "recording", "bench", "health", "output")


def test_the_check_sees_what_is_loaded() -> None:
    assert loaded_by("import asyncio, pynvml", HEAVY) == {"asyncio", "pynvml"}


def test_nothing_heavy_is_loaded_before_the_command_is_known() -> None:
    assert (
        loaded_by("import gputop.cli; from gputop.commands.parser import parser; parser()", HEAVY)
        == set()
    )


@pytest.mark.parametrize("words", [[], ["--demo"], ["status", "--json"], ["stream"]])
def test_no_command_is_loaded_but_the_one_that_was_asked_for(words: list[str]) -> None:
    of = {name: f"gputop.commands.{name}" for name in COMMANDS}
    program = f"import gputop.cli; gputop.cli.parse({words})"
    expected = {of[word] for word in words if word in of}
    assert loaded_by(program, {*of.values(), "gputop.bench.plan.request"}) == expected


def test_the_dashboard_loads_neither_nvml_nor_torch_nor_what_can_wait() -> None:
    """plotext is for a chart that is not on the first screen."""
    unwanted = {"plotext", "pynvml", "torch"}
    assert loaded_by("import gputop.ui.shell.dashboard", unwanted) == set()


def test_the_first_screen_does_without_the_benchmark_and_the_pages() -> None:
    pages = {"benchmark.screen", "device.screen", "device.findings", "processes.page"}
    pages |= {"shell.help_and_settings", "drawing.dialogs"}
    later = {f"gputop.ui.{name}" for name in pages}
    later |= {"gputop.bench.run.session", "gputop.bench.results.store", "sqlite3"}
    assert loaded_by(FIRST_SCREEN, later) == set()


def test_the_first_screen_does_without_what_only_numbers_or_a_recording_need() -> None:
    later = {f"gputop.health.{name}" for name in ("rule_view", "judge", "rules.hardware")}
    later |= {f"gputop.recording.{name}" for name in ("reader", "replay")}
    later.add("gputop.schema.labels")
    assert loaded_by(FIRST_SCREEN, later) == set()


@pytest.mark.parametrize(("package", "most"), [("gputop", 86), ("textual", 145), ("rich", 51)])
def test_the_first_screen_has_a_budget_of_modules(package: str, most: int) -> None:
    """About as many as there are: one more is a choice, and takes half a millisecond and up."""
    count = f"; print(sum(m.partition('.')[0] == {package!r} for m in sys.modules)); sys.exit()"
    done = subprocess.run(
        [sys.executable, "-c", f"{FIRST_SCREEN}; import sys{count}"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=BOUND,
    )
    assert int(done.stdout) <= most


def test_the_sampler_does_without_what_only_the_dashboard_needs() -> None:
    program = "import gputop.cli as c; c.parse(['stream']); import gputop.agent.sender"
    program += ", gputop.agent.nvml.driver, gputop.agent.sampler"
    unwanted = {"asyncio", "decimal", "fractions", "platformdirs", "ssl", "statistics"}
    assert loaded_by(program, unwanted) == set()


def test_the_dashboard_of_one_machine_loads_nothing_of_others() -> None:
    among = {"gputop.stream.machines", "gputop.stream.merge"}
    among |= {*modules_of("gputop.fleet")}
    program = "import gputop.ui.shell.dashboard, gputop.ui.shell.app, gputop.ui.shell.start"
    assert loaded_by(f"{program}, gputop.cli", among) == set()


def test_the_fleet_screen_loads_no_dashboard() -> None:
    later = {"gputop.stream.child", "gputop.ui.benchmark.screen", "plotext"}
    later |= {"gputop.ui.shell.dashboard", "gputop.ui.monitor.screen"}
    program = "import gputop.ui.shell.start, gputop.ui.shell.app, gputop.fleet.screens.screen"
    assert loaded_by(program, later) == set()


def test_the_dashboard_starts_the_sampler_before_it_loads_textual() -> None:
    assert loaded_by("import gputop.ui.shell.start", HEAVY - {"asyncio"}) == set()


def test_the_simulation_needs_no_nvml() -> None:
    program = (
        "from gputop.stream.launch import StreamOptions\n"
        "from gputop.agent.sender import make_sampler\n"
        "make_sampler(StreamOptions(1.0, demo=True))"
    )
    assert loaded_by(program, {"pynvml", "textual", "torch"}) == set()


@pytest.mark.daily(3)
@pytest.mark.parametrize("package", CORE)
def test_the_core_knows_no_terminal(package: str) -> None:
    modules = [each for each in modules_of(f"gputop.{package}") if ".nvml." not in each]
    unwanted = {"textual", "plotext", "torch", "pynvml"}
    if package != "output":  # its pages are tables of rich
        unwanted.add("rich")
    assert loaded_by(f"import {', '.join(modules)}", unwanted) == set()


def test_the_worker_needs_nothing_of_gputop() -> None:
    """It runs in the interpreter that has torch, where there may be no gputop."""
    spec = importlib.util.find_spec("gputop.bench.worker.__main__")
    assert spec is not None
    assert spec.origin is not None
    program = f"import runpy; runpy.run_path({spec.origin!r})['load'](); import gputop_worker.main"
    among = {"gputop", "gputop_worker.main", "textual"}
    assert loaded_by(program, among) == {"gputop_worker.main"}


@pytest.mark.parametrize(
    "name",
    [
        "bench.worker",
        "bench.cluster.node_actor",
        "bench.plan.memory_limit",
    ],
)
def test_what_runs_elsewhere_imports_only_its_own_and_the_standard_library(name: str) -> None:
    """It is copied to where there may be no gputop; torch is loaded there by name."""
    place = ROOT / "gputop" / name.replace(".", "/")
    for file in place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            # The guard gets the agent's code by a path.
            own = [n for n in names if name == "bench.worker" and n.startswith("gputop.agent.")]
            roots = {each.partition(".")[0] for each in names if each not in own}
            assert roots <= {*sys.stdlib_module_names, "torch"}, f"{file}:{node.lineno}"


def test_the_contracts_of_import_linter() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout
