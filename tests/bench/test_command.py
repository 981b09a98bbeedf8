import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, Point
from gputop.bench.results import store
from gputop.bench.run.device_run import DeviceRun
from gputop.cli import main
from gputop.commands.bench_results import report_runs
from tests.bench.commands import InTerminal, parsed, ran, run
from tests.bench.kept import soak
from tests.bench.workers import CPU, RESULT, needs_torch
from tests.runs import ended
from tests.streams import inventory, process, sample

SMALL = ("--device", "cpu", "--dtype", "float32", "--size", "256")


@needs_torch
def test_json_is_all_that_is_on_standard_output() -> None:
    ended = ran(*SMALL, "--seconds", "0.5", "--json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert ended.stderr == ""
    assert {"device", "torch_version", "python", "tflops_peak"} <= set(result)
    assert (result["m"], result["n"], result["k"], result["dtype"]) == (256, 256, 256, "float32")
    assert result["seconds"] >= 0.5
    assert result["tflops_mean"] == pytest.approx(
        2 * 256**3 * result["iterations"] / result["seconds"] / 1e12
    )
    (kept,) = store.recent(10)
    assert kept.tflops_mean == result["tflops_mean"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--size", "7x"], 2, "--size: '7x' is not a size"),
        (["--seconds", "0"], 2, "--seconds: '0' is not a duration"),
        (["--device", "gpu"], 2, "--device: 'gpu' is not a list of GPUs"),
        (["--memory-share", "2"], 2, "--memory-share: '2' is not a share"),
        (["--tolerance", "101"], 2, "percentage"),
        (["--min-percent-of-peak", "nan"], 2, "percentage"),
        (["--device", "cpu", "--memory-share", "0.00001"], 3, "0.001 % of that may be used"),
        (["--dtype", "fp4"], 2, "--dtype: 'fp4' is not a data type. Choose from float32, tf32"),
        (["soap"], 2, "soap is unknown. Did you mean soak?"),
        (["copy", "--dtype", "float32"], 2, "--dtype is not for copy"),
        (["latency"], 2, "invalid choice: 'latency'"),
        (["memory", "--size", "512"], 2, "--size is not for memory"),
        (["sweep", "--verify", "all"], 2, "--verify is not for sweep"),
        (["pulse", "--device", "cpu", "--frequency", "21"], 2, "'21' is not a frequency"),
        (["soak", "--frequency", "1"], 2, "--frequency is not for soak"),
        (["--compare", "a.json", "b.json", "--json"], 2, "Leave out --json"),
        (["--compare", "nowhere.json", "1"], 3, "nowhere.json cannot be compared: No such file"),
        (["--compare", "1", "0"], 3, "the history has no such result"),
        (["peak", "--dtype", "float32,float64"], 2, "peak runs one data type"),
        (["sweep", "--device", "cpu", "--dtype", "float32,tf32"], 3, "tf32 cannot be run"),
        (["--python", "/no/such/python"], 2, "'/no/such/python' is not an interpreter"),
        (["--python", "/"], 2, "it is a directory"),
        (["--device", "cpu", "--size", "1000000"], 3, "Choose --size"),
        (["--device", "cpu", "--dtype", "tf32"], 3, "compute capability 8.0"),
        (["--devices", "2"], 2, "Add --ray"),
        (["--ray", "sweep"], 2, "Type `gputop bench sweep --ray`"),
        (["--ray", "--device", "0"], 2, "Give their number with --devices"),
        (["--ray", "--history"], 2, "--ray and --history exclude each other"),
        (["--ray", "--devices", "0"], 2, "whole number"),
        (["collective", "--device", "cpu", "--ranks", "65"], 2, "--ranks"),
        (["soak", "--ranks", "2"], 2, "--ranks"),
    ],
)
def test_what_cannot_be_run_is_one_line_with_a_remedy(
    arguments: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(["bench", *arguments])
    except SystemExit as refused:  # of the parser
        ended = int(refused.code or 0)
    assert ended == status
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("gputop: error: ")
    assert says in line


@pytest.mark.daily(1)
@needs_torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_with_the_result_so_far(number: signal.Signals) -> None:
    with InTerminal(*SMALL, "--seconds", "600", "--json") as running:
        running.until("FLOP/s")
        worker = running.worker()
        running.process.send_signal(number)
        output, _ = running.process.communicate(timeout=30)
    assert running.process.returncode == 130
    result = json.loads(output)
    assert result["stopped"] == "user"
    assert result["iterations"] > 0
    assert not worker.is_running()


def concluded(last: Done | Failed, *arguments: str) -> int:
    return report_runs([ended(CPU, last)], parsed(*arguments))


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 3), ("", 3)])
def test_on_a_terminal_it_asks(
    asked: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    status: int,
) -> None:
    asked["stream"] = (inventory(1), sample(1, [process(77, 0)]))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run() == status
    assert bool(asked["requests"]) is (status == 0)
    said = capsys.readouterr()
    assert "[y/N]" in said.err
    assert "77  ada        python train.py --rank 0\n" in said.err


def test_a_wrong_element_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    last = Done(replace(RESULT, wrong_elements=3))
    assert concluded(last, "--json") == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["wrong_elements"] == 3
    assert "3 elements in 6 checks" in said.err


def test_the_summary_is_first_in_the_text_and_a_field_of_the_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    summary = "Computes correctly. Speed was not judged: no reference for this CPU."
    assert concluded(Done(replace(RESULT, stopped="time"))) == 0
    assert capsys.readouterr().out.startswith(f"{summary}\n\n{RESULT.device}, soak")
    assert concluded(Done(replace(RESULT, stopped="time")), "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["summary"] == summary


def test_a_failure_keeps_the_rows_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    failed = Failed(Problem("The device died", "y", "R"), 1)
    run = DeviceRun(replace(ended(CPU, failed).request, kind="sweep"))
    for n in (8, 16):
        run.add_event(Point("float32", n, {"tflops": n / 8, "seconds": 1e-5}, (n, n, n)))
    run.add_event(failed)
    assert report_runs([run], parsed("sweep")) == 1
    said = capsys.readouterr()
    assert said.out == (
        f"{CPU.name}, sweep: 2 rows before the error\n"
        "\n"
        "  N   float32, TFLOP/s  float32, time\n"
        "  8               1.00          10 µs\n"
        "  16              2.00          10 µs\n"
    )
    assert said.err == "gputop: error: The device died: y. R\n"
    assert report_runs([run], parsed("sweep", "--json")) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["values"]["tflops"] for each in document["points"]] == [1.0, 2.0]


def test_a_result_that_cannot_be_kept_is_still_printed(capsys: pytest.CaptureFixture[str]) -> None:
    store.folder().parent.parent.mkdir(parents=True, exist_ok=True)
    store.folder().parent.write_text("in the way")
    assert concluded(Done(RESULT), "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["iterations"] == 420
    assert said.err.startswith("gputop: warning: ")


@pytest.mark.usefixtures("no_home")
def test_without_a_home_folder_the_result_is_printed_and_there_is_no_history(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert concluded(Done(RESULT), "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["iterations"] == 420
    (line,) = said.err.splitlines()
    assert line.startswith("gputop: warning: The earlier results cannot be used: HOME ")
    assert "Set HOME or XDG_DATA_HOME" in line
    assert main(["bench", "--history"]) == 3
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "HOME is not set" in said.err


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no/run_on_cpu.html", "there is no such folder"),
        ("file/below", "there is no such folder"),
        ("", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
    ],
)
def test_what_could_not_be_written_is_said_before_the_run(
    asked: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    path: str,
    says: str,
) -> None:
    (tmp_path / "file").write_text("here")
    os.mkfifo(tmp_path / "pipe")  # no device: as root, a mistake here would cost the machine one
    assert run("--device", "cpu", "--report", str(tmp_path / path)) == 3
    assert asked["requests"] == []
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "cannot be written" in line


def test_a_report_is_of_this_run_and_may_replace_another(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    file.write_text("an earlier one")
    assert run("--device", "cpu", "--report", str(file)) == 0
    assert "a CPU" in file.read_text()
    assert file.read_text().count("polyline") > 1  # one is in the style
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]


def test_a_run_without_a_result_writes_nothing(asked: dict[str, Any], tmp_path: Path) -> None:
    asked["last"] = Failed(Problem("W", "y", "R"), 3)
    assert run("--device", "cpu", "--report", str(tmp_path / "a.html")) == 3
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_got_slower_is_status_4(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(4):
        store.append(soak(800.0, ago=60.0 + n))
    asked["last"] = Done(soak(700.0))
    assert run("--device", "cpu") == 4
    said = capsys.readouterr()
    line = said.out.splitlines()[-1]
    assert line.startswith("Verdict: degraded, earlier runs: 700 TFLOP/s is 12.5 % under the 800 ")
    assert said.err == ""
    assert len(store.recent()) == 5
