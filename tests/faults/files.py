"""Faults of files: no home, no room, settings and results that are broken, recordings that go."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from tests import recordings
from tests.e2e.pretender import worker
from tests.e2e.shipped import GPUTOP
from tests.faults.processes import ON_BENCHMARK, by_itself, free, opened, with_worker
from tests.faults.scenario import KEYS, Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.scenario import Deed
    from tests.faults.stage import Stage

OWN = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
SHORT = worker().replace('asked["seconds"]:', "0.5:")
"""A worker whose run is soon over."""


def settings(content: bytes) -> Deed:
    """A settings file with that in it."""

    def prepare(stage: Stage) -> None:
        file = stage.folder / "config.toml"
        file.write_bytes(content)
        stage.arguments += ["--config", str(file)]

    return prepare


def results(stage: Stage) -> Path:
    """Where they are kept, in a home of the stage's own; with a worker that is soon done."""
    with_worker(SHORT)(stage)
    data = stage.folder / "data"
    stage.environment["XDG_DATA_HOME"] = str(data)
    return data / "gputop" / "results.sqlite"


def results_are(content: bytes) -> Deed:
    """A results file with that in it."""

    def prepare(stage: Stage) -> None:
        file = results(stage)
        file.parent.mkdir(parents=True)
        file.write_bytes(content)

    return prepare


def without_home(stage: Stage) -> None:
    """A home in which there can be nothing."""
    with_worker(SHORT)(stage)
    names = [word for name in OWN for word in ("-u", name)]
    stage.command = ["env", *names, "HOME=/dev/null", *GPUTOP]


def recording(stage: Stage) -> None:
    """What is shown is recorded."""
    stage.arguments += ["--record", str(stage.folder / "a.jsonl")]


def recorded(stage: Stage) -> None:
    """It is."""
    stage.see("REC")
    stage.until(lambda _: (stage.folder / "a.jsonl").exists(), "file of the recording")


def no_room(stage: Stage) -> None:
    """No file of the dashboard's may grow any more."""
    size = (stage.folder / "a.jsonl").stat().st_size
    resource.prlimit(stage.terminal.pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))


def played(stage: Stage) -> None:
    """A recording of ten minutes."""
    recordings.make(stage.folder / "a.jsonl", 600)
    stage.arguments[:] = ["--replay", str(stage.folder / "a.jsonl")]


def cut_off(stage: Stage) -> None:
    """All but its begin."""
    os.truncate(stage.folder / "a.jsonl", 9000)
    stage.terminal.send(FAR_ON)


FAR_ON = "\x1b[1;2C"
NO_SETTINGS = "used:"
"""Words that come one by one: what is notified has its lines where there is room."""
SETTINGS = Scenario(
    name="settings are garbage",
    at_start=True,
    fault=by_itself,
    prepare=settings(b"\x1b[31m = \0["),
    says=(NO_SETTINGS, "Fix it", "44 %"),
    passes=True,
)
RESULTS = tuple(
    Scenario(
        name=name,
        prepare=prepare,
        lead=opened,
        fault=lambda stage: stage.terminal.send("b"),
        says=("Done bfloat16", *says),
        devices=free,
        keys=ON_BENCHMARK,
        alive=None,
    )
    for name, prepare, says in (
        (
            "results are random bytes",
            results_are(bytes(range(256)) * 99),
            ("Not kept: The file of earlier results cannot be used", "Move"),
        ),
        ("no home", without_home, ()),
    )
)
RECORDING = Scenario(
    name="the disk is full in the midst of a recording",
    environment={"PYTHONDONTWRITEBYTECODE": "1"},  # half a module would be taken for a whole
    prepare=recording,
    lead=recorded,
    fault=no_room,
    says=("Not recorded", "large.", "Free"),
    silent=(" REC ",),
    passes=True,
)
REPLAY = Scenario(
    name="a recording that is played is cut off",
    prepare=played,
    before=("REPLAY", "busy", " of 9:59"),
    fault=cut_off,
    says=("cannot be read again",),
    alive=None,
    keys=KEYS[:2],
    passes=True,
    never=("a gap in the recording", "A fault in gputop"),
)
SCENARIOS = (SETTINGS, *RESULTS, RECORDING, REPLAY)
