"""A fleet as its answers come in: what was answered last, and who was there before. Pure."""

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
    Moment,
    labels_of,
    result_of,
    rows_of,
    states_of,
    targets_of,
    used_of,
    values_by,
    xids_of,
)
from gputop.fleet.places import Labels, Places
from gputop.fleet.queries import ANY, EVERY, LIMITS, NUMBERS, READ_AS, SELDOM
from gputop.problem import Problem
from gputop.schema.clock_events import words_of
from gputop.text import brief, visible

KEPT_SECONDS = 3600.0
"""How long a GPU that is gone is told as stale: then it was taken away."""
NAMED = 3
"""Targets, of those that are away."""
OLD_SECONDS, OLD_TURNS = 300.0, 2.5
"""After which the last answer to a question that is no longer answered counts no more: so long, or
so many times as long as it takes until it is asked again."""
STALE_SECONDS = (45.0, 360.0)
"""A GPU is stale after three scrapes, but after no less and no more than this."""
REMEMBERED_STEPS = 20
FUTURE_SECONDS = 60.0
"""What clocks may differ by."""
TOLD = {
    "gpu_utilization_percent": "busy",
    "memory_used_bytes": "memory",
    "temperature_celsius": "temperature",
    "power_watts": "power",
    "sm_clock_mhz": "SM clock",
}
"""Readings that somebody misses where nobody scrapes them."""


class NotAnAnswerError(ValueError):
    """An answer of another form than the question has."""


class Picture:
    """What is known of a fleet."""

    def __init__(self, interval: float = 10.0) -> None:
        """`interval` is how many seconds there are from one refresh to the next."""
        self._interval = interval
        self._named: dict[str, list[Labels]] = {}
        self._left_out: dict[str, int] = {}
        """By query, how many GPUs there were above the bound."""
        self._gone: list[tuple[Labels, float]] = []
        self._changed = False
        self._rows: dict[str, list[Labels]] = {}
        self._carried: set[str] = set()
        """Those that are there no more."""
        self.places = Places()
        self.is_named = False
        """Whether it was answered who is where."""
        self.moment = Moment(0.0, 0.0)
        """When the present refresh is, by the server's clock."""
        self.known = Known()
        """Evidence that the last fleet was judged by."""
        self._answers: dict[str, tuple[Any, float]] = {}
        """By query, the last answer and the moment that it is of."""
        self._beats: dict[str, float] = {}
        """When the newest reading of each was scraped, by the server's clock."""
        self._steps: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        """By how much readings were newer than those before; no less than from scrape to scrape."""
        self.unknown = False
        """Whether there was a GPU in the last answers that has no name yet."""

    def begin(self, moment: Moment) -> None:
        """Begin a refresh: what is taken in from now on is of that moment."""
        self.moment = moment

    def take(self, name: str, data: Any) -> None:
        """Takes in the answer to the query of that name; raises `NotAnAnswerError`."""
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

    def settle(self) -> bool:
        """Takes in who is where, after the names: before the values, that are known by it.

        Returns whether anything has changed.
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
        for key, rows in self._rows.items():  # who is in neither, and was there within the hour
            for row in rows:
                mark = _mark(row)
                if mark not in present and mark not in last and self._is_kept(key):
                    last[mark] = self._beats.get(key, 0.0), row
        last = dict(islice(last.items(), SERIES - len(named)))
        self.places = Places([*named, *(row for _, row in last.values())], self.places)
        self._carried = {self.places.key_of(row) for _, row in last.values()}
        self._rows = {}
        for row in (*named, *(row for _, row in last.values())):
            self._rows.setdefault(self.places.key_of(row), []).append(row)
        for seen, row in last.values():
            if seen:
                self._beats.setdefault(self.places.key_of(row), seen)
        self._gone = []  # remembered from now on
        return True

    def _is_kept(self, key: str) -> bool:
        return self.moment.now - self._beats.get(key, 0.0) < KEPT_SECONDS

    def _parsed(self, name: str, result: list[Any]) -> Any:
        key_of = self.places.key_of
        match name:
            case "beat":
                self._take_beats(result)
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

    def _take_beats(self, result: list[Any]) -> None:
        """Also how often it is scraped: by how much newer they are than those before."""
        found = values_by(result, self.places.key_of, LIMITS["beat"])
        beats = {key: beat for key, beat in found.items() if beat is not None}
        steps = [
            beat - before
            for key, beat in beats.items()
            if (before := self._beats.get(key)) is not None and 0 < beat - before < KEPT_SECONDS
        ]
        if steps:
            self._steps.append(median(steps))
        self.unknown = any(key not in self.places.all for key in beats)
        self._beats.update(beats)
        known = self._beats.keys() & (beats.keys() | self.places.all.keys())
        self._beats = {key: self._beats[key] for key in known if self._is_kept(key)}

    @property
    def stale_after(self) -> float:
        """Seconds after which a reading is stale."""
        least, most = STALE_SECONDS
        return min(most, max(least, 3 * min(self._steps, default=20.0)))

    def fleet(self, problems: Iterable[Problem] = ()) -> Fleet:
        """Return all of it as it is at the moment of the present refresh."""
        gpus = tuple(self._gpus())
        self.known = self._known()
        # Before it is known how old they are, all would be stale.
        findings = find(gpus, self.known) if "beat" in self._answers else ()
        simulated = self.places.simulated or bool(self._newest("simulated"))
        return Fleet(
            time=self.moment.now,
            gpus=gpus,
            findings=findings,
            problems=(*problems, *self._gaps(gpus)),
            label_names=self.places.label_names,
            read_at={
                _READINGS.get(name, name): at
                for name, (_, at) in self._answers.items()
                if name in EVERY
            },
            simulated=simulated,
        )

    def _newest(self, name: str) -> Any:
        """The last answer of that name, where it is not too old."""
        answer, asked = self._answers.get(name, ({}, self.moment.at))
        every = EVERY.get(name, SELDOM) * self._interval
        return answer if self.moment.at - asked <= max(OLD_SECONDS, OLD_TURNS * every) else {}

    def _gpus(self) -> Iterable[Gpu]:
        """In their order; of one that is gone only what is remembered."""
        places = self.places.all

        def column(name: str) -> list[Any]:
            return [*map(self._newest(name).get, places)]

        # One column after the other: by turns each dictionary would put the others out of the
        # processor's cache, ten thousand times.
        return map(
            Gpu,
            places,
            [place.uuid for place in places.values()],
            [place.host for place in places.values()],
            [place.index for place in places.values()],
            [place.name for place in places.values()],
            [place.labels for place in places.values()],
            [self._age(key) for key in places],
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
            targets=self.places.targets,
            down=self._newest("down"),
            states=self._newest("state"),
            busy_mean=self._newest("busy_mean"),
            ecc_rise=self._newest("ecc_rise"),
            xid_before=self._newest("xid_before"),
            heat=self._newest("heat"),
            margin=self._newest("margin"),
        )

    def _gaps(self, gpus: Sequence[Gpu]) -> Iterable[Problem]:
        """What is missing that somebody will look for."""
        if not gpus:
            return
        if left_out := sum(self._left_out.values()):
            why = f"there are more than {SERIES}"
            yield Problem(f"{left_out} GPUs are left out", why, FEWER)
        for name, what in TOLD.items():
            keys = [key for key, value in self._newest(name).items() if value is None]
            if keys:
                low, high = LIMITS[name]
                why = f"{len(keys)} of {len(gpus)} GPUs have none within {low:g} to {high:g}"
                where = next((gpu.host for gpu in gpus if gpu.key == keys[0]), "its host")
                remedy = f"Look at the exporter on {visible(where, 40)}"
                yield Problem(f"Impossible {what} is left out", why, remedy)
        missing = [name for name in TOLD if name in self._answers and not self._newest(name)]
        if missing:
            names = ", ".join(READ_AS[name][0].name for name in missing)
            yield Problem(
                f"Nobody scrapes {', '.join(TOLD[name] for name in missing)}",
                "there are no series of it",
                f"Have dcgm-exporter count {names}, or run `gputop exporter`",
            )
        if unseen := self._unseen():
            named = ", ".join(visible(instance, 40) for _, instance in unseen[:NAMED])
            more = f" and {len(unseen) - NAMED} more" if len(unseen) > NAMED else ""
            yield Problem(
                "Exporters that cannot be scraped, and GPUs that nobody knows of",
                f"`up` is 0 for {named}{more}",
                "Look whether the exporter runs there, and at the targets in Prometheus",
            )
        ahead = max(self._beats.values(), default=0.0) - self.moment.now
        if ahead > FUTURE_SECONDS:
            why = f"the newest is {brief(ahead)} ahead of Prometheus"
            yield Problem("Readings are from the future", why, "Set the clocks of the hosts")

    def _unseen(self) -> list[tuple[str, str]]:
        """Targets that are away and have not been seen, of jobs whose others have GPUs."""
        known = {*self.places.targets.values()}
        jobs = {job for job, _ in known}
        down = self._newest("down")
        return sorted(target for target in down if target[0] in jobs and target not in known)


_READINGS = {"mask": "clock_event_reasons"}
"""Names of readings whose query is called differently."""
COMPARED = ("gpu_utilization_percent", "sm_clock_mhz", "mask")
"""Queries whose readings rules compare with each other."""
_FLAGS = {0.0: False, 1.0: True}


@lru_cache(1 << 12)
def reasons_of(mask: float | None) -> tuple[str, ...] | None:
    """The words of a mask of clock event reasons."""
    if mask is None or not 0 <= mask < 1 << 53:
        return None
    return words_of(int(mask))


def _mark(row: Labels) -> tuple[Any, ...]:
    """Which GPU it is, before it is known by which key."""
    get = row.get
    return (
        get("UUID") or get("uuid"),
        get("GPU_I_ID"),
        get("Hostname") or get("host"),
        "UUID" in row,
    )
