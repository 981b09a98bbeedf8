"""From where on rules speak, and from where on they are silent again; each with its reason.

A limit has two numbers: what it takes to begin, and what it takes to end. Between them a finding
stays as it is, so that noise around one number does not make it come and go.
"""

from __future__ import annotations

from typing import NamedTuple

GIB = 1 << 30


class Limit(NamedTuple):
    """At least `begin` where that is above `end`, else at most."""

    begin: float
    end: float

    def passed(self, value: float, *, held: bool) -> bool:
        """Whether a finding begins at the value, or, where it is `held` already, stays."""
        limit = self.end if held else self.begin
        return value >= limit if self.begin >= self.end else value <= limit


WINDOW_SECONDS = 60.0
"""What is slow is slow for a while: a minute holds several steps of most jobs, and its mean does
not follow a checkpoint or a single odd sample."""
SHORT_SECONDS = 30.0
"""For traffic, which is even while it lasts."""
LONG_SECONDS = 600.0
"""For trends and for time lost: ten minutes."""
FEWEST_SAMPLES = 6
"""Fewer numbers than this have no mean worth telling; a long interval makes the window longer."""
ENOUGH_OF_WINDOW = 0.5
"""How much of a window has to have passed, and to have readings; half of that where it is held."""

WORKS = Limit(10, 5)
"""Busy, %: below this it does nothing much, and nothing is slow about that."""
STARVED = Limit(80, 85)
"""Busy, %: a fifth of the time idle is more than launches, logging and checkpoints take."""
FULL_CORE = Limit(90, 80)
"""CPU of a process, % of one core: a thread that never waits has 95 to 100, and Python has one."""
FULL_HOST = Limit(95, 90)
"""CPU of the host, %: whoever wants a core waits for it."""
IO_WAIT = Limit(30, 20)
"""% of the samples in uninterrupted sleep: driver calls are in it for a moment, too."""
SAW_TOOTH = 30.0
"""Points between the highest and the lowest busy from which on gaps are seen one by one."""
FINE_SAW_TOOTH = 50.0
"""The same among the driver's own samples: each is the mean of the time since the one before, and
what is faster than they can show is in them as something slower of up to 45 points."""
FINE_PERIOD = 3.5
"""Samples from one gap to the next, at least: with fewer, some of the gaps are not seen."""
FINE_CROSSING = 0.1
"""Share of the height between highest and lowest, to both sides of the mean, that is no crossing
of it: noise. The mean is crossed by each wave, also where its tip falls between two samples."""
FINE_WHOLE = (0.9, 1.1)
"""What they have to make up of the window: of less some are missing, and of more some repeat."""

BUSY = Limit(90, 85)
"""%: there is always a kernel; the question is what it does."""
FEW_SMS = Limit(30, 40)
"""SM active, %: matmuls have 80 and more, and a kernel that waits for a peer (NCCL) 5 to 25."""
FEW_WATTS = Limit(28, 33)
"""Power, % of the limit: an idle device draws 10 to 17, copies in memory about 50."""
SMS_WORK = Limit(50, 40)
"""SM active, %: enough that the kind of work matters."""
NO_TENSOR = Limit(1, 2)
"""Tensor active, %: even a job with small matmuls has several; GPM's noise is below one."""
FP64 = 10.0
"""FP64 active, %, from which on it is a simulation, and not one that should use lower precision."""
DRAM = Limit(70, 60)
"""DRAM active, %: about 90 is what can be reached, and reading with small gaps has 70."""
LITTLE_TENSOR = Limit(20, 25)
"""Tensor active, %: with more of it than this, memory is not the only limit."""

PCIE_SHARE = Limit(70, 60)
"""% of what the link can carry, before headers: about 85 is what copies reach."""
LINK_LOAD = Limit(50, 30)
"""Busy, %: without load a device slows its link down to save power, and that is well."""
FAST_STATES = 3
"""P0 to P3: in a slower performance state the link may be slower, too, with a little work."""

POWER_CAP = Limit(30, 15)
"""% of the time: less is a peak here and there."""
LIMIT_LOWERED = 0.97
"""Power limit, of the default, below which somebody has lowered it: rounding is less."""
HEAT = Limit(5, 1)
"""% of the time slowed by heat: three samples of a minute, not one."""
HARDWARE = Limit(4, 0.5)
"""% of the time slowed by hardware: three samples of a minute; it should never happen."""
CLOCK_LOAD = Limit(80, 70)
"""Busy, %: clocks are low by themselves where there is little to do."""
LOW_CLOCK = Limit(60, 65)
"""SM clock, % of the maximum: GeForce and laptop devices run at 70 to 90 of theirs under load."""
NO_REASON = Limit(80, 70)
"""% of the time without any clock event reason."""

HELD = Limit(1.0 * GIB, 0.75 * GIB)
"""Bytes: a context alone takes about half of that."""
IDLE_SECONDS = 300.0
"""Somebody who reads a result or edits a cell comes back before that."""
IDLE = Limit(1, 3)
"""Busy, %, at its highest: a display or a monitor makes 1 now and then."""
UNATTRIBUTED = Limit(1.5 * GIB, 1.25 * GIB)
"""Bytes: the driver's own contexts and rounding take up to about one GiB."""
GHOST = Limit(20, 10)
"""Busy, %, without a process."""
FULL = Limit(98, 97)
"""Memory, % of what can be had. Allocators that take 90 to 95 ahead are not about to run out."""
FULL_SOON_SECONDS = Limit(600, 900)
"""Until it is full at the present growth: time enough to save and stop."""
FILLING = Limit(50, 45)
"""Memory, %, from which on its growth can mean that it runs out: loading a model grows, too."""
FILLING_SECONDS = 120.0
"""Before that its growth may be that of loading."""
LEAK_FIT = Limit(0.9, 0.8)
"""How straight the growth is (R²): steps of a cache and of changing batches are not."""
LEAK_SHARE = Limit(1.0, 0.7)
"""Growth over the window, % of the memory: less is fragmentation."""

STRAGGLER = Limit(-8, -5)
"""SM clock, % against the median of its peers: good devices of a kind differ by 2 to 4."""
STRAGGLER_LOAD = Limit(50, 40)
"""Busy, %: of it and of its peers, else clocks say nothing."""
MORE_MEMORY = Limit(15, 12)
"""Memory, % of the total beside the median of its peers."""
LESS_BUSY = Limit(25, 20)
"""Busy, points beside the median of its peers."""

XID_SECONDS = 3600.0
"""How long an Xid is told."""
ECC_SECONDS = LONG_SECONDS
"""Over which corrected errors are counted."""
ECC_MANY = 10
"""Corrected errors in that time; one is cosmic, many are a row that wears out."""
