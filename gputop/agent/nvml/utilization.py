"""Utilization between two reads: the driver's own samples of *busy*, and GPM's counters.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html documents the samples. The
driver keeps about a hundred. Many devices take five or six a second, each the mean since the
previous one. The clock of their times is undocumented (mostly the time since boot), so they are
compared only with each other.

GPM counts the work of SMs, tensor cores and memory between two samples of its counters. It exists
since Hopper, and since the 50 series of GeForce. Its calls are those of
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Union

from gputop.agent.device import GPM_READINGS, SERIES_READINGS, Absence
from gputop.agent.lines import rounded
from gputop.agent.nvml.bindings import nvml
from gputop.agent.nvml.fields import number_of
from gputop.agent.nvml.query import AGAIN, Clock
from gputop.agent.nvml.values import absence_or_lost

_BUSY = nvml.NVML_GPU_UTILIZATION_SAMPLES
_SILENT_SECONDS = 4.8
"""Seconds without a new sample until all samples are requested: their clock may be set back."""


class BusySamples:
    """A source of the samples since the previous call, and the seconds between them.

    It belongs to one device. The first call returns no samples.
    """

    names = " ".join(SERIES_READINGS)

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = False
        self._seen = 0
        """Time of the newest sample so far, in microseconds."""
        self._new_at = clock()
        """Time of the last new sample, or of the last request for all samples."""
        self._steps: deque[int] = deque(maxlen=64)
        """Microseconds between two samples. Gaps do not move the median."""

    def __call__(
        self, handle: Any
    ) -> tuple[tuple[int, ...] | Absence, float | Absence]:
        now = self._clock()
        # If no new sample comes, request all: their clock may have been set
        # back.
        wants_all = not self._begun or now - self._new_at > _SILENT_SECONDS
        return self.select_new(
            self._fetch(handle, 0 if wants_all else self._seen), now
        )

    def select_new(
        self, rows: Sequence[tuple[int, int | None]], now: float
    ) -> tuple[tuple[int, ...] | Absence, float | Absence]:
        """Return the new samples in order of time. None is an impossible value."""
        silent = now - self._new_at > _SILENT_SECONDS
        set_back = silent and bool(rows) and rows[-1][0] < self._seen
        if set_back:
            self._seen = 0
        new = []
        for when, percent in rows:
            if when > self._seen:
                if self._seen:
                    self._steps.append(when - self._seen)
                self._seen = when
                new.append(percent)
        if new or silent:
            self._new_at = now
        if set_back or not self._begun:
            self._begun = True
            return Absence.NO_DATA_YET, Absence.NO_DATA_YET
        sound = tuple(percent for percent in new if percent is not None)
        if new and not sound:
            return Absence.ERROR, Absence.ERROR
        if not self._steps:
            return sound, Absence.NO_DATA_YET
        step = _median(self._steps) / 1e6
        return sound, rounded(step) or step

    def _fetch(self, handle: Any, since: int) -> list[tuple[int, int | None]]:
        """Return the time and percentage of each sample since then, in order of time."""
        try:
            kind, samples = nvml.nvmlDeviceGetSamples(handle, _BUSY, since)
        except nvml.NVMLError_NotFound:
            # Nothing is new: some devices take no samples while idle.
            return []
        rows = []
        for sample in samples:
            value = number_of(sample.sampleValue, kind)
            # The answer has no type, so use the documented one.
            if value is None:
                value = sample.sampleValue.uiVal
            rows.append((sample.timeStamp, _percent(value)))
        return sorted(rows, key=itemgetter(0))


def _percent(value: float) -> int | None:
    # NaN fails this comparison, too.
    return round(value) if 0 <= value <= 100 else None


def _median(values: Iterable[int]) -> float:
    """Return the median without `statistics`, which loads fractions and decimals."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


SHORTEST_WINDOW = 0.1
_OVERSHOOT = 1.0
"""Percent above 100 that can occur because the counters are read one after another."""
_METRICS = {
    "graphics_active_percent": nvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active_percent": nvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy_percent": nvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active_percent": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_percent": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64_active_percent": nvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_active_percent": nvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active_percent": nvml.NVML_GPM_METRIC_FP16_UTIL,
}

Percentages = Mapping[str, Union[float, Absence]]
"""A value from 0 to 100 or an `Absence` for each of `GPM_READINGS`."""


def all_missing(reason: Absence) -> Percentages:
    """Return that reason for each GPM reading."""
    return dict.fromkeys(GPM_READINGS, reason)


class Gpm:
    """GPM of an attached device, or of one of its GPU instances. For one thread."""

    def __init__(
        self,
        handle: Any,
        gpu_instance: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._clock = clock
        self._works = False
        """True after it has worked once. Some virtual GPUs claim to support GPM and then fail."""
        self._samples: list[Any] = []
        """The sample before the last one, which is filled again, and the last one."""
        self._values = all_missing(Absence.NO_DATA_YET)
        self._until = -math.inf

    def read(self, *, wanted: bool = True) -> Percentages:
        """Return the means since the last call, or since the one before if that was just now.

        If not `wanted`, all are `disabled` and the samples are freed. Does not block: the first
        call returns `no_data_yet`. Raises `NVMLError` if the device is lost.
        """
        if not wanted:
            self.close()
            return all_missing(Absence.DISABLED)
        now = self._clock()
        if now < self._until:
            return self._values
        try:
            self._values = self._sample()
        except nvml.NVMLError as error:
            self.close()
            reason = absence_or_lost(error.value)
            self._values = all_missing(reason)
            if reason is Absence.NOT_SUPPORTED or not self._works:
                self._until = now + AGAIN
        return self._values

    def close(self) -> None:
        """Free the samples. A later `read` starts again with a new first sample."""
        for sample in self._samples:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._values = all_missing(Absence.NO_DATA_YET)
        self._until = -math.inf

    # An instance may be dropped without a close.
    __del__ = close

    def _sample(self) -> Percentages:
        before = self._samples[-1] if self._samples else None
        if before is None:
            answer = nvml.nvmlGpmQueryDeviceSupport(self._handle)
            if not answer.isSupportedDevice:
                raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        if len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        else:
            self._samples.reverse()
        newest = self._samples[-1]
        if self._gpu_instance is None:
            nvml.nvmlGpmSampleGet(self._handle, newest)
        else:
            nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, newest)
        # Count from the end of the call, so that a slow call does not shorten
        # the next window.
        self._until = self._clock() + SHORTEST_WINDOW
        if before is None:
            return all_missing(Absence.NO_DATA_YET)
        values = self._between(before, newest)
        self._works = True
        return values

    def _between(self, before: Any, newest: Any) -> Percentages:
        request = self._request
        request.sample1 = before
        request.sample2 = newest
        for metric, _ in zip(request.metrics, _METRICS):
            metric.value = math.nan
        nvml.nvmlGpmMetricsGet(request)
        found = {}
        for metric, name in zip(request.metrics, _METRICS):
            found[name] = _metric_percent(metric.nvmlReturn, metric.value)
        return found

    @functools.cached_property
    def _request(self) -> Any:
        """A request of 19 KB, which is reused."""
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        for metric, number in zip(request.metrics, _METRICS.values()):
            metric.metricId = number
        return request


def _metric_percent(code: int, value: float) -> float | Absence:
    if code != nvml.NVML_SUCCESS:
        return absence_or_lost(code)
    # NaN fails this comparison, too.
    if not 0.0 <= value <= 100.0 + _OVERSHOOT:
        return Absence.ERROR
    return rounded(min(100.0, value))
