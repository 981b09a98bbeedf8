"""The agent needs only the standard library, and the syntax of Python 3.9."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gputop.agent

FOLDER = Path(gputop.agent.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_its_syntax_is_that_of_python_3_9(module: Path) -> None:
    ast.parse(module.read_text(), feature_version=(3, 9))


def test_it_writes_a_line_without_the_rest_of_gputop(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "gputop" / "agent")
    imports = "\n".join(f"import gputop.agent.{module.stem}" for module in MODULES)
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
{imports}
from gputop.agent.lines import to_line
from gputop.agent.snapshot import Host, Sample
print(to_line(Sample(1.0, Host())))
assert gputop.agent.__file__.startswith({str(tmp_path)!r})
"""
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith('{"type":"sample","time":1.0,')
