import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.commands.run import _print_output
from gputop.training import relay as relay_module
from gputop.training import runs
from gputop.training.follow import attach, training_of
from gputop.training.relay import LOCK, OUTPUT, TIMES, OutputFile, write_end, write_record
from gputop.training.runs import (
    PIECE_BYTES,
    OutputReader,
    RunError,
    exit_status,
    find_run,
    read_run,
    start_run,
)
from tests.waiting import until

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def started(code: str) -> tuple[runs.Run, subprocess.Popen[bytes]]:
    return start_run([sys.executable, "-u", "-c", code], 100, 30)


def test_a_part_of_a_line_among_the_times_is_skipped(tmp_path: Path) -> None:
    (tmp_path / OUTPUT).write_bytes(b"abcdef")
    (tmp_path / TIMES).write_bytes(b"1.0 0\n2.0 2\n3.03.5 4\n4.0 5\n")
    reader = OutputReader(tmp_path)
    found = [(piece.data, piece.time) for piece in reader.read()]
    assert found == [(b"ab", 1.0), (b"cde", 2.0), (b"f", 4.0)]
    assert (reader._times, reader._offsets) == ([4.0], [5]), "the others are not needed any more"


def test_a_command_has_a_terminal_and_its_output_and_status_are_kept() -> None:
    code = "import os, sys; print(*os.get_terminal_size(), sys.stdout.isatty()); sys.exit(7)"
    run, relay = started(code)
    relay.wait(PATIENCE)
    ended = find_run(None)
    assert (ended.name, ended.status, ended.is_running) == (run.name, 7, False)
    assert (run.folder / OUTPUT).read_bytes() == b"100 30 True\r\n"


def test_a_secret_of_the_command_line_is_not_kept(data_folder: Path) -> None:
    run, relay = start_run(["echo", "--api-key", "hunter2secret"], 80, 24)
    relay.wait(PATIENCE)
    assert "hunter2secret" not in " ".join(run.command)
    assert "hunter2secret" not in (run.folder / "run.json").read_text()
    assert stat.S_IMODE(run.folder.stat().st_mode) == 0o700
    modes = {stat.S_IMODE((run.folder / name).stat().st_mode) for name in (OUTPUT, TIMES, LOCK)}
    assert modes == {0o600}
    assert (run.folder / OUTPUT).read_bytes() == b"--api-key hunter2secret\r\n"


def test_a_command_blocks_no_signal_and_ignores_none_that_python_does() -> None:
    """`yes | head` would not end, for example."""
    run, relay = start_run(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"], 80, 24)
    relay.wait(PATIENCE)
    words = (run.folder / OUTPUT).read_text().split()[1::2]
    blocked, ignored = (int(word, 16) for word in words)
    assert blocked == 0
    assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


def test_what_is_lost_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / OUTPUT).touch()
    record = {"command": ["train"], "pid": 1, "relay_pid": 2, "started": 1.0}
    for more, said in (
        ({}, "error: the command was lost: its relay was killed. Start it again."),
        ({"status": 0, "lost_bytes": 5}, "5 bytes of the output are lost: the disk was full"),
    ):
        write_record(tmp_path, record | more)
        run = read_run(tmp_path)
        assert run is not None
        with contextlib.suppress(SystemExit):
            assert _print_output(run, None) == 0
        assert capfd.readouterr().err.splitlines()[1:] == [f"gputop: {said}"]


def test_a_command_gets_no_input_instead_of_waiting_for_it() -> None:
    run, relay = started("print(repr(__import__('sys').stdin.read()))")
    relay.wait(PATIENCE)
    assert (run.folder / OUTPUT).read_bytes() == b"''\r\n"


def test_a_command_ends_by_a_signal() -> None:
    _, relay = started("import os; os.kill(os.getpid(), 9)")
    relay.wait(PATIENCE)
    assert find_run(None).status == -signal.SIGKILL
    assert exit_status(-signal.SIGKILL) == 137
    _, relay = start_run(["/no/such"], 80, 24)
    relay.wait(PATIENCE)
    ended = find_run(None)
    assert (ended.status, ended.lost_bytes) == (127, 0)
    assert (ended.folder / OUTPUT).read_bytes() == b"/no/such: No such file or directory\r\n"
    assert exit_status(3) == 3


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_signals_reach_the_command(name: str) -> None:
    code = (
        "import signal, sys, time\n"
        f"signal.signal(signal.{name}, lambda *_: sys.exit(5))\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    run, relay = started(code)
    until(lambda: b"ready" in (run.folder / OUTPUT).read_bytes())
    run.signal(signal.Signals[name])
    relay.wait(PATIENCE)
    assert find_run(None).status == 5


def test_the_output_has_the_times_at_which_it_was_written() -> None:
    code = "import time; print('one'); time.sleep(0.7); print('two')"
    run, relay = started(code)
    before = time.time()
    relay.wait(PATIENCE)
    first, second = OutputReader(run.folder).read()
    assert (first.data, second.data) == (b"one\r\n", b"two\r\n")
    assert second.time - first.time == pytest.approx(0.7, abs=0.4)
    assert abs(first.time - before) < PATIENCE


def test_a_child_that_keeps_the_terminal_does_not_keep_the_run() -> None:
    code = (
        "import subprocess; print('out')\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True); print(child.pid)"
    )
    run, relay = started(code)
    relay.wait(PATIENCE)
    child = int((run.folder / OUTPUT).read_bytes().split()[1])
    os.kill(child, signal.SIGKILL)
    assert find_run(None).status == 0


def test_a_burst_is_in_the_file_and_only_its_end_is_read() -> None:
    run, relay = started("import os; os.write(1, b'x' * 3_000_000); print(); print('end')")
    training = training_of(run)
    until(lambda: not training.update() and relay.poll() is not None)
    training.update()
    assert (run.folder / OUTPUT).stat().st_size == 3_000_007
    assert training.output_bytes == 3_000_007
    assert training.lines.lines[-1] == "end"
    assert any("only in the file" in line for line in training.lines.lines)


def test_a_full_disk_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / OUTPUT).symlink_to("/dev/full")
    output = OutputFile(tmp_path)
    output.write(b"12345")
    assert output.lost_bytes == 5


def test_a_time_that_did_not_fit_on_the_disk_leaves_no_part_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "STEP_SECONDS", 0.0)
    output = OutputFile(tmp_path)
    output.write(b"one\n")
    first = (tmp_path / TIMES).read_bytes()
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, data: write(file, data[:12]))
        output.write(b"two\n")
    assert (tmp_path / TIMES).read_bytes() == first
    output.write(b"three\n")
    assert [piece.data for piece in OutputReader(tmp_path).read()] == [b"one\ntwo\n", b"three\n"]


def test_the_exit_status_is_kept_on_a_full_disk(tmp_path: Path) -> None:
    before = {"command": ["train"], "pid": 1, "relay_pid": 2, "started": 1.0}
    write_record(tmp_path, before)
    # The new file cannot be written.
    (tmp_path / "run.json.new").symlink_to("/dev/full")
    write_end(tmp_path, before | {"ended": 2.0, "status": 7})
    run = read_run(tmp_path)
    assert run is not None
    assert run.status == 7


def test_steps_a_second_are_those_that_the_loop_counts() -> None:
    code = (
        "import time\nbegan = time.time()\n"
        "for n in range(60): print(f'step {n} loss {1 / (n + 1)}'); time.sleep(0.03)\n"
        "print('own', 59 / (time.time() - began))"
    )
    run, relay = started(code)
    training = training_of(run)
    until(lambda: not training.update() and training.ended)
    relay.wait(PATIENCE)
    assert training.run == read_run(run.folder)
    main = training.progress.main(training.clock())
    assert main is not None
    own = float((run.folder / OUTPUT).read_bytes().split()[-1])
    assert main.rate(training.clock(), 1000.0) == pytest.approx(own, rel=0.3)
    assert training.progress.latest("loss") == pytest.approx(1 / 60)


def test_the_running_one_is_found_first_and_a_name_may_be_short() -> None:
    first, relay = started("import time; time.sleep(60)")
    _, other = start_run(["true"], 80, 24, name="zz-short")
    other.wait(PATIENCE)
    assert (find_run(None), first.lost_bytes) == (first, 0)
    assert [run.name for run in runs.all_runs()] == ["zz-short", first.name]
    assert find_run("zz").command == ("true",)
    with pytest.raises(RunError, match="There is no run nothing"):
        find_run("nothing")
    first.signal(signal.SIGKILL)
    relay.wait(PATIENCE)
    assert find_run(first.name).status == -signal.SIGKILL


def test_a_damaged_folder_is_no_run(data_folder: Path) -> None:
    folder = data_folder / "gputop" / "runs" / "bad"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"command": 3}))
    with pytest.raises(RunError, match="There is no run"):
        find_run(None)


def test_a_folder_that_cannot_be_written_is_named(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(data_folder / "file"))
    with pytest.raises(RunError, match="The output cannot be kept"):
        start_run(["true"], 80, 24)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_process_that_writes_to_a_file_is_attached_to(stream: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: file}
        process = subprocess.Popen(["/bin/sleep", "60"], **streams)  # type: ignore[call-overload]
    log.write_bytes(b"step 1\n")
    training = attach(process.pid)
    assert training.update()
    log.write_bytes(b"step 1\nstep 2\n")
    assert training.update()
    assert [*training.lines.lines] == ["step 1", "step 2"]
    log.write_bytes(b"x\n")  # written anew
    assert training.update()
    assert not training.update()
    assert not training.ended
    log.write_bytes(b"y" * (PIECE_BYTES + 5))
    assert training.update()
    assert [*training.lines.lines][2:] == ["x", "[3 B of output are only in the file]"]
    process.kill()
    process.communicate()
    assert not training.update()
    assert training.ended


def test_a_process_that_writes_to_no_file_is_named() -> None:
    with subprocess.Popen(
        ["/bin/sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with pytest.raises(RunError, match="not to a file"):
            attach(process.pid)
        process.kill()
    with pytest.raises(RunError, match="no such process"):
        attach(2**22 + 1)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_command_of_another_user_is_stopped_through_its_terminal(
    name: str, tmp_path: Path
) -> None:
    """`sudo` takes no signal of others. It needs no pidfd, which conda's Python does not have."""
    code = (
        "import os, sys; from gputop.training import relay\n"
        "def refuse(*_): raise PermissionError\n"
        "os.killpg = refuse; os.__dict__.pop('pidfd_open', None); relay.main(sys.argv[1:])"
    )
    command = ["sh", "-c", "trap 'exit 5' INT; echo ready; while :; do sleep 0.1; done"]
    words = [sys.executable, "-c", code, str(tmp_path), "80", "24", "[]", *command]
    with subprocess.Popen(words) as relay:
        until((tmp_path / OUTPUT).exists)
        until(lambda: b"ready" in (tmp_path / OUTPUT).read_bytes())
        relay.send_signal(signal.Signals[name])
        assert relay.wait(PATIENCE) == 0
    run = read_run(tmp_path)
    assert run is not None
    assert run.status == 5


def test_runs_with_the_same_name_have_folders_of_their_own() -> None:
    """Containers that share a home folder start runs in the same second with the same pid."""
    runs = []
    for text in ("one", "two"):
        run, relay = start_run(["echo", text], 80, 24, name="same")
        relay.wait(PATIENCE)
        runs.append((run.name, (run.folder / OUTPUT).read_bytes()))
    assert runs == [("same", b"one\r\n"), ("same-2", b"two\r\n")]


def test_a_command_may_have_as_many_arguments_as_without_a_relay() -> None:
    """Names of many files are longer than the 128 KiB that one argument may have."""
    names = [f"data/part-{number:06}.parquet" for number in range(8_000)]
    run, relay = start_run(["sh", "-c", "echo $#", "sh", *names], 80, 24)
    relay.wait(PATIENCE)
    assert (run.folder / OUTPUT).read_bytes() == b"8000\r\n"
    assert run.command[:5] == ("sh", "-c", "echo $#", "sh", names[0])
