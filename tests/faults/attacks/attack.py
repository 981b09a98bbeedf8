"""An attack on the shipped command, and how what becomes of it is measured."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.driver import FakeDevice, FakeDriver, FakeProcess, build
from tests.e2e.shipped import GPUTOP, NO_DRIVER
from tests.fake_ssh import FakeSsh
from tests.terminal import ScreenError, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

MOST_MIB = 3072
"""Of memory for a program and all that it starts: beyond it they are killed."""
MOST_SECONDS = 60.0
KEY_SECONDS, EXIT_SECONDS = 20.0, 30.0
"""How long a key, and the end after `q`, is waited for."""
KEPT_BYTES = 4 << 20
"""Of what a program writes; the rest is read and dropped."""
LOOK_SECONDS = 0.05
PEER = 65534
"""Another user: nobody."""


class Kind(Enum):
    """How the command is run, and how it ends."""

    COMMAND = "a command"
    """With its output in a pipe, until it ends by itself."""
    DASHBOARD = "the dashboard"
    """In a terminal, until q is pressed."""
    TERMINAL = "a command in a terminal"
    """Until it ends by itself."""
    SERVICE = "a service"
    """With its output in a pipe, until SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One hostile input."""

    name: str
    prepare: Callable[[Scene], list[str]]
    """Lays everything out; returns the arguments of gputop."""
    says: str
    """A pattern that the screen or the output must have, in the end."""
    never: str = r"Traceback \(most"
    """A pattern that must be in nothing that it writes."""
    kind: Kind = Kind.COMMAND
    act: Callable[[Scene], object] | None = None
    """Done once a dashboard has drawn something, or a service says where it listens."""
    status: tuple[int, ...] = (0,)
    """Exit statuses that are right."""
    after: Callable[[Scene], object] | None = None
    """What must be true in the end."""
    mib: int = 150
    """Memory that the process itself may take at its most."""
    seconds: float = 30.0
    """Until it says it, or ends."""
    hold: float = 0.5
    """Seconds between what a dashboard says and the first key."""
    quick: bool = True
    """True if it takes about three seconds, and so is one of the tests."""
    size: tuple[int, int] | None = None
    """Columns and rows of the terminal, if other than usual."""

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Outcome:
    """What became of an attack."""

    name: str
    words: str = ""
    """The line with what it says, or else its last line."""
    status: int | None = None
    key: float | None = None
    """Seconds of the slowest key; None where none is pressed."""
    exit: float | None = None
    """Seconds from `q` or SIGTERM to the end, or from the start where it ends by itself."""
    mib: float = 0.0
    tree_mib: float = 0.0
    misses: list[str] = field(default_factory=list)


@cache
def _library() -> Path:
    compiler = shutil.which("cc")
    assert compiler is not None, "the fake driver needs a C compiler"
    kept = Path(tempfile.gettempdir()) / f"gputop-fake-driver-{os.getuid()}"
    return build(kept, compiler)


class Scene:
    """The folder, environment and helpers of one attack."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = contextlib.ExitStack()
        self.environment = dict(NO_DRIVER)
        self.command = [*GPUTOP]
        self.memory: dict[str, Any] = {}
        self.said = ""
        """What the program has written so far, or a deed has found out."""
        self.terminal: Terminal | None = None
        self._ssh: FakeSsh | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def file(self, name: str, content: bytes | str = b"", owner: int | None = None) -> Path:
        """Return a file with that content, that belongs to another user if `owner` says so."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if owner is not None:
            os.chown(path, owner, owner)
        return path

    def host(self, name: str, shell: str) -> list[str]:
        """Return the arguments for a host that runs that instead of gputop."""
        if self._ssh is None:
            self._ssh = FakeSsh(self.folder)
            self.environment["PATH"] = self._ssh.path
        self._ssh.does(name, shell)
        return ["--host", name]

    def driver(self, *devices: FakeDevice) -> FakeDriver:
        """Return a fake driver that this run uses."""
        driver = FakeDriver(self.folder, _library())
        driver.write(*devices)
        self.environment.update(driver.environment())
        return driver

    def child(self, *argv: str, environment: dict[str, str] | None = None) -> FakeProcess:
        """Return a process with these arguments that runs until the end, as a driver has it."""
        sleep = shutil.which("sleep")
        assert sleep is not None
        child = subprocess.Popen(
            ["sleep", "600", *argv] if not argv else [*argv],
            executable="/bin/sh" if argv else sleep,
            env=environment,
            stdin=subprocess.PIPE,
        )
        self.stack.enter_context(child)
        self.stack.callback(child.kill)
        return FakeProcess(child.pid, memory_bytes=1 << 30)

    def send(self, keys: str) -> None:
        """Type, once the dashboard takes keys."""
        assert self.terminal is not None
        self.terminal.wait_for("q Quit")
        self.terminal.send(keys)


class Watchdog(threading.Thread):
    """Notes the memory of a program and all its children, and kills them beyond the bound."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._over = threading.Event()
        self._began = time.monotonic()
        self.mib = self.tree_mib = 0.0
        self.killed = ""

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        own, pids = memory_of(self._pid), descendants(self._pid)
        self.mib = max(self.mib, own[1])
        tree = own[0] + sum(memory_of(pid)[0] for pid in pids)
        self.tree_mib = max(self.tree_mib, tree)
        if tree > MOST_MIB:
            self.killed = f"killed at {tree:.0f} MiB"
        elif time.monotonic() - self._began > MOST_SECONDS + KEY_SECONDS + EXIT_SECONDS:
            self.killed = "killed, as it took too long"
        if self.killed:
            for pid in (self._pid, *pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        self._over.set()
        self.join()


def memory_of(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process now, and at its most, in MiB."""
    found = {"VmRSS": 0.0, "VmHWM": 0.0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) / 1024
    return found["VmRSS"], found["VmHWM"]


def descendants(pid: int) -> list[int]:
    """Return its children, theirs, and so on."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for word in (task / "children").read_text().split():
                found += [int(word), *descendants(int(word))]
    return found


def tried(attack: Attack, folder: Path) -> Outcome:
    """Return what became of an attack; `misses` says what must not be so."""
    outcome = Outcome(attack.name)
    with Scene(folder) as scene:
        arguments = attack.prepare(scene)
        if attack.kind in (Kind.DASHBOARD, Kind.TERMINAL):
            _in_terminal(attack, scene, arguments, outcome)
        else:
            _in_pipes(attack, scene, arguments, outcome)
        outcome.words = _words(attack, scene)
        _judge(attack, scene, outcome)
    return outcome


def _words(attack: Attack, scene: Scene) -> str:
    lines = [line for line in scene.said.splitlines() if line.strip()]
    found = [line for line in lines if re.search(attack.says, line)]
    words = (found or lines or ["nothing"])[-1]
    for place in (f"{scene.folder}/", sys.prefix):
        words = words.replace(place, "")
    words = re.sub(r"[^ -~–…▲█␛]+", " ", words)
    return re.sub(r"\s+", " ", words).strip()


def _judge(attack: Attack, scene: Scene, outcome: Outcome) -> None:
    if not re.search(attack.says, scene.said):
        outcome.misses.append(f"does not say {attack.says!r}")
    if (wrong := re.search(attack.never, scene.said)) is not None:
        outcome.misses.append(f"says {wrong[0]!r}")
    if outcome.status not in attack.status:
        outcome.misses.append(f"exit status {outcome.status}")
    if outcome.mib > attack.mib:
        outcome.misses.append(f"{outcome.mib:.0f} MiB where {attack.mib} are allowed")
    if attack.after is not None and not attack.after(scene):
        outcome.misses.append((attack.after.__doc__ or "").strip() or "not as it must be after")


class Unseen(Terminal):
    """A terminal too large to be drawn here: its text is the newest that came since a key."""

    newest = b""

    @property
    def text(self) -> str:
        """The text without escape sequences."""
        return ESCAPE.sub(" ", self.newest.decode(errors="replace"))

    def send(self, keys: str | bytes) -> None:
        self.newest = b""
        super().send(keys)

    def _take(self, data: bytes) -> None:
        self._taken_at = self.elapsed
        self.newest = (self.newest + data)[-(1 << 14) :]


ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][B0])")
DRAWN_CELLS = 50_000


def _in_terminal(attack: Attack, scene: Scene, arguments: list[str], outcome: Outcome) -> None:
    columns, rows = attack.size or (120, 40)
    kind = Unseen if columns * rows > DRAWN_CELLS else Terminal
    argv = [*scene.command, *arguments]
    with kind(argv, scene.environment, columns, rows) as terminal:
        scene.terminal = terminal
        watchdog = Watchdog(terminal.pid)
        watchdog.start()
        try:
            _played(attack, scene, terminal, outcome)
        except (AssertionError, OSError) as error:
            outcome.misses.append(watchdog.killed or str(error).splitlines()[0])
        finally:
            scene.said = f"{scene.said}\n{_seen(terminal)}"
            if "Traceback" in (text := terminal.raw[-20_000:].decode(errors="replace")):
                scene.said += text
            watchdog.close()
            outcome.mib, outcome.tree_mib = watchdog.mib, watchdog.tree_mib


def _seen(terminal: Terminal) -> str:
    """Return the screen, and once more what is in boxes, as one line: they wrap their words."""
    boxed = (row.split("│")[-2].strip() for row in terminal.text.split("\n") if "│" in row[:-1])
    return f"{terminal.text}\n{' '.join(boxed)}"


def _played(attack: Attack, scene: Scene, terminal: Terminal, outcome: Outcome) -> None:
    if attack.kind is Kind.TERMINAL:
        outcome.status = terminal.wait(attack.seconds)
        outcome.exit = terminal.elapsed
        return
    terminal.wait_for(lambda t: t.text.strip(), attack.seconds, "any text")
    if attack.act is not None:
        attack.act(scene)
    pattern = re.compile(attack.says)
    with contextlib.suppress(ScreenError):  # it is judged in the end
        terminal.wait_for(
            lambda t: pattern.search(f"{scene.said}\n{_seen(t)}"), attack.seconds, attack.says
        )
    scene.said += f"\n{_seen(terminal)}"
    terminal.collect(attack.hold)
    _press(terminal, outcome)
    scene.said += f"\n{_seen(terminal)}"
    began = terminal.elapsed
    terminal.send("q")
    outcome.status = terminal.wait(EXIT_SECONDS)
    outcome.exit = terminal.elapsed - began


def _press(terminal: Terminal, outcome: Outcome) -> None:
    """Open and close the help twice, and note the slowest key."""
    outcome.key = 0.0
    for opens in (True, False, True, False):
        if isinstance(terminal, Unseen) and not opens:  # what was on the screen is not known
            terminal.send("?")
            terminal.collect(0.5)
            continue
        try:
            took = terminal.answer("?", partial(_has_help, opens), KEY_SECONDS, "the help")
        except ScreenError:
            outcome.key = KEY_SECONDS
            outcome.misses.append(f"no key for {KEY_SECONDS:.0f} s")
            return
        outcome.key = max(outcome.key, took)


def _has_help(wanted: bool, terminal: Terminal) -> bool:
    return ("─ Help ─" in terminal.text) == wanted


def _in_pipes(attack: Attack, scene: Scene, arguments: list[str], outcome: Outcome) -> None:
    process = subprocess.Popen(
        [*scene.command, *arguments],
        env={**os.environ, **scene.environment},
        stdin=scene.memory.get("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    reader = _Reader(process)
    reader.start()
    watchdog = Watchdog(process.pid)
    watchdog.start()
    began = time.monotonic()
    try:
        if attack.kind is Kind.SERVICE:
            reader.wait_for("/metrics", attack.seconds)
            scene.said = reader.text
            if attack.act is not None:
                attack.act(scene)
            began = time.monotonic()
            process.terminate()
        outcome.status = process.wait(attack.seconds)
        outcome.exit = time.monotonic() - began
    except AssertionError as error:
        outcome.misses.append(str(error).splitlines()[0])
    except subprocess.TimeoutExpired:
        outcome.misses.append(watchdog.killed or f"no end after {attack.seconds:g} s")
    finally:
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        watchdog.close()
        reader.join(5.0)
        assert process.stdout is not None
        process.stdout.close()
        scene.said = reader.text + scene.said
        outcome.mib, outcome.tree_mib = watchdog.mib, watchdog.tree_mib


class _Reader(threading.Thread):
    """Keeps the beginning of what a program writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._kept = bytearray()
        self._changed = threading.Condition()

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def run(self) -> None:
        assert self._process.stdout is not None
        while data := self._process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            with self._changed:
                if len(self._kept) < KEPT_BYTES:
                    self._kept += data
                self._changed.notify_all()

    def wait_for(self, text: str, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: text in self.text, seconds)
