import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gputop.agent.problem import Problem
from gputop.bench.events import Done, Failed, Result
from gputop.bench.plan import target_choice
from gputop.bench.plan.request import Request
from gputop.bench.results import store
from gputop.bench.results.check_report import check_details, check_page
from gputop.bench.results.outliers import DeviceOutcome
from gputop.bench.results.page import Heading, Level, Sentence
from gputop.bench.results.verdict import with_verdicts
from gputop.bench.run import check_parts, worker_launch
from gputop.bench.run.check_parts import LEVELS, CheckResult, Part, PartResult, part_requests
from gputop.bench.run.device_run import DeviceRun
from gputop.bench.run.worker_launch import Interpreter, InterpreterSearch
from gputop.bench.run.worker_order import worker_request
from gputop.bench.worker import copies
from gputop.commands import bench as command
from gputop.console import COULD_NOT_RUN
from gputop.output.result_pages import page_text
from tests.bench.commands import parsed
from tests.bench.kept import COPY, soak, table
from tests.runs import begin, gpu_result
from tests.schemas import problem_of
from tests.sessions import RESULT, table_result
from tests.streams import inventory, sample

GPU = target_choice.targets(inventory(1), sample(1))[0]
QUICK = ["copy", "memory", "soak", "burn", "collective"]
FAULT = Problem("The GPU failed", "an illegal address", "See dmesg")


class Ends:
    """Ends of runs by kind, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.by_kind: dict[str, Done | Failed] = {}
        self.started_at = RESULT.started_at

    async def stress(self, requests: Sequence[Request], *_: object) -> list[DeviceRun]:
        self.asked += requests
        runs = []
        for request in requests:
            run = begin(request.target, request.seconds)[0]
            run.request = request
            kind = request.kind
            one_shape = kind in ("soak", "burn", "pulse", "memory")
            made = replace(RESULT, kind=kind) if one_shape else table_result(kind)
            self.started_at += 1.0
            made = replace(made, stopped="time", started_at=self.started_at)
            run.add_event(self.by_kind.get(kind, Done(made)))
            runs.append(run)
        return runs

    @property
    def kinds(self) -> list[str]:
        """Kinds of the runs in order, each part once."""
        return list(dict.fromkeys(each.kind for each in self.asked))


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Every run ends well, at once."""
    known = Ends()

    async def found(*_: object, **__: object) -> InterpreterSearch:
        return InterpreterSearch(Interpreter("python", "here", "2.13.0"), ())

    monkeypatch.setattr(command, "_stress", known.stress)
    monkeypatch.setattr(worker_launch, "find_interpreter", found)
    return known


def run(*arguments: str) -> int:
    return command.run(parsed("check", "--device", "cpu", *arguments))


def test_the_parts_of_a_level_share_its_time() -> None:
    assert [level.seconds for level in LEVELS.values()] == [80, 450, 3500]
    for level in LEVELS.values():
        assert sum(part.share for part in level.parts) == pytest.approx(1.0)


def test_all_parts_run_in_order_and_have_a_line_each(
    ends: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    assert ends.kinds == QUICK
    page, said = capsys.readouterr()
    summary, _, title, _, _, *rows = page.splitlines()
    assert summary == "Computes correctly. Speed was not judged: no reference for this CPU."
    assert title.startswith("check quick on ")
    assert [line.split()[0] for line in rows[: len(QUICK)]] == QUICK
    assert f"{len(QUICK)}/{len(QUICK)} collective  " in said
    assert len(store.recent()) == len(ends.asked)


def test_a_part_that_is_wrong_does_not_end_the_others_and_decides_the_status(
    ends: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    ends.by_kind["memory"] = Failed(FAULT, 1)
    assert run("--level", "standard") == 1
    page = capsys.readouterr().out
    assert page.startswith("The GPU failed: an illegal address. See dmesg\n")
    assert "soak tf32: left out, " in page


@pytest.mark.parametrize(("kind", "title"), [("memory", ", 2 of 5 parts ran"), ("collective", "")])
def test_a_check_that_is_stopped_prints_what_was_done(
    ends: Ends, capsys: pytest.CaptureFixture[str], kind: str, title: str
) -> None:
    ends.by_kind[kind] = Done(replace(RESULT, kind=kind, stopped="user"))
    assert run() == 130
    page = capsys.readouterr().out
    assert page.startswith("Stopped before the end. No fault found until then.\n")
    assert page.splitlines()[2].endswith(title)
    assert ends.kinds[-1] == kind


def test_json_and_the_page_have_every_part(
    ends: Ends, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "check.html"
    assert run("--json", "--report", str(report)) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == f"gputop: report: {report}"
    document = json.loads(printed.out)
    assert [part["name"] for part in document["parts"]] == QUICK
    assert (document["schema"], document["planned"]) == (1, len(QUICK))
    assert document["summary"].startswith("Computes correctly. Speed was not judged")
    assert problem_of("bench", document) is None
    page = report.read_text()
    assert all(f"<td>{kind}</td>" in page for kind in QUICK)
    assert page.count("<h1>CPU") + page.count("<h1>") >= 1 + len(ends.asked)


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 8.0), (2, 8.0), (4, 24.0), (8, 112.0)])
def test_copies_have_time_for_every_link(gpus: int, seconds: float) -> None:
    targets = target_choice.targets(inventory(gpus), sample(gpus))[:-1]
    base = [Request(each, "bfloat16", None, LEVELS["quick"].seconds) for each in targets]
    requests, planned = part_requests(LEVELS["quick"].parts[0], base)
    assert planned.name == "copy"
    assert planned.seconds == seconds
    assert {each.seconds for each in requests} == {seconds}
    run: Any = SimpleNamespace(request=worker_request(requests[0]))
    between = copies.seconds_between(run, gpus - 1)
    assert between >= copies.PEER_SECONDS * gpus * (gpus - 1)


def test_a_device_without_a_data_type_is_named_and_the_others_run() -> None:
    old = replace(GPU, uuid="GPU-old", index=1, compute_capability="7.0")
    whole = [Request(each, "float16", None, 90.0, kind="check") for each in (GPU, old)]
    asked, planned = part_requests(Part("soak", 0.1, "float8_e4m3"), whole)
    assert [each.target for each in asked] == [GPU]
    assert planned.left_out.startswith(old.label)
    assert not planned.incomplete, "the data type does not exist there"


def part(name: str, *results: Result | None, **fields: Any) -> PartResult:
    """A part that ended with these results; without one the device was lost."""
    judged = iter(with_verdicts([each for each in results if each is not None]))
    members = []
    for number, each in enumerate(results):
        place = DeviceOutcome("", f"GPU-{number}", f"GPU {number}", GPU.name)
        ended = {"result": next(judged)} if each else {"problem": "it was lost", "status": 1}
        members.append(replace(place, **ended))
    return PartResult(name, 60.0, members=tuple(members), **fields)


FINE, COPIED = soak(780.0, device_index=0), table("copy", COPY)
UNRUN = part("step", left_out="no room for it", incomplete=True)
UNJUDGED = PartResult("soak", 60.0, members=(DeviceOutcome("", "", "GPU 0", GPU.name, FINE),))


def test_the_page_of_a_check_on_two_gpus() -> None:
    unverified = replace(FINE, kind="memory", checks=0, conditions=None)
    parts = (
        part("copy", COPIED, COPIED),
        part("memory", unverified, unverified),
        part("soak", FINE, soak(600.0, device_index=1, seconds=70.0)),
        part("burn", None, None),
        part("collective", table("collective", COPY), table("collective", COPY)),
        UNRUN,
        part("soak tf32", left_out="it has none"),
    )
    check = CheckResult("standard", 0.0, {}, len(parts), parts)
    expected = Path(__file__).with_name("check.txt").read_text()
    assert page_text(check_page(check)) + "\n" == expected


@pytest.mark.parametrize(
    ("parts", "planned", "summary", "level"),
    [
        ((part("soak", FINE, FINE),), 1, "No fault found on 2 devices.", "good"),
        ((part("copy", COPIED),), 1, "No fault found.", "good"),
        ((part("copy", COPIED),), 2, "Stopped before the end. No fault found until then.", "good"),
        ((part("copy", COPIED), UNRUN), 2, "Not judged: some parts could not run, see below.", ""),
        ((UNJUDGED,), 1, "Not judged: its results have no verdict.", "good"),
        ((part("soak", None),), 1, "it was lost.", "fault"),
    ],
)
def test_the_summary_of_a_check(
    parts: tuple[PartResult, ...], planned: int, summary: str, level: Level
) -> None:
    first, *_ = check_page(CheckResult("quick", 0.0, {}, planned, parts))
    assert first == Sentence(summary, level)


def test_many_devices_are_counted_and_their_common_problem_is_told_once() -> None:
    runs = [begin(replace(GPU, index=n, host=f"node-{n % 2}"), 60.0)[0] for n in range(40)]
    for run in runs:
        run.add_event(Done(gpu_result(60.0)))
    lost = DeviceOutcome("node-2", None, "GPU 0", GPU.name, None, "no driver", COULD_NOT_RUN)
    both = (lost, replace(lost, place="GPU 1"))
    part = check_parts.part_result(PartResult("soak", 60.0), runs, both)
    check = CheckResult("quick", 0.0, {"devices": "; ".join(40 * ["a GPU"])}, 1, (part,))
    summary, _, first, *_, last = page_text(check_page(check)).splitlines()
    assert first == f"check quick on 42 × {GPU.name}, 3 hosts"
    assert summary == "node-2, GPU 0, node-2, GPU 1: no driver."
    assert last == "soak, node-2, GPU 0, node-2, GPU 1: no driver"
    details = [block for block in check_details(check) if isinstance(block, Heading)]
    assert not details, "only outliers of so many have their charts"
