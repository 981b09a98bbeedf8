import os
import pwd
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gputop.agent.device import Absence
from gputop.agent.interface import OWNER_FIELDS, with_facts
from gputop.agent.linux import owners as module
from gputop.agent.linux import procfs
from gputop.agent.linux.owners import CHILDREN, Owners
from gputop.agent.linux.procfs import BOOT_TIME, TICKS_PER_SECOND
from gputop.agent.linux.ranks import NAMES, Rank
from gputop.agent.snapshot import Process
from tests.agent.fake_proc import FakeProc
from tests.agent.fakes import Time, listed
from tests.waiting import until

BOUND = 60.0
NOBODY = 0x7FFFFFFF
ID = "4f1c0ab2d9e7" + "8635" * 13
SECRET = "hunter2-and-more"  # noqa: S105 - it must not be seen
TORCHRUN = "RANK=5\0WORLD_SIZE=8\0MASTER_ADDR=node01\0MASTER_PORT=29500"
START = BOOT_TIME + 500 / TICKS_PER_SECOND


def find(owners: Owners, pid: int) -> Process:
    ((_, facts),) = owners.look_up([pid])
    return with_facts(listed(pid), facts)


def unseen(pid: int, reason: Absence) -> Process:
    return with_facts(listed(pid), dict.fromkeys(OWNER_FIELDS, reason))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def proc(clock: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    proc = FakeProc(tmp_path, monkeypatch)
    # No process there is one here.
    monkeypatch.setattr(module, "_exists", lambda _: False)
    return proc


@pytest.fixture
def owners(proc: FakeProc) -> Owners:
    return Owners(proc.path)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a command line that is not harmless, until its input ends.

    It has printed a line: before it runs, it has no command line.
    """
    script = "print(flush=True); input()"
    command: list[str | bytes] = [sys.executable, "-S", "-c", script]
    command += ["a b", "\x1b[31m", b"\xff", ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process


def test_a_process_is_known(child: subprocess.Popen[bytes]) -> None:
    owner = find(Owners(), child.pid)
    this = psutil.Process()
    assert owner.user == this.username()
    assert owner.command == f"{sys.executable} -S -c print(flush=True); input() a b \x1b[31m \udcff"
    assert owner.start_time == psutil.Process(child.pid).create_time()
    assert owner.memory_resident_bytes
    assert (owner.parent_pid, owner.parent_start_time) == (os.getpid(), this.create_time())
    assert (owner.parent_command or "").startswith(this.cmdline()[0])
    assert owner.children == owner.children_cpu_percent == owner.children_cpu_most_percent == 0
    assert owner.absent == {"cpu_percent": Absence.NO_DATA_YET}


def test_a_process_that_has_gone(child: subprocess.Popen[bytes]) -> None:
    owners = Owners()
    assert find(owners, child.pid) != unseen(child.pid, Absence.LOST)
    child.communicate(timeout=BOUND)
    assert find(owners, child.pid) == unseen(child.pid, Absence.LOST)


def test_cpu_is_that_of_the_time_since_the_look_before(
    clock: Time, proc: FakeProc, owners: Owners
) -> None:
    proc.add(user_ticks=1000, system_ticks=1000)
    assert find(owners, 7).cpu_percent is None
    proc.add(user_ticks=1000 + TICKS_PER_SECOND, system_ticks=1000 + TICKS_PER_SECOND)
    clock.now += 0.5
    assert find(owners, 7).cpu_percent == 400.0


def test_the_workers_of_a_process(clock: Time, proc: FakeProc, owners: Owners) -> None:

    def add_workers(first: int, second: int, state: bytes) -> None:
        proc.add(20, parent=7, user_ticks=first)
        proc.add(21, parent=7, user_ticks=second, state=state)

    proc.add(children=(20, 21))
    add_workers(0, 0, b"S")
    owner = find(owners, 7)
    assert (owner.children, owner.children_cpu_percent, owner.io_wait) == (2, None, False)
    assert owner.absent["children_cpu_percent"] is Absence.NO_DATA_YET
    add_workers(2 * TICKS_PER_SECOND, TICKS_PER_SECOND, b"D")
    clock.now += 2.0
    owner = find(owners, 7)
    assert owner.children_cpu_percent == pytest.approx(150.0)
    assert owner.children_cpu_most_percent == pytest.approx(100.0)
    assert "children_cpu_percent" not in owner.absent
    assert (owner.cpu_percent, owner.io_wait) == (0, True)


def test_a_kernel_that_does_not_list_children(proc: FakeProc, owners: Owners) -> None:
    proc.add()
    (proc.root / "7/task/7/children").unlink()
    owner = find(owners, 7)
    assert owner.user is not None
    assert {owner.absent[name] for name in CHILDREN} == {Absence.NOT_SUPPORTED}


def test_a_user_name_that_is_never_answered(
    clock: Time, proc: FakeProc, owners: Owners, monkeypatch: pytest.MonkeyPatch
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


def test_a_command_line_that_blocks(clock: Time, proc: FakeProc, owners: Owners) -> None:
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
        clock.now += 10.0
    command_line.write_bytes(b"python\0serve.py\0")
    until(lambda: find(owners, 7).command == "python serve.py")


def test_a_process_in_a_container(clock: Time, proc: FakeProc, tmp_path: Path) -> None:
    environ = TORCHRUN.replace("=node01", "=localhost").encode()
    proc.add(cgroup=f"0::/docker/{ID}\n".encode(), environ=environ)
    owners = Owners(proc.path, root=tmp_path)
    process = find(owners, 7)
    assert process.container == ID[:12]
    assert (process.job_id or "").endswith(f"/{ID[:12]}:29500"), "it has its own localhost"
    config = tmp_path / f"var/lib/docker/containers/{ID}/config.v2.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"Name": "/trainer"}')
    clock.now += 60.0
    assert find(owners, 7).container == "trainer"
    find(owners, 8)
    kept = owners._containers._results, owners._texts._results
    assert kept == ({}, {}), "nothing is kept of one that is not asked for"


def test_a_parent_that_has_gone(proc: FakeProc, owners: Owners) -> None:
    proc.add(3, command=b"torchrun\0")
    proc.add(7, parent=3)
    assert find(owners, 7).parent_command == "torchrun"
    proc.add(7, parent=1)
    assert (find(owners, 7).parent_pid, find(owners, 7).parent_command) == (1, None)


def test_a_process_that_executes_another_program(proc: FakeProc, owners: Owners) -> None:
    proc.add()
    find(owners, 7)
    proc.add(name=b"vim", command=b"vim\0")
    assert find(owners, 7).command == "vim"


def test_a_pid_that_is_used_again(clock: Time, proc: FakeProc, owners: Owners) -> None:
    proc.add(user_ticks=1000)
    find(owners, 7)
    clock.now += 1.0
    assert find(owners, 7).cpu_percent == 0.0
    proc.add(user_ticks=3, start=600, command=b"vim\0")
    clock.now += 1.0
    assert find(owners, 7) == unseen(7, Absence.NO_DATA_YET)
    clock.now += 1.5
    assert find(owners, 7).command is None
    clock.now += 0.5
    owner = find(owners, 7)
    assert owner.command == "vim"
    assert owner.start_time == START + 100 / TICKS_PER_SECOND
    assert owner.cpu_percent == 0.0


def test_a_start_time_follows_a_clock_that_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stat").write_text("btime 5000\n")
    ahead = 1000.0
    monkeypatch.setattr(procfs, "_ahead", lambda: ahead)
    boot = procfs.BootTime(str(tmp_path))
    ahead += 1.0  # slewed
    assert boot.now() == BOOT_TIME
    ahead += 3600.0
    assert boot.now() == 5000


def test_what_has_no_command_line_has_a_name(clock: Time, proc: FakeProc, owners: Owners) -> None:
    """Kernel threads and zombies; so has one whose command line may not be seen."""
    proc.add(command=b"", name=b"kworker/0:1)")
    assert find(owners, 7).command == "kworker/0:1)"
    proc.add(command=b"a title")
    clock.now += 10.0
    assert find(owners, 7).command == "a title"
    proc.add(pid=8)
    proc.forbidden = {"8/cmdline"}
    assert find(owners, 8).command == "python"


@pytest.mark.parametrize(
    ("raw", "command"),
    [
        (b"a\0\0b\0", "a  b"),
        (b"nginx: worker\0\0\0\0\0", "nginx: worker"),
        (b"no end", "no end"),
        (b"x\nrm -rf\x1b[0m\0", "x\nrm -rf\x1b[0m"),
        (b"x" * 5000, "x" * 4096),
        (b"serve\0--api-key\0abc\0--port\x0080\0", "serve --api-key ******** --port 80"),
        (b"serve --api-key abc --port 80\0\0\0\0", "serve --api-key ******** --port 80"),
    ],
)
def test_command_lines(proc: FakeProc, owners: Owners, raw: bytes, command: str) -> None:
    proc.add(command=raw)
    assert find(owners, 7).command == command
    unmasked = find(Owners(proc.path, secrets=True), 7).unmasked or command
    assert (unmasked == command) is ("****" not in command)


def test_hidepid_1(proc: FakeProc, owners: Owners) -> None:
    proc.add()
    proc.forbidden = {"7/stat", "7/status", "7/cmdline", "7/cgroup"}
    assert find(owners, 7) == unseen(7, Absence.NO_PERMISSION)


def test_hidepid_2(monkeypatch: pytest.MonkeyPatch) -> None:

    def refuse(pid: int, number: int) -> None:
        assert number == 0
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    assert find(Owners(), NOBODY) == unseen(NOBODY, Absence.NO_PERMISSION)
    assert find(Owners(), 0) == unseen(0, Absence.LOST)


def test_nothing_else_of_an_environment_is_kept(proc: FakeProc, owners: Owners) -> None:
    names = ("AWS_SECRET_ACCESS_KEY", "RANK_TOKEN", "X_MASTER_ADDR")
    secrets = "".join(f"{name}={SECRET}\0" for name in names)
    proc.add(environ=f"{secrets}{TORCHRUN}\0".encode())
    process = find(owners, 7)
    assert (process.rank, process.world_size, process.job_id) == (5, 8, "node01:29500")
    kept = owners._texts.get(owners._known[7].key)
    assert kept is not None
    assert isinstance(kept.variables, dict)
    assert kept.variables.keys() <= NAMES
    assert SECRET not in f"{kept}{process}"


def test_an_environment_that_may_not_be_read(proc: FakeProc, owners: Owners) -> None:
    proc.add()
    proc.forbidden = {"7/environ"}
    owner = find(owners, 7)
    assert owner.command == "python train.py"
    assert {owner.absent[name] for name in Rank._fields} == {Absence.NO_PERMISSION}
    proc.add(8)
    assert not find(owners, 8).absent.keys() & {*Rank._fields}, "it has no rank"
