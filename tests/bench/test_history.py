import json
import re
import time
from dataclasses import asdict, replace
from typing import Any

import pytest

from gputop.bench.events import Comparison, Conditions, Point, Result
from gputop.bench.results import columns, store
from gputop.bench.results.columns import COLUMNS, DEVICE
from gputop.commands import bench as command
from gputop.commands.parser import parse
from gputop.output.result_pages import result_list
from tests.bench.kept import BASE, COPY, soak, table, with_comparisons
from tests.bench.workers import RESULT

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
    under = [each["comparison"]["under_percent"] for each in documents]
    assert under == [pytest.approx(100 * -80 / 700), *[None] * 4]


@pytest.mark.parametrize(
    ("device", "count"), [("cpu", 1), ("GPU-4f2a1b3c", 3), ("gpu-4F", 3), ("GPU-0", 0), ("2", 1)]
)
def test_of_one_device_by_its_uuid_or_its_index_at_the_time_of_the_run(
    capsys: pytest.CaptureFixture[str], device: str, count: int
) -> None:
    for each in (*RUNS[:2], replace(RUNS[2], device_index=2), RUNS[4]):
        store.append(each)
    assert run("--device", device, "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == count
    assert run("--device", "43:00.0") == 2
    assert "Name it by one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "No results\n"), (("--device", "cpu"), "No results of cpu\n"), (("--json",), "[]\n")],
)
def test_without_results(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(*arguments) == 0
    assert capsys.readouterr().out == said


FROM_WIDTH = {"WHEN": 45, "TYPE": 55, "SIZE": 61, "PEAK": 68, "OF PEAK": 77, "TIME": 83}
FROM_WIDTH |= {"POWER": 90, "CLOCK": 100, "HEAT": 106, "TORCH": 114, "DRIVER": 122, "BEST ROW": 151}


@pytest.mark.parametrize(("title", "width"), FROM_WIDTH.items())
def test_a_table_fits_into_its_width_and_wider_is_more(title: str, width: int) -> None:
    for columns_wide, is_shown in ((width - 1, False), (width, True)):
        head, *lines = result_list(RUNS, columns_wide).splitlines()
        assert (title in re.split(" {2,}", head.strip())) == is_shown
        assert len(lines) == len(RUNS)
        assert max(map(len, [head, *lines])) <= columns_wide
    assert {"DEVICE", "KIND", "TFLOP/s", "VERDICT"} <= set(re.split(" {2,}", head.strip()))
    assert "POWER" not in result_list(RUNS[4:]).splitlines()[0], "nothing is known of it"
    longer = [replace(each, device="x" * 40) for each in RUNS]
    assert ["WHEN" in result_list(longer, room) for room in (54, 55)] == [False, True]


def texts(result: Result) -> dict[str, str]:
    return {column.title: column.text(result) for column in COLUMNS}


FORMULA = Conditions(percent_of_peak={"formula at the live clock": 101.2})
SEARCH = table("peak", (Point("confirmed", 8, {"tflops": 9.0}),), tflops_mean=3.0, tflops_peak=9.0)


@pytest.mark.parametrize(
    ("result", "title", "text"),
    [
        (BASE, "OF PEAK", "78.1 %"),
        (replace(BASE, conditions=FORMULA), "OF PEAK", "~101.2 %"),
        (RESULT, "OF PEAK", "–"),
        (BASE, "SIZE", "8192"),
        (replace(BASE, m=1, n=2, k=3), "SIZE", "1×2×3"),
        (RUNS[3], "SIZE", "–"),
        (SEARCH, "TFLOP/s", "9.00"),
        (RUNS[3], "BEST ROW", "device to device: 3900 GB/s"),
        (BASE, "POWER", "690 W"),
        (BASE, "HEAT", "67°C"),
        (replace(BASE, stopped="user"), "VERDICT", "stopped"),
        (replace(BASE, stopped="limit"), "VERDICT", "too hot"),
        (replace(BASE, stopped="a word of later\n"), "VERDICT", "a word of later␊"),
        (replace(BASE, stopped="limit", wrong_elements=1), "VERDICT", "FAULTY"),
    ],
)
def test_a_cell(result: Result, title: str, text: str) -> None:
    assert texts(result)[title] == text


def test_a_date_has_its_year_where_it_is_long_ago() -> None:
    for days, form in ((299, "%d %b %H:%M"), (301, "%d %b %Y")):
        at = replace(BASE, started_at=time.time() - 86_400 * days)
        assert columns.when(at) == time.strftime(form, time.localtime(at.started_at))


@pytest.mark.parametrize(
    ("mean", "changes", "verdict", "usual"),
    [
        (700.0, {"stopped": "limit"}, "10 % under", "89.7 %"),
        (700.0, {"wrong_elements": 1}, "FAULTY", "–"),
        (760.0, {}, "ok", "97.4 %"),
        (780.1, {}, "ok", "100.0 %"),
        (780.0, {"device_uuid": "GPU-other"}, "ok", "–"),
    ],
)
def test_what_is_slower_says_by_how_much_before_how_it_ended(
    mean: float, changes: dict[str, Any], verdict: str, usual: str
) -> None:
    earlier = [*(soak(780.0, ago=60.0 + n) for n in range(4)), RUNS[4]]
    (result,) = with_comparisons([soak(mean, **changes)], earlier)
    found = texts(result)
    assert (found["VERDICT"], found["OF USUAL"]) == (verdict, usual)


def test_the_slowest_row_of_a_table_is_its_verdict() -> None:
    slower = "a: 1 GB/s is 4.0 % under the 2; b: 3 GB/s is 50.0 % under the 6 that is usual"
    result = replace(RUNS[3], comparison=Comparison(20.0, slower, 4))
    assert texts(result)["VERDICT"] == "50 % under"


def test_a_verdict_that_was_given_stays_also_if_an_earlier_run_comes_in_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
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
    names = {"dtype": "\n", "torch_version": "\r", "kind": "\x07", "stopped": "\x00"}
    odd = replace(BASE, device="\x1b[2J", **names)  # type: ignore[arg-type]
    assert all(line.isprintable() for line in result_list([odd]).splitlines())
    assert DEVICE.text(odd) == "␛[2J"


def test_to_forget_one_leaves_all_others(kept: list[Result]) -> None:
    store.append(kept[1], "{}")
    assert store.curves_of(kept[1]) == "{}"
    store.forget(kept[1])
    store.forget(kept[1])
    assert store.curves_of(kept[1]) is None
    assert store.recent() == [kept[0], *kept[2:]]
    store.append(replace(kept[0], device_uuid="GPU-other"))
    store.forget(kept[0])
    assert store.recent()[0].device_uuid == "GPU-other"
