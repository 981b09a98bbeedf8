import os
import sys
from argparse import Namespace

import pytest

from gputop import console
from gputop.bench.results.differences import comparison_page
from gputop.commands import bench_results
from gputop.console import COULD_NOT_RUN, FINE, terminal_size
from gputop.ui.shell import start
from tests.sessions import RESULT
from tests.terminal import set_size


@pytest.mark.parametrize(
    ("real", "exported", "size"),
    [
        ((120, 40), {"COLUMNS": "80", "LINES": "24"}, (120, 40)),
        ((5000, 3000), {}, (1000, 500)),
        ((0, 0), {"COLUMNS": "999999", "LINES": "999999"}, (1000, 500)),
        ((0, 0), {"COLUMNS": "100", "LINES": "30"}, (100, 30)),
        ((0, 0), {"COLUMNS": "-1", "LINES": "x"}, (80, 24)),
    ],
)
def test_the_size_of_a_terminal(
    real: tuple[int, int],
    exported: dict[str, str],
    size: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    master, slave = os.openpty()
    try:
        set_size(slave, *real)
        assert terminal_size(slave) == size
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (BrokenPipeError(), FINE, ""),
        (OSError(28, "No space left"), COULD_NOT_RUN, "cannot be printed: No space left"),
    ],
)
def test_an_output_that_takes_nothing_is_discarded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    status: int,
    said: str,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    discarded: list[str] = []
    for module in (console, bench_results):
        monkeypatch.setattr(module, "discard_output", lambda: discarded.append("discarded"))
    monkeypatch.setattr(bench_results, "print_page", fails)
    page = comparison_page(RESULT, RESULT, [])
    assert bench_results.show_page(page, Namespace(verbose=False)) == status
    assert said in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "write", fails)
    console.print_output("text")
    assert discarded == ["discarded", "discarded"]


@pytest.mark.parametrize(
    ("environment", "in_terminfo", "left"),
    [
        ({"NO_COLOR": ""}, 256, {"TEXTUAL_COLOR_SYSTEM": "256"}),
        ({"NO_COLOR": "1"}, 8, {"NO_COLOR": "1"}),
        ({}, 255, {}),
        ({}, None, {}),
        ({"COLORTERM": "truecolor"}, 256, {"COLORTERM": "truecolor"}),
        ({"TEXTUAL_COLOR_SYSTEM": "auto"}, 256, {"TEXTUAL_COLOR_SYSTEM": "auto"}),
    ],
)
def test_textual_is_told_the_colours_of_terminfo(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    in_terminfo: int | None,
    left: dict[str, str],
) -> None:
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(start, "terminfo_colours", lambda: in_terminfo)
    start._set_colours()
    assert environment == left


@pytest.mark.parametrize(
    ("environment", "is_safer"),
    [
        ({}, False),
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LANG": "C"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "de_DE.UTF-8", "LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "de_DE.utf8@euro"}, False),
        ({"LANG": "en_US"}, False),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, True),
    ],
)
def test_where_ascii_is_safer(environment: dict[str, str], is_safer: bool) -> None:
    assert console.ascii_is_safer(environment) is is_safer


IPYKERNEL = {"TERM": "xterm-color", "GIT_PAGER": "cat"}


@pytest.mark.parametrize(
    ("environment", "group", "is_cell"),
    [
        ({"JPY_PARENT_PID": "1"}, 7, True),
        ({"JPY_PARENT_PID": "1"}, 8, False),
        (IPYKERNEL | {"HOME": "/"}, 7, True),
        (IPYKERNEL, 8, False),
        ({"TERM": "xterm-color"}, 7, False),
        ({}, 7, False),
    ],
)
def test_a_cell_of_a_notebook(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], group: int, is_cell: bool
) -> None:
    monkeypatch.setattr(os, "getpgrp", lambda: group)
    monkeypatch.setattr(os, "getsid", lambda pid: 7 if pid == 0 else 9)
    assert console.in_notebook_cell(environment) is is_cell
