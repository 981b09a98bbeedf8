"""Products that are more exact than their data type, as small ones of TF32 are on an H100.

A CPU has no TF32: its products of that name are made in float32, whatever their size.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.test_kinds import one_thread
from tests.bench.workers import QUICK, RawWorker, needs_torch, request

pytestmark = needs_torch
__all__ = ["one_thread"]  # a fixture of these tests, too

IN_FLOAT32 = "computed in float32, not in tf32"


def last_of(kind: str, size: int | None, *dtypes: str, seconds: float = 3.0) -> dict[str, Any]:
    first, *others = dtypes
    with RawWorker(request(first, size, seconds, kind, *others), QUICK) as raw:
        *_, last = raw.events()
    return last


@pytest.mark.parametrize(
    ("kind", "size", "named"),
    [
        ("sweep", 96, "32×32, 64×64, 96×96"),
        ("peak", 256, "256×256"),
        ("latency", None, "100×100, 1000×1000"),
    ],
)
def test_a_row_that_is_more_exact_is_named_in_one_note(kind: str, size: int, named: str) -> None:
    done = last_of(kind, size, "tf32")
    assert done["event"] == "done", done
    notes = [note for note in done["notes"] if IN_FLOAT32 in note]
    assert len(notes) == 1
    assert notes[0].startswith(named)
    assert notes[0].endswith(f": {IN_FLOAT32}")


def test_small_products_of_a_soak_may_be_more_exact() -> None:
    done = last_of("soak", 128, "tf32", seconds=0.3)
    assert done["event"] == "done", done
    assert done["notes"] == [f"products of this size are {IN_FLOAT32}"]


def test_large_products_of_a_soak_may_not() -> None:
    error = last_of("soak", 1024, "tf32", seconds=0.3)
    assert error["event"] == "error", error
    assert error["kind"] == "precision"
    assert error["what"] == "The tf32 product was not made in tf32"
