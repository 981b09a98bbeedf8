import sys
from pathlib import Path

import pytest

from gputop.bench.run import worker_launch
from tests.bench.workers import fake_interpreter

PYTHON = sys.executable
"""Which the tests take away."""


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No environment is active, and nothing is on the PATH."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "executable", "")
    return tmp_path


def environment(folder: Path, torch: str | None) -> str:
    (folder / "bin").mkdir(parents=True)
    return fake_interpreter(folder / "bin", "", torch)


async def test_the_active_environment_goes_before_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv, conda = environment(bare / "venv", None), environment(bare / "conda", "2.2")
    on_path = environment(bare / "usr", "2.3")
    monkeypatch.setenv("VIRTUAL_ENV", str(bare / "venv"))
    monkeypatch.setenv("CONDA_PREFIX", str(bare / "conda"))
    monkeypatch.setenv("PATH", str(bare / "usr" / "bin"))
    found = await worker_launch.find_interpreter()
    # Up to the first that will do: what is behind it may take its time.
    assert [each.path for each in found.looked_at] == [venv, conda]
    assert [each.torch_version for each in found.looked_at] == [None, "2.2"]
    assert found.chosen is found.looked_at[1]
    assert found.chosen.origin == "active conda environment"
    assert found.problem is None
    assert [path for path, _ in worker_launch.candidates()] == [venv, conda, on_path]


async def test_for_a_gpu_a_torch_without_cuda_is_the_last_resort(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = environment(bare / "venv", "2.5.0+cpu")
    conda = environment(bare / "conda", "2.2.0+cu121")
    monkeypatch.setenv("VIRTUAL_ENV", str(bare / "venv"))
    monkeypatch.setenv("CONDA_PREFIX", str(bare / "conda"))
    chosen = [(await worker_launch.find_interpreter(cuda=cuda)).chosen for cuda in (False, True)]
    assert [each and each.path for each in chosen] == [venv, conda]
    monkeypatch.delenv("CONDA_PREFIX")
    found = await worker_launch.find_interpreter(cuda=True)
    assert found.chosen is not None
    assert found.chosen.path == venv


async def test_where_there_is_none_it_says_what_to_type(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = environment(bare / "venv", None)
    monkeypatch.setenv("VIRTUAL_ENV", str(bare / "venv"))
    found = await worker_launch.find_interpreter()
    assert found.chosen is None
    assert found.problem is not None
    assert f"{path} (active virtual environment): no torch" in found.problem.why
    remedy = f"Install torch for {path} (https://pytorch.org/get-started), or name a Python"
    assert found.problem.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (None, "no such file"),
        ("#!/bin/sh\nexit 3\n", "it does not answer like a Python (status 3)"),
        ('#!/bin/sh\necho \'{"python": [3, 8, 1], "torch": null}\'\n', "Python 3.8.1"),
        ('#!/bin/sh\necho \'{"python": [3, 9, 0], "torch": null}\'\n', "no torch"),
    ],
)
async def test_what_is_wrong_with_an_interpreter_is_said(
    bare: Path, script: str | None, fault: str
) -> None:
    path = bare / "python"
    if script is not None:
        path.write_text(script)
        path.chmod(0o755)
    found = await worker_launch.find_interpreter(str(path))
    assert found.chosen is None
    assert [each.origin for each in found.looked_at] == ["--python"]
    assert fault in str(found.looked_at[0])


async def test_what_an_interpreter_prints_by_itself_is_no_answer(bare: Path) -> None:
    """When it starts, also without a newline, and when it ends."""
    path = bare / "python"
    noise = "printf 'activated\\n{}\\n[1]\\n\\033]0;title\\007'"
    path.write_text(f'#!/bin/sh\n{noise}\n"{PYTHON}" "$@"\nstatus=$?\n{noise}\nexit $status\n')
    path.chmod(0o755)
    found = await worker_launch.find_interpreter(str(path))
    assert found.looked_at[0].fault is None
    output, _ = await worker_launch.run_program(str(path), worker_launch.PROBE, 60.0)
    assert worker_launch.answer_in(output, "python")["python"] == list(sys.version_info[:3])


async def test_a_silent_interpreter_is_given_up(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_launch, "PROBE_SECONDS", 0.2)
    path = bare / "python"
    path.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    path.chmod(0o755)
    found = await worker_launch.find_interpreter(str(path))
    assert found.looked_at[0].fault == "it did not answer within 0.2 s"


async def test_a_folder_named_torch_is_not_torch(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bare / "torch").mkdir()
    (bare / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    (bare / "site" / "torch").mkdir(parents=True)
    monkeypatch.chdir(bare)
    monkeypatch.setenv("PYTHONPATH", str(bare / "site"))
    plain = bare / "python"
    # -S: without the site-packages that may have the real one
    plain.write_text(f'#!/bin/sh\nexec "{PYTHON}" -S "$@"\n')
    plain.chmod(0o755)
    found = await worker_launch.find_interpreter(str(plain))
    assert found.looked_at[0].fault is None
    assert found.looked_at[0].torch_version is None
