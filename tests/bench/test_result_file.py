"""Results read from files that `--json` wrote, and what is said about other files."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.results.exports import read_results
from tests.bench.commands import ran
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from pathlib import Path

GOOD = asdict(dataclasses.replace(RESULT, device_uuid="GPU-9", host="node-9"))
DAMAGED: dict[str, tuple[Any, str]] = {
    "empty": ("", "it is empty"),
    "blank": (" \n", "it is empty"),
    "cut off": (json.dumps(GOOD)[:-40], "not a complete JSON document"),
    "no result": ({"a": 1}, "it is not a result"),
    "a number": (3, "it is not a result"),
    "half a result": ({key: GOOD[key] for key in list(GOOD)[:9]}, "it is not a complete result"),
    "wrong types": ({**GOOD, "seconds": "long"}, "it is not a complete result"),
    "not a number": (
        json.dumps({**GOOD, "tflops_mean": float("nan")}),
        "number out of range",
    ),
    "deep": ("[" * 100_000, "not a complete JSON document"),
}


def write(folder: Path, document: Any) -> str:
    path = folder / "result.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    document, why = DAMAGED[name]
    with pytest.raises(ValueError, match=why):
        read_results(write(tmp_path, document))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing", "bytes", "", "pipe"):
        with pytest.raises(ValueError, match=r"\w"):
            read_results(str(tmp_path / name))
    with pytest.raises(ValueError, match=r"\w"):
        read_results("/dev/zero")


def test_a_file_has_one_result_or_several(tmp_path: Path) -> None:
    failed = {"device": "NVIDIA H100", "problem": {"what": "The device hangs"}, "status": 1}
    assert len(read_results(write(tmp_path, GOOD))) == 1
    assert len(read_results(write(tmp_path, [GOOD, failed]))) == 1
    (found,) = read_results(write(tmp_path, {"results": [{**GOOD, "place": "GPU 6"}]}))
    assert found.host == "node-9"


def test_a_file_with_several_results_is_not_compared(tmp_path: Path) -> None:
    file = write(tmp_path, [GOOD, GOOD])
    done = ran("--compare", file, file)
    assert done.returncode == 3
    assert "cannot be compared: it has 2 results. Name one result." in done.stderr


@given(st.text(max_size=200))
def test_no_file_is_too_strange(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        why = None
        try:
            found = read_results(file.name)
        except ValueError as error:
            found, why = [], str(error)
    assert found == [], "an empty list has none either"
    assert why != ""
