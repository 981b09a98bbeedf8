"""Build fleets from the answers of Prometheus, the last ones and those before. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from operator import itemgetter
from statistics import median
from typing import Any

from gputop.agent.problem import Problem
from gputop.agent.words import clock_event_words
from gputop.fleet import parse
from gputop.fleet.client import FEWER, SERIES, AskError
from gputop.fleet.fleet_findings import Known, find
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.queries import ALWAYS, ANY, EVERY, LIMITS, NUMBERS, READ_AS, SELDOM
from gputop.text import brief, fold_list, visible

KEPT_SECONDS = 3600.0
"""Seconds for which a GPU that is gone counts as stale. After that it was removed."""
NAMED = 3
"""Most targets named that cannot be scraped."""
OLD_SECONDS, OLD_TURNS = 300.0, 2.5
"""Age at which the last answer to an unanswered query is dropped: this many seconds, or this many
of its own intervals, whichever is more."""
STALE_SECONDS = (45.0, 360.0)
"""Fewest and most seconds after which a GPU is stale; in between, three scrapes."""
REMEMBERED_STEPS = 20
FUTURE_SECONDS = 60.0
"""Most seconds by which clocks may differ."""
EXPECTED = dict(
    zip(ALWAYS, ("busy", "memory", "temperature", "power", "SM clock"), strict=True)
)
"""Readings whose absence is a problem to report, with their names."""


class FleetBuilder:
    """Everything known about a fleet, from which `build` makes a `Fleet`."""

    def __init__(self, interval: float = 10.0) -> None:
        """Expect a refresh every `interval` seconds."""
        self._interval = interval
        self.named: dict[str, list[parse.Labels]] = {}
        """By query for labels, those of the GPUs that are there."""
        self._left_out: dict[str, int] = {}
        """By query, the number of GPUs above the bound."""
        self._gone: list[tuple[parse.Labels, float]] = []
        self._changed = False
        self._rows: dict[tuple[Any, ...], list[parse.Labels]] = {}
        """Labels of each GPU that is there or is remembered."""
        self._carried: set[str] = set()
        self.identities = parse.Identities()
        self.moment = parse.RefreshMoment(0.0, 0.0)
        """Moment of the present refresh by the server's clock. Answers are of that moment."""
        self.known = Known()
        """Evidence for the findings of the last fleet."""
        self._answers: dict[str, tuple[Any, float]] = {}
        """By query, the last answer and its moment."""
        self._beats: dict[str, float] = {}
        """Time of each GPU's newest reading by the server's clock."""
        self._steps: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        """Seconds between readings: at least the scrape interval."""
        self.unknown = False
        """True if the last answers had a GPU without an identity."""

    def add_answer(self, name: str, data: Any) -> None:
        """Add the answer to the query of that name; raises `AskError` if it has another form."""
        result = parse.result_of(data, "vector")
        if result is None:
            why = "an answer does not have the form of Prometheus"
            problem = Problem(
                "An answer was left out", why, "Check what is at that URL"
            )
            raise AskError(problem, whole=False)
        if name.startswith("names_"):
            others = sum(
                len(rows) for other, rows in self.named.items() if other != name
            )
            rows = [parse.labels_of(each) for each in result[: max(0, SERIES - others)]]
            self._left_out[name] = len(result) - len(rows)
            if self.named.get(name) != rows:
                self.named[name], self._changed = rows, True
        elif name == "gone":
            self._gone = [(row.labels, row.value) for row in parse.rows_of(result)]
            self._changed |= bool(self._gone)
        else:
            self._answers[name] = self._parsed(name, result), self.moment.at

    def update_identities(self) -> None:
        """Update the identities after the answers with labels, and before those with values."""
        if not self._changed and all(map(self._is_kept, self._carried)):
            return
        self._changed = False
        named = [row for rows in self.named.values() for row in rows]
        present = {_mark(row) for row in named}
        # GPUs in neither answer that were there within the hour are remembered, too.
        last = {_mark(row): [row] for row, _ in sorted(self._gone, key=itemgetter(1))}
        last |= {
            mark: rows
            for mark, rows in self._rows.items()
            if self._is_kept(self.identities.key_of(rows[0]))
        }
        carried = [
            row for mark, rows in last.items() if mark not in present for row in rows
        ]
        del carried[max(0, SERIES - len(named)) :]
        self.identities = parse.Identities([*named, *carried])
        key_of = self.identities.key_of
        self._carried = {key_of(row) for row in carried}
        self._rows = {}
        for row in (*named, *carried):
            self._rows.setdefault(_mark(row), []).append(row)
        for row, seen in self._gone:
            self._beats.setdefault(key_of(row), seen)
        self._gone = []  # remembered from now on

    def _is_kept(self, key: str) -> bool:
        return self.moment.now - self._beats.get(key, 0.0) < KEPT_SECONDS

    def _parsed(self, name: str, result: list[Any]) -> Any:
        key_of = self.identities.key_of
        match name:
            case "beat":
                self._add_beats(result)
                return None
            case "xid":
                return parse.xids_of(result, key_of)
            case "state":
                return {
                    key_of(row.labels): row.labels.get("state", "")
                    for row in parse.rows_of(result)
                }
            case "down":
                return {parse.target_of(row.labels) for row in parse.rows_of(result)}
            case "simulated":
                return any(row.value > 0 for row in parse.rows_of(result))
        values = parse.values_by(result, key_of, LIMITS.get(name, ANY))
        match name:
            case "mask":
                masks = (
                    None if mask is None else clock_event_words(int(mask))
                    for mask in values.values()
                )
                return dict(zip(values, masks, strict=True))
            case "remap_failed" | "remap_pending":
                return {key: _FLAGS.get(value) for key, value in values.items()}
        if name in NUMBERS:
            return values
        return {key: value for key, value in values.items() if value is not None}

    def _add_beats(self, result: list[Any]) -> None:
        """Add the times of the newest readings, and how often they are scraped."""
        found = parse.values_by(result, self.identities.key_of, LIMITS["beat"])
        beats = {key: beat for key, beat in found.items() if beat is not None}
        steps = [
            beat - before
            for key, beat in beats.items()
            if (before := self._beats.get(key)) is not None
            and 0 < beat - before < KEPT_SECONDS
        ]
        if steps:
            self._steps.append(median(steps))
        self.unknown = any(key not in self.identities.all for key in beats)
        self._beats.update(beats)
        known = self._beats.keys() & (beats.keys() | self.identities.all.keys())
        self._beats = {key: self._beats[key] for key in known if self._is_kept(key)}

    def readings(self, data: Any) -> dict[str, parse.Checked]:
        """Return the readings by GPU from an answer with many metrics."""
        return parse.readings_of(
            parse.result_of(data, "vector") or [], self.identities.key_of
        )

    def past_readings(self, data: Any) -> dict[str, parse.Moments]:
        """Return the readings of each GPU by time from the answer to a range query."""
        return parse.readings_over_time(
            parse.result_of(data, "matrix") or [], self.identities.key_of
        )

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is stale."""
        least, most = STALE_SECONDS
        return min(most, max(least, 3 * min(self._steps, default=20.0)))

    def build(self, problems: Iterable[Problem] = ()) -> Fleet:
        """Return the fleet at the moment of the present refresh."""
        gpus = tuple(self._gpus())
        self.known = self._known()
        # Until their ages are known, all GPUs would be stale.
        findings = find(gpus, self.known) if "beat" in self._answers else ()
        simulated = self.identities.simulated or bool(self._newest("simulated"))
        return Fleet(
            time=self.moment.now,
            gpus=gpus,
            findings=findings,
            problems=(*problems, *self._gaps(gpus)),
            label_names=self.identities.label_names,
            read_at={
                "clock_event_reasons" if name == "mask" else name: at
                for name, (_, at) in self._answers.items()
                if name in EVERY
            },
            simulated=simulated,
        )

    def _newest(self, name: str) -> Any:
        """Return the last answer to a query unless it is too old."""
        answer, asked = self._answers.get(name, ({}, self.moment.at))
        every = EVERY.get(name, SELDOM) * self._interval
        return (
            answer
            if self.moment.at - asked <= max(OLD_SECONDS, OLD_TURNS * every)
            else {}
        )

    def _gpus(self) -> Iterable[Gpu]:
        """Yield GPUs in order. Those that are gone have only what is remembered."""
        identities = self.identities.all
        # Column by column: taking turns, each dictionary would evict the others from the
        # processor's cache ten thousand times.
        columns: dict[str, Iterable[Any]] = {
            name: [getattr(each, name) for each in identities.values()]
            for name in IDENTITY
        }
        beats = map(self._beats.get, identities)
        now = self.moment.now
        columns["age_seconds"] = [
            None if beat is None else max(0.0, now - beat) for beat in beats
        ]
        for name in _FIELDS[len(columns) :]:
            columns[name] = [
                *map(self._newest(_QUERIES.get(name, name)).get, identities)
            ]
        used, total = columns["memory_used_bytes"], columns["memory_total_bytes"]
        columns["memory_used_bytes"] = map(parse.used_of, used, total)
        columns["xid"] = [known and known[0] for known in columns["xid"]]
        return map(Gpu, *columns.values())

    def _known(self) -> Known:
        compared = {
            self._answers[name][1] for name in COMPARED if name in self._answers
        }
        xids = self._newest("xid").items()
        return Known(
            now=self.moment.now,
            comparable=len(compared) == 1,
            xid_at={key: when for key, (_, when) in xids if when is not None},
            stale_after=self.stale_after,
            targets=self.identities.targets,
            states=self._newest("state"),
            **{name: self._newest(name) for name in _EVIDENCE},
        )

    def _gaps(self, gpus: Sequence[Gpu]) -> Iterable[Problem]:
        """Yield problems with readings that people will miss."""
        if not gpus:
            return
        if left_out := sum(self._left_out.values()):
            why = f"there are more than {SERIES}"
            yield Problem(f"{left_out} GPUs are left out", why, FEWER)
        for name, what in EXPECTED.items():
            keys = [key for key, value in self._newest(name).items() if value is None]
            if keys:
                low, high = LIMITS[name]
                why = f"{len(keys)} of {len(gpus)} GPUs have none within {low:g} to {high:g}"
                where = next(
                    (gpu.host for gpu in gpus if gpu.key == keys[0]), "its host"
                )
                remedy = f"Check the exporter on {visible(where, 40)}"
                yield Problem(f"Impossible {what} is left out", why, remedy)
        missing = [
            name
            for name in EXPECTED
            if name in self._answers and not self._newest(name)
        ]
        if missing:
            names = ", ".join(READ_AS[name][0].name for name in missing)
            yield Problem(
                f"Nobody scrapes {', '.join(EXPECTED[name] for name in missing)}",
                "there are no series of it",
                f"Have dcgm-exporter count {names}, or run `gputop exporter`",
            )
        known = {*self.identities.targets.values()}
        jobs = {job for job, _ in known}  # others may be of no GPUs
        down = self._newest("down")
        if unseen := sorted(
            each for each in down if each[0] in jobs and each not in known
        ):
            named = fold_list([visible(instance, 40) for _, instance in unseen], NAMED)
            yield Problem(
                "Exporters that cannot be scraped, and whose GPUs are unknown",
                f"`up` is 0 for {named}",
                "Check that the exporter runs there, and the targets in Prometheus",
            )
        ahead = max(self._beats.values(), default=0.0) - self.moment.now
        if ahead > FUTURE_SECONDS:
            why = f"the newest is {brief(ahead)} ahead of Prometheus"
            yield Problem(
                "Readings are from the future", why, "Set the clocks of the hosts"
            )


IDENTITY = ("key", "uuid", "host", "index", "name", "labels")
_FIELDS = tuple(field.name for field in fields(Gpu))
"""Fields of a GPU: those of its identity, its age, and readings."""
_QUERIES = {"clock_event_reasons": "mask"}
_EVIDENCE = ("down", "busy_mean", "ecc_rise", "xid_before", "heat", "margin")
"""Queries whose answers findings need, besides readings."""
COMPARED = ("gpu_utilization_percent", "sm_clock_mhz", "mask")
"""Queries whose readings are compared with each other."""
_FLAGS: dict[float | None, bool] = {0.0: False, 1.0: True}


def _mark(row: parse.Labels) -> tuple[Any, ...]:
    """Return the identity of a GPU before its key is known."""
    return row.get("UUID") or row.get("uuid"), row.get("GPU_I_ID"), "UUID" in row
