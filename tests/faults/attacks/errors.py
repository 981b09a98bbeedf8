"""Surroundings and arguments that must end in one line, or change nothing."""

from __future__ import annotations

import os
import shlex
import stat
import threading
from typing import TYPE_CHECKING

from tests.driver import FakeDevice
from tests.faults.attacks.attack import Attack, Kind, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

GOES_ON = "q Quit"
"""On screen while the dashboard is well."""


def few_files(*arguments: str, most: int = 10) -> Callable[[Scene], list[str]]:
    """Run it with so many files at once."""

    def prepare(scene: Scene) -> list[str]:
        line = f'ulimit -n {most}; exec {shlex.join(scene.command)} "$@"'
        scene.command = ["/bin/sh", "-c", line, "sh"]
        return [*arguments]

    return prepare


def with_environment(*arguments: str, **variables: str) -> Callable[[Scene], list[str]]:
    """Run it with these variables."""

    def prepare(scene: Scene) -> list[str]:
        scene.environment.update(variables)
        return [*arguments]

    return prepare


def own_terminal(scene: Scene) -> list[str]:
    """The settings are the terminal itself."""
    scene.command = ["/bin/sh", "-c", 'exec "$@" --config "$(tty)"', "sh", *scene.command]
    return ["--demo"]


def fed(scene: Scene, data: bytes, name: str = "pipe") -> str:
    """Return a named pipe into which that is written for ever, as soon as somebody reads it."""
    path = scene.folder / name
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.001):
            try:
                while True:
                    os.write(descriptor, data)
            except BlockingIOError:
                continue

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    scene.stack.callback(os.close, descriptor)
    scene.stack.callback(thread.join)
    scene.stack.callback(over.set)
    return str(path)


def overwritten(scene: Scene) -> list[str]:
    """Another distribution says that gputop's files are its own."""
    folder = scene.folder / "gputop-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: gputop\nVersion: 9.9\n")
    (folder / "RECORD").write_text("gputop/__init__.py,,\ngputop/cli.py,,\n")
    scene.environment["PYTHONPATH"] = str(scene.folder)
    return ["doctor"]


INJECTED = ("-oProxyCommand=touch {}", "--proxy=touch {}", "a;touch {}", "$(touch {})", "a b\n{}")


def injection(host: str) -> Attack:
    """A host name that would be an option of ssh, or a command of a shell."""

    def prepare(scene: Scene) -> list[str]:
        scene.host("none", "")
        scene.memory["made"] = scene.folder / "made"
        return ["status", "--host", host.format(scene.memory["made"])]

    return Attack(
        name=f"--host {host.format('FILE')!r}",
        prepare=prepare,
        says="error: .*host|not the name of a host|no host|cannot be reached|stopped",
        status=(2, 3),
        after=nothing_made,
    )


def nothing_made(scene: Scene) -> bool:
    """A command was run"""
    return not scene.memory["made"].exists()


FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3+cmd|' /C calc'!A0", "@SUM(1+1)*cmd|' /C calc'!A0")


def formulas(scene: Scene) -> list[str]:
    """Devices that are named like formulas of a spreadsheet."""
    scene.driver(*(FakeDevice(name=name) for name in FORMULAS))
    query = "index,name,power.draw,temperature.gpu"
    return ["stream", "--count", "1", "--format", "csv", "--query", query]


ESCAPES = "x\x1b]52;c;aGk=\x07\x1b[2J\x1b[31m\x9b31m\x00\u202e"


def escapes(*arguments: str) -> Callable[[Scene], list[str]]:
    """Devices, processes and a driver with escape sequences in their names."""

    def prepare(scene: Scene) -> list[str]:
        name = ESCAPES.replace("\x00", "")
        child = scene.child("sh", "-c", "read line; exit", name)
        scene.driver(FakeDevice(name=name, processes=(child,)))
        return [*arguments]

    return prepare


RAW_ESCAPES = r"\x1b\]52|\x1b\[2J\x1b\[31m|\x07|\u202e|Traceback"


def big_terminal(columns: int, rows: int) -> Attack:
    return Attack(
        name=f"a terminal of {columns} x {rows}",
        prepare=lambda _: ["--demo"],
        kind=Kind.DASHBOARD,
        size=(columns, rows),
        says="gputop",
        hold=3.0,
        mib=200,
        quick=False,
    )


ATTACKS = (
    *(
        Attack(
            name=f"ulimit -n {most}: {' '.join(arguments) or 'the dashboard'}",
            prepare=few_files(*arguments, most=most),
            says="too many open files|Too many open files|ulimit",
            status=(2, 3),
            mib=200,
        )
        for most, arguments in (
            (10, ()),
            (10, ("--demo",)),
            (8, ("status",)),
            (10, ("bench", "--device", "cpu", "--seconds", "1")),
        )
    ),
    Attack(
        name="ulimit -n 10: exporter",
        prepare=few_files("exporter", "--listen", "127.0.0.1:0"),
        kind=Kind.SERVICE,
        says="Too many open files",
    ),
    Attack(
        name="ulimit -n 10: the dashboard in a terminal",
        prepare=few_files("--demo"),
        kind=Kind.TERMINAL,
        says="ulimit",
        status=(3,),
    ),
    Attack(
        name="TEXTUAL_COLOR_SYSTEM=nonsense",
        prepare=with_environment("--demo", TEXTUAL_COLOR_SYSTEM="nonsense"),
        kind=Kind.TERMINAL,
        says="TEXTUAL_COLOR_SYSTEM=nonsense is not known",
        status=(2,),
    ),
    Attack(
        name="--config on one's own terminal",
        prepare=own_terminal,
        kind=Kind.DASHBOARD,
        says="it is a terminal",
    ),
    Attack(
        name="--config /dev/stdin, which is the terminal",
        prepare=lambda _: ["--demo", "--config", "/dev/stdin"],
        kind=Kind.DASHBOARD,
        says="it is a terminal",
    ),
    Attack(
        name="--config on a named pipe that never ends",
        prepare=lambda scene: ["--demo", "--config", fed(scene, b"theme = 'dark'\n" * 100)],
        kind=Kind.DASHBOARD,
        says="it is a pipe",
    ),
    Attack(
        name="--replay on a named pipe that never ends",
        prepare=lambda scene: ["--replay", fed(scene, b'{"type":"sample"}\n' * 100)],
        says="cannot be played: it is not a file",
        status=(2, 3),
    ),
    Attack(
        name="status --replay on a named pipe that nobody writes",
        prepare=lambda scene: ["status", "--replay", _silent(scene)],
        says="cannot be played: it is not a file",
        status=(2, 3),
    ),
    Attack(
        name="--python on a named pipe",
        prepare=lambda scene: ["--python", _silent(scene), "bench", "--seconds", "1"],
        says="error: ",
        status=(2, 3),
    ),
    Attack(
        name="COLUMNS=999999, LINES=999999",
        prepare=with_environment("--demo", COLUMNS="999999", LINES="999999"),
        kind=Kind.DASHBOARD,
        says="gputop",
        hold=2.0,
        mib=200,
        quick=False,
    ),
    Attack(
        name="COLUMNS=999999: status",
        prepare=with_environment("status", "--demo", COLUMNS="999999"),
        says="H100",
    ),
    big_terminal(5000, 3000),
    big_terminal(65535, 65535),
    Attack(
        name="doctor, where another distribution has overwritten gputop",
        prepare=overwritten,
        says="another project's gputop 9.9 is installed too",
        status=(0, 1),
    ),
    *(injection(host) for host in INJECTED),
    Attack(
        name="CSV of devices that are named like formulas",
        prepare=formulas,
        says=r"cmd\|",
        never=r"(?m)(^|, )[=+@-](cmd|1\+|2\+|SUM)",
    ),
    *(
        Attack(
            name=f"escape sequences in names: {' '.join(arguments)}",
            prepare=escapes(*arguments),
            says=r"␛|\\u001b",
            never=RAW_ESCAPES,
        )
        for arguments in (("status", "--processes"), ("stream", "--count", "1", "--format", "csv"))
    ),
    Attack(
        name="escape sequences in names: the dashboard",
        prepare=escapes(),
        kind=Kind.DASHBOARD,
        says="␛",
        never=RAW_ESCAPES,
    ),
)


def _silent(scene: Scene) -> str:
    path = scene.folder / "silent"
    os.mkfifo(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    return str(path)
