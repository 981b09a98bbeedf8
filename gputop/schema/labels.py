"""Rows of the device page. Each field of the catalogue is in exactly one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gputop.agent.device import READINGS, Absence, Device, DeviceSample
from gputop.agent.snapshot import Host
from gputop.schema.catalogue import CATALOGUE, OF, PAGE_GROUPS, Reading
from gputop.schema.values import absence_text, value_text
from gputop.text import ABSENT, UNITS, in_unit_of


@dataclass(frozen=True, slots=True)
class DetailRow:
    """A row of the device page: one or more readings, and the label of the first."""

    readings: tuple[Reading, ...]

    @property
    def label(self) -> str:
        return self.readings[0].label

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(reading.name for reading in self.readings)

    def applies(self, device: Device, sample: DeviceSample) -> bool:
        """Return True if the row has anything to show."""
        if not self.readings[0].is_optional:
            return True
        for name in self.names:
            if name in device.absent or name in sample.absent:
                return True
            if not isinstance(value_of(name, device, sample), Absence):
                return True
        return False

    def text(self, device: Device, sample: DeviceSample) -> str:
        """Return the values with their units, or `–` if all values are missing."""
        values = []
        texts = []
        for name in self.names:
            value = value_of(name, device, sample)
            missing = isinstance(value, Absence)
            values.append(value)
            texts.append(ABSENT if missing else value_text(name, value))
        if all(text == ABSENT for text in texts):
            return ABSENT
        template = self.readings[0].template
        if template == OF:
            texts[0] = _without_unit(texts, values)
        return template.format(*texts)

    def reason(
        self, device: Device, sample: DeviceSample, host: Host | None = None
    ) -> str:
        """Return why values are missing, and the remedy; empty if no value is missing."""
        terms: dict[str, list[str]] = {}
        for each in self.readings:
            value = value_of(each.name, device, sample)
            if isinstance(value, Absence):
                text = absence_text(each.name, value, device, host)
                terms.setdefault(text, []).append(each.term)
        if len(terms) == 1 and self.is_missing(device, sample):
            return "".join(terms)
        return "; ".join(f"{', '.join(terms[text])}: {text}" for text in terms)

    def is_missing(self, device: Device, sample: DeviceSample) -> bool:
        """Return True if the first field has no value. Other fields may have values."""
        return isinstance(value_of(self.names[0], device, sample), Absence)


def _without_unit(texts: list[str], values: list[Any]) -> str:
    """Return the first of two texts without its unit if both have the same unit: `50.0`."""
    number, _, unit = texts[0].rpartition(" ")
    if unit in UNITS and texts[0] == texts[1]:
        # The values may still differ, as in ">79.5 of 79.6 GiB".
        return in_unit_of(*values)
    if number and unit == texts[1].rpartition(" ")[2]:
        return number
    return texts[0]


def value_of(
    name: str,
    device: Device,
    sample: DeviceSample,
) -> Any:
    """Return the value of a field of the sample or the device, or the reason why it is missing."""
    reason = None
    for record in (sample, device) if name in READINGS else (device,):
        value = getattr(record, name, None)
        if value is not None and name not in record.absent:
            return value
        reason = reason or record.absent.get(name)
    return reason or Absence.NO_DATA_YET


def _rows(readings: tuple[Reading, ...]) -> Iterator[DetailRow]:
    """Yield a row for each reading with a label. Readings without a label join the row before."""
    starts = [place for place, reading in enumerate(readings) if reading.label]
    for start, end in zip(starts, [*starts[1:], len(readings)], strict=True):
        yield DetailRow(readings[start:end])


GROUPS: Mapping[str, tuple[DetailRow, ...]] = {
    title: tuple(_rows(readings)) for title, readings in PAGE_GROUPS.items()
}
"""Rows by title, in the order of the catalogue."""
ROWS: tuple[DetailRow, ...] = tuple(
    row for rows in GROUPS.values() for row in rows
)


LEGEND: Mapping[str, str] = {
    **{
        r.legend_term or r.label: r.legend
        for r in CATALOGUE.values()
        if r.legend
    },
    "Xid": "a numbered error from the driver",
}
"""Explanation of each term that is not obvious."""
