import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Footer

from gputop.agent.device import Absence
from gputop.agent.snapshot import Machine, MachineState, Process, Record, Sample
from gputop.ui.drawing.palette import WARN
from gputop.ui.processes.process_page import ProcessPage
from gputop.ui.processes.ranks import RanksPage, RanksTitle, RanksView
from gputop.ui.shell.app import GputopApp
from tests import streams
from tests.health.histories import BUSY, IDLE, SM, TENSOR, WATTS, WORKING, device
from tests.streams import NOW
from tests.ui.conftest import Same
from tests.ui.pilots import app_with, dashboard_of, settle, settled, shown, until

JOB = "node01:29500"
WAITS: Mapping[str, Any] = {**WORKING, BUSY: 100, SM: 12.0, TENSOR: 0.0, WATTS: 180.0}
SAMPLES = 40


def rank(number: int, of: int, **changes: Any) -> Process:
    changes = {"rank": number, "world_size": of, "job_id": JOB} | changes
    return streams.process(4700 + number, number, cpu_percent=101.0, **changes)


def records(
    readings: Sequence[Mapping[str, Any]],
    processes: Sequence[Process],
    samples: int = SAMPLES,
    **sample: Any,
) -> list[Record]:
    devices = tuple(device(n) for n in range(len(readings)))
    made: list[Record] = [dataclasses.replace(streams.inventory(), devices=devices)]
    for tick in range(samples):
        now = tuple(
            streams.readings(n, **values, absent={}, age_seconds=0.25)
            for n, values in enumerate(readings)
        )
        made.append(Sample(NOW + tick, streams.host(), now, tuple(processes), **sample))
    return made


def hanging() -> list[Record]:
    return records((WAITS, WAITS, WAITS, IDLE), [rank(n, 4) for n in range(4)])


def words(app: GputopApp) -> str:
    return " ".join(app.screen.query_one(RanksTitle).text().split())


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_rank_that_is_behind_is_named(same_text: Same, width: int) -> None:
    async def run_before(pilot: Pilot[None]) -> None:
        await settle(pilot)
        await pilot.press("R")

    assert same_text(app_with(*hanging()), terminal_size=(width, 14), run_before=run_before)


async def test_the_rank_that_is_behind_is_marked() -> None:
    app = app_with(*hanging())
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("R", "up")  # the selected row has one style
        await settle(pilot)
        view = app.screen.query_one(RanksView)
        marked = [span.text.strip() for span in view._rows[4] if span.style == WARN]
        assert marked == ["3", "0", "the others wait for it"]
        dashboard_of(app).telemetry.receive(streams.sample(4, ()))
        dashboard_of(app).show()
        assert "No process here belongs to a job" in shown(pilot, RanksView)
        await pilot.press("escape")
        assert dashboard_of(app).tabs.shown == "monitor"


async def test_ranks_of_several_hosts_are_on_one_page() -> None:
    made = [rank(n, 4, machine=f"gpu-{n // 2 + 1}") for n in range(4)]
    machines = tuple(Machine(f"gpu-{n}", MachineState.OK, 0.1) for n in (1, 2))
    app = app_with(*records([WORKING] * 4, made, machines=machines))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: dashboard_of(app).telemetry.has_hosts)
        await settle(pilot)
        assert dashboard_of(app).tabs.shown == "hosts"
        await pilot.press("R")
        assert "4 ranks. No rank is out of line" in words(app)
        _, *rows = shown(pilot, RanksView).splitlines()
        places = [" ".join(row.lstrip("▌").split()[:2]) for row in rows[:4]]
        assert places == ["0 gpu-1", "1 gpu-1", "2 gpu-2", "3 gpu-2"]


async def test_the_job_of_the_selected_process_comes_first_and_n_shows_the_next() -> None:
    other = [rank(n, 4, job_id="slurm\x1b 7.0") for n in range(3)]
    mine = [rank(n, 6) for n in range(3, 6)]
    app = app_with(*records([WORKING] * 6, [*other, *mine], samples=5))
    async with settled(app, (120, 40)) as (_, pilot):
        await pilot.press("3", "end", "R")
        assert f"Ranks of {JOB} " in words(app)
        assert "job 2 of 2" in words(app)
        assert "3 of 6 ranks seen: 0–2 are not on a GPU here. Not compared: not" in words(app)
        await pilot.press("n")
        assert "Ranks of slurm␛ 7.0 " in words(app)
        await pilot.press("enter")
        assert app.screen.query_one(ProcessPage).process == other[0]
        await pilot.press("escape")
        assert dashboard_of(app).tabs.shown == "ranks"


async def test_without_ranks_one_line_says_what_it_needs() -> None:
    hidden = streams.process(9, 1, absent={"rank": Absence.NO_PERMISSION})
    app = app_with(*records([WORKING] * 2, [streams.process(8, 0), hidden], samples=3))
    async with settled(app, (200, 60)) as (_, pilot):
        assert "Ranks" not in shown(pilot, Footer)
        await pilot.press("R")
        assert shown(pilot, RanksView).strip() == (
            "No process here belongs to a job with ranks. gputop finds ranks started by torchrun, "
            "DeepSpeed, Accelerate, mpirun and srun."
        )
        assert words(app) == ("Ranks unknown: 1 pid (no permission: run as its user or as root)")
        await pilot.press("n", "s")
        assert app.screen.query_one(RanksPage).process is None


async def test_a_slow_clock_is_said_and_foreign_text_is_made_visible() -> None:
    slow = {**WORKING, "sm_clock_mhz": 1400}
    made = [rank(n, 4, job_id="a\x1b[31m:" + "1" * 99) for n in range(4)]
    app = app_with(*records((WORKING, slow, WORKING, WORKING), made, samples=70))
    async with settled(app, (120, 40)) as (_, pilot):
        await pilot.press("R")
        assert f"Ranks of a␛[31m:{'1' * 57} " in words(app)
        assert "4 ranks. Rank 1 may delay its job, SM clock below the median" in words(app)
        view = app.screen.query_one(RanksView)
        marked = [span.text.strip() for span in view._rows[2] if span.style == WARN]
        assert marked[0] == "1"
