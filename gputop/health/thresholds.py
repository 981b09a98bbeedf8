"""Thresholds of all findings, each with its reason.

A limit has two numbers: one for a finding to begin and one for it to end. Between them a finding
stays as it is, so that noise around one number does not make it come and go.
"""

from __future__ import annotations

from typing import NamedTuple

GIB = 1 << 30


class Limit(NamedTuple):
    """A lower limit if `begin` is above `end`, else an upper limit."""

    begin: float
    end: float

    def passed(self, value: float, *, held: bool) -> bool:
        """Return True if a finding begins at the value or, if `held` already, stays."""
        limit = self.end if held else self.begin
        return value >= limit if self.begin >= self.end else value <= limit


WINDOW_SECONDS = 60.0
"""Seconds of the usual window. A minute holds several steps of most jobs, and its mean does not
follow a checkpoint or a single odd sample."""
SHORT_SECONDS = 30.0
"""Window for traffic, which is even while it lasts."""
LONG_SECONDS = 600.0
"""Window for trends and for time lost: ten minutes."""
FEWEST_SAMPLES = 6
"""Fewest numbers with a useful mean. A long interval makes the window longer."""
ENOUGH_OF_WINDOW = 0.5
"""Share of a window that must have passed and have readings. Half is enough for a held finding."""

WORKS = Limit(10, 5)
"""Busy, %: with less there is hardly any work, and so nothing is slow."""
STARVED = Limit(80, 85)
"""Busy, %: a fifth of the time idle is more than launches, logging and checkpoints take."""
FULL_CORE = Limit(90, 80)
"""CPU of a process, % of one core: a thread that never waits has 95 to 100, and Python has one."""
FULL_HOST = Limit(95, 90)
"""CPU of the host, %: processes wait for a core."""
IO_WAIT = Limit(30, 20)
"""% of the samples in uninterrupted sleep: driver calls are in it for a moment, too."""
SAW_TOOTH = 50.0
"""Points between highest and lowest busy from which single gaps are visible. Each sample is a mean
since the one before; waves too fast for them appear as slower waves of up to 45 points."""
FEWEST_BETWEEN = 3.5
"""Fewest samples from one gap to the next. With fewer some gaps are missed."""
NOISE = 0.1
"""Share of the range on both sides of the mean that counts as noise, not as a crossing. Each wave
crosses the mean, even if its tip falls between two samples."""
WHOLE = (0.9, 1.1)
"""Smallest and largest share of the window that the driver's samples must cover. With less some are
missing, with more some repeat."""

BUSY = Limit(90, 85)
"""Busy, %: a kernel is always running; the question is what it does."""
FEW_SMS = Limit(30, 40)
"""SM active, %: matmuls have 80 and more, and a kernel that waits for a peer (NCCL) 5 to 25."""
FEW_WATTS = Limit(28, 33)
"""Power, % of the limit: an idle device draws 10 to 17, copies in memory about 50."""
SMS_WORK = Limit(50, 40)
"""SM active, %: enough that the kind of work matters. Below it the device is hardly used well, says
NVIDIA: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html"""
HALF_OF_SMS = Limit(SMS_WORK.begin, SMS_WORK.begin + 10)
"""SM active, %, up to which work is short of SMs, not of what they do."""
NO_TENSOR = Limit(1, 2)
"""Tensor active, %: even a job with small matmuls has several; GPM's noise is below one."""
FP64 = 10.0
"""FP64 active, %: from here on it is a simulation that needs the precision."""
DRAM = Limit(70, 60)
"""DRAM active, %: about 90 is the most possible; reading with small gaps reaches 70."""
LITTLE_TENSOR = Limit(20, 25)
"""Tensor active, %: with more of it than this, memory is not the only limit."""

TENSOR_WORKS = Limit(25, 20)
"""Tensor active, %, from which on tensor cores set the pace. Training that reaches 35 to 40 % of
the peak, which is good, has about 40. Work between its matmuls takes the rest of the time."""
PIPE_WORKS = Limit(40, 35)
"""FP32, FP16 or FP64 active, %, from which on these units set the pace (as in gpmtop). An FMA is
issued with loads and stores, and so even a dense FP32 product hardly has more than 80."""
MEMORY_WORKS = Limit(75, 65)
"""Memory busy, %, of a device without GPM. A real H100 has 11 while it multiplies matrices
(gpu-burn); decoding and copies have 80 and more. It is time, not bandwidth."""
MUCH_POWER = Limit(70, 65)
"""Power, % of the limit, of a device without GPM: a real H100 has 90 while it multiplies matrices,
and copies in memory have about 50."""
NVLINK_WORKS = Limit(20e9, 10e9)
"""Bytes a second in one direction: a tenth of what NVLink carries, and far more than the flags by
which GPUs wait for each other."""

PCIE_SHARE = Limit(70, 60)
"""% of the link's bandwidth before headers. Copies reach about 85."""
LINK_LOAD = Limit(50, 30)
"""Busy, %: an idle device slows its link down to save power, which is normal."""
FAST_STATES = 3
"""Slowest performance state (P3) in which the link must be fast. With little work both may slow."""

POWER_CAP = Limit(30, 15)
"""% of the time at the power limit: less are single peaks."""
LIMIT_LOWERED = 0.97
"""Share of the default power limit below which somebody has lowered it. Rounding is less."""
HEAT = Limit(5, 1)
"""% of the time slowed by heat: three samples of a minute, not one."""
HARDWARE = Limit(4, 0.5)
"""% of the time slowed by hardware: three samples of a minute; it should never happen."""
CLOCK_LOAD = Limit(80, 70)
"""Busy, %: clocks are low by themselves with little to do."""
LOW_CLOCK = Limit(60, 65)
"""SM clock, % of the maximum: GeForce and laptop devices run at 70 to 90 of theirs under load."""
NO_REASON = Limit(80, 70)
"""% of the time without any clock event reason."""

HELD = Limit(1.0 * GIB, 0.75 * GIB)
"""Bytes held: a context alone takes about half of that."""
IDLE_SECONDS = 300.0
"""Seconds without work. Somebody who reads a result or edits a cell comes back sooner."""
IDLE = Limit(1, 3)
"""Busy, %, at its highest: a display or a monitor makes 1 now and then."""
UNATTRIBUTED = Limit(1.5 * GIB, 1.25 * GIB)
"""Bytes that no process holds: driver contexts and rounding take up to about one GiB."""
GHOST = Limit(20, 10)
"""Busy, %, without a process."""
FULL = Limit(98, 97)
"""Memory, % of the usable. Allocators that reserve 90 to 95 are not about to run out."""
FULL_MARK = 0.95
"""Share of the memory in use from which it is marked, though it is not about to run out."""
FULL_SOON_SECONDS = Limit(600, 900)
"""Seconds until it is full at the present growth: time to save and stop."""
FILLING = Limit(50, 45)
"""Memory, %: from here on growth can mean that it runs out. Loading a model grows, too."""
FILLING_SECONDS = 120.0
"""Seconds of growth needed. Before that it may be loading."""
LEAK_FIT = Limit(0.9, 0.8)
"""Straightness of the growth (R²). Steps of a cache or of changing batches are less straight."""
LEAK_SHARE = Limit(1.0, 0.7)
"""Growth over the window, % of the memory: less is fragmentation."""

STRAGGLER = Limit(-8, -5)
"""SM clock, % from the median of its peers. Good devices of a kind differ by 2 to 4."""
AT_WORK = 50.0
"""Busy, %, of a sample whose clock counts. In one with less the device was mostly idle."""
STRAGGLER_LOAD = Limit(50, 40)
"""Busy, %, of the device and of its peers. With less, clocks mean nothing."""
MORE_MEMORY = Limit(15, 12)
"""Memory above the median of its peers, % of the total."""
LESS_BUSY = Limit(25, 20)
"""Busy below the median of its peers, in points."""

LOG_SECONDS = 86_400.0
"""Age up to which an Xid in the kernel's log is a finding of doctor."""
XID_SECONDS = 3600.0
"""Seconds for which an Xid is a finding."""
ECC_SECONDS = LONG_SECONDS
"""Window in which corrected errors are counted."""
ECC_MANY = 10
"""Corrected errors in that window. One may be cosmic, many mean a row that wears out."""

FEWEST_PEERS = 3
"""Other GPUs of a job in a fleet to compare with: of two, nobody can say which is wrong."""
DEVIATIONS = 5.0
"""Robust standard deviations that make a straggler in a fleet if its peers differ by themselves."""
WARM_MARGIN, HOT_MARGIN = 15, 5
"""°C below the slowdown from which a temperature is marked as warm, and as hot."""
FLEET_MARGIN = 3
"""°C below the slowdown from which a GPU of a fleet has a warning."""
HOT, HOT_MEMORY = 85.0, 95.0
"""°C in a fleet. Data centre GPUs slow down from about 87, and from 95 for their memory."""
