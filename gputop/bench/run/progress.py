"""Stress tests in the foreground, with their progress on one line of the terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from gputop.bench.events import Event, RunLimit
from gputop.bench.results.measures import rate_text
from gputop.bench.run.group import DeviceGroup, Pairs, group_runner
from gputop.bench.run.run import Run
from gputop.console import print_message, terminal_size
from gputop.text import duration, percentage, tflops, visible

if TYPE_CHECKING:
    from gputop.bench.plan.request import Request, Target
    from gputop.bench.run.device_run import DeviceRun

    Text = Callable[[Run, int], str]
    """Renders the progress in at most that many columns."""

DRAW_SECONDS = 0.25
LONGEST_BAR, SHORTEST_BAR = 40, 12


class ProgressLine:
    """Progress drawn on `stream` if that is a terminal."""

    def __init__(
        self,
        stream: TextIO,
        group: Run,
        text: Text,
        head: str = "",
    ) -> None:
        """Draw the `text` of a group behind a `head`."""
        self._stream, self._group, self._text, self._head = (
            stream,
            group,
            text,
            head,
        )
        self._drawing = stream.isatty()
        self._drawn = 0

    async def keep_drawing(self) -> None:
        """Draw four times a second to the end: also while a long product says nothing."""
        while self._drawing and not self._group.ended:
            self.draw()
            await asyncio.sleep(DRAW_SECONDS)

    def draw(self) -> None:
        """Draw the line over the one before."""
        width = terminal_size(self._stream.fileno())[0]
        # The last column wraps on some terminals
        room = width - 1 - len(self._head)
        line = self._head + self._text(self._group, room)
        self._write(f"\r{line.ljust(self._drawn)}")
        self._drawn = len(line)

    def clear(self) -> None:
        """Clear the line, with the cursor at its begin."""
        if self._drawn:
            self._write(f"\r{' ' * self._drawn}\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            self._drawing = False


def one_device(group: Run, width: int) -> str:
    """Return the progress of one run. The least important part gives way first."""
    run, seconds = group.first, group.request.seconds
    if run.planned is None or run.began_at is None:
        word = (
            f"preparing {run.hello.device_name}" if run.hello else "starting"
        )
        return f"{word} ..."[:width]
    elapsed = min(group.now() - run.began_at, seconds)
    share = elapsed / seconds
    parts = [f"{duration(elapsed)}, {duration(seconds - elapsed)} left"]
    if run.planned.rows:  # a table: it may be done before its time
        parts = [
            f"{len(run.rows)} of at most {run.planned.rows} rows",
            duration(elapsed),
        ]
        if run.rows:
            last = run.rows[-1]
            parts += [rate_text(last), f"{last.series}, {last.x:.0f}"]
        share = max(share, len(run.rows) / run.planned.rows)
    elif run.progress is not None:
        parts += [
            run.rate_text(run.progress.rate),
            f"mean {run.rate_text(run.mean.value, short=True)}",
            f"peak {run.rate_text(run.peak, short=True)}",
        ]
        if run.planned.n:
            parts.append(f"{run.planned.dtype} {run.planned.n}")
        else:
            parts.append(run.request.kind)
    return _with_bar(share, _fitting(parts, width - SHORTEST_BAR - 4), width)


def many_devices(group: Run, width: int) -> str:
    """Return the time, the devices in each state, and the range of their throughput."""
    counts = ", ".join(
        f"{count} {state}" for state, count in group.states.items()
    )
    if group.began_at is None:
        return f"{counts} ..."[:width]
    planned = (run.planned for run in group.devices.values() if run.planned)
    seconds = max(
        (each.expected_seconds or 0.0 for each in planned), default=0.0
    )
    began = max(run.began_at or 0.0 for run in group.devices.values())
    elapsed = min(group.now() - began, seconds)
    parts = [
        f"{duration(elapsed)}, {duration(seconds - elapsed)} left",
        counts,
    ]
    if wrong := sum(
        bool(group.wrong_elements(target)) for target in group.devices
    ):
        parts.append(f"{wrong} wrong")
    if behind := group.slow_devices():
        first, by = next(iter(behind.items()))
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        host = f"{visible(first.host)} " if first.host else ""
        parts.append(f"{host}{first.place} {percentage(by)} behind{more}")
    if distributions := [*group.distributions.values()]:
        among = distributions[0]
        rates = f"{tflops(among.median)} ({tflops(among.p5)} to {tflops(among.p95)})"
        rates += f" {group.first.rate_scale(None)[0]}"
        parts.insert(1, rates)
    share = 0.0
    if seconds:
        share = elapsed / seconds
    return _with_bar(share, _fitting(parts, width), width)


def _fitting(parts: list[str], width: int) -> str:
    """Return the parts that fit, two at least. The least important is last."""
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


async def run_in_foreground(
    requests: Sequence[Request], head: str = ""
) -> list[DeviceRun]:
    """Run them together to their ends, in the order of the requests; see `follow_on_a_line`."""
    group = Run(requests)
    text = many_devices if group.is_several else one_device
    return await follow_on_a_line(group_runner(group), group, text, head)


async def follow_on_a_line(
    runs: DeviceGroup | Pairs,
    group: Run,
    text: Text,
    head: str = "",
) -> list[DeviceRun]:
    """Follow runs to their ends with a line of progress, in the order of the requests.

    The line begins with `head`. The first signal stops the workers, a second one kills them.
    """
    stops: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        if stops:
            runs.kill()
        else:
            stops.append(asyncio.create_task(runs.stop()))

    def take(target: Target, event: Event) -> None:
        group.add_event(target, event)
        if isinstance(event, RunLimit):
            _say_limit(target, event)

    line, loop = (
        ProgressLine(sys.stderr, group, text, head),
        asyncio.get_running_loop(),
    )
    for number in SIGNALS:
        loop.add_signal_handler(number, interrupted)
    ticking = asyncio.create_task(line.keep_drawing())
    try:
        await runs.follow(take)
        return list(group.devices.values())
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, *stops, return_exceptions=True)
        line.clear()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _say_limit(target: Target, limit: RunLimit) -> None:
    print_message(
        f"{target.label}: {limit.title[0].lower()}{limit.title[1:]}, {limit.why}"
    )
