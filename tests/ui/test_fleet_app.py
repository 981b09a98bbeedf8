"""The fleet screen, key by key; and what it says where there is nothing, or something is wrong."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from gputop.fleet.distributions import METRICS
from gputop.health.findings import Finding, Severity
from gputop.settings import Settings
from gputop.ui.drawing import palette
from gputop.ui.drawing.cells import Span
from gputop.ui.drawing.dialogs import ChoiceDialog
from gputop.ui.drawing.look import Terminal
from gputop.ui.fleet.fleet_state import FleetState
from gputop.ui.fleet.map import LEGEND_ROWS, MapView
from gputop.ui.fleet.map_layout import MapDensity
from gputop.ui.fleet.panels import DetailView, FilterLine, ProblemsView, in_rows
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.dashboard import Dashboard
from gputop.ui.shell.fleet_screen import ACTIONS, FleetScreen
from gputop.ui.shell.header import Header
from gputop.ui.shell.help_and_settings import Help, HelpPage
from gputop.ui.terminal import ScreenCells
from tests.fleets import AWAY, drawn, fleet, gpu
from tests.ui.pilots import NoWatch, fleet_screen, keys_in, lines, settle, text_of, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from gputop.fleet.model import Fleet

WHERE = "http://prom:9090"
SOME = fleet(512)
USUAL, LARGE = (80, 24), (200, 60)


def app_of(shown: Fleet | None = SOME, **options: Any) -> GputopApp:
    state = FleetState()
    if shown is not None:
        state.update(shown)
    return GputopApp(first=fleet_screen(state, WHERE, 'cluster="a"'), **options)


def screen_of(app: GputopApp) -> FleetScreen:
    assert isinstance(app.first, FleetScreen)
    return app.first


def state_of(app: GputopApp) -> FleetState:
    return screen_of(app).state


async def screen_after(*keys: str, size: tuple[int, int] = USUAL, **options: Any) -> str:
    """The text of the screen after those keys."""
    app = app_of(**options)
    async with app.run_test(size=size) as pilot:
        await pressed(pilot, *keys)
        return text_of(lines(app))


async def pressed(pilot: Pilot[None], *keys: str) -> None:
    await settle(pilot)
    for key in keys:
        await pilot.press(key)
    await settle(pilot)


def test_every_action_has_a_method() -> None:
    nodes = (FleetScreen, MapView, FilterLine, GputopApp)
    does = [a.id for a in ACTIONS if any(hasattr(node, f"action_{a.name}") for node in nodes)]
    assert does == [a.id for a in ACTIONS]
    assert len({*does}) == len(ACTIONS)


def test_no_key_does_two_things() -> None:
    keys = [key for action in ACTIONS for key in action.key_names]
    assert len(keys) == len({*keys})


# Keys.


async def test_m_colours_by_the_next_value() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        seen = []
        for _ in METRICS:
            await pressed(pilot, "m")
            seen.append(app.query_one(MapView).text().split()[0])
        assert seen == ["memory", "temperature", "power", "health", "age", "busy"]
        await pressed(pilot, "M")
        assert state_of(app).metric.name == "age of readings"


async def test_g_groups_by_the_next_label() -> None:
    app = app_of()
    async with app.run_test(size=LARGE) as pilot:
        await pressed(pilot)
        seen = [state_of(app).by]
        for _ in range(6):
            await pressed(pilot, "g")
            seen.append(state_of(app).by)
        assert seen == ["host", "cluster", "rack", "job", "pod", "model", "host"]
        await pressed(pilot, "G")
        assert state_of(app).by == "model"


async def test_a_filter_narrows_map_and_list_as_it_is_typed() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "slash", *"cluster=a m~h100")
        text = text_of(lines(app))
        assert "No label m: " in text
        assert "256 of 512 GPUs" in text
        await pressed(pilot, "ctrl+w", *"model~h100", "enter")
        text = text_of(lines(app))
        assert "cluster=a model~h100" in text
        assert "1 fault on 1 GPU, worst first" in text
        await pressed(pilot, "m")  # typing is over: m is a key again
        assert state_of(app).metric is METRICS[1]
        await pressed(pilot, "escape")
        assert "512 GPUs on 64 hosts" in text_of(lines(app))


async def test_what_is_pasted_is_typed() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "slash")
        app.query_one(FilterLine).paste("rack=r001\x1b[2J\nmore")
        await settle(pilot)
        assert state_of(app).typed == "rack=r001[2J"


async def test_the_cursor_is_the_same_in_map_and_list() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "home")
        places = [(state_of(app).cursor, state_of(app).row)]
        await pressed(pilot, "tab", "down")
        places.append((state_of(app).cursor, state_of(app).row))
        assert places == [(0, None), (137, 1)]
        row = app.query_one(ProblemsView).text().splitlines()[2]
        gpu_ = state_of(app).selected
        assert gpu_ is not None
        assert row.startswith(f"▌! {gpu_.host}:{gpu_.index}")
        await pressed(pilot, "w", "right", "left")  # from the map, too
        places = [(state_of(app).cursor, state_of(app).row)]
        await pressed(pilot, "right")
        places.append((state_of(app).cursor, state_of(app).row))
        assert places == [(137, 1), (138, None)]


@pytest.mark.parametrize(("count", "size"), [(8, USUAL), (512, LARGE), (2048, USUAL)])
async def test_arrows_go_over_the_whole_map(count: int, size: tuple[int, int]) -> None:
    app = app_of(fleet(count))
    async with app.run_test(size=size) as pilot:
        await pressed(pilot, "home")
        seen = []
        for _ in range(count + 5):
            seen.append(state_of(app).cursor)
            app.query_one(MapView).action_side(1)
        assert {*seen} == {*range(count)}
        screen_of(app).action_end(-1)
        rows = [state_of(app).place]
        while state_of(app).place != rows[-1] or len(rows) == 1:
            rows.append(state_of(app).place)
            app.query_one(MapView).action_move(1)
        assert len(rows) == len({*rows}) + 1
        app.query_one(MapView).action_page(-1)
        assert state_of(app).place != rows[-1]


async def test_the_cursor_stays_in_sight() -> None:
    app = app_of(fleet(10_000))
    async with app.run_test(size=USUAL) as pilot:
        for key in ("end", "pageup", "up", "home", "pagedown", "down"):
            await pressed(pilot, key)
            found = [s for strip in lines(app) for s in strip if s.style and points(s.style)]
            assert len(found) == 1, key


def points(style: Any) -> bool:
    return bool(style.reverse and style.color == palette.POINTER.color)


async def test_an_open_group_is_under_its_line_from_the_left_on() -> None:
    app = app_of(fleet(10_000))
    async with app.run_test(size=(120, 40)) as pilot:
        await pressed(pilot, *"GGG")
        assert state_of(app).by == "rack"
        state_of(app).move_to(1, 0)
        screen_of(app).show()
        await settle(pilot)
        rows = app.query_one(MapView).text().splitlines()[LEGEND_ROWS:]
        assert [row.split()[0] for row in (rows[0], rows[2])] == ["r000", "r004"]
        assert rows[1] == rows[1][0] + rows[1].strip()
        assert len(rows[1]) == 1 + 64


async def test_enter_opens_the_host_and_escape_comes_back_to_what_there_is_now() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "tab", "down", "enter")
        gpu_ = state_of(app).selected
        assert gpu_ is not None
        host = app.screen
        assert isinstance(host, Dashboard)
        await until(pilot, lambda: gpu_.host in host.query_one(Header).text())
        assert "Esc Fleet" in keys_in(host)
        await screen_of(app).update_fleet(fleet(8))
        await pressed(pilot, "3", "escape", "escape")
        assert app.screen is screen_of(app)
        assert not host.is_running
        assert state_of(app).on_list
        assert "8 GPUs on 1 host" in text_of(lines(app))


async def test_keys_of_a_host_are_the_dashboards() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "enter")
        metric = state_of(app).metric
        await pressed(pilot, "m", "question_mark")
        assert state_of(app).metric is metric
        assert isinstance(app.screen, Help)
        await pressed(pilot, "f10")
    assert app.return_code == 0


async def test_escape_does_not_leave() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "tab", "escape", "escape", "escape")
        assert app.is_running
        assert not state_of(app).on_list


async def test_r_asks_the_server_now() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "R")
        watch = screen_of(app)._watch
        assert isinstance(watch, NoWatch)
        assert watch.asked == 1


async def test_help_and_palette_open_over_it() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "question_mark")
        assert isinstance(app.screen, HelpPage)
        await pressed(pilot, "escape", "ctrl+p", *"next label", "enter")
        assert not isinstance(app.screen, ChoiceDialog)
        assert state_of(app).by == "pod" or state_of(app)._group_by is not None


async def test_q_leaves() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "q")
    assert app.return_code == 0


async def test_a_click_is_on_the_gpu_under_it() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await settle(pilot)
        layout = state_of(app).layout
        assert layout is not None
        for where in ((0, 0), (3, 17), (7, 63)):
            slot = layout.slot(*where)
            assert slot is not None
            await pilot.click(MapView, offset=(slot.x, slot.y + LEGEND_ROWS))
            assert state_of(app).place == where
        await pilot.click(ProblemsView, offset=(10, 2))
        assert state_of(app).row == 1
        assert state_of(app).on_list


async def test_a_click_opens_a_folded_group() -> None:
    app = app_of(fleet(10_000))
    async with app.run_test(size=USUAL) as pilot:
        await pressed(pilot, "home")
        assert state_of(app).place[0] == 0
        layout = state_of(app).layout
        assert layout is not None
        assert layout.density is MapDensity.FOLDED
        await pressed(pilot, "end")
        layout = state_of(app).layout
        assert layout is not None
        tile = layout.tiles[0]
        view = app.query_one(MapView)
        view.wheel(-9999)
        await settle(pilot)
        await pilot.click(MapView, offset=(tile.x, tile.y + LEGEND_ROWS))
        assert state_of(app).place == (0, 0)


# What it says.


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (None, ["Waiting for the first answer from http://prom:9090"]),
        (
            dataclasses.replace(SOME, gpus=(), findings=()),
            ['no GPUs that match cluster="a"', "dcgm-exporter", "DCGM_FI_DEV_GPU_UTIL"],
        ),
        (
            dataclasses.replace(SOME, gpus=(), findings=(), fresh=False, problems=(AWAY,)),
            ["No answer yet", "Start it, or check the address", "R asks now"],
        ),
    ],
)
async def test_nothing_to_show_says_what_to_do(shown: Fleet | None, said: list[str]) -> None:
    text = " ".join((await screen_after(shown=shown)).split())
    assert [each for each in said if each not in text] == []


async def test_a_filter_that_none_passes() -> None:
    text = await screen_after("slash", *"rack=r999")
    assert "No GPU matches the filter rack=r999" in text
    assert "0 of 512 GPUs" in text


async def test_what_is_wrong_with_the_server_is_on_top_and_the_old_fades() -> None:
    app = app_of()
    async with app.run_test(size=USUAL) as pilot:
        await settle(pilot)
        await screen_of(app).update_fleet(dataclasses.replace(SOME, fresh=False, problems=(AWAY,)))
        await settle(pilot)
        strips = lines(app)
        top = " ".join(text_of(strips[1:3]).split())
        assert top == (
            "▲ Prometheus at prom:9090 does not answer: the connection was refused. "
            "Start it, or check the address"
        )
        map_rows = strips[7:17]
        styles = {s.style.color for strip in map_rows for s in strip if s.text.strip() and s.style}
        assert styles == {palette.DIM.color, palette.POINTER.color}
        await screen_of(app).update_fleet(fleet(512, tick=1))
        await settle(pilot)
        assert "does not answer" not in text_of(lines(app))


async def test_all_fades_when_no_answer_comes() -> None:
    seconds = [0.0]
    state = FleetState(clock=lambda: seconds[0])
    state.update(SOME)
    app = GputopApp(first=fleet_screen(state, WHERE))
    async with app.run_test(size=USUAL) as pilot:
        await settle(pilot)
        for seconds[0], faded in ((29, False), (31, True)):
            screen_of(app).tick()
            await settle(pilot)
            assert f"{seconds[0]} s ago" in text_of(lines(app))
            styles = {s.style.color for s in lines(app)[8] if s.text.strip() and s.style}
            assert (styles <= {palette.DIM.color, palette.POINTER.color}) == faded


async def test_the_header_counts_what_the_list_has() -> None:
    """Each finding, also the second one of a GPU."""
    first = SOME.findings[0]
    second = dataclasses.replace(first, rule="other", title="Something else")
    third = dataclasses.replace(first, rule="more", severity=Severity.WARNING)
    shown = dataclasses.replace(SOME, findings=(first, second, third))
    app = app_of(shown)
    async with app.run_test(size=LARGE) as pilot:
        await settle(pilot)
        text = lines(app)
    (header,) = (line.text for line in text if "on 64 hosts" in line.text)
    (heading,) = (line.text for line in text if "worst first" in line.text)
    assert "! 2 faults" in header
    assert "▲ 1 warning" in header
    assert "2 faults · 1 warning on 1 GPU, worst first" in heading


async def test_instances_are_no_gpus_and_share_the_power_of_theirs() -> None:
    parts = [
        gpu(0, drawn(n), key=f"g/{n}", index=f"0:{n}", power_watts=300.0, power_limit_watts=700.0)
        for n in range(7)
    ]
    whole = gpu(1, drawn(7), power_watts=100.0)
    text = await screen_after(shown=dataclasses.replace(SOME, gpus=(*parts, whole), findings=()))
    assert " 2 GPUs in 7 MIG instances on 1 host" in text
    assert "power 0.40 kW" in text


async def test_readings_that_are_older_than_the_rest_say_so() -> None:
    newest = {"gpu_utilization_percent": 1000.0, "temperature_celsius": 1000.0}
    older = {"power_watts": 990.0, "sm_active_percent": 960.0, "tensor_active_percent": 960.0}
    shown = dataclasses.replace(SOME, read_at=newest | older, findings=())
    text = await screen_after("m", "m", "m", shown=shown, size=LARGE)
    assert "10 s older than the rest" in text  # of the map, which is coloured by power
    detail = next(line for line in text.splitlines() if "tensor" in line)
    assert re.search(r"power \S+ W \(10 s older\)  clock", detail)
    assert re.search(r"SM \d+ %  tensor \d+ % \(40 s older\)", detail)
    assert "older" not in await screen_after(size=LARGE)


async def test_what_is_simulated_says_so() -> None:
    assert "SIMULATED" in await screen_after(shown=dataclasses.replace(SOME, simulated=True))
    assert "SIMULATED" not in await screen_after()


EVIL = "\x1b[31m[bold red]x[/]\x07\u202e\u200b"


async def test_foreign_text_is_inert_wherever_it_is() -> None:
    labels = {"rack": EVIL, EVIL: EVIL}
    bad = gpu(0, drawn(1), host=EVIL, index=EVIL, name=EVIL, key="k", labels=labels)
    shown = dataclasses.replace(
        SOME,
        gpus=(bad, *SOME.gpus[1:9]),
        findings=(Finding(Severity.FAULT, EVIL, rule="xid", device_uuid="k"),),
        problems=(dataclasses.replace(AWAY, what=EVIL),),
        label_names=("rack", EVIL),
    )
    for keys in ((), ("g",), ("g", "g"), ("g", "g", "g"), ("slash", "x", "=")):
        app = app_of(shown)
        async with app.run_test(size=LARGE) as pilot:
            await pressed(pilot, *keys)
            text = text_of(lines(app))
            assert "␛[31m[bold red]x[/]␇⟨202e⟩⟨200b⟩" in text
            assert not {"\x1b", "\x07", "\u202e", "\u200b"} & {*text}


@pytest.mark.parametrize("looks", [{"terminal": Terminal(0)}, {"settings": Settings(ascii=True)}])
async def test_what_is_wrong_is_seen_without_colours(looks: dict[str, Any]) -> None:
    app = app_of(fleet(10_000), **looks)
    async with app.run_test(size=LARGE) as pilot:
        await pressed(pilot, "home")
        layout = state_of(app).layout
        assert layout is not None
        assert layout.density is not MapDensity.HALF
        text = text_of(lines(app))
        assert "!1" in text
        assert text.isascii() or "settings" not in looks


# What it costs.


class Sent:
    """Bytes that go to a terminal of 256 colours."""

    def __init__(self, app: GputopApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        console = Console(file=io.StringIO(), color_system="256", force_terminal=True, width=200)
        compositor = app.screen._compositor
        real = compositor.render_update
        cells = ScreenCells()
        cells.resize(*app.size)
        cells.apply(real(full=True).render_segments(console))  # type: ignore[union-attr]
        cells.difference()

        def counted(*arguments: Any, **options: Any) -> Any:
            update = real(*arguments, **options)
            if update is not None:
                cells.apply(update.render_segments(console))  # type: ignore[union-attr]
                self.count += len(cells.difference().encode())
            return update

        monkeypatch.setattr(compositor, "render_update", counted)


@pytest.mark.slow
async def test_a_refresh_of_ten_thousand_sends_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise: next to nothing. Where one job in four changes its load: a tenth of what there is."""
    app = app_of(fleet(10_000))
    async with app.run_test(size=LARGE) as pilot:
        await settle(pilot)
        sent = Sent(app, monkeypatch)
        counts = []
        for tick in (1, 2, 3, 4):
            sent.count = 0
            await screen_of(app).update_fleet(fleet(10_000, tick=tick))
            await settle(pilot)
            counts.append(sent.count)
        assert max(counts[:3]) < 45_000
        assert counts[3] < 150_000


async def test_the_same_again_sends_only_its_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = app_of()
    async with app.run_test(size=LARGE) as pilot:
        await settle(pilot)
        sent = Sent(app, monkeypatch)
        await screen_of(app).update_fleet(SOME)
        await settle(pilot)
        assert sent.count < 100


@pytest.mark.parametrize(
    ("keys", "legend"),
    [
        ([], "busy ▁<5% ▂5% ▄35% ▆65% █95% –unknown"),
        (["m", "m"], "temperature ▁<40°C ▂40°C ▄55°C ▆70°C █80°C –unknown"),
        (["m", "m", "m"], "power ▁<150W ▂150W ▄300W ▆500W █700W –unknown"),
        (["M"], "age of readings ▁<20s ▂20s ▄1:00 ▆2:00 █5:00 –unknown"),
    ],
)
async def test_the_legend_has_units(keys: list[str], legend: str) -> None:
    assert legend in await screen_after(*keys, size=(120, 40))


async def test_a_line_says_what_the_map_shows() -> None:
    assert "by rack (8) · a cell per GPU" in await screen_after()
    folded = await screen_after("g", "g", size=(80, 24))
    assert re.search(r"by \w+ \(\d+\)( · .*)? · rows 1–\d+ of \d+ ", folded)


async def test_the_details_have_the_training_job() -> None:
    """Its GPUs on all hosts, by a label that names it, or else by its pod."""
    gpus = [
        dataclasses.replace(
            each,
            labels={"hpc_job": "71034", "rack": "r1"} if n < 20 else {"pod": f"llm-{n}"},
            gpu_utilization_percent=50.0,
        )
        for n, each in enumerate(SOME.gpus[:32])
    ]
    shown = dataclasses.replace(SOME, gpus=tuple(gpus), findings=())
    text = await screen_after(shown=shown, size=(120, 40))
    assert "job 71034 (20 GPUs, 3 hosts, median busy 50%)  rack r1" in text
    assert "hpc_job" not in text
    text = await screen_after("end", shown=shown, size=(120, 40))
    assert "job llm (12 GPUs, 2 hosts, median busy 50%)" in text
    none = dataclasses.replace(SOME, gpus=(dataclasses.replace(gpus[0], labels={}),), findings=())
    assert " job " not in await screen_after(shown=none)


@pytest.mark.parametrize(
    ("most", "rows"),
    [
        (1, ["▌node7:3  H100  job llm"]),
        (2, ["▌node7:3  H100  rack r1", "▌job llm (20 GPUs)"]),
        (3, ["▌node7:3  H100", "▌job llm (20 GPUs)  rack r1", "▌pod llm-0123456789"]),
    ],
)
def test_details_are_wrapped_to_the_rows_there_are(most: int, rows: list[str]) -> None:
    parts = ["node7:3  |H100", "job |llm| (20 GPUs)", "rack |r1", "pod |llm-0123456789"]
    made = in_rows([[*map(Span, part.split("|"))] for part in parts], 28, most)
    assert ["".join(span.text for span in row).rstrip() for row in made] == rows


async def test_details_have_rows_that_nothing_else_needs() -> None:
    """They keep them wherever the cursor goes: else moving it would move the list."""
    app = app_of(fleet(64))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        detail = app.screen.query_one(DetailView)
        assert "pod train-llm-1" in detail.text()
        heights = [detail.size.height]
        for key in ("end", "home", "down"):
            await pilot.press(key)
            await settle(pilot)
            heights.append(detail.size.height)
        assert heights == [3, 4, 4, 4]
