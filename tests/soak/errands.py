"""What a user does at the dashboard: each errand begins and ends on the monitor."""

from __future__ import annotations

from typing import NamedTuple

from tests.e2e.shipped import (
    DOWN,
    END,
    ENTER,
    ESCAPE,
    F9,
    HOME,
    LEFT,
    PAGE_DOWN,
    PAGE_UP,
    RIGHT,
    TAB,
    UP,
)


class Step(NamedTuple):
    """Keys, or a size of the terminal, and how long one looks at what comes of it."""

    does: str | tuple[int, int]
    seconds: float = 0.3


SIZE = (160, 50)
STRESS_TEST = "stress test"
TESTS_A_MINUTE = 2.5
"""Stress tests, whatever else is to be done."""
ERRANDS: dict[str, tuple[Step, ...]] = {
    "page": (
        Step(f"{DOWN}{DOWN}"),
        Step(ENTER, 1.0),
        Step("n"),
        Step(LEFT * 5),
        Step(RIGHT * 5),
        Step("zza"),
        Step("ZZa"),
        Step(PAGE_DOWN),
        Step("0p"),
        Step(ESCAPE),
    ),
    "why": (Step("w", 1.0), Step("w", 1.0), Step(f"{DOWN}{PAGE_DOWN}{UP}"), Step(ESCAPE)),
    "processes": (
        Step("3", 1.0),
        Step("..,"),
        Step("tI"),
        Step(f"{DOWN}{END}{HOME}{PAGE_DOWN}{PAGE_UP}"),
        Step("tI"),
        Step("1"),
    ),
    "tabs": tuple(Step(tab, 0.5) for tab in "2312131"),
    "filter": (Step("/"), Step("train-1", 1.0), Step(ENTER), Step(ESCAPE), Step(ESCAPE)),
    "palette": (Step("\x10"), Step("dens"), Step(ESCAPE)),
    "help": (Step("?", 1.0), Step(PAGE_DOWN), Step(ESCAPE)),
    "density": (Step("c"), Step("c"), Step("c")),
    "pause": (Step(" ", 4.0), Step(f"{DOWN}w"), Step(ESCAPE), Step(" ")),
    "interval": (Step("+", 2.0), Step("-")),
    "theme": (Step("T"), Step("T")),
    "environment": (Step(f"{TAB}{DOWN}"), Step("e", 0.6), Step(ESCAPE), Step(TAB)),
    "signal": (Step(f"{TAB}{DOWN}"), Step(F9, 0.6), Step(ESCAPE), Step(TAB)),
    STRESS_TEST: (
        Step("2", 1.0),
        Step("b", 1.0),
        Step("y", 8.0),
        Step("x", 1.5),
        Step(f"{DOWN}{UP}"),
        Step(ESCAPE),
        Step("1"),
    ),
    "recording": (Step("r", 4.0), Step("r")),
    "sizes": (
        *(Step(size) for size in ((80, 24), (1, 1), (250, 80), (40, 10), (120, 30), (200, 8))),
        Step(SIZE),
    ),
    "a flurry of sizes": (*(Step((60 + 3 * n, 12 + n), 0.02) for n in range(40)), Step(SIZE)),
    "paste": (Step(f"\x1b[200~{'1 2 3 ' * 500}\x1b[201~"),),
}
