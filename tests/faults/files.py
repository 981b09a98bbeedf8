"""Faults of files: no home, no room, settings and results that are broken, recordings that go."""

from __future__ import annotations

import os
import resource
import sqlite3
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


def folder_for_settings(stage: Stage) -> None:
    """A folder in the place of the settings."""
    stage.arguments += ["--config", str(stage.folder)]


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


def newer(stage: Stage) -> None:
    """The results of a gputop to come."""
    file = results(stage)
    file.parent.mkdir(parents=True)
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE results (id INTEGER PRIMARY KEY)")
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def locked(stage: Stage) -> None:
    """Results that another program holds."""
    file = results(stage)
    file.parent.mkdir(parents=True)
    connection = stage.memory["lock"] = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA user_version = 1")
    connection.execute("CREATE TABLE results (id INTEGER PRIMARY KEY)")
    connection.execute("BEGIN EXCLUSIVE")


def without_home(stage: Stage) -> None:
    """A home in which there can be nothing."""
    with_worker(SHORT)(stage)
    names = [word for name in OWN for word in ("-u", name)]
    stage.command = ["env", *names, "HOME=/dev/null", *GPUTOP]


def homeless(stage: Stage) -> None:
    """No variable says where the home is."""
    stage.command = ["env", *(word for name in OWN for word in ("-u", name)), *GPUTOP]


def without_folders(stage: Stage) -> None:
    """The working directory is removed, and there is no place for what is temporary."""
    with_worker(SHORT)(stage)
    stage.environment["TMPDIR"] = "/nonexistent"
    away = 'mkdir "$1"; cd "$1"; rmdir "$1"; shift; exec "$@"'
    stage.command = ["sh", "-c", away, "sh", str(stage.folder / "away"), *GPUTOP]


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


def removed(stage: Stage) -> None:
    """The recording is."""
    (stage.folder / "a.jsonl").unlink()


def played(stage: Stage) -> None:
    """A recording of ten minutes."""
    recordings.make(stage.folder / "a.jsonl", 600)
    stage.arguments[:] = ["--replay", str(stage.folder / "a.jsonl")]


def cut_off(stage: Stage) -> None:
    """All but its begin."""
    os.truncate(stage.folder / "a.jsonl", 9000)
    stage.terminal.send(FAR_ON)


def gone(stage: Stage) -> None:
    """There is none."""
    removed(stage)
    stage.terminal.send(FAR_ON)


FAR_ON = "\x1b[1;2C"
NO_SETTINGS = "used:"
"""Words that come one by one: what is notified has its lines where there is room."""
SETTINGS = tuple(
    Scenario(
        name=f"settings are {what}",
        at_start=True,
        fault=by_itself,
        prepare=prepare,
        says=(NO_SETTINGS, why, "44 %"),
        passes=True,
    )
    for what, prepare, why in (
        ("garbage", settings(b"\x1b[31m = \0["), "Fix it"),
        ("a folder", folder_for_settings, "directory."),
    )
)
NOT_KEPT = "Not kept: The file of earlier results cannot be used"
RESULTS = tuple(
    Scenario(
        name=f"results are {what}",
        prepare=prepare,
        lead=opened,
        fault=lambda stage: stage.terminal.send("b"),
        says=("Done bfloat16", NOT_KEPT, why),
        devices=free,
        keys=ON_BENCHMARK,
        alive=None,
    )
    for what, prepare, why in (
        ("random bytes", results_are(bytes(range(256)) * 99), "Move"),
        ("of a newer gputop", newer, "Upgrade"),
        ("locked", locked, "database is locked"),
    )
)
HOME = (
    Scenario(
        name="nothing says where the home is",
        prepare=homeless,
        at_start=True,
        fault=by_itself,
        says=("0 Test 0", "44 %"),
    ),
)
PLACES = tuple(
    Scenario(
        name=f"no {what}",
        prepare=prepare,
        lead=opened,
        fault=lambda stage: stage.terminal.send("b"),
        says=("Done bfloat16", *says),
        devices=free,
        keys=ON_BENCHMARK,
        alive=None,
    )
    for what, prepare, says in (
        ("home", without_home, ()),
        ("working directory", without_folders, ()),
    )
)
RECORDINGS = (
    Scenario(
        name="the disk is full in the midst of a recording",
        environment={"PYTHONDONTWRITEBYTECODE": "1"},  # half a module would be taken for a whole
        prepare=recording,
        lead=recorded,
        fault=no_room,
        says=("Not recorded", "large.", "Free"),
        silent=(" REC ",),
        passes=True,
    ),
    Scenario(
        name="a recording is removed in its midst",
        prepare=recording,
        lead=recorded,
        fault=removed,
        says=("Not recorded", "removed."),
        silent=(" REC ",),
        passes=True,
    ),
)
REPLAYS = tuple(
    Scenario(
        name=f"a recording that is played {what}",
        prepare=played,
        before=("REPLAY", "busy", " of 9:59"),
        fault=fault,
        says=says,
        alive=None,
        keys=KEYS[:2],
        passes=True,
        never=("a gap in the recording", "A fault in gputop"),
    )
    for what, fault, says in (
        ("is cut off", cut_off, ("damaged at line",)),
        ("is removed", gone, ("    1:0", " of 9:59")),
    )
)
SCENARIOS = (*SETTINGS, *RESULTS, *HOME, *PLACES, *RECORDINGS, *REPLAYS)
