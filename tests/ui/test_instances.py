"""MIG instances in the benchmark tab: chosen, refused as a whole, with the heat of their GPU."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from textual.widgets import Select

from gputop.bench.events import Done, RunLimit
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.benchmark.results import ResultsView
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.drawing.dialogs import ConfirmScreen
from gputop.ui.shell.app import GputopApp
from tests.bench.machines import WHOLE, divided, instance, seen, trainer, undivided
from tests.sessions import EVENTS, RESULT
from tests.streams import PreparedStream, device
from tests.ui.pilots import app_with, reason, settle, shown, until

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.sessions import EndlessSession, PreparedSession


def offered(pilot: Pilot[None]) -> list[str]:
    return [str(label) for label, _ in pilot.app.query_one("#device", Select)._options]


async def test_the_form_offers_instances_in_place_of_their_gpu() -> None:
    app = app_with(divided(), seen())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        assert offered(pilot)[:4] == [
            "0 H100 80GB HBM3",
            "3:0 MIG 3g.20gb, A100-SXM4-40GB",
            "3:1 MIG 2g.10gb, A100-SXM4-40GB",
            "3:3 MIG 1g.5gb, A100-SXM4-40GB",
        ]


async def test_b_tests_the_selected_instance(session: type[PreparedSession]) -> None:
    session.to_send = ()
    app = app_with(divided(), seen())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press(*"jjj", "b")
        await settle(pilot)
        (request,) = session.requests
        assert request.target.uuid == instance(1).uuid
        assert request.dtype == "bfloat16"


async def test_b_on_a_gpu_in_mig_mode_names_its_instances(session: type[PreparedSession]) -> None:
    app = app_with(divided(), seen())
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("j", "b")
        await settle(pilot)
        assert session.requests == []
        assert "MIG is on" in reason(app)
        assert "3:0 (MIG 3g.20gb), 3:1 (MIG 2g.10gb), 3:3 (MIG 1g.5gb)" in reason(app)


async def test_a_gpu_whose_mig_mode_is_switched_on_says_so(session: type[PreparedSession]) -> None:
    plain = dataclasses.replace(WHOLE, mig_mode="disabled")
    stream = PreparedStream(dataclasses.replace(undivided(), devices=(device(0), plain)), seen())
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        app.query_one("#device", Select).value = WHOLE.uuid
        await settle(pilot)
        stream.send(divided())
        await settle(pilot)
        assert "3 A100-SXM4-40GB (MIG is on)" in offered(pilot)
        await pilot.press("b")
        await settle(pilot)
        assert session.requests == []
        assert "Choose one: 3:0" in reason(app)


async def test_an_instance_that_others_use_is_asked_about(session: type[PreparedSession]) -> None:
    session.to_send = ()
    app = app_with(divided(), seen(processes=(trainer(72, 1),)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press(*"jjj", "b")
        await settle(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("n", "1", "k", "b")
        await settle(pilot)
        assert [request.target.number for request in session.requests] == ["3:0"]


@pytest.mark.parametrize(
    ("moves", "title", "readout"),
    [
        ("jjj", "GPU 3:1 A100", "of GPU 3: temp 64°C  power 212/400 W  clock 1410 MHz"),
        ("", "GPU 0 H100", "TFLOP/s  temp 40°C  power 100/700 W  clock 1980 MHz"),
    ],
)
async def test_a_run_says_whose_temperature_and_power_it_shows(
    endless: type[EndlessSession], moves: str, title: str, readout: str
) -> None:
    app = app_with(divided(), seen())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press(*moves, "b")
        await settle(pilot)
        assert title in shown(pilot, TitleView)
        assert readout in shown(pilot, ReadoutView)


async def test_an_instance_under_test_ends_with_the_heat_of_its_gpu(
    session: type[PreparedSession],
) -> None:
    limit = RunLimit("limit", "Too hot", "GPU 3 reached 88°C, and its limit is 86°C")
    last = Done(dataclasses.replace(RESULT, stopped="limit"))
    session.to_send = (*EVENTS[:-1], divided(), seen(), limit, last)
    app = app_with(divided(), seen())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press(*"jjj", "b")
        await until(pilot, lambda: shown(pilot, TitleView).startswith(" Too hot"))
        assert len(session.requests) == 1
        assert "Too hot GPU 3 reached 88°C" in shown(pilot, TitleView)


async def test_results_name_the_instance(session: type[PreparedSession]) -> None:
    app = app_with(divided(), seen())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        name = instance(3).name
        result = dataclasses.replace(RESULT, device=name, device_uuid=instance(3).uuid)
        app.query_one(BenchmarkTab)._show_results([result], None)
        await settle(pilot)
        assert "3:3 A100-SXM4-40GB MIG" in shown(pilot, ResultsView)


async def test_an_unknown_device_in_mig_mode_becomes_none_of_its_instances() -> None:
    unknown = dataclasses.replace(device(3), uuid="unknown:3", name="unknown device")
    stream = PreparedStream(dataclasses.replace(undivided(), devices=(device(0), unknown)), seen())
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        app.query_one("#device", Select).value = "unknown:3"
        await settle(pilot)
        stream.send(divided())
        await settle(pilot)
        assert app.query_one("#device", Select).value == "unknown:3"
        assert "3 unknown device (away)" in offered(pilot)
