"""`pulse`: products in a square wave, for power supplies and voltage regulators."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .errors import RunError
from .soak import measure, prepare
from .throughput import SoakTotals

if TYPE_CHECKING:
    from .main import Run

LONGEST_SHARE = 0.25
"""Longest product, as a share of the period: half of what the load may last."""


def pause(hertz: float, work: float) -> float:
    """Return the seconds until work of so many seconds may begin, so that it ends with the load.

    The load is in the first half of each period of the clock of the day: devices of one host are
    in phase, and those of hosts whose clocks agree. Work that is longer may begin with it.
    """
    phase = time.time() * hertz % 1.0
    if 0.5 - phase >= min(work * hertz, 0.45):
        return 0.0
    return (1.0 - phase) / hertz


def pulse(device: Any, run: Run) -> None:
    """Prepare, then make products in the first half of each period until the time is up."""
    hertz: float = run.request["hertz"]
    product, pace = prepare(device, run)
    if pace.product_seconds * hertz > LONGEST_SHARE:
        why = f"a product takes {pace.product_seconds:.3g} s, and the load {0.5 / hertz:.3g} s"
        what, remedy = "The products are too long for these pulses", "Choose a smaller --size"
        raise RunError("too_slow", what, why, f"{remedy}, or a lower --frequency")
    if device.place == "cuda":
        run.notes.append(
            "power is read once a second, and most GPUs since Ampere report its mean over 1 s "
            "(not A100 and A30): pulses faster than 0.5 Hz look flat in it"
        )
    totals = run.totals
    assert isinstance(totals, SoakTotals)
    totals.pulsed = True
    pace.pause = partial(pause, hertz)
    measure(device, run, product, pace)
    seconds, products, busy = totals.now
    if products:
        loaded = f"loaded for {100 * busy / seconds:.3g} % of the time, at {hertz:g} Hz"
        run.notes.append(f"{loaded}, with {totals.rate(products, busy):.4g} TFLOP/s while loaded")
