"""The progress of stress tests on one line of a terminal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TextIO

from gputop.bench.results.columns import rate
from gputop.console import terminal_size
from gputop.text import ABSENT, duration, percentage, tflops, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from gputop.bench.events import Point
    from gputop.bench.plan.request import Target
    from gputop.bench.run.group_state import GroupState
    from gputop.bench.run.state import RunState

    Text = Callable[[GroupState, int], str]
    """The progress in at most that many columns."""

DRAW_SECONDS = 0.25
LONGEST_BAR, SHORTEST_BAR = 40, 12


class ProgressLine:
    """Draws on `stream` where that is a terminal, and is silent otherwise."""

    def __init__(self, stream: TextIO, group: GroupState, text: Text) -> None:
        self._stream, self._group, self._text = stream, group, text
        self._drawing = stream.isatty()
        self._drawn = 0

    async def keep_drawing(self) -> None:
        """Draw four times a second to the end: also while a long product says nothing."""
        while self._drawing and not self._group.ended:
            self.draw()
            await asyncio.sleep(DRAW_SECONDS)

    def draw(self) -> None:
        """Draw the line over the one before."""
        line = self._text(self._group, self._width() - 1)  # the last column wraps on some terminals
        self._write(f"\r{line.ljust(self._drawn)}")
        self._drawn = len(line)

    def clear(self) -> None:
        """Leave the line empty, with the cursor at its begin."""
        if self._drawn:
            self._write(f"\r{' ' * self._drawn}\r")
            self._drawn = 0

    def _width(self) -> int:
        try:
            return terminal_size(self._stream.fileno())[0]
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, UnicodeError):
            self._drawing = False


def one_device(group: GroupState, width: int) -> str:
    """Progress of one run; what matters least goes first."""
    run, seconds = group.only, group.request.seconds
    if run.planned is None or run.planned_at is None:
        word = f"preparing {run.hello.device_name}" if run.hello else "starting"
        return f"{word} ..."[:width]
    elapsed = min(group.now() - run.planned_at, seconds)
    share = elapsed / seconds
    parts = [f"{duration(elapsed)}, {duration(seconds - elapsed)} left"]
    if run.planned.rows:  # a table: it may be done before its time
        parts = _rows(run, run.planned.rows, elapsed)
        share = max(share, len(run.rows) / run.planned.rows)
    elif run.progress is not None:
        parts += [
            f"{tflops(run.progress.tflops)} TFLOP/s",
            f"mean {tflops(run.mean.value)}",
            f"peak {tflops(run.peak)}",
            f"{run.planned.dtype} {run.planned.n}",
        ]
    return _with_bar(share, _fitting(parts, width - SHORTEST_BAR - 4), width)


def _rows(run: RunState, most: int, elapsed: float) -> list[str]:
    """Rows that are there, of those that there may be, and the last one."""
    parts = [f"{len(run.rows)} of at most {most} rows", duration(elapsed)]
    if run.rows:
        last = run.rows[-1]
        parts += [_figure(last), f"{last.series}, {last.x:.0f}"]
    return parts


def several_devices(group: GroupState, width: int) -> str:
    """Time of the run that is under way, and a figure of each device."""
    words = {target: _word(run) for target, run in group.runs.items() if run.state != "starting"}
    if not words:
        return "starting ..."[:width]
    text = "  ".join(f"{_short(target)} {word}" for target, word in words.items())
    latest = max(group.runs.values(), key=lambda run: run.planned_at or 0.0)
    seconds = latest.planned.expected_seconds if latest.planned else None
    if not seconds:
        return text[:width]
    elapsed = min(group.now() - (latest.planned_at or 0.0), seconds)
    left = f"{duration(elapsed)}, {duration(seconds - elapsed)} left"
    return _with_bar(elapsed / seconds, f"{left}  {text}", width)


def _word(run: RunState) -> str:
    if run.state == "running" and run.rows:
        return _figure(run.rows[-1])
    if run.state == "running" and run.progress is not None:
        return tflops(run.progress.tflops)
    return "prepares" if run.state == "preparing" else run.state


def many_devices(group: GroupState, width: int) -> str:
    """The time, how many devices are how far, and how their throughput lies."""
    counts = ", ".join(f"{count} {state}" for state, count in group.states.items())
    if group.measured_at is None:
        return f"{counts} ..."[:width]
    seconds = group.expected_seconds
    elapsed = min(group.now() - group.measured_at, seconds)
    parts = [f"{duration(elapsed)}, {duration(seconds - elapsed)} left", counts]
    if group.wrong:
        parts.append(f"{len(group.wrong)} wrong")
    if behind := group.behind():
        first, by = next(iter(behind.items()))
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        parts.append(f"{visible(first.host or '')} {first.place} {percentage(by)} behind{more}")
    for among in [*group.distributions.values()][:1]:
        parts.insert(
            1, f"{tflops(among.median)} ({tflops(among.p5)} to {tflops(among.p95)}) TFLOP/s"
        )
    return _with_bar(elapsed / seconds if seconds else 0.0, _fitting(parts, width), width)


def _fitting(parts: list[str], width: int) -> str:
    """The parts that fit, two at least: what matters least is last."""
    while len(parts) > 2 and len("  ".join(parts)) > width:
        parts.pop()
    return "  ".join(parts)


def _short(target: Target) -> str:
    return visible(target.name) if target.number is None else f"GPU {target.number}"


def _with_bar(share: float, text: str, width: int) -> str:
    """The text, behind a bar where there is room for one."""
    room = min(LONGEST_BAR, width - len(text) - 4)
    if room < SHORTEST_BAR:
        return text[:width]
    full = int(room * min(1.0, share))
    return f"[{'#' * full}{'-' * (room - full)}]  {text}"


def _figure(point: Point) -> str:
    found = rate(point)
    return found[1] if found else ABSENT
