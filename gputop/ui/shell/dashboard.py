"""The dashboard of one machine or of several: tabs over one stream of snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.dom import DOMNode
from textual.widgets import Footer

from gputop.agent.snapshot import Record, Sample
from gputop.schema.derived import label_of
from gputop.settings import AUTO
from gputop.text import visible
from gputop.ui.drawing.filter_bar import FilterBar, FilterView
from gputop.ui.drawing.live import LiveTab
from gputop.ui.monitor.screen import MonitorTab
from gputop.ui.processes.columns import GPU
from gputop.ui.processes.screen import ProcessesTab
from gputop.ui.processes.table_state import ProcessTable
from gputop.ui.shell.action_screen import bindings
from gputop.ui.shell.actions import (
    ACTIONS,
    HOSTS,
    PAGES,
    TRAINING,
    Action,
    explanation,
)
from gputop.ui.shell.header import Header, ReplayBar
from gputop.ui.shell.stream_screen import RecordSource, StreamScreen
from gputop.ui.shell.tabs import ExtraTab, Tabs

if TYPE_CHECKING:
    from gputop.recording.replay import Played, Replay
    from gputop.stream.child import Interruption


class Dashboard(StreamScreen):
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
        back_to: str = "",
        extra: ExtraTab | None = None,
    ) -> None:
        """Show `stream`. For a recording, this is `replay`, too. Record to the file `record`.

        The list of processes starts with the filter `search`. If `back_to` is set, Esc on the
        monitor returns to the screen with that name. `extra` is one more tab.
        """
        super().__init__(stream, replay, record, show_secrets=show_secrets)
        self._bar: ReplayBar | None = None
        self._python = python
        self._back_to, self._search = back_to, search
        self._extra = extra

    def compose(self) -> ComposeResult:
        extra = self._extra
        more_tabs = []
        if extra is not None:
            more_tabs.append((extra.name, f" {extra.title} "))
        self._header = Header(self.telemetry, more_tabs)
        self._table = ProcessTable()
        self._table.set_filter(self._search)
        self._monitor = MonitorTab(self.telemetry, self._table)
        tabs: list[LiveTab] = [
            self._monitor,
            ProcessesTab(self.telemetry, self._table),
        ]
        if extra is not None:
            tabs.append(extra.make(self.telemetry))
            if extra.is_first:
                tabs.insert(0, tabs.pop())
        self.tabs = Tabs(
            self.telemetry,
            tabs,
            self._python,
            self._stream.ask,
            self._switched,
        )
        self._header.tab = self.tabs.shown
        self._filter = FilterBar()
        self._apply_settings()
        yield self._header
        if self._replay is not None:
            self._bar = ReplayBar(self.telemetry, self._replay)
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

    def _switched(self) -> None:
        self._header.tab = self.tabs.shown
        self.show()

    async def quit(self, status: int) -> None:
        await self.tabs.end_making()
        if self.tabs.benchmark is not None:
            await self.tabs.benchmark.finish()
        await super().quit(status)

    async def receive(self, record: Record | Interruption | Played) -> None:
        await super().receive(record)
        if self.tabs.benchmark is not None:
            if isinstance(record, Sample):
                self.tabs.benchmark.add_sample(record)
            else:
                self.tabs.benchmark.show_targets()
        if self.telemetry.has_hosts and not self.tabs.has_hosts:
            await self.tabs.show_hosts()

    @property
    def wants_gpm(self) -> bool:
        return self.tabs.tab.wants_gpm

    def show_status(self) -> None:
        self._header.recording = self.is_recording
        self._header.redraw()

    def tick(self) -> None:
        """Show missing data, or the progress of a replay."""
        super().tick()
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

    def targets(self, action: Action) -> Sequence[DOMNode]:
        match action.target:
            case "tabs":
                return (self.tabs,)
            case "replay" if self._bar is not None:
                return (self._bar,)
        return super().targets(action)

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
            case "back" if (
                self.tabs.shown == "monitor" and self.tabs.has_hosts
            ):
                return "Hosts"
            case "back":
                return (
                    "Back"
                    if self.tabs.shown in (*PAGES, "process", "ranks")
                    else self._back_to
                )
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
            case "bench.stop" | "ranks" if not self._has_object(action):
                return ""
            case "bench.start" | "signal" if (
                self.telemetry.scraped
                # Their labels are instructions.
            ):
                return action.label if self.tabs.shown == "benchmark" else ""
        return action.label

    def _has_object(self, action: Action) -> bool:
        """Return True if there is a stress test to stop, or a job whose ranks can be shown."""
        if action.id == "ranks":
            return self.telemetry.has_ranks
        benchmark = self.tabs.benchmark
        return benchmark is not None and benchmark.running

    def order(self, action: Action) -> int:
        """Return the sort key. Keys of a replay or of focused processes come first among the
        others."""
        first = action.when == "replay"
        if self.tabs.on_processes and action.is_for_processes:
            first = True
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
        self.ask_gpm()

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
        if device is not None and (
            elsewhere := self.telemetry.remote_name(device)
        ):
            there = f"`ssh -t {visible(elsewhere, 64)} gputop` tests it there"
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

    async def action_leave(self) -> None:
        """Leave a field, a filter or a page, and finally return to the monitor."""
        if self._filter.typing:
            self._filter.clear()
        elif self.focused is not None:
            self.set_focus(None)
        elif not (self.field and self.field.clear_filter()):
            if self.tabs.shown == "monitor" and self._back_to:
                await self.tabs.end_making()
                self.dismiss()
                return
            self.tabs.go_back()

    def action_help(self) -> None:
        from gputop.ui.shell.help_and_settings import Help

        other = "live" if self._replay is not None else "replay"
        readonly = self.app.settings.readonly
        page = Help(
            lambda a: (
                a.when != other
                and not (a.name == "signal" and readonly)
                and (self.tabs.has_hosts or a.tabs != HOSTS)
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
