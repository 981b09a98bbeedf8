import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.health import stacks
from gputop.health.stacks import StacksError, sample_stacks, summarize

LOADER = "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
QUEUES = "/usr/lib/python3.11/multiprocessing/queues.py"
RAW = f"""\
thread (7): MainThread;<module> (/a/train.py:9);_Iter._next_data ({LOADER}:5);get ({QUEUES}:3) 71
thread (7): MainThread;<module> (/a/train.py:9);step (/a/train.py:4) 20
thread (7): MainThread;<module> (<frozen runpy>:3);poll (/usr/lib/python3.11/selectors.py:1) 9
thread (8): Thread-1;run (/a/log.py:1) 500
py-spy> a message
"""


def test_time_counts_for_the_innermost_function_outside_the_standard_library() -> None:
    expected = "71 % in DataLoader `_next_data`, 20 % in `step` (train.py:4), 9 % in Python itself"
    assert summarize(RAW).sentence == expected
    without_names = "thread (7);work (/a/b.py:1) 9"
    assert summarize(without_names).sentence == "100 % in `work` (b.py:1)"
    assert summarize("").sentence == "No Python code was running"


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", "must not trace"),
        ("Error: Failed to find python version from target process", "no Python process"),
        ("", "py-spy failed"),
    ],
)
def test_a_refusal_is_one_line_with_its_reason(
    errors: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_is_restricted", lambda: False)
    assert why in str(stacks._refusal("The stacks were not read", 7, errors))


def test_a_restricted_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "_is_restricted", lambda: True)
    problem = stacks._refusal("The stacks were not read", 7, "Operation not permitted")
    assert "ptrace_scope is 1" in problem.why
    assert "sysctl" in problem.remedy


async def test_without_a_process_or_py_spy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StacksError, match="it has ended"):
        await sample_stacks(2**22 + 1)
    monkeypatch.setattr(stacks, "find_py_spy", lambda: None)
    with pytest.raises(StacksError, match=r"py-spy is not installed\. Type"):
        await sample_stacks(1)


async def test_py_spy_answers_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py-spy"
    monkeypatch.setattr(stacks, "find_py_spy", lambda: str(program))
    program.write_text("#!/bin/sh\necho 'a;run (/a/b.py:1) 9'")
    program.chmod(0o755)
    assert (await sample_stacks(os.getpid())).sentence == "100 % in `run` (b.py:1)"
    program.write_text("#!/bin/sh\necho strange >&2\necho why >&2\nexit 1")
    with pytest.raises(StacksError, match="why"):
        await sample_stacks(os.getpid())
    program.write_text("#!/bin/sh\nexec sleep 600")
    monkeypatch.setattr(stacks, "PATIENCE_SECONDS", 0.1)
    with pytest.raises(StacksError, match=r"did not answer in 0\.1 s"):
        await sample_stacks(os.getpid())


@pytest.mark.skipif(stacks.find_py_spy() is None, reason="py-spy is not installed")
async def test_a_real_process_is_sampled() -> None:
    code = "import time\ndef wait_for_input(): time.sleep(60)\nprint(flush=True)\nwait_for_input()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        process.stdout.readline()
        try:
            found = await sample_stacks(process.pid)
        except StacksError as error:
            if "trace" not in str(error):
                raise
            pytest.skip(str(error))
        finally:
            process.kill()
    assert "`wait_for_input`" in found.sentence
