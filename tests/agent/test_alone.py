import io
import os
import pwd
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import gputop.agent
from gputop.agent import __main__
from gputop.agent.options import AgentOptions
from gputop.agent.snapshot import DriverState, Inventory, Sample
from gputop.schema.decode import decode
from gputop.stream.agent_archive import BOOTSTRAP, PYTHON, agent_archive, agent_input
from gputop.stream.launch import StreamOptions
from tests.driver import FakeDevice, FakeDriver, FakeProcess
from tests.e2e.shipped import run

FOLDER = Path(gputop.agent.__file__).parent
BOUND = 60.0
SENT_BYTES = 150_000
OLDEST = (3, 9)


def _pythons() -> dict[tuple[int, int], str]:
    found = {sys.version_info[:2]: sys.executable}
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for path in sorted(home.glob(".pyenv/versions/3.*/bin/python")):
        if minor := re.match(r"3\.(\d+)", path.parts[-3]):
            found.setdefault((3, int(minor[1])), str(path))
    for number in range(OLDEST[1], OLDEST[1] + 10):
        on_path = shutil.which(f"python3.{number}")
        # A shim of pyenv runs the version of its folder, whatever its name says.
        if on_path and Path(on_path).parent.name != "shims":
            found.setdefault((3, number), on_path)
    return found


PYTHONS = _pythons()
EACH = pytest.mark.parametrize(
    "python",
    [path for version, path in sorted(PYTHONS.items()) if version >= OLDEST],
    ids=[f"{x}.{y}" for x, y in sorted(PYTHONS) if (x, y) >= OLDEST],
)


@contextmanager
def agent(
    *words: str, python: str = sys.executable, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [python, *PYTHON[1:], "-c", BOOTSTRAP, *words],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(agent_input())
                process.stdin.flush()
            yield process
        finally:
            process.kill()


def newest(stream: bytes) -> tuple[Inventory, Sample]:
    records = [decode(line) for line in stream.splitlines()]
    inventories = [each for each in records if isinstance(each, Inventory)]
    samples = [each for each in records if isinstance(each, Sample)]
    return inventories[-1], samples[-1]


def known(record: object) -> set[str]:
    return {f.name for f in fields(record) if getattr(record, f.name) is not None}  # type: ignore[arg-type]


@pytest.mark.daily(2)
@EACH
def test_everything_that_gputop_stream_sends(python: str, driver: FakeDriver) -> None:
    driver.write(FakeDevice(processes=(FakeProcess(os.getpid(), sm_percent=40),)), FakeDevice())
    words = ["--interval", "0.5", "--count", "4"]
    printed = run("stream", *words, env=driver.environment()).stdout
    expected, sample = newest(printed.encode())
    with agent(*words, python=python, environment=driver.environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        found, found_sample = newest(process.stdout.read())
        assert process.stderr.read() == b""
    assert found.driver_state is DriverState.OK
    assert replace(found, time=0.0) == replace(expected, time=0.0)
    assert known(found_sample.host) == known(sample.host)
    assert len(found_sample.devices) == 2
    for device, other in zip(found_sample.devices, sample.devices, strict=True):
        assert known(device) == known(other)
        assert device.absent == other.absent
    (listed,), (other_listed,) = found_sample.processes, sample.processes
    assert listed.pid == os.getpid()
    assert listed.command == other_listed.command
    # The CPU of a child is known once it was seen at two looks, two seconds apart.
    of_children = {"absent", "children_cpu_percent", "children_cpu_most_percent"}
    assert known(listed) - of_children == known(other_listed) - of_children


def test_no_shell_changes_the_bootstrap() -> None:
    """Every shell takes the bootstrap within single quotes: csh and fish are strict."""
    assert not {*"'\\\n!$`"} & {*BOOTSTRAP}
    assert BOOTSTRAP.isascii()


def test_it_has_the_options_of_gputop_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    given = StreamOptions(
        0.25, 2, demo=True, gpm=False, control=True, secrets=True, ids=("0", "1"), only_visible=True
    )
    end, ran = Mock(), Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(__main__, "run", ran)
    monkeypatch.setattr(__main__, "redirect_prints", Mock())
    __main__.main(given.flags)
    ran.assert_called_once_with(AgentOptions(**vars(given)))
    end.assert_called_once_with(130)
    assert __main__.parse([]) == AgentOptions(1.0)
    for wrong in ("0.24", "60.1"):
        with pytest.raises(SystemExit):
            __main__.parse(["--interval", wrong])


@pytest.mark.parametrize("sent", ["nothing", "half", "all"])
def test_the_end_of_its_input_is_the_end_of_it(sent: str) -> None:
    whole = agent_input()
    part = {"nothing": b"", "half": whole[: len(whole) // 2], "all": whole}[sent]
    command = [*PYTHON, "-c", BOOTSTRAP, "--demo", "--control"]
    done = subprocess.run(command, input=part, capture_output=True, timeout=BOUND, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("where", ["start", "device"])
def test_a_driver_that_hangs_does_not_keep_it(driver: FakeDriver, where: str) -> None:
    driver.write(FakeDevice(hang=where == "device"), init_hang=where == "start")
    with agent("--control", environment=driver.environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        wanted = b'"starting"' if where == "start" else b'"ok"'
        assert any(wanted in line for line in process.stdout)
        process.stdin.close()
        assert process.wait(BOUND) == 0


def test_the_archive_is_small_and_has_only_the_agent_and_the_bindings() -> None:
    first = agent_input()
    agent_input.cache_clear()
    assert agent_input() == first
    assert len(first) < SENT_BYTES
    names = zipfile.ZipFile(io.BytesIO(agent_archive())).namelist()
    others = {name for name in names if not name.startswith("gputop/agent/")}
    assert others == {"__main__.py", "gputop/__init__.py", "pynvml.py"}


def test_it_uses_nothing_newer_than_python_3_9() -> None:
    words = ["-q", "--target=3.9-", "--violations", "--no-tips", str(FOLDER)]
    command = [sys.executable, "-c", "import vermin; vermin.main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
