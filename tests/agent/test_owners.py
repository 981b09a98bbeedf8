"""Who processes are: real ones where they can be had, and a directory like /proc where not."""

from __future__ import annotations

import errno
import json
import os
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from gputop.agent.device import Absence
from gputop.agent.interface import LONGEST_FACT, OWNER_FIELDS, with_facts
from gputop.agent.lines import to_line
from gputop.agent.linux import owners as module
from gputop.agent.linux import procfs
from gputop.agent.linux.cgroup import Cgroup
from gputop.agent.linux.host import WINDOW_SECONDS
from gputop.agent.linux.owners import (
    CHILDREN,
    CHILDREN_SECONDS,
    IDENTITY_SECONDS,
    LISTED_SECONDS,
    Owners,
)
from gputop.agent.linux.procfs import BOOT_TIME, PAGE_BYTES, TICKS_PER_SECOND
from gputop.agent.snapshot import Sample
from gputop.schema.decode import decode
from tests import streams
from tests.agent.fake_proc import FakeProc, stat_line
from tests.agent.fakes import listed

if TYPE_CHECKING:
    from gputop.agent.snapshot import Process

BOUND = 60.0
NOBODY = 0x7FFFFFFF
ID = "4f1c0ab2d9e7" + "8635" * 13
UID = "2b7c1f30-5a4e-4d1b-9c7e-0f6a8b9c0d1e"
START = BOOT_TIME + 500 / TICKS_PER_SECOND
"""Of the processes in the directory."""


class Clock:
    """Stands in for the module's `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def find(owners: Owners, pid: int) -> Process:
    return with_facts(listed(pid), owners.owner_of(pid))


def unseen(process: Process, reason: Absence) -> Process:
    return with_facts(process, dict.fromkeys(OWNER_FIELDS, reason))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    proc = FakeProc(tmp_path, monkeypatch)
    # No process there is one here.
    monkeypatch.setattr(module, "_exists", lambda _: False)
    return proc


@pytest.fixture
def owners(proc: FakeProc) -> Owners:
    return Owners(proc.path)


def start(script: str, *arguments: str | bytes) -> subprocess.Popen[bytes]:
    """A Python without its site packages, which starts fast; it has printed its first line.

    Before it runs it has no command line, even when exec has closed its files.
    """
    command = [sys.executable, "-S", "-c", script, *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a command line that is not harmless, until its input ends."""
    with start("print(flush=True); input()", "a b", "\x1b[31m", b"\xff", "") as process:
        yield process


def test_a_process_is_known(child: subprocess.Popen[bytes]) -> None:
    """Its command line comes as it is: making it harmless is for who shows it."""
    owner = find(Owners(), child.pid)
    assert owner == replace(
        listed(child.pid),
        user=psutil.Process().username(),
        command=f"{sys.executable} -S -c print(flush=True); input() a b \x1b[31m \udcff",
        start_time=psutil.Process(child.pid).create_time(),
        memory_resident_bytes=owner.memory_resident_bytes,
        parent_pid=os.getpid(),
        parent_command=owner.parent_command,
        parent_start_time=psutil.Process().create_time(),
        container=owner.container,
        pod=owner.pod,
        slurm_job=owner.slurm_job,
        io_wait=owner.io_wait,
        children=0,
        children_cpu_percent=0.0,
        children_cpu_most_percent=0.0,
        absent={"cpu_percent": Absence.NO_DATA_YET},
    )
    assert owner.memory_resident_bytes is not None
    assert owner.memory_resident_bytes > 0
    assert owner.parent_command is not None
    assert owner.parent_command.startswith(psutil.Process().cmdline()[0])


def test_a_process_that_has_gone(child: subprocess.Popen[bytes]) -> None:
    owners = Owners()
    assert find(owners, child.pid) != unseen(listed(child.pid), Absence.LOST)
    child.communicate(timeout=BOUND)
    assert find(owners, child.pid) == unseen(listed(child.pid), Absence.LOST)


def test_a_process_that_nobody_has_waited_for(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    owner = find(Owners(), child.pid)
    assert owner.command == Path(sys.executable).name[:15]
    assert owner.memory_resident_bytes == 0


@pytest.mark.parametrize("pid", [0, -1, NOBODY, 0xFFFFFFFF, 1 << 40])
def test_a_pid_that_cannot_be(pid: int) -> None:
    assert find(Owners(), pid) == unseen(listed(pid), Absence.LOST)


def test_another_program_in_the_same_process(clock: Clock) -> None:
    script = """
import os, sys
print(flush=True)
input()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
    owners = Owners()
    with start(script, "-S", "-c", "print(flush=True); input()") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = find(owners, process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        clock.now += IDENTITY_SECONDS
        after = find(owners, process.pid)
        process.communicate(timeout=BOUND)
    assert after.command == f"{sys.executable} -S -c print(flush=True); input()"
    assert before.command != after.command
    assert before.start_time == after.start_time


def test_a_title_of_its_own(clock: Clock) -> None:
    """What setproctitle does: it writes over the arguments."""
    script = """
import ctypes
print(flush=True)
input()
fields = open("/proc/self/stat", "rb").read().rpartition(b")")[2].split()
start, end = int(fields[45]), int(fields[46])
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, b"trainer: epoch 3", 16)
print(flush=True)
input()
"""
    owners = Owners()
    with start(script) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        find(owners, process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        clock.now += IDENTITY_SECONDS
        assert find(owners, process.pid).command == "trainer: epoch 3"
        process.communicate(timeout=BOUND)


def test_cpu_is_that_of_the_time_since_the_look_before(clock: Clock) -> None:
    owners = Owners()
    find(owners, os.getpid())
    before = time.process_time()
    while time.process_time() < before + 0.3:
        pass
    clock.now += 0.5
    taken = time.process_time() - before
    assert find(owners, os.getpid()).cpu_percent == pytest.approx(100 * taken / 0.5, abs=10.0)


def test_cpu_is_of_one_core(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add(user_ticks=1000, system_ticks=500)
    first = find(owners, 7)
    assert first.cpu_percent is None
    assert first.absent == {"cpu_percent": Absence.NO_DATA_YET}
    clock.now += 2.0
    proc.add(user_ticks=1000 + 6 * TICKS_PER_SECOND, system_ticks=500 + TICKS_PER_SECOND)
    second = find(owners, 7)
    assert second.cpu_percent == pytest.approx(350.0)
    assert second.absent == {}
    clock.now += 2.0
    assert find(owners, 7).cpu_percent == 0.0


def test_two_looks_at_once_are_one(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """A process on two instances of one GPU is asked for twice."""
    proc.add()
    find(owners, 7)
    clock.now += WINDOW_SECONDS / 2
    assert find(owners, 7).absent == {"cpu_percent": Absence.NO_DATA_YET}
    clock.now += 1.0 - WINDOW_SECONDS / 2
    proc.add(user_ticks=TICKS_PER_SECOND // 2)
    assert find(owners, 7).cpu_percent == pytest.approx(50.0)
    clock.now += WINDOW_SECONDS / 2
    proc.add(user_ticks=TICKS_PER_SECOND)
    assert find(owners, 7).cpu_percent == pytest.approx(50.0)
    clock.now += 1.0 - WINDOW_SECONDS / 2
    assert find(owners, 7).cpu_percent == pytest.approx(50.0)


def test_all_that_proc_says(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add(
        uid=os.getuid(),
        parent=5,
        pages=1000,
        cgroup=f"0::/kubepods/pod{UID}/{ID}/slurmstepd.scope/job_9\n".encode(),
    )
    assert find(owners, 7) == replace(
        listed(7),
        user=pwd.getpwuid(os.getuid()).pw_name,
        command="python train.py",
        start_time=START,
        memory_resident_bytes=1000 * PAGE_BYTES,
        parent_pid=5,
        container=ID[:12],
        pod=UID,
        slurm_job="9",
        io_wait=False,
        children=0,
        children_cpu_percent=0.0,
        children_cpu_most_percent=0.0,
        absent={"cpu_percent": Absence.NO_DATA_YET},
    )


def test_a_process_costs_one_file_at_each_look(
    clock: Clock, proc: FakeProc, owners: Owners
) -> None:
    proc.add()
    find(owners, 7)
    every = ["1/stat", "7/cgroup", "7/cmdline", "7/stat", "7/status", LIST]
    assert sorted(proc.opened) == every
    proc.opened.clear()
    for _ in range(9):
        clock.now += 1.0
        find(owners, 7)
    assert sorted(proc.opened) == ["7/stat"] * 9 + [LIST] * 4
    proc.opened.clear()
    clock.now += 1.0
    find(owners, 7)
    assert sorted({*proc.opened, "7/stat"}) == every


LIST = "7/task/7/children"


def busy_children(proc: FakeProc, *ticks: int, **last: Any) -> None:
    """A trainer whose workers have had so much of the CPU."""
    pids = range(20, 20 + len(ticks))
    for pid, taken in zip(pids, ticks, strict=True):
        proc.add(pid, parent=7, user_ticks=taken, **(last if pid == pids[-1] else {}))
    proc.add(children=pids)


def test_the_workers_of_a_process(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """They are on no device, and what they take of the CPU is why it waits."""
    busy_children(proc, 0, 0)
    first = find(owners, 7)
    assert (first.children, first.children_cpu_percent) == (2, None)
    assert first.absent["children_cpu_percent"] is Absence.NO_DATA_YET
    busy_children(proc, 2 * TICKS_PER_SECOND, TICKS_PER_SECOND)
    clock.now += CHILDREN_SECONDS
    owner = find(owners, 7)
    assert owner.children_cpu_percent == pytest.approx(150.0)
    assert owner.children_cpu_most_percent == pytest.approx(100.0)
    assert "children_cpu_percent" not in owner.absent
    assert owner.cpu_percent == 0


def test_another_worker_with_the_same_pid(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    busy_children(proc, 0, 900, start=500)
    find(owners, 7)
    busy_children(proc, TICKS_PER_SECOND, TICKS_PER_SECOND, start=9000)
    clock.now += CHILDREN_SECONDS
    owner = find(owners, 7)
    assert owner.children == 2
    assert owner.children_cpu_percent == pytest.approx(50.0)


@pytest.mark.parametrize("who", ["process", "worker"])
def test_who_waits_for_storage(clock: Clock, proc: FakeProc, owners: Owners, who: str) -> None:
    busy_children(proc, 0, 0)
    assert find(owners, 7).io_wait is False
    clock.now += CHILDREN_SECONDS
    if who == "process":
        proc.add(state=b"D")
    else:
        busy_children(proc, 0, 0, state=b"D")
    assert find(owners, 7).io_wait is True


def test_children_that_are_not_told(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """By a kernel that does not list them, or to us: the process is known without."""
    proc.add()
    (proc.root / LIST).unlink()
    owner = find(owners, 7)
    assert (owner.user is not None, owner.children, owner.children_cpu_percent) == (
        True,
        None,
        None,
    )
    assert {owner.absent[name] for name in CHILDREN} == {Absence.NOT_SUPPORTED}
    proc.add()
    proc.forbidden = {LIST}
    clock.now += CHILDREN_SECONDS
    assert find(owners, 7).absent["children"] is Absence.NO_PERMISSION


def test_a_worker_that_has_just_ended_and_a_list_that_is_cut(
    clock: Clock, proc: FakeProc, owners: Owners
) -> None:
    busy_children(proc, 0, 0)
    proc.take_away(21)
    assert find(owners, 7).children == 1
    assert procfs.read_children(7, proc.path) == (20, 21)
    proc.write(LIST, b"20 21 2")
    assert procfs.read_children(7, proc.path) == (20, 21)


def test_one_file_is_opened_at_a_look() -> None:
    """Not by the standard library either, as the interpreter itself reports it."""
    script = """
import json, os, sys
from gputop.agent.linux.owners import Owners
owners = Owners()
owners.owner_of(os.getppid())
opened = []
counting = ("open", "os.listdir", "os.scandir", "pwd.getpwuid", "subprocess.Popen", "os.kill")
sys.addaudithook(lambda event, of: opened.append((event, of[0])) if event in counting else None)
for _ in range(3):
    owners.owner_of(os.getppid())
found = list(opened)
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, timeout=BOUND
    )
    assert json.loads(done.stdout) == [["open", f"/proc/{os.getpid()}/stat"]] * 3


def test_who_it_is_is_looked_up_again(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add()
    assert find(owners, 7).command == "python train.py"
    proc.add(command=b"python\0serve.py\0", cgroup=f"0::/docker/{ID}\n".encode())
    clock.now += IDENTITY_SECONDS / 2
    assert find(owners, 7).command == "python train.py"
    clock.now += IDENTITY_SECONDS / 2
    proc.write("7/stat", stat_line(user_ticks=5 * TICKS_PER_SECOND))
    owner = find(owners, 7)
    assert (owner.command, owner.container) == ("python serve.py", ID[:12])
    assert owner.cpu_percent == pytest.approx(100 * 5 / (IDENTITY_SECONDS / 2))


def test_a_user_name_that_is_never_answered(
    clock: Clock, proc: FakeProc, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number stands for it, and other names are not held up. Later the name is there."""
    answered, found = threading.Event(), pwd.getpwuid(os.getuid())

    def getpwuid(uid: int) -> pwd.struct_passwd:
        if uid == 1000:
            assert answered.wait(BOUND)
        return found

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    owners = Owners(proc.path)
    proc.add(7, uid=1000)
    proc.add(8, uid=1001)
    for _ in range(3):
        assert (find(owners, 7).user, find(owners, 7).command) == ("1000", "python train.py")
        assert find(owners, 8).user == found.pw_name
        clock.now += 1.0
    answered.set()
    until(lambda: find(owners, 7).user == found.pw_name)


def test_a_directory_service_that_fails(
    clock: Clock, proc: FakeProc, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number stands for the name until it works again, and the rest is there."""

    def getpwuid(uid: int) -> pwd.struct_passwd:
        raise PermissionError(errno.EACCES, "refused")

    with monkeypatch.context() as failing:
        failing.setattr(pwd, "getpwuid", getpwuid)
        proc.add(7, uid=os.getuid())
        owner = find(owners, 7)
        assert (owner.user, owner.command) == (str(os.getuid()), "python train.py")
    assert find(owners, 7).user == pwd.getpwuid(os.getuid()).pw_name


def test_a_command_line_that_blocks(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """The kernel lets its readers wait for a process that waits for storage itself."""
    proc.add(7, state=b"D")
    proc.add(8)
    command_line = proc.root / "7/cmdline"
    command_line.unlink()
    os.mkfifo(command_line)
    for _ in range(3):
        stuck = find(owners, 7)
        assert (stuck.user, stuck.command, stuck.io_wait) == ("root", "python", True)
        assert stuck.start_time == START
        assert find(owners, 8).command == "python train.py"
        clock.now += IDENTITY_SECONDS
    command_line.write_bytes(b"python\0serve.py\0")
    until(lambda: find(owners, 7).command == "python serve.py")


def test_the_name_of_a_container_stands_for_its_id(
    clock: Clock, proc: FakeProc, tmp_path: Path
) -> None:
    config = tmp_path / f"var/lib/docker/containers/{ID}/config.v2.json"
    owners = Owners(proc.path, root=tmp_path)
    proc.add(cgroup=f"0::/docker/{ID}\n".encode())
    assert find(owners, 7).container == ID[:12]
    config.parent.mkdir(parents=True)
    config.write_text('{"Name": "/trainer"}')
    clock.now += IDENTITY_SECONDS
    assert find(owners, 7).container == "trainer"
    config.write_text('{"Name": "/renamed"}')
    clock.now += IDENTITY_SECONDS
    assert find(owners, 7).container == "renamed"
    proc.add(cgroup=f"0::/docker/{ID[::-1]}\n".encode())
    clock.now += IDENTITY_SECONDS
    assert find(owners, 7).container == ID[::-1][:12]
    proc.add()
    clock.now += IDENTITY_SECONDS
    assert find(owners, 7).container is None


def test_a_name_of_a_container_that_is_never_read(
    clock: Clock, proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may be in a home on another machine. The id stands for it, and the rest is there."""
    answered = threading.Event()

    def container_names(cgroup: str, root: Path) -> dict[str, str]:
        assert answered.wait(BOUND)
        return {"container": "trainer"}

    monkeypatch.setattr(module, "container_names", container_names)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.01)
    owners = Owners(proc.path)
    proc.add(cgroup=f"0::/docker/{ID}\n".encode())
    proc.add(8)
    for _ in range(3):
        owner = find(owners, 7)
        assert (owner.container, owner.command) == (ID[:12], "python train.py")
        assert find(owners, 8).command == "python train.py"
        clock.now += 1.0
    answered.set()
    until(lambda: find(owners, 7).container == "trainer")


def test_a_command_line_that_blocks_later_is_still_known(
    clock: Clock, proc: FakeProc, owners: Owners
) -> None:
    proc.add(7)
    assert find(owners, 7).command == "python train.py"
    command_line = proc.root / "7/cmdline"
    command_line.unlink()
    os.mkfifo(command_line)
    clock.now += IDENTITY_SECONDS
    assert find(owners, 7).command == "python train.py"
    command_line.write_bytes(b"python\0serve.py\0")
    until(lambda: find(owners, 7).command == "python serve.py")


def until(there: Callable[[], bool]) -> None:
    """Looks again and again until that is so: a thread has the answer at any moment now."""
    deadline, pause = time.monotonic() + BOUND, threading.Event()
    while not there():
        assert time.monotonic() < deadline
        pause.wait(0.01)


def test_a_pid_that_is_used_again(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """Another process, with nothing of the first one's, once the driver has listed it itself."""
    proc.add(user_ticks=1000)
    find(owners, 7)
    clock.now += 1.0
    assert find(owners, 7).cpu_percent == 0.0
    proc.add(user_ticks=3, start=600, command=b"vim\0")
    clock.now += 1.0
    assert find(owners, 7) == unseen(listed(7), Absence.NO_DATA_YET)
    clock.now += LISTED_SECONDS / 2
    assert find(owners, 7).command is None
    clock.now += LISTED_SECONDS / 2
    owner = find(owners, 7)
    assert owner.command == "vim"
    assert owner.start_time == START + 100 / TICKS_PER_SECOND
    assert owner.cpu_percent == 0.0


@pytest.mark.parametrize("step", [-7_200, 1, 2, 86_400])
def test_a_process_is_as_old_as_before_when_the_clock_was_set(
    clock: Clock, proc: FakeProc, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    proc.add()
    owners, ahead = Owners(proc.path), procfs._AHEAD
    assert find(owners, 7).start_time == START
    monkeypatch.setattr(procfs, "_ahead", lambda: ahead + step)
    proc.write("stat", b"btime %d\n" % (BOOT_TIME + step))
    clock.now += 1.0
    moved = step if abs(step) > procfs.STEP_SECONDS else 0  # a leap second is none
    assert find(owners, 7).start_time == START + moved
    assert find(owners, 7).start_time == START + moved


def test_a_process_is_forgotten_when_it_leaves_the_devices(
    clock: Clock, proc: FakeProc, owners: Owners
) -> None:
    proc.add()
    find(owners, 7)
    clock.now += 1.0
    owners.forget_others({7})
    assert find(owners, 7).cpu_percent == 0.0
    owners.forget_others({8})
    assert find(owners, 7).cpu_percent is None


def test_what_has_no_command_line_has_a_name(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """Kernel threads and zombies; so has one whose command line may not be seen."""
    proc.add(command=b"", name=b"kworker/0:1)")
    assert find(owners, 7).command == "kworker/0:1)"
    proc.add(pid=8)
    proc.forbidden = {"8/cmdline"}
    owner = find(owners, 8)
    assert owner.command == "python"
    assert "command" not in owner.absent


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        (b"a\0\0b\0", "a  b"),
        (b"nginx: worker\0\0\0\0\0", "nginx: worker"),
        (b"no end", "no end"),
        (b"x\nrm -rf\x1b[0m\0", "x\nrm -rf\x1b[0m"),
        (b"x" * 5000, "x" * 4096),
    ],
)
def test_command_lines(
    clock: Clock, proc: FakeProc, owners: Owners, raw: bytes, command: str
) -> None:
    proc.add(command=raw)
    assert find(owners, 7).command == command


def test_a_process_whose_parent_is_outside(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    """As that of a container's first process: 0 is no pid."""
    proc.add(parent=0)
    owner = find(owners, 7)
    assert owner.parent_pid is None
    assert owner.absent["parent_pid"] is Absence.LOST


def test_a_user_without_a_name(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add(uid=3_999_999_999)
    assert find(owners, 7).user == "3999999999"


def test_only_what_is_refused_is_absent(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add(uid=os.getuid())
    proc.forbidden = {"7/cgroup"}
    owner = find(owners, 7)
    assert owner.command == "python train.py"
    assert owner.user is not None
    assert owner.absent == dict.fromkeys(Cgroup._fields, Absence.NO_PERMISSION) | {
        "cpu_percent": Absence.NO_DATA_YET
    }


def test_a_kernel_without_control_groups(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add()
    (proc.root / "7/cgroup").unlink()
    owner = find(owners, 7)
    assert owner.user is not None
    assert {name: owner.absent[name] for name in Cgroup._fields} == dict.fromkeys(
        Cgroup._fields, Absence.NOT_SUPPORTED
    )


def owned_by(path: Path, uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the directory another owner, which only root could give it."""
    really = Path.stat

    def stat(self: Path, **how: bool) -> os.stat_result:
        found = really(self, **how)
        return os.stat_result((*found[:4], uid, *found[5:])) if self == path else found

    monkeypatch.setattr(Path, "stat", stat)


def test_hidepid_1(
    clock: Clock, proc: FakeProc, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory can be seen, and nothing in it."""
    proc.add()
    proc.forbidden = {"7/stat", "7/status", "7/cmdline", "7/cgroup"}
    owned_by(proc.root / "7", 3_999_999_999, monkeypatch)
    assert find(owners, 7) == replace(
        listed(7),
        user="3999999999",
        absent={name: Absence.NO_PERMISSION for name in OWNER_FIELDS if name != "user"},
    )


def test_the_owner_of_a_protected_process_is_not_told(
    clock: Clock, proc: FakeProc, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is root's, whoever its user is."""
    proc.add()
    owned_by(proc.root / "7", 0, monkeypatch)
    proc.forbidden = {"7/status"}
    owner = find(owners, 7)
    assert (owner.user, owner.absent["user"]) == (None, Absence.NO_PERMISSION)
    assert owner.command == "python train.py"
    proc.forbidden = {"7/stat", "7/status"}
    owners.forget_others(set())
    assert find(owners, 7) == unseen(listed(7), Absence.NO_PERMISSION)


def test_hidepid_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no directory, but the kernel knows the pid."""

    def refuse(pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    assert find(Owners(), NOBODY) == unseen(listed(NOBODY), Absence.NO_PERMISSION)
    assert find(Owners(), 0) == unseen(listed(0), Absence.LOST)


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(errno.ENOENT, "gone"), ProcessLookupError(errno.ESRCH, "gone")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["stat", "status", "cmdline"])
def test_a_process_that_goes_while_it_is_looked_at(
    clock: Clock, proc: FakeProc, owners: Owners, where: str, error: OSError
) -> None:
    proc.add()
    proc.broken = {f"7/{where}": error}
    assert find(owners, 7) == unseen(listed(7), Absence.LOST)
    proc.broken = {}
    assert find(owners, 7).command == "python train.py"


def test_a_process_that_goes_later(clock: Clock, proc: FakeProc, owners: Owners) -> None:
    proc.add()
    find(owners, 7)
    proc.take_away()
    clock.now += 1.0
    assert find(owners, 7) == unseen(listed(7), Absence.LOST)


@pytest.mark.parametrize("where", ["stat", "status", "cmdline", "cgroup"])
def test_too_many_open_files(clock: Clock, proc: FakeProc, owners: Owners, where: str) -> None:
    """Whatever goes wrong, the device's readings go on."""
    proc.add()
    proc.broken = {f"7/{where}": OSError(errno.EMFILE, "Too many open files")}
    assert find(owners, 7) == unseen(listed(7), Absence.ERROR)


@pytest.mark.parametrize("where", ["stat", "status"])
def test_a_file_of_something_else(clock: Clock, proc: FakeProc, owners: Owners, where: str) -> None:
    proc.add()
    proc.write(f"7/{where}", b"Name:\tpython\n")
    assert find(owners, 7) == unseen(listed(7), Absence.ERROR)


@pytest.mark.parametrize(
    "line", [b"serve\0--api-key\0abc\0--port\x0080\0", b"serve --api-key abc --port 80\0\0\0\0"]
)
def test_a_command_line_has_no_secrets(proc: FakeProc, owners: Owners, line: bytes) -> None:
    proc.add()
    proc.write("7/cmdline", line)
    assert find(owners, 7).command == "serve --api-key ******** --port 80"


def test_a_long_name_of_a_container_is_cut() -> None:
    """A longer text would have the reader refuse the line, and with it all devices."""
    known = with_facts(streams.process(71, 0), {"container": "c" * 100_000, "user": "ada"})
    assert known.container == "c" * LONGEST_FACT
    assert known.user == "ada"
    sample = decode(to_line(streams.sample(1, [known])))
    assert isinstance(sample, Sample)
    assert sample.processes == (known,)
