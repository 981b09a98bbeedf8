"""The dashboard of one machine or of several: tabs over one stream of snapshots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.widgets import Footer

from gputop.agent.snapshot import Event, Inventory, Record, Sample
from gputop.health.findings import Severity
from gputop.schema.derived import label_of
from gputop.settings import AUTO, INTERVALS
from gputop.stream.child import Interruption
from gputop.text import visible
from gputop.ui.drawing.filter_bar import FilterBar, FilterView
from gputop.ui.drawing.live import LiveTab
from gputop.ui.monitor.screen import MonitorTab
from gputop.ui.processes.columns import GPU
from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.table_state import ProcessTable
from gputop.ui.shell.action_screen import ActionScreen, bindings
from gputop.ui.shell.actions import (
    ACTIONS,
    HOSTS,
    PAGES,
    TRAINING,
    Action,
    explanation,
)
from gputop.ui.shell.events import EventWatch, announce
from gputop.ui.shell.header import Header, ReplayBar
from gputop.ui.shell.recording import Recordings
from gputop.ui.shell.tabs import ExtraTab, Tabs
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.recording.replay import Played, Replay


class RecordSource(Protocol):
    """Source of records: a `StreamChild`, or a substitute."""

    def records(self) -> AsyncGenerator[Record | Interruption | Played]:
        """Yield records forever."""

    def ask(self, **wanted: Any) -> None:
        """Request another `interval`, or `gpm`, from the sampler."""

    async def close(self) -> None:
        """End everything that runs."""


class Dashboard(ActionScreen):
    """Tabs over one stream. The current tab runs an action, or else the screen does."""

    actions = ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(ACTIONS))

    def __init__(
        self,
        stream: RecordSource,
        python: str | None = None,
        *,
        replay: Replay | None = None,
        record: Path | None = None,
        show_secrets: bool = False,
        search: str = "",
        extra: ExtraTab | None = None,
    ) -> None:
        """Show `stream`. For a recording, this is `replay`, too. Record to the file `record`.

        The list of processes starts with the filter `search`. `extra` is one more tab.
        """
        super().__init__()
        self._stream, self._replay = stream, replay
        self._recordings = Recordings(
            self.notify, self._recording_changed, record
        )
        clock = time.monotonic if replay is None else replay.now
        self.telemetry = Telemetry(
            clock, replayed=replay is not None, show_secrets=show_secrets
        )
        self._events = EventWatch()
        self._rung: set[tuple[object, ...]] = set()
        """Identities of the problems that have rung the bell, while they last."""
        self._bar: ReplayBar | None = None
        self._python, self._search, self._extra = python, search, extra

    def compose(self) -> ComposeResult:
        extra = self._extra
        self._header = Header(self.telemetry)
        self._table = ProcessTable()
        self._table.set_filter(self._search)
        self._monitor = MonitorTab(self.telemetry, self._table)
        tabs: list[LiveTab] = [
            self._monitor,
            ProcessesTab(self.telemetry, self._table),
        ]
        if extra is not None:
            place = 0 if extra.is_first else len(tabs)
            tabs.insert(place, extra.make(self.telemetry))
            self._header.titles += ((extra.name, f" {extra.title} "),)
        ask = self._stream.ask
        self.tabs = Tabs(
            self.telemetry, tabs, self._python, ask, self._switched
        )
        self.named["tabs"] = self.tabs
        self._header.tab = self.tabs.shown
        self._filter = FilterBar()
        self._apply_settings()
        yield self._header
        if self._replay is not None:
            self._bar = ReplayBar(self.telemetry, self._replay)
            self.named["replay"] = self._bar
            yield self._bar
        with Vertical(id="body"):
            yield self.tabs
            yield self._filter
        yield Footer(id="keys", show_command_palette=False)

    def _apply_settings(self) -> None:
        settings = self.app.settings
        self._monitor.devices.density = settings.density
        sort = GPU.title if settings.sort == AUTO else settings.sort
        self._table.apply_settings(sort, settings.reverse, settings.tree)

    def on_mount(self) -> None:
        self.watch(self, "focused", self.show_keys, init=False)
        self.follow(self._stream.records(), self.receive)
        # Import it while waiting for the sampler. A thread would delay the
        # first number.
        self.call_after_refresh(import_module, "gputop.health.judge")

    async def on_unmount(self) -> None:
        """End everything that runs. A stress test has ended with its task."""
        await self._recordings.close()
        await self._stream.close()

    def _switched(self) -> None:
        self._header.tab = self.tabs.shown
        self.show()

    async def quit(self, status: int) -> None:
        await self.tabs.end_making()
        if self.tabs.benchmark is not None:
            await self.tabs.benchmark.finish()
        await super().quit(status)

    async def receive(self, record: Record | Interruption | Played) -> None:
        if isinstance(record, Inventory | Sample | Interruption):
            self._add_record(record)
        else:
            await self._play(record)
        benchmark = self.tabs.benchmark
        if benchmark is not None:
            if isinstance(record, Sample):
                benchmark.add_sample(record)
            else:
                benchmark.show_targets()
        if self.telemetry.has_hosts and not self.tabs.has("hosts"):
            await self.tabs.show_hosts()

    async def _play(self, played: Played) -> None:
        """Add the records that a replay has played. After a jump, use a thread."""
        if played.restarted:
            self.telemetry.moving = True
            try:
                await asyncio.to_thread(self.telemetry.restart, played.records)
            finally:
                self.telemetry.moving = False
        else:
            for record in played.records:
                if not isinstance(record, Event):
                    self.telemetry.receive(record)
                    # There may be many samples, and a key may be waiting.
                    await asyncio.sleep(0)
        self._ring()
        self.show()

    def _add_record(self, record: Record | Interruption) -> None:
        self.telemetry.receive(record)
        if isinstance(record, Inventory | Sample):
            self._recordings.add_record(record)
        if isinstance(record, Inventory):
            return
        if isinstance(record, Sample):
            devices, findings = self.telemetry.devices, self.telemetry.findings
            for notice in self._events.notices(record, devices, findings):
                announce(notice, self.app)
        self._ring()
        if not self.telemetry.paused:
            self.show()

    def _ring(self) -> None:
        findings = self.telemetry.findings
        grave = [e for e in findings if e.severity > Severity.INFORMATION]
        problems = {each.key for each in grave}
        if problems - self._rung:
            # Even during a pause.
            self._header.redraw()
            if self.app.settings.bell:
                self.app.bell()
        self._rung = problems

    def _ask_gpm(self) -> None:
        """Sample GPM while it is shown or recorded."""
        wanted = (
            self.tabs.tab.wants_gpm or self._recordings.current is not None
        )
        self._stream.ask(gpm=self.app.settings.gpm and wanted)

    def tick(self) -> None:
        """Show missing data, or the progress of a replay."""
        self.telemetry.tick()
        if self.telemetry.silent_seconds is not None:
            self.show()
        if self._bar is not None:
            self._bar.redraw()
            # A replay ends without a record.
            self.show_keys()

    def explain(self, key: str, character: str) -> str:
        if self.action_for(key) is not None:
            if not self.telemetry.devices:
                return "There is no device yet"
            return "No signals: gputop is readonly"
        why = explanation(key, replay=self._replay is not None)
        return why or super().explain(key, character)

    def knows(self, action: Action) -> bool:
        if action.id == "tab.training" and not self.tabs.has("training"):
            return False
        return action.works_on(
            self.tabs.shown,
            replay=self._replay is not None,
        )

    @property
    def actors(self) -> Sequence[DOMNode]:
        return self.tabs.tab.key_handlers

    @property
    def field(self) -> FilterView | None:
        """View that can be filtered, if there is one."""
        return self.tabs.tab.filter_view

    async def act(self, action: Action) -> bool:
        if self.tabs.leaving:
            # An action could wait forever for a tab that is never created.
            return True
        done = await super().act(action)
        self._filter.show(self.field)
        self.show_keys()
        return done

    def label_of(self, action: Action) -> str:
        match action.id:
            case "back" if self.focused is not None:
                return "Leave the field"
            case "back" if self.tabs.shown in (*PAGES, "process", "ranks"):
                return "Back"
            case "back" if (
                self.tabs.shown == "monitor" and self.telemetry.has_hosts
            ):
                return "Hosts"
            case "details" if self.tabs.shown == "process":
                return "GPU"
            case "switch" if self.tabs.on_processes:
                return "Devices"
            case "pause" if self.telemetry.paused:
                return "Resume"
            case "play" if (
                self._replay is not None and not self._replay.playing
            ):
                return "Play"
            case "bench.stop" if not self.tabs.is_testing:
                return ""
            case "ranks" if not self.telemetry.has_ranks:
                return ""
        return action.label

    def order(self, action: Action) -> int:
        """Return the sort key. Keys of a replay or of focused processes come first among the
        others."""
        first = action.when == "replay" or (
            self.tabs.on_processes and action.is_for_processes
        )
        return super().order(action) + (not first)

    def offers(self, action: Action) -> bool:
        if not super().offers(action) or (
            action.name == "signal" and self.app.settings.readonly
        ):
            return False
        lists = action.is_for_processes or action.tabs == ("monitor",)
        of_devices = (lists and action.when != "replay") or action.id == "why"
        return self.knows(action) and (
            bool(self.telemetry.devices) or not of_devices
        )

    def show(self) -> None:
        self._header.redraw()
        self.show_keys()
        # The screen may be closing.
        if self.tabs.tab.is_attached:
            self.tabs.tab.show_telemetry()
            self._filter.show(self.field)
        if self._bar is not None:
            self._bar.redraw()
        self._ask_gpm()

    def report(self, error: BaseException) -> None:
        """Show a fault in gputop, or in the recording that is played."""
        if self._replay is not None:
            from gputop.recording.reader import RecordingError

            if isinstance(error, RecordingError):
                self.telemetry.interruption = error.problem
                self.notify(
                    f"{visible(str(error))}.",
                    title="Replay",
                    severity="error",
                )
                return
        super().report(error)

    def action_pause(self) -> None:
        self.telemetry.pause()
        self.show()

    def action_record(self) -> None:
        self._recordings.toggle()

    def _recording_changed(self) -> None:
        self._header.recording = self._recordings.current is not None
        self._header.redraw()
        self._ask_gpm()

    def action_interval(self, step: int) -> None:
        now = self.app.settings.interval
        further = [each for each in INTERVALS if (each - now) * step > 0]
        if further:
            now = min(further, key=lambda each: abs(each - now))
        self.app.change_settings(interval=now)
        self._stream.ask(interval=now)
        self.notify(f"A sample every {now:g} s")

    async def action_start(self) -> None:
        """Run the stress test in the form on the benchmark tab, elsewhere one of the selected
        device."""
        # The device that the user wants may be about to appear.
        if self.telemetry.starting:
            self.notify(
                "The driver is still starting: `Start` in the form tests the CPU",
            )
            return
        tab, benchmark = self.tabs.tab, await self.tabs.get_benchmark()
        if tab is benchmark:
            benchmark.start()
            return
        device = tab.selected
        if device is not None and not device.is_here:
            elsewhere = visible(device.machine or "")
            there = f"`ssh -t {elsewhere} gputop` tests it there"
            self.notify(
                f"It is on another machine: {there}",
                title=f"GPU {label_of(device)} cannot be stress-tested from here",
                severity="warning",
            )
            return
        self.tabs.switch("benchmark")
        benchmark.start(device.uuid if device else None, default=True)

    async def action_stop(self) -> None:
        (await self.tabs.get_benchmark()).stop()

    def action_settings(self) -> None:
        from gputop.ui.shell.help_and_settings import SettingsScreen

        def changed() -> None:
            self._apply_settings()
            self._stream.ask(interval=self.app.settings.interval)
            self.app.show_look()
            self.show()

        self._note_settings()
        self.app.push_screen(SettingsScreen(self.app, changed))

    async def action_save(self) -> None:
        self._note_settings()
        await self.app.action_save()

    def _note_settings(self) -> None:
        """Store the display options of devices and processes in the settings."""
        table = self._table
        self.app.change_settings(
            density=self._monitor.devices.density,
            sort=AUTO if table.sorted_by is GPU else table.sorted_by.title,
            reverse=table.reversed,
            tree=table.tree,
        )

    def action_leave(self) -> None:
        """Leave a field, a filter or a page, and finally return to the monitor."""
        if self._filter.typing:
            self._filter.end("")
        elif self.focused is not None:
            self.set_focus(None)
        elif not (self.field and self.field.clear_filter()):
            self.tabs.go_back()

    def action_help(self) -> None:
        from gputop.ui.shell.help_and_settings import Help

        other = "live" if self._replay is not None else "replay"
        readonly = self.app.settings.readonly
        page = Help(
            lambda a: (
                a.when != other
                and not (a.name == "signal" and readonly)
                and (self.tabs.has("hosts") or a.tabs != HOSTS)
                and (
                    self.tabs.has("training")
                    or not (a.tabs == TRAINING or a.id == "tab.training")
                )
            ),
            hosts=bool(self.telemetry.machines),
        )
        self.app.push_screen(page)

    def on_benchmark_tab_changed(self) -> None:
        """Update the footer after a run has started or ended."""
        self.show_keys()
