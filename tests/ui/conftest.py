import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

import pytest
from textual.css.stylesheet import Stylesheet

from gputop.agent.times import silence_limit
from gputop.bench.results import store
from gputop.bench.run import runner
from gputop.ui.shell.app import GputopApp
from tests.sessions import EndlessSession, PreparedSession
from tests.ui.pilots import QuickPilot, in_threads, lines, text_of
from tests.ui.together import Scripted

Same = Callable[..., bool]


@pytest.fixture
def same_text(snapshot: Any) -> Same:
    def same(app: GputopApp, *, terminal_size: tuple[int, int], run_before: Any) -> bool:
        async def text() -> str:
            async with app.run_test(size=terminal_size) as pilot:
                await run_before(pilot)
                return text_of(lines(app))

        found = asyncio.run(text())
        # Shows the difference.
        assert "\n".join(line.rstrip() for line in found.splitlines()) == snapshot
        return True

    return same


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """One processor, no other runs, nothing heard of the device, answers at once.

    What waits for a key, a sample or a worker waits, however slow the machine is.
    """
    monkeypatch.setattr(store, "recent", lambda *_: [])
    monkeypatch.setattr(store, "append", lambda result, *_: result)
    monkeypatch.setattr("gputop.bench.plan.request.cpu_name", lambda: "AMD EPYC 9654")
    monkeypatch.setattr("gputop.bench.run.device_run.SILENT_SECONDS", 3_600.0)
    monkeypatch.setattr(GputopApp, "NOTIFICATION_TIMEOUT", 3_600.0)
    monkeypatch.setattr("gputop.ui.telemetry.silence_limit", lambda _: float("inf"))
    monkeypatch.setattr("textual.pilot.Pilot", QuickPilot)  # that of `run_test`


@pytest.fixture(autouse=True)
def _threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let `settle` wait for threads."""
    submit = ThreadPoolExecutor.submit

    def counted(*arguments: Any, **named: Any) -> Future[Any]:
        future = submit(*arguments, **named)
        in_threads.add(future)
        future.add_done_callback(in_threads.discard)
        return future

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    yield
    in_threads.clear()


@pytest.fixture(scope="session", autouse=True)
def _css_parsed_once() -> Iterator[None]:
    """Parse CSS once for all apps with the same variables: it is a tenth of what a test costs."""
    parse: Callable[..., Any] = Stylesheet._parse_rules
    known: dict[tuple[object, ...], Any] = {}

    def parse_once(stylesheet: Stylesheet, *css: object, **how: object) -> Any:
        key = (*css, *how.items(), *stylesheet._variables.items())
        if key not in known:
            known[key] = parse(stylesheet, *css, **how)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parse_once)
        yield


@pytest.fixture
def counts_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a sampler silent when it is late, as the screen does outside of tests."""
    monkeypatch.setattr("gputop.ui.telemetry.silence_limit", silence_limit)


SomeSession = TypeVar("SomeSession", bound=PreparedSession)


def in_place_of_workers(
    monkeypatch: pytest.MonkeyPatch, sessions: type[SomeSession]
) -> type[SomeSession]:
    """Run these sessions; the class keeps what this test asks for."""
    made = type("Session", (sessions,), {"requests": [], "script": {}})
    monkeypatch.setattr(runner, "DeviceRunner", made)
    return cast("type[SomeSession]", made)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> type[PreparedSession]:
    return in_place_of_workers(monkeypatch, PreparedSession)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> type[EndlessSession]:
    return in_place_of_workers(monkeypatch, EndlessSession)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    return in_place_of_workers(monkeypatch, Scripted)
