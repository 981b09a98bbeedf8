import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from gputop import cli
from gputop.console import COULD_NOT_RUN, FINE, USAGE
from gputop.stream.child import Snapshot
from tests.commands.conftest import STOPPED, Prepared, Ran
from tests.health.histories import watched
from tests.health.test_waiting import BUSY, IDLE
from tests.streams import NO_DRIVER, no_driver


def test_the_condition_that_is_met_is_printed(ran: Ran) -> None:
    prepared = Prepared(STOPPED, *watched(BUSY, IDLE))
    status, out, err = ran(prepared, "wait", "--until", "idle", "--timeout", "1e9")
    assert prepared.asked["interval"] == 1.0
    assert (status, out) == (FINE, "GPU 1 is idle: 2 % busy\n")
    assert err.startswith("gputop: The sampler stopped: ")


def test_of_several_conditions_the_first_that_is_met_counts(ran: Ran) -> None:
    words = ("--until", "free:99%", "--until", "idle", "--until", f"exit:{os.getpid()}")
    _, out, _ = ran(watched(BUSY, IDLE), "wait", *words)
    assert out == "GPU 1 is idle: 2 % busy\n"


def test_the_end_of_a_process_needs_no_driver(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["/bin/sleep", "0.5"]) as process:
        assert cli.main(["wait", "--until", f"exit:{process.pid}"]) == FINE
    assert capsys.readouterr().out == f"Process {process.pid} has ended\n"


def test_a_command_gets_the_text_and_gives_the_status(ran: Ran, tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = f"sh -c 'echo \"$0\" > {said}; exit 5'"
    status, _, _ = ran(watched(IDLE, BUSY), "wait", "--until", "idle", "--exec", command)
    assert (status, said.read_text()) == (5, "GPU 0 is idle: 2 % busy\n")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_terminal_shows_a_note_if_there_is_one(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    _, _, err = ran(watched(IDLE, BUSY), "wait", "--until", "idle", "--notify")
    assert err == "\a\x1b]9;gputop: GPU 0 is idle: 2 % busy\x07" * is_terminal


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--until", "busy"), USAGE, "'busy' is not a condition. Give idle, free:20GiB"),
        ((), USAGE, "the following arguments are required: --until"),
        (("--until", "idle", "--exec", ""), USAGE, "the command is empty"),
        (("--until", "idle", "--for", "1.1e9"), USAGE, "'1.1e9' is not a time. Give seconds"),
        (("--until", "exit:1", "--host", "a"), USAGE, "exit:PID is for processes of this machine"),
        (
            ("--until", f"exit:{os.getpid()}", "--timeout", "0.1"),
            COULD_NOT_RUN,
            "the condition was not met in 0.1 s",
        ),
        (("--until", "idle"), COULD_NOT_RUN, str(NO_DRIVER)),
        (
            ("--until", "exit:999999999", "--exec", "/no/such/program"),
            COULD_NOT_RUN,
            "/no/such/program: No such file or directory",
        ),
    ],
)
def test_an_error_is_one_line(ran: Ran, words: tuple[str, ...], status: int, message: str) -> None:
    snapshot = Snapshot(no_driver(), dataclasses.replace(watched(IDLE, IDLE)[0].sample, devices=()))
    found, _, err = ran([snapshot], "wait", *words)
    assert found == status
    assert message in err
    assert err.count("\n") == 1
