"""A host on a slow line, over a real `sshd`: what is shown of it is as old as is said."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gputop.agent.snapshot import MachineState, Sample
from gputop.agent.times import old_after
from gputop.schema.decode import decode
from tests.e2e import sshd
from tests.e2e.shipped import GPUTOP, NO_DRIVER, device
from tests.e2e.slow_line import SlowLine
from tests.e2e.sshd import Sshd
from tests.e2e.test_hosts import over_there, until_gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver import FakeDriver

pytestmark = pytest.mark.driver
INTERVAL = 0.5
CLOCKS_SECONDS = 0.5
"""Between the moments at which a busy sampler looks at its two clocks, and more."""


@pytest.fixture
def line(tmp_path: Path) -> Iterator[SlowLine]:
    """A line of 20 kB/s and 100 ms to a host called `far`, which does not compress.

    What a real machine sends is not as uniform as what a fake driver says, and compressed less.
    """
    if not sshd.INSTALLED:
        pytest.skip(sshd.MISSING)
    user_key = sshd.make_key(tmp_path / "user-key")
    far = Sshd(tmp_path, "far", user_key, "Compression no")
    try:
        try:
            far.start()
        except RuntimeError as error:
            pytest.skip(str(error))
        with SlowLine(far.port) as line:
            far.reached_at = line.port
            sshd.ssh_for(tmp_path, [far], user_key)
            yield line
    finally:
        far.stop()


@pytest.fixture
def watching(line: SlowLine, driver: FakeDriver, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The arguments and the environment with which a gputop watches that host."""
    run_id = str(uuid.uuid4())
    driver.write(*(device(n) for n in range(2)))
    yield {
        "arguments": ["--host", "far", "--remote-command", over_there(driver, run_id)],
        "env": {**NO_DRIVER, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
    }
    until_gone(run_id)


@contextlib.contextmanager
def stream(arguments: list[str], env: dict[str, str]) -> Iterator[Iterator[Sample]]:
    """The samples of `gputop stream` from the first one with readings on."""
    command = [*GPUTOP, "stream", "--interval", f"{INTERVAL}", *arguments]
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        records = map(decode, process.stdout)
        samples = (record for record in records if isinstance(record, Sample))
        for sample in samples:
            if any(each.power_watts is not None for each in sample.devices):
                break
        yield samples
        process.stdout.close()


@pytest.mark.slow
def test_no_line_is_so_slow_that_a_host_is_behind_without_saying_so(
    line: SlowLine, watching: dict[str, Any]
) -> None:
    """Both are on one machine, so the times in the samples tell how far behind it truly is."""
    said = []
    first = None
    with stream(**watching) as samples:
        line.bytes_per_second = 6000
        for sample in samples:
            (machine,) = sample.machines
            if machine.state is not MachineState.OK:
                break  # which is a word, too
            assert machine.time is not None
            assert machine.age_seconds is not None
            first = first or machine.time
            if machine.time == first:  # it was requested when the connection began
                continue
            truly = sample.time - machine.time
            assert machine.age_seconds <= truly + line.delay + CLOCKS_SECONDS
            assert machine.age_seconds >= truly - CLOCKS_SECONDS
            read = [each.age_seconds or 0.0 for each in sample.devices]
            assert min(read) >= machine.age_seconds
            said.append(machine.age_seconds)
            if len(said) == 25:
                break
    # It cannot carry a sample in an interval. Where each one is late that is seen, too.
    assert max(said) > old_after(INTERVAL)
