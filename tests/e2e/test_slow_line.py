"""A host on a slow line, over a real `sshd`: what is shown of it is as old as is said."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gputop.agent.snapshot import MachineState, Sample
from gputop.agent.times import old_after
from gputop.schema.decode import decode
from tests.e2e.shipped import GPUTOP, NO_DRIVER, device
from tests.e2e.slow_line import SlowLine
from tests.terminal import MARKER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver import FakeDriver
    from tests.e2e.conftest import Lab

pytestmark = pytest.mark.driver
ROOT = Path(__file__).parents[2]
INTERVAL = 0.5
CLOCKS_SECONDS = 0.5
"""Between the moments at which a busy sampler looks at its two clocks, and more."""


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
    lab: Lab, driver: FakeDriver
) -> None:
    """Both are on one machine, so the times in the samples tell how far behind it truly is.

    The line does not compress. What a real machine sends is not as uniform as what a fake driver
    says, and compressed less.
    """
    driver.write(*(device(n) for n in range(2)))
    far = lab.add("far", "Compression no")
    there = {**driver.environment(), "PYTHONPATH": str(ROOT), MARKER: lab.run_id}
    words = ["env", *(f"{key}={value}" for key, value in there.items()), *GPUTOP]
    arguments = ["--host", "far", "--remote-command", shlex.join(words)]
    said = []
    first = None
    with SlowLine(far.port) as line:
        far.reached_at = line.port
        env = {**NO_DRIVER, "PATH": f"{lab.programs()}:{os.environ['PATH']}"}
        with stream(arguments, env) as samples:
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
