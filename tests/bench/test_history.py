"""`gputop bench --history`: what is listed, in which form, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from gputop.bench.events import Conditions
from gputop.bench.results import columns, store
from gputop.bench.results.columns import COLUMNS, DEVICE
from gputop.commands import bench as command
from gputop.commands.parser import parse
from gputop.output.result_pages import result_list
from tests.bench.kept import BASE, COPY, soak, table, with_comparisons
from tests.bench.workers import RESULT

if TYPE_CHECKING:
    from gputop.bench.events import Result

RUNS = [
    soak(780.0),
    soak(700.0, ago=3600.0),
    soak(770.0, ago=7200.0, wrong_elements=3),
    table("copy", COPY, ago=10_800.0, m=0, n=0, k=0, dtype=""),
    replace(RESULT, started_at=BASE.started_at - 14_400.0),
]


def run(*arguments: str) -> int:
    return command.run(parse(["bench", "--history", *arguments]))


@pytest.fixture
def kept() -> list[Result]:
    return [store.append(each) for each in reversed(RUNS)][::-1]


def test_the_table_is_newest_first(kept: list[Result], capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    said = capsys.readouterr()
    assert said.err == ""
    head, *rows = said.out.splitlines()
    assert head.split()[:4] == ["WHEN", "DEVICE", "KIND", "TYPE"]
    assert head.split()[-1] == "VERDICT"
    assert len(rows) == len(kept)
    assert [row.rsplit(None, 1)[1] for row in rows] == ["ok", "ok", "FAULTY", "ok", "ok"]
    assert " 111.4 % " in rows[0]
    assert "3900 GB/s" in rows[3]
    assert "a CPU" in rows[4]


def test_json_has_the_documents(kept: list[Result], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    documents = json.loads(capsys.readouterr().out)
    assert documents == json.loads(json.dumps([asdict(each) for each in kept]))
    assert [each["comparison"]["under_percent"] for each in documents] == [
        pytest.approx(100 * -80 / 700),
        *[None] * 4,
    ]


@pytest.mark.parametrize(
    ("device", "count"), [("cpu", 1), ("GPU-4f2a1b3c", 4), ("gpu-4F", 4), ("GPU-0", 0)]
)
def test_of_one_device(
    kept: list[Result], capsys: pytest.CaptureFixture[str], device: str, count: int
) -> None:
    assert run("--device", device, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == count


def test_an_index_is_that_at_the_time_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    for index in (2, 2, 3):
        store.append(soak(ago=10.0 * len(store.recent()), device_index=index))
    assert run("--device", "2", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert run("--device", "0") == 0
    assert capsys.readouterr().out == "No results of 0\n"
    assert run("--device", "43:00.0") == 2
    assert "Name it by one of them" in capsys.readouterr().err


def test_without_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out == "No results\n"
    assert run("--device", "cpu") == 0
    assert capsys.readouterr().out == "No results of cpu\n"
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_a_table_fits_into_its_width_and_wider_is_more() -> None:
    titles = {column.title for column in COLUMNS}
    heads = []
    for width in range(40, 300, 7):
        head, *lines = result_list(RUNS, width).splitlines()
        assert len(lines) == len(RUNS)
        assert max(map(len, [head, *lines])) <= width
        heads.append(titles.intersection(re.split(" {2,}", head)))
    for narrow, wide in itertools.pairwise(heads):
        assert narrow <= wide
    assert {"DEVICE", "TFLOP/s", "VERDICT"} <= heads[0]
    assert "POWER" not in result_list(RUNS[4:]).splitlines()[0], "nothing is known of it"


def text(title: str, result: Result, among: list[Result] | None = None) -> str:
    (result,) = with_comparisons([result], among or [])
    return next(column for column in COLUMNS if column.title == title).text(result)


def test_the_percentage_says_that_the_peak_is_by_formula_and_the_size_is_short() -> None:
    assert text("OF PEAK", BASE) == "78.1 %"
    formula = Conditions(percent_of_peak={"formula at the live clock": 101.2})
    assert text("OF PEAK", replace(BASE, conditions=formula)) == "~101.2 %"
    assert text("OF PEAK", RESULT) == "–"
    assert text("SIZE", BASE) == "8192"
    assert text("SIZE", replace(BASE, m=1, n=2, k=3)) == "1×2×3"
    assert text("SIZE", replace(BASE, m=0, n=0, k=0)) == "–"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "ok"),
        ({"stopped": "user"}, "stopped"),
        ({"stopped": "limit"}, "too hot"),
        ({"stopped": "a word of later\n"}, "a word of later␊"),
        ({"wrong_elements": 1, "stopped": "limit"}, "FAULTY"),
    ],
)
def test_the_verdict(changes: dict[str, object], says: str) -> None:
    assert text("VERDICT", replace(BASE, **changes)) == says  # type: ignore[arg-type]


def test_a_date_has_its_year_where_it_is_long_ago() -> None:
    assert columns.when(BASE) == time.strftime("%d %b %Y", time.localtime(BASE.started_at))
    now = replace(BASE, started_at=time.time() - 60)
    assert columns.when(now) == time.strftime("%d %b %H:%M", time.localtime(now.started_at))


def test_what_is_slower_says_by_how_much_before_how_it_ended() -> None:
    earlier = [*(soak(780.0, ago=60.0 + n) for n in range(4)), RUNS[4]]
    assert text("VERDICT", soak(700.0, stopped="limit"), earlier) == "10 % under"
    assert text("VERDICT", soak(760.0), earlier) == "ok"
    assert text("OF USUAL", soak(750.0), earlier) == "96.2 %"
    assert text("OF USUAL", soak(780.0), earlier) == "100.0 %"
    assert text("OF USUAL", soak(780.1), earlier) == "100.0 %"
    assert text("OF USUAL", RUNS[4], earlier) == "–"


def test_a_verdict_that_was_given_stays_whatever_else_is_kept_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where an earlier run comes in later, from a clock that was set back."""
    for n in range(4):
        store.append(soak(780.0, ago=60.0 + n))
    (judged,) = store.judged([soak(700.0)])
    assert judged.verdict is not None
    store.append(judged)
    store.append(soak(2000.0, ago=90.0))
    newest, *_ = store.recent()
    assert (newest.comparison, newest.verdict) == (judged.comparison, judged.verdict)
    assert run() == 0
    assert " 10 % under" in capsys.readouterr().out


def test_names_of_others_are_inert() -> None:
    odd = replace(
        BASE, device="\x1b[2J", dtype="\n", torch_version="\r", kind="\x07", stopped="\x00"
    )
    assert all(line.isprintable() for line in result_list([odd]).splitlines())
    assert DEVICE.text(odd) == "␛[2J"


def test_to_forget_one_leaves_all_others(kept: list[Result]) -> None:
    store.append(kept[1], "{}")
    assert store.curves_of(kept[1]) == "{}"
    store.forget(kept[1])
    store.forget(kept[1])
    assert store.curves_of(kept[1]) is None
    assert store.recent() == [kept[0], *kept[2:]]
    other = replace(kept[0], device_uuid="GPU-other")
    store.append(other)
    store.forget(kept[0])
    assert store.recent()[0].device_uuid == "GPU-other"
