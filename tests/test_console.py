"""Terminals of any size, and environments that tell another one than the terminal has."""

import os

import pytest

from gputop.console import COLUMNS, ROWS, terminal_size
from tests.terminal import set_size


@pytest.mark.parametrize(
    ("real", "exported", "size"),
    [
        ((120, 40), {"COLUMNS": "80", "LINES": "24"}, (120, 40)),
        ((5000, 3000), {}, (COLUMNS, ROWS)),
        ((0, 0), {"COLUMNS": "999999", "LINES": "999999"}, (COLUMNS, ROWS)),
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
