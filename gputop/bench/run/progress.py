"""Stress tests in the foreground, with their progress on one line of the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gputop.bench.events import Event, RunLimit
from gputop.console import print_message
from gputop.text import count, duration, percentage, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.run import Run
    from gputop.bench.run.runner import Runner


DRAW_SECONDS = 0.25
LONGEST_BAR = 40


async def keep_drawing(run: Run, head: str = "") -> None:
    """Draw the progress on standard error until the run ends, if that is a terminal.

    The line is drawn four times a second, also during a long product without events.
    """
    if not sys.stderr.isatty():
        return
    console = Console(stderr=True)
    # The terminal may be closed.
    with (
        contextlib.suppress(OSError),
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):
        # If it were hidden, a killed command would leave it hidden.
        console.show_cursor(True)
        while not run.ended:
            live.update(progress_line(run, head), refresh=True)
            await asyncio.sleep(DRAW_SECONDS)


def progress_line(run: Run, head: str = "") -> RenderableType:
    """Return a bar, and `head` with the figures of a run. What does not fit is cut."""
    if run.began_at is None:
        return _text(f"{head}{_states(run)} ...")
    began, seconds = 0.0, 0.0
    for each in run.devices.values():
        began = max(began, each.began_at or 0.0)
        if each.planned is not None:
            seconds = max(seconds, each.planned.expected_seconds or 0.0)
    seconds = seconds or run.request.seconds
    elapsed = min(run.now() - began, seconds)
    share = elapsed / seconds
    time = f"{duration(elapsed)}, {duration(seconds - elapsed)} left"
    if run.is_table:  # it may be complete before its time
        share = max(share, run.share)
        time = (
            f"{duration(elapsed)}, at most {duration(seconds - elapsed)} left"
        )
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(max_width=LONGEST_BAR)
    line.add_column(no_wrap=True)
    text = _text(head + "  ".join([time, *_figures(run)]))
    line.add_row(ProgressBar(1.0, share), text)
    return line


def _text(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _states(run: Run) -> str:
    if not run.is_several:
        return run.first.state
    return ", ".join(f"{many} {state}" for state, many in run.states.items())


def _figures(run: Run) -> Iterator[str]:
    """Yield rows or rates, the devices in each state, and the wrong and slow devices."""
    planned = [each.planned for each in run.devices.values() if each.planned]
    if run.is_table:
        rows = sum(len(each.rows) for each in run.devices.values())
        yield f"{rows} of at most {sum(each.rows for each in planned)} rows"
    for rates in [*run.rates_by_model.values()][:1]:
        middle = statistics.median(rates)
        unit, factor = run.first.rate_scale(middle)
        said = tflops(factor * middle)
        if len(rates) > 1:
            low, high = (
                tflops(factor * min(rates)),
                tflops(factor * max(rates)),
            )
            said += f" ({low} to {high})"
        yield f"{said} {unit}"
    if run.is_several:
        yield _states(run)
    wrong = [each for each in run.devices.values() if each.wrong_elements]
    if wrong:
        yield f"{count(len(wrong), 'device')} wrong"
    behind = run.slow_devices()
    if behind:
        first, by = next(iter(behind.items()))
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        host = f"{visible(first.host)} " if first.host else ""
        yield f"{host}{first.place} {percentage(by)} behind{more}"


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def follow_on_a_line(runner: Runner, head: str = "") -> list[DeviceRun]:
    """Follow a run to its end with a line of progress. Return its devices in order.

    The line begins with `head`. The first signal stops the workers, a second one kills them.
    """
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            runner.kill()
        else:
            stops.append(asyncio.create_task(runner.stop()))

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupted)
    ticking = asyncio.create_task(keep_drawing(runner.state, head))
    try:
        await runner.follow(_say_limit)
        return list(runner.state.devices.values())
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, *stops, return_exceptions=True)
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _say_limit(target: Target, event: Event) -> None:
    if isinstance(event, RunLimit):
        title = event.title[0].lower() + event.title[1:]
        print_message(f"{target.label}: {title}, {event.why}")
