from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import tried
from tests.fuzz.invariants import check_stream
from tests.fuzz.targets import CORPUS, TARGETS, clean

FOUND = sorted(Path(__file__).with_name("found").iterdir())
STREAMS = sorted(CORPUS.iterdir())
CASES, SEED = 300, 20261122


@pytest.fixture(autouse=True)
def _cleaned() -> Iterator[None]:
    yield
    clean()


@pytest.mark.parametrize("path", FOUND, ids=[path.name for path in FOUND])
def test_what_was_found_before(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]].check(path.read_bytes())


@pytest.mark.daily(4)
@pytest.mark.parametrize("path", STREAMS, ids=[path.name for path in STREAMS])
def test_a_stream_that_was_found_before(path: Path) -> None:
    check_stream(path.read_bytes())


@pytest.mark.daily(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_few_cases(target: str) -> None:
    tally = tried(target, SEED, range(CASES))
    assert not tally.findings
    assert tally.accepted > CASES // 20
    assert tally.refused > CASES // 20
