"""Screen of a run on many devices of a cluster: their distribution, and the outliers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from gputop.bench.plan import heat_limits
from gputop.bench.run.progress import follow, on_signals
from gputop.settings import load, path
from gputop.text import count, duration, short_name, tflops, visible
from gputop.ui.drawing.cells import Row, Span, bar, cell, cells_of, clip
from gputop.ui.drawing.look import Terminal
from gputop.ui.drawing.palette import ACCENT, BUSY, DIM, FAULT, GOOD, STRONG, TEXT, WARN
from gputop.ui.shell.actions import Action
from gputop.ui.shell.app import GputopApp
from gputop.ui.shell.keys import ActionScreen
from gputop.ui.terminal import partial_updates, textual_caches
from gputop.ui.widgets.live import LiveView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rich.style import Style
    from textual.app import ComposeResult

    from gputop.bench.plan.request import Target
    from gputop.bench.results.outliers import RateDistribution
    from gputop.bench.run.group import DeviceGroup
    from gputop.bench.run.group_state import GroupOutlier, GroupState
    from gputop.bench.run.state import RunState
    from gputop.bench.run.supervision import RunLimit, Supervision

BINS, FEWEST_BINS = 10, 4
LABEL, COUNT = 15, 6
"""Cells of a bin's bounds, and of its number of devices."""
SHARE_OF_BINS = 0.5
"""Share of the rows under the title; the others are for outliers."""
LONGEST_BAR = 60
STYLES = {"failed": WARN, "running": ACCENT, "done": GOOD}


class BurnView(LiveView):
    """States, distribution and outliers of a run on many devices."""

    def __init__(self, group: GroupState) -> None:
        super().__init__(id="burn")
        self._group = group

    def draw(self, width: int, height: int) -> list[Row]:
        so_far = self._group
        rows = [self._title(width), self._progress(width), []]
        left = height - len(rows) - 1
        odd = so_far.outliers()
        known = list(so_far.distributions.values())
        if known:
            rooms = max(FEWEST_BINS, int(left * SHARE_OF_BINS) - 2 * len(known))
            for each in known[:2]:
                rates = [
                    rate for target, rate in so_far.rates.items() if target.name == each.device
                ]
                rows += [*distribution_rows(each, rates, width, rooms // min(2, len(known))), []]
        rows += odd_rows(odd, width, height - len(rows) - 1)
        rows += [[] for _ in range(height - len(rows) - 1)]
        return [*rows[: height - 1], self._keys(width)]

    def _title(self, width: int) -> Row:
        so_far, request = self._group, self._group.request
        word, style = "Preparing ", WARN
        if so_far.ended:
            word, style = ("Stopped ", WARN) if so_far.stopping else ("Done ", GOOD)
        elif so_far.stopping:
            word, style = "Stopping ", WARN
        elif so_far.states.get("running"):
            word, style = "Running ", GOOD
        hosts = {target.host for target in so_far.runs}
        kind = "" if request.kind == "soak" else f"{request.kind}, "
        what = f"{kind}{request.dtype} on {count(len(so_far.runs), 'device')}"
        known = [trace.heat_limits for trace in so_far.traces if trace.gpu is not None]
        heat = f" · heat limit: {heat_limits.in_short(known)}" if known else ""
        rest = f"{what} of {count(len(hosts), 'host')}{heat}"
        return [Span(word, style), Span(clip(rest, width - len(word)))]

    def _progress(self, width: int) -> Row:
        """Return the number of devices in each state, and the time."""
        so_far = self._group
        row: Row = []
        for state, many in so_far.states.items():
            row += [Span(f"{many} ", STRONG), Span(f"{state}   ", STYLES.get(state, TEXT))]
        began, seconds = so_far.measured_at, so_far.expected_seconds
        if began is not None and seconds:
            elapsed = min((so_far.ended_at or so_far.now()) - began, seconds)
            text = f"  {duration(elapsed)} of {duration(seconds)}"
            room = width - sum(cells_of(span.text) for span in row) - len(text)
            row += [*bar(elapsed / seconds, min(30, room), BUSY), Span(text)]
        return row

    def _keys(self, width: int) -> Row:
        if self._group.ended:
            return [Span(" q", ACCENT), Span(clip(" quit, and print the page", width - 2))]
        return [Span(" q", ACCENT), Span(" stop and quit  "), Span("x", ACCENT), Span(" stop")]


class BurnScreen(ActionScreen):
    """The devices as they run. It is left once the runs have ended, or been stopped."""

    actions = (
        Action("quit", "q,f10,ctrl+c", "quit", "Stop and leave", everywhere=("f10", "ctrl+c")),
        Action("bench.stop", "x", "stop", "Stop"),
    )

    def __init__(self, group: GroupState, stop: Callable[[], Awaitable[None]]) -> None:
        """Show `group`; `stop` ends its runs."""
        super().__init__()
        self._group, self._stop = group, stop
        self._view = BurnView(group)
        self._stopping: asyncio.Future[None] | None = None
        self._leaving = False

    def compose(self) -> ComposeResult:
        yield self._view

    def tick(self) -> None:
        """Draw what changed."""
        self._view.redraw()

    def ended(self) -> None:
        """Leave if that waited for the runs to end."""
        if self._leaving:
            self.app.exit()
        elif self.is_running:
            self._view.redraw()

    async def quit(self) -> None:
        """Leave the app."""
        self.leave()

    def leave(self) -> None:
        """Leave at once where all runs have ended, or else once they have been stopped."""
        self._leaving = True
        if self._group.ended or self._stopping is not None:
            self.app.exit()  # the second time it is not waited for
        else:
            self.action_stop()

    def action_stop(self) -> None:
        """Stop the runs of all devices; what they measured so far is their result."""
        if self._stopping is None and not self._group.ended:
            self._group.stopping = True
            self._stopping = asyncio.ensure_future(self._stop())
            self._view.redraw()


async def on_screen(runs: DeviceGroup, group: GroupState, watch: Supervision) -> list[RunState]:
    """Show the runs until one leaves; return their ends, in the order of the requests."""
    partial_updates.install()
    textual_caches.install()
    settings, _ = load(path(None), given={})
    screen = BurnScreen(group, runs.stop)
    terminal = Terminal.detect(os.environ)
    app = GputopApp(settings=settings, terminal=terminal, first=screen, handles_signals=False)

    def ending(target: Target, limit: RunLimit) -> None:
        app.notify(f"{target.label}: {limit.why}", title=limit.title, severity="warning")

    following = asyncio.create_task(follow(runs, group, watch, ending))
    following.add_done_callback(lambda _: screen.ended())
    with on_signals(screen.leave):
        await app.run_async(mouse=False)
        if not following.done():
            await runs.stop()
        with contextlib.suppress(asyncio.CancelledError):
            return await following
    raise KeyboardInterrupt


def distribution_rows(
    among: RateDistribution, rates: Sequence[float], width: int, room: int
) -> list[Row]:
    """Return the figures, and a row for each bin of the throughput."""
    name = f"{among.count} × {short_name(visible(among.device))}  "
    figures = (
        f"TFLOP/s: median {tflops(among.median)}  p5 {tflops(among.p5)}  p95 {tflops(among.p95)}  "
        f"min {tflops(among.least)}  max {tflops(among.most)}"
    )
    rows: list[Row] = [[Span(name, STRONG), Span(clip(figures, width - cells_of(name)))]]
    bins = histogram(rates, max(1, min(BINS, room)))
    most = max(many for _, _, many in bins)
    cells = max(1, min(LONGEST_BAR, width - LABEL - COUNT - 3))
    for least, upper, many in bins:
        style: Style = TEXT if least <= among.median <= upper else DIM
        label = f"{tflops(least)} – {tflops(upper)}"
        rows.append(
            [
                cell(label, LABEL, style, right=True),
                Span(" "),
                *bar(many / most if many else 0.0, cells, BUSY),
                cell(str(many) if many else "", COUNT, TEXT, right=True),
            ]
        )
    return rows


def histogram(values: Sequence[float], bins: int) -> list[tuple[float, float, int]]:
    """Return lower bound, upper bound and count of bins of equal width, from the slowest on."""
    least, most = min(values), max(values)
    if most <= least:
        return [(least, most, len(values))]
    wide = (most - least) / bins
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - least) / wide))] += 1
    return [(least + n * wide, least + (n + 1) * wide, many) for n, many in enumerate(counts)]


def odd_rows(odd: Sequence[GroupOutlier], width: int, room: int) -> list[Row]:
    """Return the outliers that fit, and the number of the others."""
    if not odd:
        return [[Span("No outliers so far", DIM)]]
    rows: list[Row] = [[Span(f"{count(len(odd), 'outlier')}, gravest first", STRONG)]]
    # Under the heading, and over what counts the others; that needs a row over it.
    shown = odd if len(odd) < room else odd[: max(1, room - 2)]
    for each in shown:
        target = each.target
        named = ", ".join(filter(None, (visible(target.host or ""), target.place)))
        uuid = f", {target.uuid}" if target.uuid else ""
        text = f" {named}{uuid}" if width >= 100 else f" {named}"
        said = f": {visible(each.why)}"
        style = FAULT if each.grave else WARN
        rows.append([Span(text, STRONG), Span(clip(said, width - cells_of(text)), style)])
    if len(shown) < len(odd) and room > 2:
        rows.append([Span(f" and {len(odd) - len(shown)} more", DIM)])
    return rows
