"""What is told once: the samples that a reading brings with it, of the time since the one before.

All else in a reading stands until there is a newer one, and is told again at every tick.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.bounds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gputop.schema.device import DeviceSample
    from gputop.schema.snapshot import Sample

MOST = 256
"""Samples of a device that wait to be told: of a device that is late for long, the newest."""


def repeated(sample: DeviceSample) -> DeviceSample:
    """The readings as they are told again."""
    if not sample.gpu_utilization_samples_percent:
        return sample
    return replace(sample, gpu_utilization_samples_percent=())


def joined(
    untold: Sequence[DeviceSample], samples: Sequence[DeviceSample]
) -> Iterator[DeviceSample]:
    """The newer readings of each device, with what those before them bring that nobody was told."""
    waiting = {each.uuid: each.gpu_utilization_samples_percent for each in untold}
    for sample in samples:
        before, after = waiting.get(sample.uuid), sample.gpu_utilization_samples_percent
        if before and after is not None:
            both = (before + after)[-MOST:]
            yield replace(sample, gpu_utilization_samples_percent=both)
        else:
            yield sample


def merged(untold: Sample, sample: Sample) -> Sample:
    """Return the newer sample with the events and utilization samples of the one before it."""
    return replace(
        sample,
        devices=tuple(joined(untold.devices, sample.devices)),
        events=(untold.events + sample.events)[-EVENTS:],
    )
