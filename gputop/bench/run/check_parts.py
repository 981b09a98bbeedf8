"""Checks: runs of several kinds one after the other. Each part is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gputop.bench.events import SCHEMA
from gputop.bench.plan import request as plan
from gputop.bench.plan.kinds import DTYPES, KINDS
from gputop.bench.plan.request import Request, Target
from gputop.bench.plan.target_choice import copies_to_others, with_peers
from gputop.bench.results.outliers import DeviceOutcome, device_outcome
from gputop.bench.run.series import KEPT_ITEMS, RunCurves

if TYPE_CHECKING:
    from gputop.bench.run.device_run import DeviceRun


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a check, with its share of the time."""

    kind: str
    share: float
    dtype: str | None = None
    """Data type in place of the check's."""
    verify_all: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.dtype or ''}{', all verified' * self.verify_all}".rstrip()


@dataclass(frozen=True, slots=True)
class Level:
    """Parts of a check. Copies come first, while the device is cold."""

    seconds: float
    """Measured seconds; starting the parts takes some more each."""
    parts: tuple[Part, ...]


def _parts(**shares: float) -> tuple[Part, ...]:
    return tuple(Part(kind, share) for kind, share in shares.items())


_TYPES = (
    Part("soak", 0.06, "tf32"),
    Part("soak", 0.06, "float8_e4m3"),
    Part("soak", 0.06, "int8"),
)
_STANDARD = (
    *_parts(
        copy=0.05,
        peak=0.1,
        step=0.08,
    ),
    *_TYPES,
    *_parts(memory=0.14, pulse=0.06),
    Part("soak", 0.23, verify_all=True),
    *_parts(
        burn=0.12,
        collective=0.04,
    ),
)
_BURN_IN = (
    *_parts(copy=0.02, memory=0.2),
    Part("soak", 0.25, verify_all=True),
    *_parts(
        pulse=0.08,
        burn=0.4,
        collective=0.05,
    ),
)
LEVELS = {
    "quick": Level(
        80.0,
        _parts(
            copy=0.1,
            memory=0.2,
            soak=0.4,
            burn=0.2,
            collective=0.1,
        ),
    ),
    "standard": Level(450.0, _STANDARD),
    "burn-in": Level(3500.0, _BURN_IN),
}
"""Checks by name, of two minutes, ten minutes, and an hour."""
DEFAULT_LEVEL = "quick"
PEER_SECONDS = 2.0
"""Length of `copy` for each GPU and each other one to which it copies: two GPUs have 2 such pairs,
and eight have 56. A shorter run would measure only some of the links. A fast link takes a third."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """A part that has ended, or was left out."""

    name: str
    seconds: float
    """Planned seconds."""
    left_out: str = ""
    """Reason why it did not run, on all devices or on those that are named."""
    incomplete: bool = False
    """True if a device was left out for another reason than its sort, such as too little memory."""
    members: tuple[DeviceOutcome, ...] = ()
    series: tuple[RunCurves, ...] = ()
    """Runs over time of the first members, in their order."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check so far. `method` has its devices, data type and options, by name."""

    level: str
    started_at: float
    """Unix seconds."""
    method: Mapping[str, str]
    planned: int
    """Number of all parts."""
    parts: tuple[PartResult, ...] = ()

    @property
    def complete(self) -> bool:
        """True if at least one part ran, and each part ran on every device that it applies to."""
        ran = any(part.members for part in self.parts)
        return ran and not any(part.incomplete for part in self.parts)

    def document(self) -> dict[str, Any]:
        """Return the check as `--json` prints it."""
        return {"schema": SCHEMA, **asdict(self)}

    def added(self, part: PartResult) -> CheckResult:
        """Return the check with one more part."""
        return replace(self, parts=(*self.parts, part))


def part_requests(
    part: Part, whole: Sequence[Request]
) -> tuple[list[Request], PartResult]:
    """Return the requests of a part, and its result so far, with the devices that it leaves out.

    The requests of the check have its devices, its data type, and the seconds of all parts.
    """
    targets = [each.target for each in whole]
    seconds = max(_least_seconds(part, targets), part.share * whole[0].seconds)
    planned = PartResult(part.name, seconds)
    may_verify = not KINDS[part.kind].has_rows
    asked = []
    for each in whole:
        request = replace(
            each,
            kind=part.kind,
            dtype=part.dtype or each.dtype,
            seconds=seconds,
            verify_all=part.verify_all or (each.verify_all and may_verify),
        )
        asked.append(request)
    if targets[0].simulated and not KINDS[part.kind].is_simulated:
        return [], replace(planned, left_out="it is not simulated")
    alone = len(targets) == 1 and targets[0].host is None
    if part.kind == "collective" and alone and targets[0].kind == "cpu":
        ranks = plan.cpu_ranks(None, targets[0].memory_share)
        asked = [replace(asked[0], target=rank) for rank in ranks]
    problem = plan.check_together(asked)
    if problem is not None:
        return [], replace(planned, left_out=problem.why)
    fit: list[Request] = []
    said = []
    incomplete = False
    for request in asked:
        problem = plan.check_request(request)
        if problem is None:
            fit.append(request)
            continue
        said.append(f"{request.target.label}: {problem.why}")
        if plan.why_missing(DTYPES[request.dtype], request.target) is None:
            incomplete = True
    planned = replace(planned, left_out="; ".join(said), incomplete=incomplete)
    return with_peers(fit) if fit else [], planned


def _least_seconds(part: Part, targets: Sequence[Target]) -> float:
    """Return the shortest useful run of a part on these devices."""
    if part.kind == "copy":
        gpus = sum(copies_to_others(target) for target in targets)
        return max(plan.SHORTEST_SECONDS, PEER_SECONDS * gpus * (gpus - 1))
    return plan.SHORTEST_SECONDS


def part_result(
    planned: PartResult,
    runs: Sequence[DeviceRun],
    others: Sequence[DeviceOutcome] = (),
) -> PartResult:
    """Return the result of a part whose runs have ended. `others` could not be tested."""
    members = (*map(device_outcome, runs), *others)
    return replace(
        planned,
        members=members,
        series=tuple(run.history(KEPT_ITEMS) for run in runs),
    )
