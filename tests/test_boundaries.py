import ast
import importlib
import importlib.util
import json
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
    report = (
        f"\nimport json, sys; print(json.dumps(sorted(set(sys.modules) & set({sorted(among)})))) "
    )
    done = subprocess.run(
        [sys.executable, "-c", program + report], stdout=subprocess.PIPE, check=True, timeout=BOUND
    )
    return set(json.loads(done.stdout))


FIRST_SCREEN = (
    "import gputop.__main__; import gputop.cli; gputop.cli.parse([]); "
    "import gputop.ui.shell.start, gputop.stream.child, gputop.ui.shell.app; "
    "import gputop.ui.shell.dashboard"
)
"""What `gputop` loads until it draws."""


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


SHELL = "gputop.ui.shell"
WITHOUT = {
    "the parser": ("import gputop.cli; from gputop.commands.parser import parser; parser()", HEAVY),
    "the first screen": (
        FIRST_SCREEN,
        {
            *("gputop.bench.run.device_runner", "gputop.bench.results.store", "sqlite3"),
            *("gputop.health.judge", "gputop.health.rules.hardware", "gputop.schema.labels"),
            *("gputop.recording.reader", "gputop.recording.replay", "gputop.stream.machines"),
            *("gputop.ui.benchmark.screen", "gputop.ui.device.screen", "gputop.ui.processes.page"),
            *(f"{SHELL}.help_and_settings", "gputop.ui.drawing.dialogs", "gputop.fleet"),
        },
    ),
    "the sampler": (
        (
            "import gputop.cli as c; c.parse(['stream']); import gputop.agent.sender, "
            "gputop.agent.nvml.driver, gputop.agent.sampler"
        ),
        {"asyncio", "decimal", "fractions", "msgspec", "platformdirs", "ssl", "statistics"},
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_program_does_without_what_it_has_no_use_for(name: str) -> None:
    program, unwanted = WITHOUT[name]
    assert loaded_by(program, unwanted) == set()


def test_the_worker_needs_nothing_of_gputop() -> None:
    """It runs in the interpreter that has torch, where there may be no gputop."""
    spec = importlib.util.find_spec("gputop.bench.worker.__main__")
    assert spec is not None
    assert spec.origin is not None
    program = f"import runpy; runpy.run_path({spec.origin!r})['load'](); import gputop_worker.main"
    among = {"gputop", "gputop_worker.main", "textual"}
    assert loaded_by(program, among) == {"gputop_worker.main"}


@pytest.mark.parametrize("name", ["bench.worker", "bench.cluster.node_actor"])
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
