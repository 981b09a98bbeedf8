from typing import Any

from gputop.agent.device import READINGS, DeviceSample
from gputop.agent.interface import DeviceReading
from gputop.agent.lines import to_line
from gputop.agent.nvml.driver import NvmlReader, start
from gputop.agent.snapshot import Host, Sample
from gputop.schema.decode import decode
from tests.agent.fakes import Time
from tests.driver import FakeDevice, FakeDriver


class OneDevice:
    def __init__(self, nvml: FakeDriver, device: FakeDevice, version: str | None = None) -> None:
        self.nvml = nvml
        nvml.write(device)
        start()
        self.clock = Time()
        self.reader = NvmlReader(0, version, self.clock.monotonic)

    def readings(self, seconds: float = 0.0, *, gpm: bool = False) -> tuple[DeviceReading, ...]:
        self.clock.now += seconds
        readings = self.reader.read(gpm=gpm)
        check(*readings)
        return readings

    def reading(self, seconds: float = 0.0, *, gpm: bool = False) -> DeviceReading:
        return self.readings(seconds, gpm=gpm)[0]

    def read(self, seconds: float = 0.0, *, gpm: bool = False, **changes: Any) -> DeviceSample:
        if changes:
            self.nvml.change(0, **changes)
        return self.reading(seconds, gpm=gpm).sample


def check(*readings: DeviceReading) -> None:
    """Each reading has a value or a reason, and the stream can carry it."""
    for reading in readings:
        sample = reading.sample
        assert sample.uuid == reading.device.uuid
        missing = {name for name in READINGS if getattr(sample, name) is None}
        assert missing == set(sample.absent) - {"processes"}
        record = Sample(time=1.0, host=Host(), devices=(sample,))
        assert isinstance(decode(to_line(record)), Sample)
