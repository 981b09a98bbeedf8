"""GPM: what a device's SMs, tensor cores and memory really do, between two samples of counters.

Hopper and later have it, and GeForce from the 50 series on. The calls are those of
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gputop.schema.device import GPM_READINGS, Absence
from gputop.sources.nvml.calls import nvml
from gputop.sources.nvml.question import AGAIN, absence_of

if TYPE_CHECKING:
    from gputop.sources.nvml.fields import Clock

SHORTEST_WINDOW = 0.1
"""Seconds that have to lie between two samples."""
_OVERSHOOT = 1.0
"""Percent above 100 that come from counters which are not read at the same moment."""
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

Percentages = Mapping[str, float | Absence]
"""Each of `GPM_READINGS`, 0 to 100, or why it is missing."""


def all_missing(reason: Absence) -> Percentages:
    """None of them, for one reason."""
    return dict.fromkeys(GPM_READINGS, reason)


class Gpm:
    """GPM of an attached device, or of the GPU instance of that id on it; for one thread."""

    def __init__(
        self, handle: Any, gpu_instance: int | None = None, clock: Clock = time.monotonic
    ) -> None:
        self._handle = handle
        self._gpu_instance = gpu_instance
        self._clock = clock
        self._supported: bool | None = None
        """What the device answered; it is asked once."""
        self._works = False
        """Whether it did so far: some virtual GPUs say that it is supported, and then fail."""
        self._samples: list[Any] = []
        """The one before, which is filled again, and the last one."""
        self._begun = False
        self._values = all_missing(Absence.NO_DATA_YET)
        self._until = -math.inf
        """How long these values stand."""

    def read(self) -> Percentages:
        """Averages since the last call, or of a little longer where that was a moment ago.

        Never waits: the first call says `no_data_yet`. Raises `NVMLError` where the device is lost.
        """
        now = self._clock()
        if now < self._until:
            return self._values
        try:
            self._values = self._sample()
        except nvml.NVMLError as error:
            self.close()
            if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                raise
            reason = absence_of(error.value)
            self._values = all_missing(reason)
            if reason is Absence.NOT_SUPPORTED or not self._works:
                self._until = now + AGAIN
        return self._values

    def close(self) -> None:
        """Give the samples back. A `read` after this starts anew, from a new first sample."""
        for sample in self._samples:
            with contextlib.suppress(nvml.NVMLError):  # memory of the library, whatever it says
                nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._begun = False
        self._values = all_missing(Absence.NO_DATA_YET)
        self._until = -math.inf

    __del__ = close  # an instance that went before anybody could say so

    def _sample(self) -> Percentages:
        if self._supported is None:
            found = nvml.nvmlGpmQueryDeviceSupport(self._handle)
            self._supported = bool(found.isSupportedDevice)
        if not self._supported:
            return all_missing(Absence.NOT_SUPPORTED)
        while len(self._samples) < 2:
            self._samples.append(nvml.nvmlGpmSampleAlloc())
        newest, before = self._samples
        if self._gpu_instance is None:
            nvml.nvmlGpmSampleGet(self._handle, newest)
        else:
            nvml.nvmlGpmMigSampleGet(self._handle, self._gpu_instance, newest)
        # From when it is there: a call that took long must not make the next window too short.
        self._until = self._clock() + SHORTEST_WINDOW
        self._samples.reverse()
        if not self._begun:
            self._begun = True
            return all_missing(Absence.NO_DATA_YET)
        values = self._between(before, newest)
        self._works = True
        return values

    def _between(self, before: Any, newest: Any) -> Percentages:
        request = self._request
        request.sample1, request.sample2 = before, newest
        metrics = request.metrics[: len(_METRICS)]
        for metric in metrics:
            metric.value = math.nan
        nvml.nvmlGpmMetricsGet(request)
        return {name: _percent(metric) for name, metric in zip(_METRICS, metrics, strict=True)}

    @functools.cached_property
    def _request(self) -> Any:
        """What is asked for: 19 KB, most of them for metrics that are not."""
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        for metric, number in zip(request.metrics, _METRICS.values(), strict=False):
            metric.metricId = number
        return request


def _percent(metric: Any) -> float | Absence:
    if metric.nvmlReturn == nvml.NVML_ERROR_GPU_IS_LOST:
        raise nvml.NVMLError(metric.nvmlReturn)
    if metric.nvmlReturn != nvml.NVML_SUCCESS:
        return absence_of(metric.nvmlReturn)
    if not 0.0 <= metric.value <= 100.0 + _OVERSHOOT:  # nor if it is no number
        return Absence.ERROR
    return min(100.0, float(metric.value))
