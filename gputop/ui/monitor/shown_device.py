"""A device with everything that the monitor shows about it."""

from __future__ import annotations

from gputop.agent.device import Absence, Device
from gputop.ui.drawing import charts
from gputop.ui.drawing.charts import Chart
from gputop.ui.telemetry import Telemetry
from gputop.ui.trouble import Trouble, device_trouble

OF_DEVICE, OF_ALL = 6, 8
"""Number of charts of one among several devices, and of a single device with its host."""


class ShownDevice:
    """A device, its readings, and all that is known about it at the newest sample."""

    def __init__(
        self,
        telemetry: Telemetry,
        device: Device,
        index_cells: int = 1,
    ) -> None:
        """Read the telemetry. `index_cells` are those of the longest index, to align names."""
        self.telemetry, self.device = telemetry, device
        space = index_cells - len(str(device.index))
        self.label = " " * space + device.number
        """Number on its machine, without the machine, which is the only one on the monitor."""
        self.readings = telemetry.readings(device.uuid)
        self.finding = telemetry.problems.get(device.uuid)
        """Gravest finding about the device."""
        self.bound_by = telemetry.judgement.bound_by.get(device.uuid)
        """Bottleneck of the device, if it has been judged."""
        self.old_seconds = telemetry.old_seconds(self.readings)
        """Age of the readings, if they are outdated."""
        self.trouble = device_trouble(telemetry, device)
        """Reason why its readings are missing or old, or its fault."""

    @property
    def fault(self) -> Trouble | None:
        """Fault that is shown instead of readings. Old readings are shown, but faded."""
        return self.trouble if self.old_seconds is None else None

    @property
    def memory(self) -> tuple[int | None, int | None]:
        """Used and total bytes of memory: of the host if the device has none of its own."""
        host, r = self.telemetry.host_of(self.device), self.readings
        if self.device.memory_is_shared and host is not None:
            return host.memory_used_bytes, host.memory_total_bytes
        return r.memory_used_bytes, r.memory_total_bytes

    def lacks(self, name: str) -> bool:
        """Return True if the device does not support the reading, which is then left out."""
        return self.readings.absent.get(name) is Absence.NOT_SUPPORTED

    @property
    def activity(self) -> Chart:
        """Chart of the activity: *SM active* for a MIG instance, which has no *busy*."""
        has_other = self.readings.sm_active_percent is not None
        if self.lacks(charts.BUSY.name) and has_other:
            return charts.SM_ACTIVE
        return charts.BUSY

    @property
    def activity_percent(self) -> float | None:
        value: float | None = getattr(self.readings, self.activity.name)
        return value

    @property
    def charts(self) -> list[Chart]:
        """Charts of its readings, the most useful first; of the host only for a single device."""
        many = OF_ALL if len(self.telemetry.devices) == 1 else OF_DEVICE
        wanted = [self.activity, *charts.CHARTS[1:many]]
        return [chart for chart in wanted if not self.lacks(chart.name)]
