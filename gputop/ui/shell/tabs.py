"""Tabs and pages of the dashboard. One of them is visible. Pages are created when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.widgets import ContentSwitcher

from gputop.agent.snapshot import Process
from gputop.ui.drawing.live import LiveTab
from gputop.ui.hosts.screen import HostsTab
from gputop.ui.processes.screen import ListTab, ProcessesTab
from gputop.ui.telemetry import Telemetry

if TYPE_CHECKING:
    from gputop.ui.benchmark.screen import BenchmarkTab


class ExtraTab(NamedTuple):
    """A tab that a command adds to the dashboard."""

    name: str
    """Name in the table of actions."""
    title: str
    """Number and name, as in the first line of the screen."""
    make: Callable[[Telemetry], LiveTab]
    is_first: bool = True
    """True if the dashboard opens with it."""


class Tabs(ContentSwitcher):
    """Tabs and pages, one of which is visible, and the actions that switch between them."""

    def __init__(
        self,
        telemetry: Telemetry,
        tabs: Sequence[LiveTab],
        python: str | None,
        ask: Callable[..., None],
        switched: Callable[[], None],
    ) -> None:
        """Show the first of `tabs`. Call `switched` after every switch.

        `python` and the stream's `ask` are for the benchmark tab.
        """
        self._made = {str(tab.id): tab for tab in tabs}
        self.shown = next(iter(self._made))
        """ID of the current tab."""
        super().__init__(*tabs, initial=self.shown)
        self._telemetry, self._python, self._ask = telemetry, python, ask
        self._switched = switched
        self.benchmark: BenchmarkTab | None = None
        """Benchmark tab, created when it is first needed."""
        self._making = asyncio.Lock()
        self.leaving = False
        """True while the screen is closing, when no tab can be created."""
        self._came_from: dict[str, str] = {}
        """Tab from which each page was opened."""

    def on_mount(self) -> None:
        """Show the tab of an earlier key. Textual's own handler shows the first tab."""
        self.call_after_refresh(lambda: setattr(self, "current", self.shown))

    @property
    def tab(self) -> LiveTab:
        """Current tab."""
        return self._made[self.shown]

    @property
    def is_testing(self) -> bool:
        """True while a stress test is running."""
        return self.benchmark is not None and self.benchmark.running

    def has(self, name: str) -> bool:
        """Return True if a tab of that name was made."""
        return name in self._made

    @property
    def on_processes(self) -> bool:
        """True while keys go to a list of processes."""
        return (
            isinstance(self.tab, ListTab) and self.tab.processes.focused_list
        )

    @property
    def _process(self) -> Process | None:
        """Selected process, if the tab lists processes."""
        return self.tab.process if isinstance(self.tab, ListTab) else None

    def switch(self, name: str) -> None:
        """Show a tab. The monitor shows one host, the selected one of several."""
        hosts = self._made.get("hosts")
        if name == "monitor" and isinstance(hosts, HostsTab):
            first = self._telemetry.machines[0].name
            self._telemetry.host_name = hosts.selected_name or first
        self.screen.set_focus(None)
        self.shown = name
        # Otherwise, a key came before the tabs, and `on_mount` shows them.
        if self.children:
            self.current = name
        self._switched()
        # A resize during the switch was laid out, but not painted.
        self.call_after_refresh(self.screen.refresh)

    def go_back(self) -> None:
        """Return to the tab that opened the page, else to the monitor, else to all hosts."""
        came_from, telemetry = "monitor", self._telemetry
        at_top = self.shown in ("monitor", "hosts")
        if telemetry.has_hosts and (at_top or telemetry.host_name is None):
            came_from = "hosts"
            telemetry.host_name = None
        self.switch(self._came_from.get(self.shown, came_from))

    async def show_hosts(self) -> None:
        """Show the hosts instead of the monitor, as soon as several hosts are known."""
        self._made["hosts"] = HostsTab(self._telemetry)
        await self.add_content(self._made["hosts"])
        if self.shown == "monitor":
            self.switch("hosts")

    async def get_benchmark(self) -> BenchmarkTab:
        async with self._making:
            if self.benchmark is None:
                from gputop.ui.benchmark.screen import BenchmarkTab

                made = BenchmarkTab(self._telemetry, self._python, self._ask)
                await self.add_content(made)
                self.benchmark = self._made["benchmark"] = made
            return self.benchmark

    async def end_making(self) -> None:
        """Hold the lock from now on. Textual fails if a tab is mounted while its screen closes."""
        if not self.leaving:
            self.leaving = True
            await self._making.acquire()

    async def action_tab(self, name: str) -> None:
        with self.app.batch_update():
            if name == "benchmark":
                await self.get_benchmark()
            self.switch(name)

    async def action_details(self) -> None:
        tab = self.tab
        if isinstance(tab, ProcessesTab) and tab.open_user():
            return
        if self.on_processes and self._process is not None:
            await self.action_environment(first=False)
            return
        # The first screen does not need it.
        from gputop.ui.device.screen import DevicePage

        await self._open("page", DevicePage)

    async def action_why(self) -> None:
        """Show the findings of all devices, or of the current one on a device's page."""
        from gputop.ui.device.why_page import WhyPage

        if isinstance(self.tab, WhyPage):
            self.tab.action_why()
            return
        await self._open("why", WhyPage, self.shown != "page")

    async def action_ranks(self) -> None:
        """Show the ranks of the selected process's job, or else of the job that is held up."""
        from gputop.ui.processes.ranks import RanksPage

        process = self._process if self.on_processes else None
        job_id = None if process is None else process.job_id
        await self._show_page("ranks", RanksPage, job_id)

    async def action_environment(self, *, first: bool = True) -> None:
        """Show the page of the selected process, from its environment or from the top."""
        from gputop.ui.processes.process_page import ProcessPage

        process = self._process
        if process is None:
            self.notify("No process is selected")
        else:
            await self._show_page("process", ProcessPage, process, first)

    async def _open(
        self,
        name: str,
        make: Callable[[Telemetry], LiveTab],
        *more: bool,
    ) -> None:
        device = self.tab.selected
        if device is None:
            self.notify("No device to show")
        else:
            await self._show_page(name, make, device.uuid, *more)

    async def _show_page(
        self,
        name: str,
        make: Callable[[Telemetry], LiveTab],
        *shown: Any,
    ) -> None:
        with self.app.batch_update():
            page: Any = self._made.get(name)
            if page is None:
                page = self._made[name] = make(self._telemetry)
                await self.add_content(page)
            page.show(*shown)
            if self.shown != name:
                self._came_from[name] = self.shown
            self.switch(name)
