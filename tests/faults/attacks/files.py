"""Files that gputop must not write, take or wait for."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

from tests.faults.attacks.attack import PEER, Attack, Kind, Scene

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = {
    "a device node": stat.S_ISCHR,
    "a named pipe": stat.S_ISFIFO,
    "a socket": stat.S_ISSOCK,
    "a directory": stat.S_ISDIR,
}
NULL = os.makedev(1, 3)
"""The numbers of /dev/null, for a node of the test's own."""


def node(scene: Scene, kind: str) -> Path:
    """Return a node of that kind; where no device may be made, a terminal takes its place."""
    path = scene.folder / "node"
    match kind:
        case "a device node":
            try:
                os.mknod(path, 0o666 | stat.S_IFCHR, NULL)
            except PermissionError:
                master, slave = os.openpty()
                scene.stack.callback(os.close, master)
                path.symlink_to(os.ttyname(slave))
        case "a named pipe":
            os.mkfifo(path)
        case "a socket":
            scene.stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        case _:
            path.mkdir()
    scene.memory["node"] = path, kind
    return path


def is_still_there(scene: Scene) -> bool:
    """The node was replaced"""
    path, kind = scene.memory["node"]
    return KINDS[kind](path.stat().st_mode)


def settings_on(kind: str, *, linked: bool = False) -> Attack:
    """Keep the settings with S in a file that is none."""

    def prepare(scene: Scene) -> list[str]:
        path = node(scene, kind)
        if linked:
            link = scene.folder / "link"
            link.symlink_to(path)
            path = link
        return ["--config", str(path)]

    return Attack(
        name=f"--config on {kind}{' behind a link' if linked else ''}, and S",
        prepare=prepare,
        kind=Kind.DASHBOARD,
        act=lambda scene: scene.send("TS"),
        says="Not saved",
        after=is_still_there,
    )


def report_on(kind: str) -> Attack:
    """Write the report of a benchmark over a node: refused before the run."""
    return Attack(
        name=f"bench --report on {kind}",
        prepare=lambda scene: ["bench", "--device", "cpu", "--report", str(node(scene, kind))],
        says=r"it is no regular file|it is a directory|Is a directory",
        status=(2, 3),
        after=is_still_there,
    )


def as_it_was(scene: Scene) -> bool:
    """The file was changed"""
    path, content = scene.memory["file"]
    return bool(path.read_bytes() == content)


def remembered(scene: Scene, path: Path) -> Path:
    """Note what is in a file, for `as_it_was`."""
    scene.memory["file"] = path, path.read_bytes()
    return path


def report_over_a_foreign_file(scene: Scene) -> list[str]:
    path = remembered(scene, scene.file("thesis.html", "<html>my thesis</html>"))
    return ["bench", "--device", "cpu", "--report", str(path)]


def report_over_a_peer(scene: Scene) -> list[str]:
    path = remembered(scene, scene.file("report.html", owner=PEER))
    return ["bench", "--device", "cpu", "--report", str(path)]


OUTPUT = ["stream", "--demo", "--count", "2", "--output"]


def output_to(
    make: Callable[[Scene], Path], *, on_screen: bool = False
) -> Callable[..., list[str]]:
    """Record to a file that is somebody else's."""

    def prepare(scene: Scene) -> list[str]:
        path = make(scene)
        return ["--demo", "--record", str(path)] if on_screen else [*OUTPUT, str(path)]

    return prepare


def of_a_peer(scene: Scene) -> Path:
    return remembered(scene, scene.file("a.jsonl", owner=PEER))


def link_of_a_peer(scene: Scene) -> Path:
    remembered(scene, scene.file("precious", "precious"))
    link = scene.folder / "a.jsonl"
    link.symlink_to(scene.folder / "precious")
    os.chown(link, PEER, PEER, follow_symlinks=False)
    return link


def pipe_of_a_peer(scene: Scene) -> Path:
    path = node(scene, "a named pipe")
    os.chown(path, PEER, PEER)
    descriptor = os.open(path, os.O_RDWR)  # somebody reads it
    scene.stack.callback(os.close, descriptor)
    return path


def with_results(make: Callable[[Path], object]) -> Callable[[Scene], list[str]]:
    """Open the dashboard with a results file that is none."""

    def prepare(scene: Scene) -> list[str]:
        folder = scene.folder / "data" / "gputop"
        folder.mkdir(parents=True)
        make(folder / "results.sqlite")
        scene.environment["XDG_DATA_HOME"] = str(scene.folder / "data")
        return ["--demo"]

    return prepare


def settings_in(content: bytes) -> Callable[[Scene], list[str]]:
    return lambda scene: ["--demo", "--config", str(scene.file("config.toml", content))]


ATTACKS = (
    *(settings_on(kind) for kind in KINDS),
    settings_on("a device node", linked=True),
    *(report_on(kind) for kind in KINDS),
    Attack(
        name="bench --report over a file that is no report",
        prepare=report_over_a_foreign_file,
        says="--force",
        status=(2, 3),
        after=as_it_was,
    ),
    Attack(
        name="bench --report over a file of another user",
        prepare=report_over_a_peer,
        says="it belongs to another user",
        status=(2, 3),
        after=as_it_was,
    ),
    Attack(
        name="stream --output to an empty file of another user",
        prepare=output_to(of_a_peer),
        says="it belongs to another user",
        status=(3,),
        after=as_it_was,
    ),
    Attack(
        name="stream --output to a link that another user left",
        prepare=output_to(link_of_a_peer),
        says="it is a link",
        status=(3,),
        after=as_it_was,
    ),
    Attack(
        name="stream --output to a pipe of another user",
        prepare=output_to(pipe_of_a_peer),
        says="it belongs to another user",
        status=(3,),
    ),
    Attack(
        name="--record to an empty file of another user",
        prepare=output_to(of_a_peer, on_screen=True),
        kind=Kind.DASHBOARD,
        says="it belongs to another user",
        after=as_it_was,
    ),
    Attack(
        name="results are a named pipe",
        prepare=with_results(os.mkfifo),
        kind=Kind.DASHBOARD,
        act=lambda scene: scene.send("2"),
        says=" Kind ",
    ),
    Attack(
        name="results are a link to itself",
        prepare=with_results(lambda path: path.symlink_to(path)),
        kind=Kind.DASHBOARD,
        act=lambda scene: scene.send("2"),
        says=" Kind ",
    ),
    Attack(
        name="settings of 100 MB",
        prepare=settings_in(b"theme = 'dark'\n" * 7_000_000),
        kind=Kind.DASHBOARD,
        says="it has over 64 KiB",
    ),
    Attack(
        name="settings of nested arrays",
        prepare=settings_in(b"theme = " + b"[" * 60_000),
        kind=Kind.DASHBOARD,
        says="are not used",
    ),
)
