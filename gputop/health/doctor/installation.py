"""Checks of gputop itself: what it runs in, and what it writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop import DISTRIBUTION, FROM_CHECKOUT, __version__
from gputop.console import ascii_is_safer, locale_of, without_colours
from gputop.health.doctor.finding import Check, Group, Judgement, note, ok, warning
from gputop.sources.nvml.diagnosis import BINDINGS, other_bindings
from gputop.text import visible

if TYPE_CHECKING:
    from gputop.health.doctor.facts import Facts

_TERM = "Set TERM to what the terminal is, such as xterm-256color"


def version(facts: Facts) -> Iterator[Judgement]:
    """What to name where something is reported."""
    yield ok(f"gputop {__version__}, Python {facts.python_version}")


def bindings(facts: Facts) -> Iterator[Judgement]:
    """Which nvidia-ml-py is installed, and what else installs its module."""
    said = f"{BINDINGS} {facts.bindings.get(BINDINGS, 'of unknown version')}"
    if other := other_bindings(facts.bindings):
        yield note(f"{said}, used although {other} installs a pynvml too")
    else:
        yield ok(said)


def installation(facts: Facts) -> Iterator[Judgement]:
    """Judge what another distribution of the same name has overwritten."""
    if facts.other_gputop is None:
        yield ok(f"as {DISTRIBUTION}")
        return
    yield warning(
        f"another project's gputop {facts.other_gputop} is installed too, and shares its files",
        f"`pip uninstall gputop {DISTRIBUTION}`, then {FROM_CHECKOUT}",
    )


def terminal(facts: Facts) -> Iterator[Judgement]:
    """Whether the dashboard can be drawn, and in how many colours."""
    name = visible(facts.environment.get("TERM", ""), 40)
    if name in ("", "dumb"):
        said = warning if facts.on_terminal else note
        yield said(f"TERM is {name or 'not set'}: the dashboard cannot be drawn", _TERM)
    elif without_colours(facts.environment):
        yield ok(f"{name}, without colours (NO_COLOR)")
    elif facts.environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        yield ok(f"{name}, true colour")
    elif facts.colours is None:
        yield note(f"{name} is not known to terminfo: its colours are guessed", _TERM)
    elif facts.colours < 256 and name != "linux":
        yield note(f"{name}, {facts.colours} colours", _TERM)
    else:
        yield ok(f"{name}, {facts.colours} colours")


def characters(facts: Facts) -> Iterator[Judgement]:
    """Whether charts are drawn in more than ASCII."""
    locale = visible(locale_of(facts.environment), 40)
    if not ascii_is_safer(facts.environment):
        yield ok(f"locale {locale or 'not set'}, drawn in UTF-8")
    elif facts.environment.get("TERM") == "linux":
        yield note("drawn in ASCII: the Linux console has few glyphs", "`gputop --no-ascii` tries")
    else:
        yield note(
            f"drawn in ASCII: the locale {locale} is not UTF-8",
            "Set a UTF-8 locale such as LC_ALL=C.UTF-8, if the terminal has it",
        )


def results(facts: Facts) -> Iterator[Judgement]:
    """Whether the figures of stress tests can be kept."""
    file = visible(facts.results_file, 300)
    if facts.results_problem is None:
        yield ok(f"{file} can be written")
    else:
        yield warning(f"{file}: {facts.results_problem.why}", facts.results_problem.remedy)


CHECKS = (
    Check("version", Group.GPUTOP, "version", version),
    Check("bindings", Group.GPUTOP, "NVML bindings", bindings),
    Check("installation", Group.GPUTOP, "installation", installation),
    Check("terminal", Group.GPUTOP, "terminal", terminal),
    Check("characters", Group.GPUTOP, "characters", characters),
    Check("results", Group.GPUTOP, "results file", results),
)
