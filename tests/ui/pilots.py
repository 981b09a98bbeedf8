import asyncio
import contextlib
import io
import time
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from rich.console import Console, RenderableType
from textual import events
from textual.app import App
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import Footer, Select, Static

from gputop.agent.snapshot import Record
from gputop.bench.events import Result
from gputop.fleet.model import Fleet
from gputop.fleet.screens.screen import FleetScreen
from gputop.fleet.screens.state import FleetState
from gputop.fleet.watch import FleetWatch
from gputop.stream.child import Interruption
from gputop.ui.benchmark.screen import BenchmarkTab
from gputop.ui.drawing.cells import Row
from gputop.ui.drawing.live import LiveView
from gputop.ui.drawing.page import ScrolledPage
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.dashboard import Dashboard
from tests.streams import PreparedStream

SomeApp = TypeVar("SomeApp", bound=App[None])


def dashboard_of(app: App[None]) -> Dashboard:
    assert isinstance(app, GputopApp)
    assert isinstance(app.first, Dashboard)
    return app.first


def app_with(*records: Record, **looks: Any) -> GputopApp:
    """Return a dashboard that draws and judges the last record; the others are in its history."""
    before = len(records) - 1 if len(records) > 2 else 0  # two alone come as they do at a start
    app = GputopApp(PreparedStream(*records[before:]), **looks)
    for record in records[:before]:
        dashboard_of(app).telemetry.receive(record)
    return app


def noted(app: App[None]) -> str:
    return "\n".join(note.message for note in app._notifications)


def reason(app: App[None]) -> str:
    line = app.screen.query_one("#reason", Static)
    return str(line.content) if line.display else ""


def wrong_fields(app: App[None]) -> list[str | None]:
    return [each.id for each in app.screen.query("#form .wrong")]


class NoWatch(FleetWatch):
    """A `FleetWatch` that sends nothing."""

    def __init__(self) -> None:
        pass

    async def fleets(self) -> AsyncGenerator[Fleet]:
        none: tuple[Fleet, ...] = ()
        for each in none:
            yield each

    def refresh(self) -> None:
        pass


def fleet_screen(state: FleetState) -> FleetScreen:
    return FleetScreen(state, NoWatch())


def shown(pilot: Pilot[None], view: type[LiveView | ScrolledPage | Footer]) -> str:
    found = pilot.app.query_one(view)
    if isinstance(found, Footer):  # the keys that are fully in view, with their labels
        keys = (key for key in found.children if key.region.right <= found.size.width)
        return "".join(str(key.render()) for key in keys)
    if isinstance(found, ScrolledPage):
        left, top, width, height = found.region
        strips = lines(pilot.app)[top : top + height]
        return "\n".join(strip.crop(left, left + width).text.rstrip() for strip in strips)
    return found.text()


def rendered(page: RenderableType, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    lines = console.render_lines(page)
    return "\n".join("".join(part.text for part in line).rstrip() for line in lines)


in_threads: set[Future[Any]] = set()
"""What the threads of executors have not done yet; a fixture counts it."""


SOON_SECONDS = 0.02  # Textual hands on a new size after 8 ms, and draws changes after 17 ms
BUSY_SECONDS = 2.0  # processor time after which a loop counts as one that never rests


def _rests() -> bool:
    loop: Any = asyncio.get_running_loop()
    soon = loop.time() + SOON_SECONDS
    timers = (timer for timer in loop._scheduled if not timer.cancelled())
    return not loop._ready and not any(timer.when() < soon for timer in timers)


async def settle(pilot: Pilot[None]) -> None:
    """Until threads have done what they were given, and what was sent has been drawn."""
    began = time.process_time()
    for _ in range(2):
        await pilot.pause(0)
        while time.process_time() - began < BUSY_SECONDS and pilot.app.is_running:
            await until(pilot, lambda: not in_threads)
            await asyncio.sleep(SOON_SECONDS / 4)  # what a thread hands on may be on its way
            if _rests() and not in_threads:
                break


async def send(pilot: Pilot[None], stream: PreparedStream, *records: Record | Interruption) -> None:
    for record in records:
        stream.send(record)
    await settle(pilot)


def key_event(name: str) -> events.Key:
    key = _character_to_key(name) if len(name) == 1 and not name.isalnum() else name
    named = _get_unicode_name_from_key(REPLACED_KEYS.get(key, key))
    character = name if len(name) == 1 else None
    with contextlib.suppress(KeyError):
        character = unicodedata.lookup(named)
    return events.Key(key, character)


class QuickPilot(Pilot[None]):
    """Waits for the loop; Textual's waits for an idle process, at least 40 ms for each key."""

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.app.post_message(key_event(key))
            await settle(self)

    async def click(self, *where: Any, **how: Any) -> bool:
        clicked = await super().click(*where, **how)
        await settle(self)
        return clicked


@contextlib.asynccontextmanager
async def settled(
    app: SomeApp, size: tuple[int, int] = (120, 40), **options: Any
) -> AsyncIterator[tuple[SomeApp, Pilot[None]]]:
    """Run the app in a terminal of that size; it has drawn all that was sent to it."""
    async with app.run_test(size=size, **options):
        pilot = QuickPilot(app)
        await settle(pilot)
        yield app, pilot


async def type_at_once(pilot: Pilot[None], *keys: str) -> None:
    """Sends keys as one packet does: all are there before the first is handled."""
    for key in keys:
        pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await settle(pilot)


async def open_form(pilot: Pilot[None], kind: str = "soak") -> None:
    await settle(pilot)
    await pilot.press("2")
    pilot.app.query_one("#kind", Select).value = kind
    await settle(pilot)


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Until that is so, by what another thread does."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)


async def ended(pilot: Pilot[None]) -> None:
    await until(pilot, lambda: not pilot.app.query_one(BenchmarkTab).running)
    await settle(pilot)


async def resize(pilot: Pilot[None], width: int, height: int) -> None:
    """Resize the terminal, and wait until it is laid out so: Textual collects sizes first."""
    await pilot.resize_terminal(width, height)
    await until(pilot, lambda: pilot.app.screen._compositor.size == (width, height))
    await settle(pilot)


def lines(app: App[None]) -> list[Strip]:
    return app.screen._compositor.render_strips()


def text_of(strips: Sequence[Strip]) -> str:
    return "\n".join(strip.text for strip in strips)


def texts(rows: Sequence[Row]) -> list[str]:
    return ["".join(span.text for span in row).rstrip() for row in rows]


def keep_in(kept: list[Result]) -> Callable[..., Result]:
    """Return a function that keeps results in this list instead of the file."""

    def keep(result: Result, _: str | None = None) -> Result:
        kept.append(result)
        return result

    return keep
