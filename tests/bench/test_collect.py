"""Files of results put together: what is damaged, or of another test, is named and left out."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.bench.events import Conditions, Result
from gputop.bench.results.collect import collect
from tests.bench.commands import COMMAND, environment, ran
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from pathlib import Path

GPU = dataclasses.replace(
    RESULT,
    device="NVIDIA H100 80GB HBM3",
    dtype="bfloat16",
    tflops_mean=700.0,
    seconds=60.0,
    cuda_version="12.8",
    conditions=Conditions(driver_version="570.86.15"),
)


def result(number: int, **changes: Any) -> Result:
    return dataclasses.replace(GPU, device_uuid=f"GPU-{number}", host=f"node-{number}", **changes)


def write(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def files(folder: Path, count: int = 5) -> list[str]:
    """As many good ones."""
    return [
        write(folder, f"bench-{n}.json", asdict(result(n, tflops_mean=700.0 + n)))
        for n in range(count)
    ]


def test_files_of_one_test_are_compared(tmp_path: Path) -> None:
    slow = write(tmp_path, "slow.json", asdict(result(9, tflops_mean=600.0)))
    done = ran("--collect", *files(tmp_path), slow)
    assert done.returncode == 4
    assert done.stderr == ""
    assert "6 devices on 6 hosts" in done.stdout
    assert "node-9, slow.json, GPU-9" in done.stdout
    assert "like devices: 14.5 % under the median of 5 others" in done.stdout


def test_fine_files_are_fine(tmp_path: Path) -> None:
    done = ran("--collect", *files(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "No outliers among 5 devices." in done.stdout


def test_a_wrong_result_is_a_fault(tmp_path: Path) -> None:
    wrong = write(tmp_path, "wrong.json", asdict(result(9, wrong_elements=2)))
    assert ran("--collect", *files(tmp_path), wrong).returncode == 1


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "peak"}, "kind peak, not soak"),
    "dtype": ({"dtype": "float16"}, "data type float16, not bfloat16"),
    "size": ({"m": 4096, "n": 4096, "k": 4096}, "size 4096 x 4096 x 4096, not 1024 x 1024"),
    "torch": ({"torch_version": "2.4.0"}, "torch 2.4.0, not 9.9.9"),
    "cuda": ({"cuda_version": "11.8"}, "CUDA 11.8, not 12.8"),
    "driver": ({"conditions": Conditions(driver_version="535.1")}, "driver 535.1, not 570.86.15"),
    "time": ({"seconds": 10.0}, "it took 10 s, the others 1:00"),
    "stopped": ({"stopped": "user", "seconds": 9.0}, "it was stopped after 9 s"),
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", OTHERS)
def test_another_test_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    changes, why = OTHERS[name]
    other = write(tmp_path, "other.json", asdict(result(9, **changes)))
    members, left_out = collect([other, *files(tmp_path)])
    assert len(members) == 5
    (left,) = left_out
    assert left.file == other
    assert why in left.why
    assert ran("--collect", other, *files(tmp_path)).returncode == 3


GOOD = asdict(result(9))
DAMAGED: dict[str, tuple[Any, str]] = {
    "empty": ("", "it is empty"),
    "blank": (" \n", "it is empty"),
    "cut off": (json.dumps(GOOD)[:-40], "not a complete JSON document"),
    "no result": ({"a": 1}, "it is not a result"),
    "a list of nothing": ([], "it contains no result"),
    "a number": (3, "it is not a result"),
    "half a result": ({key: GOOD[key] for key in list(GOOD)[:9]}, "it is not a complete result"),
    "wrong types": ({**GOOD, "seconds": "long"}, "it is not a complete result"),
    "not a number": (
        json.dumps({**GOOD, "tflops_mean": float("nan")}),
        "tflops_mean: number out of range",
    ),
    "deep": ("[" * 100_000, "not a complete JSON document"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    text, why = DAMAGED[name]
    members, left_out = collect([*files(tmp_path), write(tmp_path, "damaged.json", text)])
    assert len(members) == 5
    (left,) = left_out
    assert why in left.why


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe")
    names = ("missing", "bytes", "", "pipe")
    wanted = [*(str(tmp_path / name) for name in names), "/dev/zero"]
    _, left_out = collect([*files(tmp_path), *wanted])
    assert [each.file for each in left_out] == wanted
    done = ran("--collect", *wanted)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.count("is left out") == 5


def test_tasks_that_shared_a_gpu_are_named(tmp_path: Path) -> None:
    first, *rest = files(tmp_path)
    again = write(tmp_path, "again.json", asdict(result(0, tflops_mean=350.0)))
    members, left_out = collect([first, *rest, again, first])
    assert len(members) == 5
    assert [(each.file, first in each.why) for each in left_out] == [(again, True)]


def test_several_results_of_a_file_and_those_without_one(tmp_path: Path) -> None:
    failed = {
        "device": "NVIDIA H100 80GB HBM3",
        "device_uuid": "GPU-7",
        "host": "node-7",
        "problem": {"what": "The device hangs", "why": "a batch did not end", "remedy": "Look"},
        "status": 1,
    }
    several = write(tmp_path, "several.json", [asdict(result(8)), failed])
    whole = write(tmp_path, "whole.json", {"results": [{**asdict(result(6)), "place": "GPU 6"}]})
    members, left_out = collect([*files(tmp_path), several, whole])
    assert left_out == []
    assert len(members) == 8
    assert members[-1].place == "GPU 6"
    done = ran("--collect", several, whole)
    assert done.returncode == 1
    assert "    The device hangs: a batch did not end\n    Look\n" in done.stdout


def test_json_has_what_was_left_out(tmp_path: Path) -> None:
    empty = write(tmp_path, "empty.json", "")
    done = ran("--json", "--collect", *files(tmp_path), empty)
    document = json.loads(done.stdout)
    assert document["left_out"][0]["file"] == empty
    assert document["distributions"][0]["count"] == 5
    assert len(document["results"]) == 5
    assert document["outliers"] == []
    again = write(tmp_path, "all.json", done.stdout)
    assert ran("--collect", again).returncode == 0, "what it writes can be collected again"


@given(st.text(max_size=200))
def test_no_file_is_too_strange(text: str) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".json", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        members, left_out = collect([file.name])
    assert members == []
    assert len(left_out) == 1


def test_names_of_files_are_data(tmp_path: Path) -> None:
    name = write(tmp_path, "a\x1b[2Jb", "")
    done = subprocess.run(
        [*COMMAND, "--collect", name],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "\x1b" not in done.stderr
    assert "␛[2J" in done.stderr
