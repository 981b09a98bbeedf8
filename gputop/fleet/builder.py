"""Build fleets from the answers of Prometheus, the last ones and those before. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from statistics import median
from typing import Any

from gputop.fleet.client import FEWER, SERIES
from gputop.fleet.findings import Known, find
from gputop.fleet.model import Fleet, Gpu
from gputop.fleet.parse import (
    Identities,
    Labels,
    RefreshMoment,
    labels_of,
    result_of,
    rows_of,
    states_of,
    targets_of,
    used_of,
    values_by,
    xids_of,
)
from gputop.fleet.queries import ANY, EVERY, LIMITS, NUMBERS, READ_AS, SELDOM
from gputop.problem import Problem
from gputop.schema.clock_events import words_of
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
EXPECTED = {
    "gpu_utilization_percent": "busy",
    "memory_used_bytes": "memory",
    "temperature_celsius": "temperature",
    "power_watts": "power",
    "sm_clock_mhz": "SM clock",
}
"""Readings whose absence is a problem to report."""


class NotAnAnswerError(ValueError):
    """Answer of another form than its query asks for."""


class FleetBuilder:
    """Everything known about a fleet, from which `build` makes a `Fleet`."""

    def __init__(self, interval: float = 10.0) -> None:
        """Expect a refresh every `interval` seconds."""
        self._interval = interval
        self._named: dict[str, list[Labels]] = {}
        self._left_out: dict[str, int] = {}
        """By query, the number of GPUs above the bound."""
        self._gone: list[tuple[Labels, float]] = []
        self._changed = False
        self._rows: dict[str, list[Labels]] = {}
        self._carried: set[str] = set()
        """Keys of GPUs that are gone."""
        self.identities = Identities()
        self.is_named = False
        """True if the identities of GPUs were answered."""
        self.moment = RefreshMoment(0.0, 0.0)
        """Moment of the present refresh by the server's clock."""
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

    def begin_refresh(self, moment: RefreshMoment) -> None:
        """Begin a refresh: answers from now on are of that moment."""
        self.moment = moment

    def add_answer(self, name: str, data: Any) -> None:
        """Add the answer to the query of that name; raises `NotAnAnswerError`."""
        result = result_of(data, "vector")
        if result is None:
            raise NotAnAnswerError(name)
        if name.startswith("names_"):
            others = sum(len(rows) for other, rows in self._named.items() if other != name)
            rows = [labels_of(each) for each in result[: max(0, SERIES - others)]]
            self._left_out[name] = len(result) - len(rows)
            self.is_named = True
            if self._named.get(name) != rows:
                self._named[name], self._changed = rows, True
            return
        if name == "gone":
            rows_gone = [(row.labels, row.value) for row in rows_of(result)]
            self._gone, self._changed = rows_gone, self._changed or bool(rows_gone)
            return
        self._answers[name] = self._parsed(name, result), self.moment.at

    def update_identities(self) -> bool:
        """Update the identities after the answers with labels, and before those with values.

        Return True if anything has changed.
        """
        if not self._changed and all(map(self._is_kept, self._carried)):
            return False
        self._changed = False
        named = [row for rows in self._named.values() for row in rows]
        present = {_mark(row) for row in named}
        last: dict[tuple[Any, ...], tuple[float, Labels]] = {}
        for row, seen in self._gone:
            mark = _mark(row)
            if mark not in present and seen > last.get(mark, (0.0, {}))[0]:
                last[mark] = seen, row
        for key, rows in self._rows.items():  # GPUs in neither that were there within the hour
            for row in rows:
                mark = _mark(row)
                if mark not in present and mark not in last and self._is_kept(key):
                    last[mark] = self._beats.get(key, 0.0), row
        last = dict(islice(last.items(), SERIES - len(named)))
        self.identities = Identities([*named, *(row for _, row in last.values())], self.identities)
        self._carried = {self.identities.key_of(row) for _, row in last.values()}
        self._rows = {}
        for row in (*named, *(row for _, row in last.values())):
            self._rows.setdefault(self.identities.key_of(row), []).append(row)
        for seen, row in last.values():
            if seen:
                self._beats.setdefault(self.identities.key_of(row), seen)
        self._gone = []  # remembered from now on
        return True

    def _is_kept(self, key: str) -> bool:
        return self.moment.now - self._beats.get(key, 0.0) < KEPT_SECONDS

    def _parsed(self, name: str, result: list[Any]) -> Any:
        key_of = self.identities.key_of
        match name:
            case "beat":
                self._add_beats(result)
                return None
            case "xid":
                return xids_of(result, key_of)
            case "state":
                return states_of(result, key_of)
            case "down":
                return targets_of(result)
            case "simulated":
                return any(row.value > 0 for row in rows_of(result))
        values = values_by(result, key_of, LIMITS.get(name, ANY))
        if name in NUMBERS:
            return values
        return {key: value for key, value in values.items() if value is not None}

    def _add_beats(self, result: list[Any]) -> None:
        """Add the times of the newest readings, and how often they are scraped."""
        found = values_by(result, self.identities.key_of, LIMITS["beat"])
        beats = {key: beat for key, beat in found.items() if beat is not None}
        steps = [
            beat - before
            for key, beat in beats.items()
            if (before := self._beats.get(key)) is not None and 0 < beat - before < KEPT_SECONDS
        ]
        if steps:
            self._steps.append(median(steps))
        self.unknown = any(key not in self.identities.all for key in beats)
        self._beats.update(beats)
        known = self._beats.keys() & (beats.keys() | self.identities.all.keys())
        self._beats = {key: self._beats[key] for key in known if self._is_kept(key)}

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
                _READINGS.get(name, name): at
                for name, (_, at) in self._answers.items()
                if name in EVERY
            },
            simulated=simulated,
        )

    def _newest(self, name: str) -> Any:
        """Return the last answer to a query unless it is too old."""
        answer, asked = self._answers.get(name, ({}, self.moment.at))
        every = EVERY.get(name, SELDOM) * self._interval
        return answer if self.moment.at - asked <= max(OLD_SECONDS, OLD_TURNS * every) else {}

    def _gpus(self) -> Iterable[Gpu]:
        """Yield GPUs in order. Those that are gone have only what is remembered."""
        identities = self.identities.all

        def column(name: str) -> list[Any]:
            return [*map(self._newest(name).get, identities)]

        # Column by column: taking turns, each dictionary would evict the others from the
        # processor's cache ten thousand times.
        return map(
            Gpu,
            identities,
            [identity.uuid for identity in identities.values()],
            [identity.host for identity in identities.values()],
            [identity.index for identity in identities.values()],
            [identity.name for identity in identities.values()],
            [identity.labels for identity in identities.values()],
            [self._age(key) for key in identities],
            column("gpu_utilization_percent"),
            column("sm_active_percent"),
            column("tensor_active_percent"),
            column("dram_active_percent"),
            map(used_of, column("memory_used_bytes"), column("memory_total_bytes")),
            column("memory_total_bytes"),
            column("temperature_celsius"),
            column("memory_temperature_celsius"),
            column("power_watts"),
            column("power_limit_watts"),
            column("sm_clock_mhz"),
            map(reasons_of, column("mask")),
            [code and code[0] for code in column("xid")],
            column("ecc_uncorrected"),
            map(_FLAGS.get, column("remap_failed")),
            map(_FLAGS.get, column("remap_pending")),
        )

    def _age(self, key: str) -> float | None:
        beat = self._beats.get(key)
        return None if beat is None else max(0.0, self.moment.now - beat)

    def _known(self) -> Known:
        compared = {self._answers[name][1] for name in COMPARED if name in self._answers}
        xids = self._newest("xid").items()
        return Known(
            comparable=len(compared) == 1,
            xid_at={key: when for key, (_, when) in xids if when is not None},
            stale_after=self.stale_after,
            targets=self.identities.targets,
            down=self._newest("down"),
            states=self._newest("state"),
            busy_mean=self._newest("busy_mean"),
            ecc_rise=self._newest("ecc_rise"),
            xid_before=self._newest("xid_before"),
            heat=self._newest("heat"),
            margin=self._newest("margin"),
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
                where = next((gpu.host for gpu in gpus if gpu.key == keys[0]), "its host")
                remedy = f"Check the exporter on {visible(where, 40)}"
                yield Problem(f"Impossible {what} is left out", why, remedy)
        missing = [name for name in EXPECTED if name in self._answers and not self._newest(name)]
        if missing:
            names = ", ".join(READ_AS[name][0].name for name in missing)
            yield Problem(
                f"Nobody scrapes {', '.join(EXPECTED[name] for name in missing)}",
                "there are no series of it",
                f"Have dcgm-exporter count {names}, or run `gputop exporter`",
            )
        if unseen := self._unseen():
            named = fold_list([visible(instance, 40) for _, instance in unseen], NAMED)
            yield Problem(
                "Exporters that cannot be scraped, and whose GPUs are unknown",
                f"`up` is 0 for {named}",
                "Check that the exporter runs there, and the targets in Prometheus",
            )
        ahead = max(self._beats.values(), default=0.0) - self.moment.now
        if ahead > FUTURE_SECONDS:
            why = f"the newest is {brief(ahead)} ahead of Prometheus"
            yield Problem("Readings are from the future", why, "Set the clocks of the hosts")

    def _unseen(self) -> list[tuple[str, str]]:
        """Return unreachable targets that were never seen, in jobs whose others have GPUs."""
        known = {*self.identities.targets.values()}
        jobs = {job for job, _ in known}
        down = self._newest("down")
        return sorted(target for target in down if target[0] in jobs and target not in known)


_READINGS = {"mask": "clock_event_reasons"}
"""Readings whose query has another name."""
COMPARED = ("gpu_utilization_percent", "sm_clock_mhz", "mask")
"""Queries whose readings are compared with each other."""
_FLAGS = {0.0: False, 1.0: True}


@lru_cache(1 << 12)
def reasons_of(mask: float | None) -> tuple[str, ...] | None:
    """Return the words of a mask of clock event reasons."""
    if mask is None or not 0 <= mask < 1 << 53:
        return None
    return words_of(int(mask))


def _mark(row: Labels) -> tuple[Any, ...]:
    """Return the identity of a GPU before its key is known."""
    get = row.get
    return (
        get("UUID") or get("uuid"),
        get("GPU_I_ID"),
        get("Hostname") or get("host"),
        "UUID" in row,
    )
