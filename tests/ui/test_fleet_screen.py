import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from gputop.agent.problem import Problem
from gputop.fleet.model import BUSY, METRICS, POWER, Fleet, median_of
from gputop.fleet.screens.map import MapLayout, MapView
from gputop.fleet.screens.screen import FleetScreen
from gputop.fleet.screens.state import FleetState, group_gpus, parse_filter
from gputop.ui.shell.app import GputopApp
from tests.fleets import AWAY, LABELS, fleet
from tests.ui.pilots import fleet_screen, lines, settle, settled, text_of

WHERE = "http://prom:9090"
SOME = fleet(512)
USUAL, LARGE = (80, 24), (200, 60)


def app_of(shown: Fleet | None = SOME) -> GputopApp:
    state = FleetState(where=WHERE, match='cluster="a"', clock=lambda: 0.0)
    if shown is not None:
        state.update(shown)
    return GputopApp(first=fleet_screen(state))


def state_of(app: GputopApp) -> FleetState:
    assert isinstance(app.first, FleetScreen)
    return app.first.state


async def pressed(pilot: Pilot[None], *keys: str) -> str:
    await pilot.press(*keys)
    return text_of(lines(pilot.app))


async def screen_of(shown: Fleet | None, size: tuple[int, int] = USUAL) -> str:
    async with settled(app_of(shown), size) as (app, _):
        return text_of(lines(app))


# Keys.


async def test_m_colours_by_the_next_value_and_g_groups_by_the_next_label() -> None:
    async with settled(app_of(), LARGE) as (app, pilot):
        legends = []
        for _ in METRICS:
            await pressed(pilot, "m")
            legends.append(app.query_one(MapView).text().splitlines()[0].split("  ")[0])
        assert [legend.strip() for legend in legends] == [
            "memory ▁<5% ▂5% ▄35% ▆65% █95%",
            "temp ▁<40°C ▂40°C ▄55°C ▆70°C █80°C",
            "power ▁<150W ▂150W ▄300W ▆500W █700W",
            "busy ▁<5% ▂5% ▄35% ▆65% █95%",
        ]
        seen = []
        for _ in range(6):
            await pressed(pilot, "g")
            seen.append(app.query_one(MapView).by)
        assert seen == ["cluster", "rack", "job", "pod", "model", "host"]
        await pressed(pilot, "G", "M")
        assert (app.query_one(MapView).by, state_of(app).metric) == ("model", POWER)
        assert "all words must be true" in await pressed(pilot, "question_mark")


async def test_a_filter_narrows_map_and_list_as_it_is_typed() -> None:
    async with settled(app_of(), USUAL) as (app, pilot):
        text = await pressed(pilot, "slash", *"cluster=a rak=1")
        assert "▲ No label rak. Labels: cluster, job, pod, rack, host" in text
        text = await pressed(pilot, *["backspace"] * 5, *"model~h100", "enter")
        assert "128 of 512 GPUs on 16 hosts" in text
        assert "cluster=a model~h100" in text
        await pressed(pilot, "m")  # typing is over: m is a key again
        assert state_of(app).metric is METRICS[1]
        text = await pressed(pilot, "escape")
        assert " 512 GPUs on 64 hosts" in text
        assert "cluster=a" not in text
        await pressed(pilot, "slash", "x", "escape", "m")
        assert state_of(app).metric is METRICS[2]


async def test_the_cursor_is_the_same_in_map_and_list() -> None:
    async with settled(app_of(), USUAL) as (app, pilot):
        text = await pressed(pilot)
        first, second = (finding.label for finding in SOME.findings[:2])
        assert f"▌! {first}" in text.replace("▌ !", "▌!")
        assert state_of(app).cursor is SOME.gpus[int(SOME.findings[0].device_uuid[4:12])]
        text = await pressed(pilot, "tab", "down")
        cursor = state_of(app).cursor
        assert cursor is not None
        assert cursor.place == second
        await pressed(pilot, "escape", "home", "right", "down", "down", "up", "left")
        assert state_of(app).cursor not in (None, SOME.gpus[0])
        await pressed(pilot, "home", "right", "up")
        assert state_of(app).cursor is SOME.gpus[0]
        await pressed(pilot, "pagedown")
        assert state_of(app).cursor is app.query_one(MapView).map.rows[10][0].gpu
        assert "· rows 6–16 of 16" in await pressed(pilot, "end")
        assert state_of(app).cursor is SOME.gpus[-1]
        await pressed(pilot, "home")
        spot = app.query_one(MapView).map.rows[2][3]
        await pilot.click("#map", offset=(spot.x, spot.y + 1))
        assert f"▌ {spot.gpu.place}" in text_of(lines(app))
        await pilot.click("#problems", offset=(5, 2))
        assert state_of(app).on_list
        cursor = state_of(app).cursor
        assert cursor is not None
        assert cursor.key == SOME.findings[1].device_uuid
        await pressed(pilot, "escape", "home", "tab")  # where there is no problem
        assert state_of(app).cursor is cursor
        state_of(app).move_to(SOME.gpus[int(SOME.findings[0].device_uuid[4:12])])
        assert state_of(app).problems.selected == SOME.findings[0]


async def test_enter_shows_one_host_and_escape_all() -> None:
    async with settled(app_of(), USUAL) as (app, pilot):
        text = await pressed(pilot, "home", "enter")
        assert " 8 of 512 GPUs on 1 host " in text
        assert {gpu.host for gpu in state_of(app).gpus} == {"node0000"}
        assert " 512 GPUs on 64 hosts" in await pressed(pilot, "escape")


# What is shown.


@pytest.mark.parametrize(
    ("size", "detail", "by"),
    [((60, 29), 2, "rack"), ((36, 18), 2, "host"), ((80, 11), 0, "cluster"), ((80, 30), 4, "rack")],
)
async def test_a_small_terminal_has_the_map_and_the_keys(
    size: tuple[int, int], detail: int, by: str
) -> None:
    async with settled(app_of(), size) as (app, pilot):
        assert app.screen.query_one("#detail").region.height == detail
        assert app.screen.query_one(MapView).by == by
        assert "Help" in text_of(lines(pilot.app))
        assert pilot.app.screen.query_one("#map").display


async def test_the_header_says_how_things_are() -> None:
    text = await screen_of(SOME, (160, 50))
    title, server = text.splitlines()[:2]
    assert title.startswith(" gputop fleet  512 GPUs on 64 hosts  ! 2 faults")
    assert title.rstrip().endswith("0 s ago")
    assert [part.strip() for part in server.split("  ") if part] == [
        "http://prom:9090 · every 10 s · answered in 420 ms",
        "memory 26.2/39.9 TiB",
        "power 183 kW",
    ]
    assert "median 92% · by host (64) " in text
    text = await screen_of(dataclasses.replace(SOME, findings=(), simulated=True))
    assert "SIMULATED" in text.splitlines()[0]
    assert "no problems found" in text.splitlines()[0]


async def test_a_problem_of_the_server_has_a_row_that_is_always_there() -> None:
    async with settled(app_of(), USUAL) as (app, pilot):
        before = [app.query_one(name).region for name in ("#map", "#detail", "#problems")]
        lacks = Problem("Not scraped: power", "it has no series", "Let it report power")
        warned = dataclasses.replace(SOME, problems=(lacks, AWAY), fresh=False)
        assert isinstance(app.first, FleetScreen)
        await app.first.update_fleet(warned)
        text = await pressed(pilot)
        assert " ▲ Not scraped: power: it has no series. Let it report power (+1" in text
        state_of(app)._clock = lambda: 7.0
        app.first.tick()
        assert "from 7 s ago" in await pressed(pilot)
        await pressed(pilot, "R")
        assert [note.message for note in app._notifications] == [f"Asking {WHERE} now"]
        assert before == [app.query_one(name).region for name in ("#map", "#detail", "#problems")]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (None, "Waiting for the first answer from http://prom:9090"),
        (Fleet(1.0, problems=(AWAY,), fresh=False), "No answer yet"),
        (Fleet(1.0, problems=(AWAY,), fresh=False), "Start it, or check the address"),
        (Fleet(1.0), 'The server answers, but has no GPUs Check --match cluster="a"'),
    ],
)
async def test_where_there_is_nothing_it_says_why(shown: Fleet | None, said: str) -> None:
    assert said in " ".join((await screen_of(shown)).split())


async def test_few_gpus_have_numbers_values_a_training_job_and_the_age_of_readings() -> None:
    gpus = [
        dataclasses.replace(
            gpu,
            labels={"hpc_job": "71034", "rack": "r1"} if n < 10 else {"pod": f"llm-{n}"},
            gpu_utilization_percent=50.0,
        )
        for n, gpu in enumerate(SOME.gpus[:16])
    ]
    read_at = {"power_watts": 100.0, "sm_active_percent": 70.0}
    shown = dataclasses.replace(SOME, gpus=tuple(gpus), findings=(), read_at=read_at)
    async with settled(app_of(shown), (120, 40)) as (_, pilot):
        text = await pressed(pilot)
        assert "job 71034 (10 GPUs, 2 hosts, median busy 50%)  rack r1" in text
        assert re.search(r"SM [0-9]+ % \(30 s older\)", text)
        assert "job llm (6 GPUs, 1 host, median busy 50%)" in await pressed(pilot, "end")


def test_a_picture(snap_compare: Any) -> None:
    assert snap_compare(app_of(), terminal_size=(120, 40), run_before=settle)


# The filter, groups and layout.


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("rack=r00", False),
        ("rack=r00*", True),
        ("rack!=r001", True),
        ("rack~00", True),
        ("job!~train", False),
        ("cluster=a job~chat", False),
        ("gpu=0", True),
        ("LLM", True),
        ("rack=", True),
    ],
)
def test_words_of_a_filter(text: str, passes: bool) -> None:
    assert all(test(SOME.gpus[0]) for test in parse_filter(text, LABELS)) is passes


@pytest.mark.parametrize("text", ["rak=r3", "=r3", "!r3"])
def test_a_bad_word_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"No label|Try rack=r3"):
        parse_filter(text, LABELS)


@given(st.text(max_size=60))
def test_whatever_is_typed_is_no_fault(text: str) -> None:
    state = FleetState()
    state.update(SOME)
    state.type(text)
    assert {gpu.key for gpu in state.gpus} <= {gpu.key for gpu in SOME.gpus}


@given(st.integers(1, 400), st.sampled_from(LABELS), st.integers(1, 300))
def test_every_gpu_has_a_place_of_its_own(count: int, by: str, width: int) -> None:
    groups = group_gpus(SOME.gpus[:count], by)
    places = MapLayout(groups, width)
    spots = [spot for row in places.rows.values() for spot in row]
    assert sorted(spot.gpu.key for spot in spots) == sorted(g.key for g in SOME.gpus[:count])
    assert len({(spot.y, spot.x) for spot in spots}) == count


def test_rows_are_of_whole_hosts_and_as_long_as_fit() -> None:
    groups = group_gpus(SOME.gpus[:300], "nothing")
    widest = [max(map(len, MapLayout(groups, width).rows.values())) for width in range(320)]
    lengths = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    assert {(each, widest.index(each)) for each in widest} == {
        (each, each + 22 if each > 1 else 0) for each in lengths
    }


def test_the_median_is_of_known_values() -> None:
    gpus = [
        dataclasses.replace(SOME.gpus[n], gpu_utilization_percent=value)
        for n, value in enumerate([0.0, 4.0, 50.0, 100.0, None])
    ]
    assert median_of(gpus, BUSY) == 27.0
    assert median_of([], BUSY) is None
