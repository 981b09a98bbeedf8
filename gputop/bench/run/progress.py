"""Stress tests in the foreground, with their progress on one line of the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from gputop.bench.events import Event, Progress, RunLimit
from gputop.bench.results.measures import rate_text
from gputop.console import print_message, terminal_size
from gputop.text import duration, percentage, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Target
    from gputop.bench.run.device_run import DeviceRun
    from gputop.bench.run.run import Run
    from gputop.bench.run.runner import Runner


DRAW_SECONDS = 0.25
LONGEST_BAR, SHORTEST_BAR = 40, 12


class ProgressLine:
    """Progress drawn on `stream` if that is a terminal."""

    def __init__(
        self,
        stream: TextIO,
        run: Run,
        head: str = "",
    ) -> None:
        """Draw the progress of a run behind a `head`."""
        self._stream, self._run, self._head = stream, run, head
        self._drawing = stream.isatty()
        self._drawn = 0

    async def keep_drawing(self) -> None:
        """Draw four times a second until the end, also during a long product without events."""
        while self._drawing and not self._run.ended:
            self.draw()
            await asyncio.sleep(DRAW_SECONDS)

    def draw(self) -> None:
        """Draw the line over the previous one."""
        width = terminal_size(self._stream.fileno())[0]
        # The last column wraps on some terminals
        room = width - 1 - len(self._head)
        line = self._head + progress_text(self._run, room)
        self._write(f"\r{line.ljust(self._drawn)}")
        self._drawn = len(line)

    def clear(self) -> None:
        """Clear the line, and move the cursor to its start."""
        if self._drawn:
            self._write(f"\r{' ' * self._drawn}\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            self._drawing = False


def progress_text(run: Run, width: int) -> str:
    """Return the time and figures of a run. The least important parts are left out first."""
    if run.began_at is None:
        return f"{_preparing(run)} ..."[:width]
    began, seconds = 0.0, 0.0
    for each in run.devices.values():
        began = max(began, each.began_at or 0.0)
        if each.planned is not None:
            seconds = max(seconds, each.planned.expected_seconds or 0.0)
    seconds = seconds or run.request.seconds
    elapsed = min(run.now() - began, seconds)
    share = elapsed / seconds
    parts = [f"{duration(elapsed)}, {duration(seconds - elapsed)} left"]
    room = width - SHORTEST_BAR - 4
    if run.is_several or run.first.request.target.host:
        parts += _figures_of_all(run)
        room = width  # faults are more important than the bar
    elif run.first.planned is not None and run.first.planned.rows:
        # A table may be complete before its time.
        share = max(share, run.first.share)
        parts = [*_rows(run.first, run.first.planned.rows, elapsed)]
    elif run.first.progress is not None:
        parts += _figures(run.first, run.first.progress)
    return _with_bar(share, _fitting(parts, room), width)


def _preparing(run: Run) -> str:
    if run.is_several or run.first.request.target.host:
        return _states(run)
    hello = run.first.hello
    return "starting" if hello is None else f"preparing {hello.device_name}"


def _states(run: Run) -> str:
    return ", ".join(f"{count} {state}" for state, count in run.states.items())


def _rows(run: DeviceRun, most: int, elapsed: float) -> Iterator[str]:
    """Yield the number of rows, and the last one."""
    yield f"{len(run.rows)} of at most {most} rows"
    yield duration(elapsed)
    if run.rows:
        last = run.rows[-1]
        yield rate_text(last)
        yield f"{last.series}, {last.x:.0f}"


def _figures(run: DeviceRun, window: Progress) -> Iterator[str]:
    """Yield the throughput and the product."""
    yield run.rate_text(window.rate)
    yield f"mean {run.rate_text(run.mean.value, short=True)}"
    yield f"peak {run.rate_text(run.peak, short=True)}"
    plan = run.planned
    if plan is not None and plan.n:
        yield f"{plan.dtype} {plan.n}"
    else:
        yield run.request.kind


def _figures_of_all(run: Run) -> Iterator[str]:
    """Yield the range of the throughput, the devices in each state, and the slow devices."""
    for among in [*run.distributions.values()][:1]:
        rates = f"{tflops(among.median)} ({tflops(among.p5)} to {tflops(among.p95)})"
        yield f"{rates} {run.first.rate_scale(None)[0]}"
    yield _states(run)
    wrong = [each for each in run.devices.values() if each.wrong_elements]
    if wrong:
        yield f"{len(wrong)} wrong"
    behind = run.slow_devices()
    if behind:
        first, by = next(iter(behind.items()))
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        host = f"{visible(first.host)} " if first.host else ""
        yield f"{host}{first.place} {percentage(by)} behind{more}"


def _fitting(parts: list[str], width: int) -> str:
    """Return the first parts that fit, at least two. The least important part is last."""
    while len(parts) > 2 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)


def _with_bar(
    share: float,
    text: str,
    width: int,
) -> str:
    room = min(LONGEST_BAR, width - len(text) - 4)
    if room < SHORTEST_BAR:
        return text[:width]
    full = int(room * min(1.0, share))
    return f"[{'#' * full}{'-' * (room - full)}]  {text}"


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

    line = ProgressLine(sys.stderr, runner.state, head)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupted)
    ticking = asyncio.create_task(line.keep_drawing())
    try:
        await runner.follow(_say_limit)
        return list(runner.state.devices.values())
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, *stops, return_exceptions=True)
        line.clear()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _say_limit(target: Target, event: Event) -> None:
    if isinstance(event, RunLimit):
        title = event.title[0].lower() + event.title[1:]
        print_message(f"{target.label}: {title}, {event.why}")
