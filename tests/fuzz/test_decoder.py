"""The decoder and what is around it: the fuzzer's corpus again, and damaged streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.invariants import check_stream

CORPUS = sorted(Path(__file__).with_name("corpus").iterdir())


def test_there_is_a_corpus() -> None:
    assert 10 <= len(CORPUS) <= 100
    assert max(path.stat().st_size for path in CORPUS) <= 4096


@pytest.mark.parametrize("path", CORPUS, ids=[path.name for path in CORPUS])
def test_the_corpus(path: Path) -> None:
    check_stream(path.read_bytes())
