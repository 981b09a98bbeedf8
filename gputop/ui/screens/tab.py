"""What the tabs over the telemetry have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical

if TYPE_CHECKING:
    from gputop.telemetry.snapshot import Device
    from gputop.ui.widgets.processes import ProcessesView


class LiveTab(Vertical):
    """A tab that shows what comes with the stream; keys ask this of whichever is shown."""

    wants_gpm = False
    """Whether it shows readings of GPM, which is sampled only then."""

    @property
    def selected(self) -> Device | None:
        """The device that keys act on."""
        raise NotImplementedError

    @property
    def processes(self) -> ProcessesView | None:
        """The list whose processes keys act on; None where there is none."""
        return None

    def show_telemetry(self) -> None:
        """Draws what changed."""
        raise NotImplementedError

    def move(self, step: int) -> None:
        """Down by that many rows."""
        raise NotImplementedError

    def page(self, step: int) -> None:
        """Down by that many pages."""
        raise NotImplementedError

    def side(self, step: int) -> None:
        """To the right by that many."""
