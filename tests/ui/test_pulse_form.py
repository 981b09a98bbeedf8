"""The field for the frequency, which only pulses have."""

from __future__ import annotations

import pytest
from textual.widgets import Input, Select

from gputop.ui.benchmark.form import Form
from gputop.ui.shell.app import GputopApp
from tests.streams import PreparedStream, no_driver, sample
from tests.ui.pilots import settle


@pytest.mark.parametrize("width", [60, 80, 140])
async def test_pulses_have_a_frequency_and_nothing_else_has(width: int) -> None:
    app = GputopApp(PreparedStream(no_driver(), sample()))
    async with app.run_test(size=(width, 24)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        await settle(pilot)
        form, field = app.query_one(Form), app.query_one("#hertz", Input)
        field.value = "99"
        assert not field.display
        assert form.requests(None)[0].hertz == 1.0, "what is not shown does not count"
        app.query_one("#kind", Select).value = "pulse"
        await settle(pilot)
        for name in ("dtype", "size", "seconds", "hertz", "start"):
            widget = form.query_one(f"#{name}")
            assert widget.region.right <= width
            assert app.screen.find_widget(widget).visible_region == widget.region
            assert widget.region.width >= 4
        with pytest.raises(ValueError, match="'99' is not a frequency"):
            form.requests(None)
        field.value = "0.5"
        (request,) = form.requests(None)
        assert (request.kind, request.hertz) == ("pulse", 0.5)
