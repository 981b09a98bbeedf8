"""Build fleets from the newest and earlier answers of Prometheus. Pure functions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gputop.agent.problem import Problem
from gputop.agent.words import clock_event_words
from gputop.fleet.client import AskError, Series
from gputop.fleet.findings import Known, find
from gputop.fleet.identities import (
    Labels,
    identify,
    key_of,
    labels_to_group_by,
    target_of,
)
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.queries import ALWAYS, EVERY, LIMITS, READ_AS, TIMES
from gputop.text import fold_list, visible

SETTLE_SECONDS = 5.0
"""Seconds before the server's current time for which a refresh is evaluated.

A sample has the time at which its scrape began. It arrives when the scrape has ended and, with
remote write, has been sent. After this delay, all queries of a refresh see the same samples.
"""
KEPT_SECONDS = 3600.0
"""Seconds for which a missing GPU counts as stale. After that, it counts as removed."""
OLD_SECONDS = 300.0
"""Age at which the last answer to a failing query is dropped."""
EXPECTED = dict(
    zip(
        ALWAYS,
        ("busy", "memory", "temperature", "power", "SM clock"),
        strict=True,
    )
)
"""Readings whose absence is a problem to report, with their names."""
COMPARED = ("gpu_utilization_percent", "sm_clock_mhz", "clock_event_reasons")
"""Readings that are compared with each other."""


class RefreshMoment(NamedTuple):
    """Time of a refresh by the server's clock."""

    now: float
    at: float
    """Time for which all its queries are evaluated."""


def moment_of(answer: Iterable[Series]) -> RefreshMoment:
    """Return the moment of a refresh from the answer to `queries.CLOCK`. Raises `AskError`.

    If the server itself evaluates an earlier time, that time is used.
    """
    for series, value in numbers(answer):
        now = series.value[0]
        if min(now, value) >= TIMES[0] and max(now, value) <= TIMES[1]:
            # The API takes milliseconds. Rounding gives readings of one moment
            # equal times.
            return RefreshMoment(
                now, round(min(value, now - SETTLE_SECONDS), 3)
            )
    raise AskError(
        "No answer from Prometheus",
        "it does not report its time",
        "Check what is at that URL",
    )


def numbers(
    answer: Iterable[Series], label: str = ""
) -> Iterator[tuple[Series, float]]:
    """Yield the series with a finite number, which is in the label if there is such a label."""
    for series in answer:
        try:
            value = float(series.metric.get(label, series.value[1]))
        except ValueError:
            continue
        if math.isfinite(value):
            yield series, value


class FleetBuilder:
    """All data about a fleet; `build` makes a `Fleet` from it."""

    def __init__(self) -> None:
        self.moment = RefreshMoment(0.0, 0.0)
        """Moment of the current refresh by the server's clock. Answers are for this moment."""
        self._rows: dict[str, list[Labels]] = {}
        """Newest labels of each GPU seen so far, by its key."""
        self.gpus: list[Gpu] = []
        """All GPUs seen so far, without readings."""
        self._answers: dict[str, Any] = {}
        """Last answer to each query, as numbers by GPU."""
        self._read_at: dict[str, float] = {}
        """Moment of the last answer to each query."""
        self._beats: dict[str, float] = {}
        """Time of each GPU's newest reading by the server's clock."""

    def add_answer(self, name: str, answer: list[Series]) -> None:
        """Add the answer to a query. Numbers outside its limits are ignored."""
        if name in ("names", "gone"):
            self._add_labels(answer)
        if name != "names":
            self._answers[name] = self._parsed(name, answer)
            self._read_at[name] = self.moment.at
        if name in ("beat", "gone"):
            self._beats |= self._answers[name]

    def _add_labels(self, answer: list[Series]) -> None:
        rows: dict[str, list[Labels]] = defaultdict(list)
        for series in answer:
            if key := key_of(series.metric):
                rows[key].append(series.metric)
        rows = self._rows | rows
        if rows != self._rows:
            self._rows = rows
            self.gpus = identify(rows)

    def _parsed(self, name: str, answer: list[Series]) -> Any:
        if name == "down":
            return {target_of(series.metric) for series in answer}
        if name == "state":
            return {
                key_of(series.metric): series.metric.get("state")
                for series in answer
            }
        values = {}
        low, high = LIMITS[name]
        convert = _CONVERT.get(name, float)
        # `gputop exporter` has priority over dcgm-exporter, whose series have a
        # `UUID`.
        answer.sort(key=lambda series: "UUID" not in series.metric)
        for series, value in numbers(answer, _NUMBER_LABELS.get(name, "")):
            if low <= value <= high:
                values[key_of(series.metric)] = convert(value)
        return values

    def _newest(self, name: str) -> Any:
        """Return the last answer to a query unless it is too old."""
        age = self.moment.at - self._read_at.get(name, -math.inf)
        return self._answers[name] if age <= OLD_SECONDS else {}

    def build(self, problems: Iterable[Problem] = ()) -> Fleet:
        """Return the fleet, as far as it is known."""
        gpus = tuple(self._gpus())
        compared = {
            self._read_at[name] for name in COMPARED if name in self._read_at
        }
        known = Known(
            comparable=len(compared) == 1,
            present=self._newest("beat").keys(),
            down=self._newest("down"),
            state=self._newest("state"),
            busy_mean=self._newest("busy_mean"),
            ecc_rise=self._newest("ecc_rise"),
            xid_before=self._newest("xid_before"),
        )
        return Fleet(
            time=self.moment.now,
            gpus=gpus,
            findings=find(gpus, known),
            problems=(*problems, *self._gaps(gpus, known)),
            label_names=labels_to_group_by(gpus),
            read_at={
                name: at for name, at in self._read_at.items() if name in EVERY
            },
            simulated=bool(self._newest("simulated"))
            or any("simulated" in gpu.labels for gpu in gpus),
        )

    def _gpus(self) -> Iterator[Gpu]:
        """Yield GPUs in order. Missing GPUs have only remembered data."""
        columns = {name: self._newest(name) for name in (*EVERY, "xid")}
        for gpu in self.gpus:
            readings = {
                name: column.get(gpu.key) for name, column in columns.items()
            }
            if gpu.key in self._beats:
                age = self.moment.now - self._beats[gpu.key]
                if age > KEPT_SECONDS:
                    continue
                readings["age_seconds"] = age
            read = replace(gpu, **readings)
            # Exporters round used and total.
            if (read.memory_used_percent or 0.0) > 110:
                read = replace(read, memory_used_bytes=None)
            yield read

    def _gaps(self, gpus: tuple[Gpu, ...], known: Known) -> Iterator[Problem]:
        """Yield problems with missing readings that matter."""
        for name, what in EXPECTED.items():
            if gpus and name in self._answers and not self._newest(name):
                yield Problem(
                    f"Not scraped: {what}",
                    "it has no series, or only impossible values",
                    f"Let dcgm-exporter report {READ_AS[name][0].name}, or run `gputop exporter`",
                )
        targets = {target_of(gpu.labels) for gpu in gpus}
        # Other jobs may have no GPUs.
        jobs = {job for job, _ in targets}
        unseen = [
            visible(instance)
            for job, instance in sorted({*known.down} - targets)
            if job in jobs
        ]
        if unseen:
            yield Problem(
                "Exporters that cannot be scraped, and whose GPUs are unknown",
                f"`up` is 0 for {fold_list(unseen)}",
                "Check that the exporter runs there, and the targets in Prometheus",
            )


_NUMBER_LABELS = {"xid": "code"}
"""Labels with the number of `gputop exporter`. Its value is then a time."""
_CONVERT: Mapping[str, Any] = {
    "clock_event_reasons": lambda mask: clock_event_words(int(mask)),
    "remap_failed": bool,
    "remap_pending": bool,
    "xid": int,
}
"""Conversion of the numbers of a query into readings."""
