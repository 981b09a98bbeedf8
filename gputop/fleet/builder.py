"""Build fleets from the newest and earlier answers of Prometheus. Pure functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from gputop.agent.problem import Problem
from gputop.agent.words import clock_event_words
from gputop.fleet.client import AskError, Series
from gputop.fleet.findings import Known, find
from gputop.fleet.identities import Identities, Labels, target_of
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
MOST_XID = 99_999
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
EVIDENCE = ("down", "state", "busy_mean", "ecc_rise", "xid_before")
"""Queries that the findings need besides readings."""


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


def numbers(answer: Iterable[Series]) -> Iterator[tuple[Series, float]]:
    """Yield the series with a finite number."""
    for series in answer:
        try:
            value = float(series.value[1])
        except ValueError:
            continue
        if math.isfinite(value):
            yield series, value


class FleetBuilder:
    """All data about a fleet; `build` makes a `Fleet` from it."""

    def __init__(self) -> None:
        self.moment = RefreshMoment(0.0, 0.0)
        """Moment of the current refresh by the server's clock. Answers are for this moment."""
        self.identities = Identities()
        self._rows: dict[object, list[Labels]] = {}
        """Labels of each present or recently lost GPU, by its UUID and exporter."""
        self._answers: dict[str, Any] = {}
        """Last answer to each query, as numbers by GPU."""
        self._read_at: dict[str, float] = {}
        """Moment of the last answer to each query."""
        self._beats: dict[str, float] = {}
        """Time of each GPU's newest reading by the server's clock."""

    def add_answer(self, name: str, answer: list[Series]) -> None:
        """Add the answer to a query. Numbers outside its limits are ignored."""
        if name == "names":
            self._add_names(answer)
        elif name == "gone":
            self._add_gone(answer)
        else:
            self._answers[name] = self._parsed(name, answer)
            self._read_at[name] = self.moment.at

    def _add_names(self, answer: list[Series]) -> None:
        """Replace the identities. GPUs that were present within the last hour are kept."""
        rows: dict[object, list[Labels]] = {}
        for series in answer:
            rows.setdefault(_mark(series.metric), []).append(series.metric)
        for mark, before in self._rows.items():
            key = self.identities.key_of(before[0])
            age = self.moment.now - self._beats.get(key, 0.0)
            if mark not in rows and age < KEPT_SECONDS:
                rows[mark] = before
            elif mark not in rows:
                self._beats.pop(key, None)
        self._identify(rows)

    def _add_gone(self, answer: list[Series]) -> None:
        """Add GPUs that disappeared recently."""
        rows = dict(self._rows)
        for series, seen in numbers(answer):
            if _mark(series.metric) not in self._rows:
                rows[_mark(series.metric)] = [series.metric]
                self._beats.setdefault(
                    self.identities.key_of(series.metric), seen
                )
        self._identify(rows)

    def _identify(self, rows: dict[object, list[Labels]]) -> None:
        if rows != self._rows:
            self._rows = rows
            self.identities = Identities([*chain.from_iterable(rows.values())])

    def _parsed(self, name: str, answer: list[Series]) -> Any:
        key_of = self.identities.key_of
        if name == "xid":
            return _xids(answer, key_of)
        if name == "state":
            return {
                key_of(each.metric): each.metric.get("state")
                for each in answer
            }
        if name == "down":
            return {target_of(each.metric) for each in answer}
        values = {}
        low, high = LIMITS[name]
        convert = _CONVERT.get(name, float)
        # `gputop exporter` has priority over dcgm-exporter, whose series have a
        # `UUID`.
        answer.sort(key=lambda series: "UUID" not in series.metric)
        for series, value in numbers(answer):
            if low <= value <= high:
                values[key_of(series.metric)] = convert(value)
        if name == "beat":
            self._beats |= values
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
            targets={gpu.key: target_of(gpu.labels) for gpu in gpus},
            **{name: self._newest(name) for name in EVIDENCE},
        )
        return Fleet(
            time=self.moment.now,
            gpus=gpus,
            findings=find(gpus, known),
            problems=(*problems, *self._gaps(gpus, known)),
            label_names=self.identities.label_names,
            read_at={
                name: at for name, at in self._read_at.items() if name in EVERY
            },
            simulated=bool(self._newest("simulated"))
            or any("simulated" in gpu.labels for gpu in gpus),
        )

    def _gpus(self) -> Iterator[Gpu]:
        """Yield GPUs in order. Missing GPUs have only remembered data."""
        columns = {name: self._newest(name) for name in (*EVERY, "xid")}
        for key, gpu in self.identities.all.items():
            readings = {
                name: column.get(key) for name, column in columns.items()
            }
            used, total = (
                readings["memory_used_bytes"],
                readings["memory_total_bytes"],
            )
            if used is not None and total is not None and used > 1.1 * total:
                # Exporters round both.
                readings["memory_used_bytes"] = None
            if key in self._beats:
                readings["age_seconds"] = max(
                    0.0, self.moment.now - self._beats[key]
                )
            yield replace(gpu, **readings)

    def _gaps(self, gpus: tuple[Gpu, ...], known: Known) -> Iterator[Problem]:
        """Yield problems with missing readings that matter."""
        for name, what in EXPECTED.items():
            if gpus and name in self._answers and not self._newest(name):
                yield Problem(
                    f"Not scraped: {what}",
                    "it has no series, or only impossible values",
                    f"Let dcgm-exporter report {READ_AS[name][0].name}, or run `gputop exporter`",
                )
        targets = {*known.targets.values()}
        # Other jobs may have no GPUs.
        jobs = {job for job, _ in targets}
        unseen = [
            visible(instance, 40)
            for job, instance in sorted(known.down)
            if job in jobs and (job, instance) not in targets
        ]
        if unseen:
            yield Problem(
                "Exporters that cannot be scraped, and whose GPUs are unknown",
                f"`up` is 0 for {fold_list(unseen, 3)}",
                "Check that the exporter runs there, and the targets in Prometheus",
            )


_CONVERT: Mapping[str, Callable[[float], Any]] = {
    "clock_event_reasons": lambda mask: clock_event_words(int(mask)),
    "remap_failed": bool,
    "remap_pending": bool,
}
"""Conversion of the numbers of a query into readings."""


def _mark(row: Labels) -> object:
    """Return the identity of a GPU and of its exporter."""
    return row.get("UUID"), row.get("uuid"), row.get("GPU_I_ID")


def _xids(
    answer: list[Series], key_of: Callable[[Labels], str]
) -> dict[str, int]:
    """Return the last Xid of each GPU. `gputop exporter` has the code in a label, and the time."""
    found: dict[str, tuple[float, int]] = {}
    for series, value in numbers(answer):
        code = series.metric.get("code")
        if code is not None and not re.fullmatch(r"[0-9]{1,5}", code):
            continue
        xid = (0.0, int(value)) if code is None else (value, int(code))
        key = key_of(series.metric)
        if 0 < xid[1] <= MOST_XID and xid > found.get(key, (-1.0, 0)):
            found[key] = xid
    return {key: code for key, (_, code) in found.items()}
