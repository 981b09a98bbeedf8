"""A small number of the cases of `python -m tests.fuzz`, and what it has found before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import case_of, tried
from tests.fuzz.targets import TARGETS, clean

FOUND = sorted(Path(__file__).with_name("found").iterdir())
CASES, SEED = 300, 20261122


@pytest.fixture(autouse=True)
def _cleaned() -> Iterator[None]:
    yield
    clean()


@pytest.mark.parametrize("path", FOUND, ids=[path.name for path in FOUND])
def test_what_was_found_before(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]].check(path.read_bytes())


@pytest.mark.daily(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_few_cases(target: str) -> None:
    tally = tried(target, SEED, range(CASES))
    assert not tally.first
    assert tally.accepted > CASES // 20
    assert tally.refused > CASES // 20


def test_the_same_number_is_the_same_case() -> None:
    for target in TARGETS:
        assert case_of(target, SEED, 7) == case_of(target, SEED, 7)
        assert case_of(target, SEED, 7) != case_of(target, SEED + 1, 7)
