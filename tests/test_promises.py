import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
NAMED = re.findall(
    r"`([\w/]+\.py)(?:::(\w+))?`(?: \(.*\))? \|$",
    (TESTS / "PROMISES.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_the_test_of_a_promise_exists(file: str, test: str) -> None:
    text = (TESTS / file).read_text()
    assert not test or re.search(rf"def {test}\(", text)


def test_every_promise_names_a_test() -> None:
    rows = [line for line in (TESTS / "PROMISES.md").read_text().splitlines() if "| `" in line]
    assert len(rows) == len(NAMED)
