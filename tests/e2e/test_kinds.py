"""Runs that are tables, by keys in the benchmark tab, on the CPU: the shipped command in a pty."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.shipped import DOWN, ENTER, GPUTOP, NO_DRIVER, TAB, dashboard, leave, row_of, see
from tests.e2e.test_dashboard import worker_pids

if TYPE_CHECKING:
    from pathlib import Path

    from tests.terminal import Terminal

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

KINDS = ("check", "soak", "sweep", "latency", "peak", "step", "copy")
RUN_SECONDS = 60
"""Until something is there: torch has to start, on a machine that others use as well."""


def environment(home: Path) -> dict[str, str]:
    """Return one with a place of its own for the results, and one thread for torch.

    Several would wait for each other wherever the machine has other work.
    """
    return {**NO_DRIVER, "XDG_DATA_HOME": str(home), "OMP_NUM_THREADS": "1"}


def choose(terminal: Terminal, kind: str) -> None:
    """The kind from the list, by keys; the first field of the form is left as it is reached."""
    see(terminal, "No NVIDIA driver")
    terminal.send("2")
    see(terminal, "Press b to start")
    terminal.send(TAB)
    terminal.send(ENTER)
    terminal.wait_for(lambda t: t.text.count("copy") >= 2, what="the list of kinds")
    terminal.send(DOWN * KINDS.index(kind))
    terminal.send(ENTER)
    terminal.wait_for(lambda t: f"Kind {kind}" in t.text, what=f"Kind {kind}")


def start(terminal: Terminal, seconds: str, *, fields: int) -> None:
    """Types the time, so many fields further on, and starts."""
    terminal.send(TAB * fields + seconds)
    terminal.wait_for(lambda t: re.search(rf"Time s {seconds}\b", t.text) is not None)
    terminal.send(ENTER)


def kept(home: Path) -> list[dict[str, Any]]:
    """What `gputop bench --history` says that was kept, newest first."""
    done = subprocess.run(
        [*GPUTOP, "bench", "--history", "--json"],
        env={**os.environ, **environment(home)},
        capture_output=True,
        check=True,
        timeout=60,
    )
    document: list[dict[str, Any]] = json.loads(done.stdout)
    return document


@pytest.mark.slow
def test_a_sweep_is_drawn_and_kept(tmp_path: Path) -> None:
    with dashboard(env=environment(tmp_path), columns=120, rows=40) as terminal:
        choose(terminal, "sweep")
        start(terminal, "2", fields=4)
        terminal.wait_for("Running sweep, float32", timeout=RUN_SECONDS)
        terminal.wait_for("rows, at most")
        terminal.wait_for("Done sweep, float32", timeout=RUN_SECONDS)
        terminal.wait_for(lambda t: re.search(r"\d+ rows in \d", t.text) is not None)
        assert any("\u2801" <= c <= "\u28ff" for c in terminal.text)
        assert "1 float32" in row_of(terminal, "FLOP/s, by N")
        terminal.wait_for(lambda t: re.search(r" sweep +float32 .* ok", t.text) is not None)
        best = re.search(r"best (\S+) [TG]FLOP/s float32, (\d+)", terminal.text)
        assert worker_pids(terminal) == []
        leave(terminal)
    (result,) = kept(tmp_path)
    assert result["kind"] == "sweep"
    assert best is not None
    peak = float(best[1]) / (1000 if " GFLOP/s" in best[0] else 1)
    assert peak == pytest.approx(result["tflops_peak"], rel=0.01)
    assert int(best[2]) == result["n"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fields"), [("sweep", 4), ("peak", 4), ("copy", 2)])
def test_x_stops_it_in_the_middle(tmp_path: Path, kind: str, fields: int) -> None:
    with dashboard(env=environment(tmp_path), columns=80, rows=24) as terminal:
        choose(terminal, kind)
        start(terminal, "60", fields=fields)
        terminal.wait_for(f"Running {kind}", timeout=RUN_SECONDS)
        some = re.compile(r"\b[1-9]\d* of at most \d+ rows")
        terminal.wait_for(lambda t: some.search(t.text) is not None, timeout=RUN_SECONDS)
        assert len(worker_pids(terminal)) == 1
        terminal.send("x")
        terminal.wait_for(f"Stopped {kind}")
        assert worker_pids(terminal) == []
        terminal.wait_for(lambda t: re.search(rf" {kind} .* stopped", t.text) is not None)
        leave(terminal)
    (result,) = kept(tmp_path)
    assert (result["kind"], result["stopped"]) == (kind, "user")
    assert result["points"]
