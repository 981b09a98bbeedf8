"""The form: its fields take what is typed in order, and it keeps what was chosen."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Input, Select

from gputop.agent.snapshot import DriverState
from gputop.bench.plan import request as plan
from gputop.ui.benchmark.form import Form
from gputop.ui.benchmark.readout import ReadoutView, TitleView
from gputop.ui.shell.app import GputopApp
from tests.bench.machines import WHOLE, divided, seen, undivided
from tests.streams import PreparedStream, device, inventory, no_driver, sample
from tests.ui.pilots import (
    app_with,
    ended,
    lines,
    open_form,
    reason,
    settle,
    settled,
    shown,
    text_of,
    type_at_once,
    wrong_fields,
)

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from tests.sessions import EndlessSession, PreparedSession


def field(app: GputopApp, name: str) -> Input:
    return app.query_one(f"#{name}", Input)


def choice(app: GputopApp, name: str) -> Select[Any]:
    return app.query_one(f"#{name}", Select)


def fields(app: GputopApp) -> tuple[Any, Any]:
    return choice(app, "device").value, choice(app, "dtype").value


async def in_the_size_field(pilot: Pilot[None], value: str) -> None:
    await open_form(pilot)
    field(pilot.app, "size").value = value  # type: ignore[arg-type]
    field(pilot.app, "size").focus()  # type: ignore[arg-type]
    await settle(pilot)


async def test_keys_that_come_together_act_in_the_order_typed() -> None:
    cases = (
        (["end", *["backspace"] * 4, *"512"], "512", "60"),
        (["home", "delete", "2"], "2024", "60"),
        (["end", "left", "9"], "10294", "60"),
        (["ctrl+u", *"12z8"], "128", "60"),
        ([*"auto"], "auto", "60"),
        ([*"512", "tab", *"30", "shift+tab", *"64"], "64", "30"),
    )
    async with settled(GputopApp(PreparedStream(no_driver(), sample()))) as (app, pilot):
        for keys, size, seconds in cases:
            await in_the_size_field(pilot, "1024")
            await type_at_once(pilot, *keys)
            assert (field(app, "size").value, field(app, "seconds").value) == (size, seconds)
            app.set_focus(None)


async def test_in_a_field_letters_act_and_digits_are_text(endless: type[EndlessSession]) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(120, 40)) as pilot:
        await in_the_size_field(pilot, "auto")
        await pilot.press("1", "2", "8", "b")
        assert [request.size for request in endless.requests] == [128]
        field(app, "seconds").focus()
        await pilot.press("x")
        await ended(pilot)
        assert field(app, "seconds").value == "60"
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running


async def chosen(pilot: Pilot[None], name: str, value: str) -> None:
    """Chosen as the list does it when somebody picks a line of it."""
    pilot.app.query_one(f"#{name}", Select).value = value
    await settle(pilot)


async def test_a_sampler_that_starts_again_changes_nothing(session: type[PreparedSession]) -> None:
    stream = PreparedStream(inventory(4), sample(4, processes=[]))
    app = GputopApp(stream)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_form(pilot)
        await chosen(pilot, "device", device(2).uuid)
        assert fields(app) == (device(2).uuid, "bfloat16")
        await chosen(pilot, "dtype", "float16")
        for state, devices in ((DriverState.STARTING, 0), (DriverState.OK, 4)):
            stream.send(inventory(devices, driver_state=state))
            stream.send(sample(devices, processes=[]))
            await settle(pilot)
            assert fields(app) == (device(2).uuid, "float16")
        await pilot.press("b")
        (request,) = session.requests
        assert (request.target.uuid, request.dtype) == (device(2).uuid, "float16")


async def test_the_same_devices_again_leave_an_open_list_open() -> None:
    stream = PreparedStream(inventory(4), sample(4))
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("2", "tab", "tab", "enter", "down")
        overlay = choice(app, "device").query_one("SelectOverlay")
        assert choice(app, "device").expanded
        highlighted = overlay.highlighted  # type: ignore[attr-defined]
        stream.send(inventory(4))
        await settle(pilot)
        assert choice(app, "device").expanded
        assert overlay.highlighted == highlighted == 1  # type: ignore[attr-defined]


async def test_another_device_brings_the_type_that_suits_it() -> None:
    async with settled(GputopApp(PreparedStream(inventory(1), sample(1)))) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "dtype", "float64")
        await chosen(pilot, "device", "cpu")
        assert fields(app) == ("cpu", "float32")
        form = app.query_one(Form)
        form.choose(device(0).uuid)
        await settle(pilot)
        assert fields(app) == (device(0).uuid, "bfloat16")
        with pytest.raises(ValueError, match="is gone"):
            form.choose("GPU-nobody")


def disabled(app: GputopApp) -> set[str | None]:
    """The fields in view that the kind does not have."""
    shown = (each for each in app.query("#form Select, #form Input") if each.display)
    return {each.id for each in shown if each.disabled}


async def test_a_kind_has_its_fields_and_tab_passes_over_the_others(
    session: type[PreparedSession],
) -> None:
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await pilot.press("2")
        field(app, "size").value = "2048"
        for kind in ("soak", "sweep", "peak", "pulse", "burn"):
            await chosen(pilot, "kind", kind)
            assert disabled(app) == set(), kind
        await chosen(pilot, "kind", "step")
        assert disabled(app) == {"size"}
        for kind in ("memory", "copy"):
            await chosen(pilot, "kind", kind)
            assert disabled(app) == {"dtype", "size"}, kind
        passed = []
        for _ in range(4):
            await pilot.press("tab")
            passed.append(app.focused.id if app.focused else None)
        assert passed == ["kind", "device", "seconds", "start"]
        await pilot.press("b")
        (request,) = session.requests
        assert (request.kind, request.dtypes, request.size) == ("copy", ("bfloat16",), None)


async def test_a_sweep_takes_all_types_that_the_device_has(session: type[PreparedSession]) -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("2")
        assert "all" not in {value for _, value in choice(app, "dtype")._options}
        await chosen(pilot, "kind", "sweep")
        await chosen(pilot, "dtype", "all")
        await pilot.press("b")
        await chosen(pilot, "kind", "soak")
        assert choice(app, "dtype").value == "bfloat16", "a soak has one"
        await chosen(pilot, "kind", "sweep")
        assert choice(app, "dtype").value == "all", "as it was chosen"
    (request,) = session.requests
    offered = set(plan.offered_dtypes(request.target))
    assert request.dtypes[0] == "bfloat16", "what people train with is there first"
    assert len(request.dtypes) == len(offered) > 3
    assert set(request.dtypes) == offered


async def test_b_on_the_monitor_is_a_soak_whatever_the_form_says(
    session: type[PreparedSession],
) -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with settled(app, (80, 24)) as (_, pilot):
        await pilot.press("2")
        await chosen(pilot, "kind", "copy")
        await pilot.press("1", "b")
        assert [request.kind for request in session.requests] == ["soak"]
        assert choice(app, "kind").value == "soak"
        assert disabled(app) == set()


@pytest.mark.parametrize(
    ("tabs", "downs", "chosen"),
    [
        (1, 1, ("sweep", "bfloat16", 0)),
        (2, 2, ("soak", "bfloat16", 2)),
        (3, 1, ("soak", "float64", 0)),
    ],
    ids=["kind", "device", "type"],
)
async def test_b_runs_what_is_chosen_in_an_open_list(
    session: type[PreparedSession], tabs: int, downs: int, chosen: tuple[str, str, int]
) -> None:
    app = GputopApp(PreparedStream(inventory(4), sample(4, processes=[])))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_form(pilot)
        await type_at_once(pilot, *["tab"] * tabs, "enter")
        await type_at_once(pilot, *["down"] * downs, "b")
        await settle(pilot)
        (request,) = session.requests
        assert (request.kind, request.dtype, request.target.index) == chosen
        assert not any(each.expanded for each in app.query(Select))
        assert choice(app, "kind").value == chosen[0]
        assert choice(app, "device").value == device(chosen[2]).uuid
        assert choice(app, "dtype").value == chosen[1]


LONGEST = {"size": str(plan.LARGEST_SIZE), "seconds": "604799.5"}


def form_text(pilot: Pilot[None]) -> str:
    """The lines of the form as they are shown."""
    region = pilot.app.query_one(Form).region
    return text_of(lines(pilot.app)[region.y : region.bottom])


async def test_every_field_shows_the_longest_that_it_takes() -> None:
    b300 = dataclasses.replace(device(0), compute_capability="10.3")
    machine = dataclasses.replace(inventory(1), devices=(b300,))
    async with settled(app_with(machine, sample(1)), (80, 24)) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "kind", "sweep")
        for name, longest in LONGEST.items():
            field(app, name).focus()
            await pilot.press("ctrl+u", *longest)
            assert longest in form_text(pilot), name
        for name in ("kind", "dtype", "device"):
            for label, value in [*choice(app, name)._options]:
                await chosen(pilot, name, str(value))
                assert f" {label} " in form_text(pilot), name


BAD = [
    ("seconds", "999999", "'999999' is not a duration: it is in seconds, from 0.5 to 604800"),
    ("seconds", "1.2.3", "'1.2.3' is not a duration"),
    ("seconds", "", "'' is not a duration"),
    ("size", "10485760", "'10485760' is not a size: it is N of an N x N product, from 64 to"),
    ("size", "12auto", "'12auto' is not a size"),
    ("size", "", "'' is not a size"),
]


async def test_bad_input_loses_nothing_and_is_one_line_of_error(
    session: type[PreparedSession],
) -> None:
    async with settled(app_with(inventory(2), sample(2, [])), (80, 24)) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "kind", "peak")
        await chosen(pilot, "device", device(1).uuid)
        await chosen(pilot, "dtype", "float64")
        for name, typed, why in BAD:
            field(app, name).focus()
            await type_at_once(pilot, "ctrl+u", *typed, "b")
            assert session.requests == []
            assert not app._notifications
            assert reason(app).startswith(why)
            assert wrong_fields(app) == [name]
            assert field(app, name).value == typed
            assert choice(app, "kind").value == "peak"
            assert fields(app) == (device(1).uuid, "float64")
            assert typed[-7:] in form_text(pilot)
            # As soon as it is right, nothing is red.
            field(app, name).focus()
            await type_at_once(pilot, "ctrl+u", *"64")
            assert (reason(app), wrong_fields(app)) == ("", [])


async def test_a_field_is_judged_when_it_is_left() -> None:
    app = GputopApp(PreparedStream(inventory(1), sample(1, processes=[])))
    async with app.run_test(size=(80, 24)) as pilot:
        await in_the_size_field(pilot, "")
        await type_at_once(pilot, *"40")
        assert reason(app) == ""  # it may become 4096
        await pilot.press("tab")
        assert reason(app).startswith("'40' is not a size")
        assert wrong_fields(app) == ["size"]


# The field for the frequency, which only pulses have.


async def test_pulses_have_a_frequency_and_nothing_else_has() -> None:
    async with settled(app_with(no_driver(), sample()), (60, 24)) as (app, pilot):
        await pilot.press("2")
        form, hertz = app.query_one(Form), app.query_one("#hertz", Input)
        hertz.value = "99"
        assert not hertz.display
        assert form.requests(None)[0].hertz == 1.0, "what is not shown does not count"
        app.query_one("#kind", Select).value = "pulse"
        await settle(pilot)
        assert app.screen.find_widget(hertz).visible_region == hertz.region
        with pytest.raises(ValueError, match="'99' is not a frequency"):
            form.requests(None)
        hertz.value = "0.5"
        (request,) = form.requests(None)
        assert (request.kind, request.hertz) == ("pulse", 0.5)


# MIG instances in the benchmark tab: chosen, refused as a whole, with the heat of their GPU.


def offered(pilot: Pilot[None]) -> list[str]:
    return [str(label) for label, _ in pilot.app.query_one("#device", Select)._options]


async def test_a_gpu_whose_mig_mode_is_switched_on_says_so(session: type[PreparedSession]) -> None:
    plain = dataclasses.replace(WHOLE, mig_mode="disabled")
    stream = PreparedStream(dataclasses.replace(undivided(), devices=(device(0), plain)), seen())
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("2")
        app.query_one("#device", Select).value = WHOLE.uuid
        await settle(pilot)
        stream.send(divided())
        await settle(pilot)
        assert offered(pilot)[-1] == "choose a device"
        await pilot.press("b")
        assert session.requests == []
        assert "Choose one: 3:0" in reason(app)


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
    async with settled(app_with(divided(), seen()), (140, 40)) as (_, pilot):
        await pilot.press(*moves, "b")
        assert title in shown(pilot, TitleView)
        assert readout in shown(pilot, ReadoutView)
