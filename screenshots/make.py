"""Makes the pictures of this folder from the running app: `python -m screenshots.make`.

Nothing in them is drawn by hand: all but `monitor` are simulated and say so, and that one is this
machine. Needs the extra `dev`. `python -m screenshots.film` makes the animated one, and
`python -m screenshots.scenes` those of the first look.
"""

from __future__ import annotations

import asyncio
import html
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import resvg_py

from gputop.commands.run import demo_tab
from gputop.fleet.screens.state import FleetState
from gputop.stream.child import StreamChild
from gputop.stream.launch import StreamOptions
from gputop.ui.benchmark.readout import TitleView
from gputop.ui.shell.app import GputopApp
from tests.fleets import fleet
from tests.ui.pilots import dashboard_of, fleet_screen

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
FONT = "DejaVu Sans Mono"
"""For the PNGs: it has braille, and is where there is any font at all."""


async def picture(
    name: str,
    *,
    demo: bool,
    interval: float,
    keys: tuple[str, ...],
    ready: Callable[[GputopApp], bool],
    size: tuple[int, int] = (120, 34),
) -> None:
    """Runs the dashboard until `ready`, and keeps what it shows as SVG and PNG."""
    child = StreamChild(
        StreamOptions(interval, demo=demo, control=True).command, interval
    )
    child.spawn()
    app = GputopApp(child, extra=demo_tab() if demo else None)
    async with app.run_test(size=size) as pilot:
        while dashboard_of(app).telemetry.sample is None:
            await pilot.pause(0.1)
        await pilot.press(*keys)
        while not ready(app):
            await pilot.pause(0.1)
        keep(name, app.export_screenshot(title="gputop"))


async def fleet_picture() -> None:
    """A fleet that is made up, and says so."""
    state = FleetState(where="http://prometheus:9090")
    state.update(replace(fleet(2048), simulated=True))
    app = GputopApp(first=fleet_screen(state))
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.pause(1.0)
        keep("fleet", app.export_screenshot(title="gputop"))


TEXT = re.compile(
    r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+"'
    r"([^>]*)>([^<]*[⠀-⣿][^<]*)</text>"
)
"""A text with braille."""
CELL = 12.2
"""Width of a cell in the units of the picture."""


def with_braille_in_place(svg: str) -> str:
    """Give each run of braille a text of its own.

    Few fonts have braille in the width of their other characters. Within one text, blanks would
    take the room of the dots.
    """

    def split(match: re.Match[str]) -> str:
        kind, x, y, rest, text = match.groups()
        made = []
        cells = 0
        for run in re.findall("[⠀-⣿]+|[^⠀-⣿]+", html.unescape(text)):
            place = float(x) + CELL * cells
            made.append(
                f'<text class="{kind}" x="{place:.1f}" y="{y}" '
                f'textLength="{CELL * len(run):.1f}"{rest}>{html.escape(run)}</text>'
            )
            cells += len(run)
        return "".join(made)

    return TEXT.sub(split, svg)


def keep(name: str, svg: str) -> None:
    """As SVG and as PNG."""
    svg = with_braille_in_place(svg)
    (HERE / f"{name}.svg").write_text(svg)
    png = resvg_py.svg_to_bytes(
        svg_string=with_local_font(svg), font_family=FONT
    )
    (HERE / f"{name}.png").write_bytes(bytes(png))
    print(f"screenshots/{name}.svg, {name}.png")


def with_local_font(svg: str) -> str:
    """The picture without fonts that would have to be fetched."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code", FONT
    )


def seconds_of_run(app: GputopApp) -> float:
    """How long the stress test has measured."""
    run = app.query_one(TitleView).run
    return run.elapsed_seconds if run else 0.0


async def main() -> None:
    """Every picture, one after the other."""
    await picture(
        "demo",
        demo=True,
        interval=1.0,
        keys=(),
        ready=lambda app: dashboard_of(app).telemetry.history.count >= 75,
        size=(120, 40),
    )
    await picture(
        "device",
        demo=True,
        interval=1.0,
        keys=("enter",),
        ready=lambda app: dashboard_of(app).telemetry.history.count >= 200,
        size=(150, 44),
    )
    await picture(
        "monitor",
        demo=False,
        interval=0.5,
        keys=(),
        ready=lambda app: dashboard_of(app).telemetry.history.count >= 4,
        size=(80, 24),
    )
    await picture(
        "benchmark",
        demo=True,
        interval=0.5,
        keys=("b",),
        ready=lambda app: seconds_of_run(app) >= 45,
        size=(120, 40),
    )
    await picture(
        "training",
        demo=True,
        interval=1.0,
        keys=("4",),
        ready=lambda app: dashboard_of(app).telemetry.history.count >= 150,
        size=(120, 40),
    )
    await picture(
        "ranks",
        demo=True,
        interval=1.0,
        keys=("R",),
        ready=lambda app: dashboard_of(app).telemetry.history.count >= 40,
        size=(120, 24),
    )
    await fleet_picture()


if __name__ == "__main__":
    # No results of other runs in the pictures, and none of the pictures' in the user's table.
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_DATA_HOME"] = home
        asyncio.run(main())
