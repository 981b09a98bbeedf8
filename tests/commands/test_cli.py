import argparse
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gputop import __version__, cli
from gputop.agent.snapshot import Host, Process, ProcessKind, Sample
from gputop.commands.arguments import chosen_processes, progress
from gputop.commands.parser import COMMANDS, parse, parser
from gputop.settings import Settings
from tests.e2e.shipped import GPUTOP, run
from tests.terminal import ALTERNATE_SCREEN, Terminal

BOUND = 60.0


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *GPUTOP, *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=BOUND,
    )


INTERVAL = "give seconds from 0.25 to 60, such as 1."
COUNT = "give a whole number from 1."
HELP = "Try `gputop --help`."
REFUSED = [
    (["--interval", "0"], INTERVAL),
    (["--interval", "nan"], INTERVAL),
    (["stream", "--count", "0"], COUNT),
    (["stream", "--count", "9" * 5000], COUNT),
    (["stream", "--format", "xml"], "(choose from 'jsonl', 'csv'). Try `gputop stream --help`."),
    (["stream", "--query", "gpu_util"], "Did you mean gpu_utilization_percent?"),
    (["stream", "--format", "jsonl", "--query", "name"], "Leave out --format jsonl."),
    (["stream", "--replay", "x", "--interval", "2"], "Leave it out, or --replay."),
    (["--replay", "x", "--record", "y"], "Leave it out, or --replay."),
    (["--replay", "x", "bench"], "--replay is not for `bench`. Leave it out."),
    (["status", "--replay", "x", "--watch"], "or play it with gputop --replay."),
    (["--host", "a", "--demo"], "Leave it out, or --host."),
    (["--host=-oProxyCommand=sh"], "such as gpu-1 or ada@gpu-1."),
    (["--host", "n[1-200]", "--host", "m[1-200]"], "Watch fewer at a time."),
    (["--remote-command", "x"], "Name one with --host."),
    (["--host", "a", "--remote-command", "'x"], "Quote it as in a shell."),
    (["status", "--host", "a", "--watch"], "or see `gputop --host NAME`."),
    (["--show-secrets", "--host", "a"], "other machines: they mask theirs. Leave it out."),
    (["--show-secrets", "status"], "what is printed is masked. Leave it out."),
    (["--dem"], "Did you mean --demo?"),
    (["--two\nlines\x1b[31m"], HELP),
    (["status", "--columns", "busy,nosuch"], "mig-mode, virtualized."),
    (["status", "--json", "--columns", "busy"], "has every reading. Leave it out, or --json."),
    (["status", "--by-user", "--top", "3"], "for totals by user. Leave it out, or --by-user."),
    (["status", "--no-processes", "--sort", "pid"], "Leave it out, or --no-processes."),
    (["status", "-L", "--json"], "for a list of the GPUs. Leave it out, or --list-gpus."),
    (["why", "--replay", "x", "--seconds", "9"], "a recording, which is read whole. Leave it out."),
    (["--record", "x", "status"], "Try `gputop stream --output FILE`."),
    (["status", "--match", 'a="b"'], "Name its server with --prometheus URL."),
    (["--prometheus", "http://a", "--host", "b"], "for a fleet. Leave it out, or --prometheus."),
    (["--prometheus", "http://a", "stream"], "--prometheus is not for `stream`. Leave it out."),
    (["--prometheus", "http://ada:s3cret@a"], "and GPUTOP_PROMETHEUS_PASSWORD."),
    (["--prometheus", "prometheus"], "give http://prometheus:9090, without ? and #."),
    (["--prometheus", "http://a", "--match", "cluster=a"], """'cluster="a",rack=~"r1.*"'."""),
    (["exporter", "-u", "ada"], "for metrics of devices. Leave it out, or add --processes."),
    (["exporter", "--certfile", "a"], "TLS needs --certfile and --keyfile. Give both."),
    (["--demo", "doctor"], "--demo is not for `doctor`. Leave it out."),
    (["--demo", "run"], "The simulated training needs a terminal. Give a command."),
    (["-i", "1,GPU-4f", "bench"], "Choose with --device 1,GPU-4f."),
    (["-i", "MIG"], "`gputop status -L` lists them."),
    (["pick", "--min-free", "20"], "Give one such as 20GiB, 512MiB or 80%."),
    (["pick", "--max-busy", "101"], "Give a number from 0 to 100, such as 10."),
    (["pick", "--wait", "1.1e9"], "Give seconds, such as 600."),
    (["bench", "--size", "7x"], "Give a whole number such as 4096, or auto."),
    (["bench", "--device", "moon"], "`gputop status -L` lists them."),
    (["bench", "--dtype", "float31"], "float8_e4m3, int8."),
    (["bench", "memroy"], "Did you mean memory?"),
    (["exporter", "--listen", "::1:9835"], "or :9835 for all interfaces."),
    (["exporter", "--listen", ":65536"], "or :9835 for all interfaces."),
    (["bench", "--device", "cpu", "--python", "/no/such"], "torch, such as ~/venv/bin/python."),
    (["statsu"], "statsu is unknown. Did you mean status?"),
    (["status", "--colmns", "x"], "--colmns is unknown. Did you mean --columns?"),
    (["zzz"], "argument COMMAND: invalid choice: 'zzz'"),
    (["--zzz"], "`gputop` has no --zzz. Try `gputop --help`."),
    (["bench", "soak", "--demo"], "`gputop bench` has no --demo. Try `gputop bench --help`."),
    (["topo", "-m"], "gputop has no topo. Use `nvidia-smi topo -m`."),
    (["--query-gpu=index", "--format=csv"], "gputop has no --query-gpu. Use `nvidia-smi --qu"),
]


@pytest.mark.parametrize(
    ("arguments", "remedy"), REFUSED, ids=[" ".join(a)[:30] for a, _ in REFUSED]
)
def test_bad_usage_is_one_line_with_the_remedy(
    arguments: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = cli.main(arguments)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    (line,) = said.err.splitlines()
    assert line.startswith("gputop: error: ")
    assert remedy in line
    assert line.isprintable()


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "-V"):
        assert cli.main([option]) == 0
        assert capsys.readouterr().out == f"gputop {__version__}\n"


def test_the_list_of_nvidia_smi_needs_no_command() -> None:
    assert run("--demo", "-L").stdout.startswith("GPU 0: NVIDIA H100")


SHARED_OPTIONS = {
    "--list-gpus": (),
    "--interval": ("2",),
    "--no-gpm": (),
    "--id": ("1",),
    "--only-visible": (),
    "--user": ("root",),
    "--pid": ("1",),
    "--compute": (),
    "--demo": (),
    "--host": ("gpu-1",),
    "--prometheus": ("http://p:9090",),
    "--replay": ("x",),
}
SOURCE = {"--interval", "--no-gpm", "--id", "--only-visible", "--user", "--pid", "--compute"}
HONOURED = {
    "status": {*SHARED_OPTIONS} - {"--interval"},
    "stream": {*SOURCE, "--demo", "--host", "--replay"},
    "exporter": {*SOURCE, "--demo"},
    "pick": {"--demo", "--host"},
    "run": {"--interval", "--no-gpm", "--id", "--only-visible", "--demo"},
    "wait": {"--id", "--only-visible", "--demo", "--host"},
    "why": {"--no-gpm", "--id", "--only-visible", "--demo", "--host", "--replay"},
}
NEEDED = {
    "completion": ["bash"],
    "exporter": ["--processes"],
    "schema": ["status"],
    "run": ["--list"],
    "wait": ["--until", "idle"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", SHARED_OPTIONS)
def test_an_option_before_a_command_is_its_own_or_refused(
    option: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """None is dropped: `gputop -i 1 bench` must not put another device under stress."""
    given: list[argparse.Namespace] = []
    module = import_module(f"gputop.commands.{command}")

    def run(arguments: argparse.Namespace) -> int:
        given.append(arguments)
        return 0

    monkeypatch.setattr(module, "run", run)
    words = [option, *SHARED_OPTIONS[option], command, *NEEDED.get(command, ())]
    try:
        status: object = cli.main(words)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    name = option[2:].replace("no-", "").replace("-", "_")
    if option in HONOURED.get(command, ()):
        assert (status, said.err) == (0, "")
        assert getattr(given[0], name) != parser().get_default(name)
    else:
        assert (status, said.out, given) == (2, "", [])
        (line,) = said.err.splitlines()
        assert f"`{command}`" in line
        assert name.replace("_", "-") in line


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], {1, 2, 3}),
        (["-u", "ada"], {1, 2}),
        (["--user", "ada,bob"], {1, 2, 3}),
        (["-p", "1,3"], {1, 3}),
        (["-u", "ada", "--pid", "1,3"], {1}),
        (["-c"], {1, 3}),
        (["--compute", "-u", "ada"], {1}),
    ],
)
def test_only_the_chosen_processes_are_kept(words: list[str], kept: set[int]) -> None:
    users = {1: "ada", 2: "ada", 3: "bob"}
    kinds = (ProcessKind.COMPUTE, ProcessKind.GRAPHICS, ProcessKind.MPS)
    found = tuple(
        Process(pid, "GPU-1", kind, user=users[pid]) for pid, kind in zip(users, kinds, strict=True)
    )
    sample = Sample(0.0, Host(), processes=found)
    arguments = parse(words)
    assert {each.pid for each in chosen_processes(arguments, sample).processes} == kept


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], {"command": None, "interval": None, "demo": False, "python": None}),
        (["--demo", "status"], {"command": "status", "demo": True}),
        (["status"], {"command": "status", "demo": False, "json": False}),
        (["stream", "--interval", "5", "--count", "3"], {"interval": 5.0, "count": 3}),
        (["--interval", "5", "stream", "--interval", "2"], {"interval": 2.0}),
        (["--python", "/bin/sh", "bench", "--python", "/bin/ls"], {"python": "/bin/ls"}),
        (["stream", "--control", "--unmasked"], {"control": True, "unmasked": True}),
    ],
)
def test_an_option_counts_before_and_after_the_command(
    arguments: list[str], wanted: dict[str, object]
) -> None:
    given = vars(parse(arguments))
    assert {name: given[name] for name in wanted} == wanted


class Started:
    """Stands for the dashboard: keeps what it was started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.isatty", lambda _: True)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setattr("gputop.ui.shell.start.run", self)

    def __call__(self, **started: Any) -> int:
        self.settings, self.problems = started["settings"], started["problems"]
        self.config, self.search = started["config"], started["search"]
        return 0


def test_the_dashboard_gets_what_the_command_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    options = ["--theme", "light", "--ascii", "--no-mouse", "--bell", "--readonly", "--no-gpm"]
    assert cli.main([*options, "--interval", "2"]) == 0
    assert started.settings == Settings(
        theme="light", ascii=True, mouse=False, bell=True, readonly=True, gpm=False, interval=2.0
    )
    assert started.problems == []
    assert started.config.parts[-2:] == ("gputop", "config.toml")
    assert cli.main([]) == 0
    assert (started.settings, started.search) == (Settings(), "")
    assert cli.main(["-u", "ada,bob", "-p", "1", "-c"]) == 0
    assert started.search == "user:ada,bob pid:1 kind:compute,compute+graphics,mps"


def test_a_fleet_is_refreshed_every_ten_seconds_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Started(monkeypatch)
    seen: list[Any] = []
    monkeypatch.setattr("gputop.ui.shell.start.show_screen", lambda *some, **_: seen.extend(some))
    for words in ([], ["--interval", "3"]):
        cli.main(["--prometheus", "http://a", *words])
    assert [screen.state.interval for screen in seen] == [10, 3]
    assert [screen._watch._interval for screen in seen] == [10, 3]


def test_a_settings_file_that_is_named_must_exist_and_counts_after_the_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = Started(monkeypatch)
    file = tmp_path / "mine.toml"
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["--config", str(file)])
    said = f"gputop: error: the settings file {file}: No such file or directory. "
    assert capsys.readouterr().err == f"{said}Correct --config, or leave it out.\n"
    file.write_text("mouse = false\nbell = true\nreadonly = true\ntheme = 7\n")
    assert cli.main(["--config", str(file), "--mouse", "--no-bell"]) == 0
    assert started.settings == Settings(readonly=True)
    (problem,) = started.problems
    assert str(problem).startswith(f"theme = 7 in {file} is not used")
    file.unlink()
    monkeypatch.setenv("GPUTOP_CONFIG", str(file))  # S creates it
    assert cli.main([]) == 0
    assert started.config == file


def test_a_terminal_on_one_side_only_gets_the_page() -> None:
    """`gputop | less` and `gputop < file` are no dashboards."""
    for redirection in ("| cat", "</dev/null"):
        command = ["/bin/sh", "-c", f'"$@" {redirection}', "sh", *GPUTOP, "--demo"]
        with Terminal(command, columns=160, rows=30) as terminal:
            assert terminal.wait(BOUND) == 0
            assert terminal.text.count("H100") == 8
            assert ALTERNATE_SCREEN not in terminal.modes
            assert (b"\x1b[" in terminal.raw) is (redirection == "</dev/null")  # colours


def test_a_terminal_that_cannot_draw() -> None:
    with Terminal([*GPUTOP, "--demo"], env={"TERM": "dumb"}, columns=200) as terminal:
        assert terminal.wait(BOUND) == 3
        (line,) = terminal.raw.decode().splitlines()
        assert line.startswith("gputop: error: this terminal cannot draw a dashboard")
        assert line.endswith("Set TERM=xterm-256color, or use `gputop status`.")
        terminal.wait_until_gone()


def test_a_reader_that_has_gone() -> None:
    """`gputop status | true`."""
    with subprocess.Popen(
        [*GPUTOP, "status", "--demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(BOUND) == 0
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["status", "stream"])
@pytest.mark.parametrize(
    ("redirection", "what"),
    [
        (">/dev/full", "standard output cannot be written: No space left on device."),
        (">&-", "standard output is closed."),
    ],
)
def test_an_output_that_takes_nothing(command: str, redirection: str, what: str) -> None:
    done = shell(redirection, command, "--demo")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gputop: error: {what} ")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_and_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    with progress("Wait"):
        assert capsys.readouterr().err == "Wait\r" * is_terminal
    assert capsys.readouterr().err == "    \r" * is_terminal


def test_a_page_in_a_locale_that_lacks_its_characters() -> None:
    done = run(
        "status", "--demo", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    assert done.stdout.count("H100") == 8


@pytest.mark.parametrize("moment", ["parse", "run"])
def test_an_interruption_has_a_status_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, moment, interrupt)
    assert cli.main([]) == 130


def test_the_help_has_every_command_and_option_of_the_dashboard() -> None:
    top = parser(())
    text = " ".join(top.format_help().split())
    assert [name for name, about in COMMANDS.items() if f"{name} {about}" not in text] == []
    options = [action for action in top._actions if action.option_strings]
    assert [each.dest for each in options if each.option_strings[0] not in text] == []
    assert len(options) > 25
