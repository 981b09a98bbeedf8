import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.training.runs import Run, read_run
from tests.e2e.shipped import GPUTOP, dashboard, run, see
from tests.terminal import Terminal

STEPS = 400
STATUS = 7
CODE = f"""
import sys, time
for n in range({STEPS}):
    print('step', n, 'loss', 1 / (n + 1), flush=True)
    time.sleep(0.01)
sys.exit({STATUS})
"""
WAYS = ("SIGKILL", "SIGHUP", "SIGTERM", "closed terminal", "killed shell", "q")


def perform(way: str, seconds: float, folder: Path) -> None:
    environment = {"XDG_DATA_HOME": str(folder)}
    command = [*GPUTOP, "--demo", "run", "--", sys.executable, "-c", CODE]
    if way == "killed shell":
        command = ["/bin/sh", "-c", '"$@"; true', "sh", *command]
    with Terminal(command, env=environment) as terminal:
        runs = folder / "gputop" / "runs"
        terminal.until(lambda: found_in(runs))
        (begun,) = found_in(runs)
        terminal.collect(seconds)
        end(way, terminal)
        output = run("run", "--attach", begun.name, env=environment)
    found = [int(line.split()[1]) for line in output.stdout.splitlines()]
    assert found == [*range(STEPS)], f"{len(found)} lines"
    assert output.returncode == STATUS


def found_in(folder: Path) -> list[Run]:
    return [found for each in folder.glob("*") if (found := read_run(each)) is not None]


def end(way: str, terminal: Terminal) -> None:
    match way:
        case "closed terminal":
            terminal.close_pty()
        case "killed shell":
            terminal.kill(signal.SIGKILL)
            terminal.close_pty()
        case "q":
            terminal.send("q")
        case _:
            terminal.kill(signal.Signals[way])
    terminal.wait()


def test_a_dashboard_is_killed_and_its_command_goes_on(tmp_path: Path) -> None:
    perform("SIGKILL", 1.0, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.7, 1.5, 2.9])
@pytest.mark.parametrize("way", WAYS)
def test_however_gputop_ends_the_command_goes_on(way: str, seconds: float, tmp_path: Path) -> None:
    perform(way, seconds, tmp_path)


def test_one_comes_back_to_the_output_and_the_status_is_that_of_the_command(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path), "LD_LIBRARY_PATH": ""}
    code = (
        "import time, sys, pathlib\nprint('step 1 of 8 loss 0.5')\n"
        f"go = pathlib.Path({str(tmp_path)!r}, 'go')\n"
        "while not go.exists(): time.sleep(0.02)\nprint('last words'); sys.exit(3)"
    )
    with dashboard("run", "--", sys.executable, "-uc", code, env=env) as terminal:
        see(terminal, "step 1 of 8", "4 Training", "running for")
        terminal.send("q")
        assert terminal.wait() == 0
        assert "gputop run --attach" in terminal.raw.decode().rpartition("goes on")[2]
        with dashboard("run", "--attach", env=env) as again:
            see(again, "step 1 of 8")
            (tmp_path / "go").touch()
            see(again, "last words", "ended with status 3")
            again.send("q")
            assert again.wait() == 3


def test_without_a_terminal_the_output_is_printed_and_signals_are_passed_on(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(1)"
    )
    with subprocess.Popen(
        [*GPUTOP, "run", "--", sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_DATA_HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\r\n"
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 9


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--", "/no/such"], 3, "/no/such was not started: there is no such file."),
        (["--", "no-such-program"], 3, "no-such-program was not started: it is not in PATH."),
        (["--", "/etc/passwd"], 3, "/etc/passwd was not started: it cannot be executed."),
        ([], 2, "Give a command: `gputop run -- python train.py`."),
        (["--list", "--attach"], 2, "Give one of a command, --attach and --list."),
        (["--attach", "nothing"], 3, "There is no run nothing"),
        (["--pattern", "(", "--", "true"], 2, "("),
        (["--pattern", "a", "--", "true"], 2, "step"),
        (["--lr", "3"], 2, "--lr"),
    ],
)
def test_wrong_input_is_one_line(words: list[str], status: int, said: str, tmp_path: Path) -> None:
    found = run("run", *words, env={"XDG_DATA_HOME": str(tmp_path)})
    assert found.returncode == status
    (line,) = found.stderr.splitlines()
    assert line.startswith("gputop: error: ")
    assert said in line
    assert found.stdout == ""


def test_runs_are_listed_and_their_options_are_not_gputops(tmp_path: Path) -> None:
    env = {"XDG_DATA_HOME": str(tmp_path)}
    assert "there is no run yet" in run("run", "--list", env=env).stderr
    words = ("run", "--pattern", "(?P<step>1)", "--", "echo", "--demo", "--", "-x" * 25)
    assert run(*words, env=env).stdout == f"--demo -- {'-x' * 25}\n"
    listed = run("run", "--list", env=env).stdout
    assert "exit 0, ran" in listed
    assert listed.endswith(f"  echo --demo -- {'-x' * 22}-\n")
