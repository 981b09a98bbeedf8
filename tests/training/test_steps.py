from pathlib import Path
from typing import Any

import pytest

from gputop.training.lines import LINE_CHARACTERS, PlainLines
from gputop.training.steps import StepReading, parse_line, pattern_parser

LINES = Path(__file__).parents[1] / "data" / "training" / "lines.txt"
"""Lines of many programs, with comments."""


def test_a_line_tells_its_step_and_values(snapshot: Any) -> None:
    told = ""
    for line in LINES.read_text().splitlines():
        told += f"{line}\n" if line.startswith("#") else f"{line}\n    {parse_line(line)}\n"
    assert told == snapshot
    assert parse_line("") is None


@pytest.mark.parametrize(
    ("values", "loss"),
    [
        ({"loss": 2.0, "val_loss": 3.0}, 2.0),
        ({"lr": 0.1, "train_loss": 1.5}, 1.5),
        ({"train/loss": 1.25}, 1.25),
        ({"lossless": 1.0}, None),
    ],
)
def test_the_loss_is_found_by_its_name(values: dict[str, float], loss: float | None) -> None:
    assert StepReading("log", 1, None, values).loss == loss


def test_a_pattern_names_step_and_values_by_its_groups() -> None:
    parse = pattern_parser(r"at (?P<step>\d+) of (?P<total>\d+): L=(?P<loss>[\d.]+)(?P<note> \w+)?")
    assert parse("at 12 of 90: L=0.5 fine") == StepReading("pattern", 12, 90, {"loss": 0.5})
    assert parse("something else") is None


@pytest.mark.parametrize(("pattern", "why"), [("(", "not a regular"), (r"\d+", "no group")])
def test_a_wrong_pattern_is_refused_with_its_reason(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pattern_parser(pattern)


@pytest.mark.parametrize(
    "text",
    [
        "{a" + "1" * 4000 + "x",
        "loss: " + "1" * 580 + "x",
        "{a" + " " * 4000 + "x",
        '{"a":' + "[" * 4000,
        "━" * 590 + "1",
        "1" * 590 + "%|",
        "\x1b]" * 8000,
        "\x1bP" * 8000 + "a" * 8000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_a_megabyte_of_hostile_output_is_read(text: str) -> None:
    """With backtracking some of these take from a minute to hours."""
    output = PlainLines()
    data = f"{text}\n".encode()
    for _ in range(2**20 // len(data)):
        for line in output.feed(data):
            assert len(line) <= LINE_CHARACTERS
            assert parse_line(line) is None
