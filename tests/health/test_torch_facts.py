import sys
from pathlib import Path

import pytest

from gputop.bench.run.worker_launch import Interpreter
from gputop.health.doctor.doctor_facts import TorchFacts, torch_facts

FAKE = """
import os, sys, types
print("a library that talks")
os.write(1, b"and one below Python")
__version__ = "2.9.0+cu128"
version = types.SimpleNamespace(cuda="12.8")
class Cuda:
    def init(self):
        pass
    def get_arch_list(self):
        return ["sm_80", "sm_90"]
    def device_count(self):
        return 2
cuda = Cuda()
"""
SAID = TorchFacts("2.9.0+cu128", "12.8", ("sm_80", "sm_90"), device_count=2)


def interpreter(folder: Path, torch: str) -> Interpreter:
    (folder / "torch.py").write_text(torch)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return Interpreter(str(script), "--python", "2.9.0+cu128")


async def test_what_torch_says_is_read_whatever_is_printed_beside_it(tmp_path: Path) -> None:
    assert await torch_facts(interpreter(tmp_path, FAKE)) == SAID
    (tmp_path / "sitecustomize.py").write_text('import os; os.write(1, b"{}\\nactivated ")')
    assert await torch_facts(interpreter(tmp_path, FAKE)) == SAID


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        (
            "raise ImportError('libcudart.so.12: cannot open\\nmore')",
            TorchFacts(failure="ImportError: libcudart.so.12: cannot open"),
        ),
        ("raise SystemExit(3)", TorchFacts(failure="SystemExit: 3")),
        ("import os; os._exit(9)", TorchFacts(failure="it ended without an answer (status 9)")),
        (
            FAKE + "def init():\n    raise RuntimeError('too old a driver.\\nUpdate')\n"
            "cuda.init = init\n",
            TorchFacts("2.9.0+cu128", "12.8", ("sm_80", "sm_90"), fault="too old a driver."),
        ),
        (FAKE + "version.cuda = None\n__version__ = '2.9.0'\n", TorchFacts("2.9.0")),
    ],
)
async def test_a_torch_that_fails_says_why(tmp_path: Path, torch: str, said: TorchFacts) -> None:
    assert await torch_facts(interpreter(tmp_path, torch)) == said


async def test_a_python_that_hangs_or_has_gone(tmp_path: Path) -> None:
    hangs = interpreter(tmp_path, "import threading; threading.Event().wait()")
    assert await torch_facts(hangs, 1.0) == TorchFacts(failure="it did not answer within 1 s")
    gone = Interpreter("/nonexistent/python", "--python", "2.9.0")
    assert await torch_facts(gone) == TorchFacts(failure="there is no such file")
