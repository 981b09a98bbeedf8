"""Output of real libraries: transformers 5.24, Lightning 2.6 and tqdm 4.70.

The programs that made it are in the history: `tests/training/programs` at e1469855.
"""

import re
from pathlib import Path

import pytest

from gputop.training.lines import PlainLines
from gputop.training.progress import Counter, Progress
from gputop.training.steps import parse_line

DATA = Path(__file__).parents[1] / "data" / "training"
TOTALS = {"transformers": 40, "lightning-rich": 20, "lightning-tqdm": 20, "ranks-tqdm": 12}
LINE_SECONDS = 0.1


def counters(name: str) -> list[Counter]:
    lines, progress = PlainLines(), Progress()
    found = []
    now = 0.0
    for piece in re.split(rb"(?<=[\r\n])", (DATA / f"{name}.log").read_bytes()):
        for line in [*lines.feed(piece), *lines.settle()]:
            now += LINE_SECONDS
            reading = parse_line(line)
            if reading is not None:
                progress.add(reading, now)
                main = progress.main(now)
                if main is not None:
                    found.append(main)
    return found


@pytest.mark.parametrize("name", TOTALS)
def test_the_main_counter_is_that_of_the_program_from_its_second_line(name: str) -> None:
    found = counters(name)
    assert {counter.total for counter in found[1:]} == {TOTALS[name]}
    assert found[-1].step == TOTALS[name]
    text = (DATA / f"{name}.log").read_bytes()
    own = re.search(rb"own (\d+)", text)
    assert own is not None
    done = found[-1].points[-1].value
    assert done == pytest.approx(int(own[1]), abs=2 if name == "ranks-tqdm" else 0)
