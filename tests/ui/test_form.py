import re
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Footer, Input, OptionList, Select

from gputop.agent.snapshot import DriverState
from gputop.bench.plan import request as plan
from gputop.ui.benchmark.form import ALL, CPU, Form
from gputop.ui.benchmark.readout import TitleView
from gputop.ui.shell.app import GputopApp
from tests.bench.machines import WHOLE, divided, instance, seen
from tests.sessions import EndlessSession, PreparedSession
from tests.streams import PreparedStream, device, inventory, no_driver, readings, sample
from tests.ui.pilots import (
    app_with,
    ended,
    lines,
    open_form,
    reason,
    send,
    settle,
    settled,
    shown,
    text_of,
    type_at_once,
    wrong_fields,
)


def field(app: GputopApp, name: str) -> Input:
    return app.query_one(f"#{name}", Input)


def choice(app: GputopApp, name: str) -> Select[Any]:
    return app.query_one(f"#{name}", Select)


def fields(app: GputopApp) -> tuple[Any, Any]:
    return choice(app, "device").value, choice(app, "dtype").value


async def test_in_a_field_letters_act_and_digits_are_text(endless: type[EndlessSession]) -> None:
    async with settled(app_with(no_driver(), sample())) as (app, pilot):
        await open_form(pilot)
        field(app, "size").value = "auto"
        field(app, "size").focus()
        await settle(pilot)
        await pilot.press("1", "2", "8", "b")
        assert [request.size for request in endless.requests] == [128]
        assert app.focused is None
        assert str(app.query_one("#start", Button).label) == "Stop"
        field(app, "seconds").focus()
        await settle(pilot)
        assert "Esc Leave the field" in shown(pilot, Footer)
        await pilot.press("x")
        await ended(pilot)
        assert str(app.query_one("#start", Button).label) == "Start"
        assert field(app, "seconds").value == "60"
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running


async def chosen(pilot: Pilot[None], name: str, value: str) -> None:
    pilot.app.query_one(f"#{name}", Select).value = value
    await settle(pilot)


async def test_a_sampler_that_starts_again_changes_nothing(session: type[PreparedSession]) -> None:
    stream = PreparedStream(inventory(4), sample(4, processes=[]))
    async with settled(GputopApp(stream)) as (app, pilot):
        await open_form(pilot)
        await chosen(pilot, "device", device(2).uuid)
        await chosen(pilot, "dtype", "float16")
        for state, devices in ((DriverState.STARTING, 0), (DriverState.OK, 4)):
            await send(
                pilot, stream, inventory(devices, driver_state=state), sample(devices, processes=[])
            )
            assert fields(app) == (device(2).uuid, "float16")
        await pilot.press("tab", "tab", "enter", "up")
        await send(pilot, stream, inventory(4))
        free = tuple(readings(n, memory_free_bytes=2**34) for n in range(4))
        await send(pilot, stream, replace(sample(4, processes=[]), devices=free))
        assert choice(app, "device").query_one("SelectOverlay", OptionList).highlighted == 1
        await pilot.press("b")
        (request,) = session.requests
        assert (request.target.uuid, request.dtype) == (device(1).uuid, "bfloat16")
        assert request.target.memory_free_bytes == 2**34, "as it is now"


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
        await pilot.press("shift+tab")
        assert app.focused is not None
        assert app.focused.id == "seconds"
        await pilot.press("b")
        (request,) = session.requests
        assert (request.kind, request.dtypes, request.size) == ("copy", ("bfloat16",), None)


async def test_a_sweep_takes_all_types_that_the_device_has(session: type[PreparedSession]) -> None:
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await pilot.press("2")
        assert "all" not in {value for _, value in choice(app, "dtype")._options}
        await chosen(pilot, "kind", "sweep")
        await chosen(pilot, "dtype", "all")
        await pilot.press("b")
        await chosen(pilot, "kind", "soak")
        assert choice(app, "dtype").value == "bfloat16", "a soak has one"
    (request,) = session.requests
    offered = set(plan.offered_dtypes(request.target))
    assert request.dtypes[0] == "bfloat16", "what people train with is there first"
    assert len(request.dtypes) == len(offered) > 3
    assert set(request.dtypes) == offered


async def test_b_on_the_monitor_is_a_soak_whatever_the_form_says(
    session: type[PreparedSession],
) -> None:
    async with settled(app_with(inventory(1), sample(1, [])), (80, 24)) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "kind", "copy")
        await pilot.press("1", "b")
        assert [request.kind for request in session.requests] == ["soak"]
        assert choice(app, "kind").value == "soak"
        assert disabled(app) == set()


BAD = [
    ("seconds", "999999", "'999999' is not a duration: it is in seconds, from 0.5 to 604800"),
    ("seconds", "", "'' is not a duration"),
    ("size", "10485760", "'10485760' is not a size: it is N of an N x N product, from 64 to"),
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
            # As soon as it is right, nothing is red.
            field(app, name).focus()
            await type_at_once(pilot, "ctrl+u", *"64")
            assert (reason(app), wrong_fields(app)) == ("", [])
        field(app, "size").focus()
        await type_at_once(pilot, "ctrl+u", *"40")
        assert reason(app) == ""  # it may become 4096
        await pilot.press("tab")
        assert reason(app).startswith("'40' is not a size")


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


async def test_a_run_on_a_mig_instance_has_its_number(endless: type[EndlessSession]) -> None:
    async with settled(app_with(divided(), seen()), (140, 40)) as (_, pilot):
        await pilot.press(*"jjjb")
        assert "GPU 3:1 A100" in shown(pilot, TitleView)


# The choice of devices.


def labels(app: GputopApp) -> list[str]:
    return [label for label, _ in app.query_one(Form)._device_field.options]


def numbers(app: GputopApp) -> list[str | None]:
    return [target.number for target in app.query_one(Form).targets]


@pytest.mark.parametrize(("gpus", "several"), [(0, []), (1, []), (2, ["all 2 GPUs"])])
async def test_all_is_offered_where_there_are_two(gpus: int, several: list[str]) -> None:
    async with settled(app_with(inventory(gpus), sample(gpus, []))) as (app, pilot):
        await pilot.press("2")
        assert labels(app)[gpus + 1 :] == several
        assert ("collective" in app.query_one(Form).kinds) == bool(several)
        assert numbers(app) == ["0" if gpus else None]
        assert re.search("Device 0 H100" if gpus else "Device CPU [A-Z]", text_of(lines(app)))


async def test_one_is_chosen_until_all_are_and_a_collective_takes_all() -> None:
    async with settled(app_with(inventory(3), sample(3, []))) as (app, pilot):
        await pilot.press("2")
        for key, wanted in ((ALL, ["0", "1", "2"]), (CPU, [None]), (device(2).uuid, ["2"])):
            await chosen(pilot, "device", key)
            assert numbers(app) == wanted
        await chosen(pilot, "kind", "sweep")
        assert ("all", "all") in app.query_one(Form)._dtype_field.options
        await chosen(pilot, "device", ALL)
        assert ("all", "all") not in app.query_one(Form)._dtype_field.options
        await chosen(pilot, "device", device(2).uuid)
        await chosen(pilot, "kind", "collective")
        assert numbers(app) == ["0", "1", "2"]
        await chosen(pilot, "kind", "soak")
        assert numbers(app) == ["2"]


@pytest.mark.parametrize("key", [device(1).uuid, ALL])
async def test_what_is_gone_is_refused_and_never_replaced(
    key: str, session: type[PreparedSession]
) -> None:
    stream = PreparedStream(inventory(2), sample(2, []))
    async with settled(GputopApp(stream)) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "device", key)
        await send(pilot, stream, inventory(1), sample(1, []))
        assert choice(app, "device").value == key
        assert labels(app)[-1] == "choose a device"
        await pilot.press("b")
        assert reason(app).startswith("The device is gone: choose another one")
        assert wrong_fields(app) == ["device"]
        await send(pilot, stream, inventory(2), sample(2, []))
        assert "choose a device" not in labels(app)
        assert numbers(app)[-1:] == ["1"]
    assert session.requests == []


async def test_of_a_divided_gpu_all_are_its_instances() -> None:
    async with settled(app_with(divided(), seen())) as (app, pilot):
        await pilot.press("2")
        await chosen(pilot, "device", ALL)
        assert numbers(app) == ["0", "3:0", "3:1", "3:3"]
        assert labels(app)[1] == "3:0 MIG 3g.20gb, A100-SXM4-40GB"
        form = app.query_one(Form)
        form.choose(instance(1).uuid)
        with pytest.raises(ValueError, match="MIG is on"):
            form.choose(WHOLE.uuid)
