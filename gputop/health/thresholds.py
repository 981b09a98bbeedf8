"""Thresholds of all findings, each with its reason.

A limit has one number at which a finding begins and another at which it ends. Between the two, the
finding stays as it is, so that noise does not make it appear and disappear.
"""

from __future__ import annotations

from typing import NamedTuple

GIB = 1 << 30


class Limit(NamedTuple):
    """A lower limit if `begin` is above `end`, else an upper limit."""

    begin: float
    end: float

    def passed(self, value: float, *, held: bool) -> bool:
        """Return True if the value starts a finding, or keeps it if it is `held`."""
        limit = self.end if held else self.begin
        return value >= limit if self.begin >= self.end else value <= limit


WINDOW_SECONDS = 60.0
"""Seconds of the usual window. A minute holds several steps of most jobs, and its mean is not
changed much by a checkpoint or a single odd sample."""
SHORT_SECONDS = 30.0
"""Window for traffic, which is steady."""
LONG_SECONDS = 600.0
"""Window for time lost and for rare errors: ten minutes."""
FEWEST_SAMPLES = 6
"""Fewest numbers for a useful mean. A long interval makes the window longer."""
ENOUGH_OF_WINDOW = 0.5
"""Share of a window that must have passed and have readings. Half is enough for an active finding.
"""

WORKS = Limit(10, 5)
"""Busy, %. Below this there is hardly any work, so nothing is slow."""
STARVED = Limit(80, 85)
"""Busy, %. More than a fifth of idle time is not explained by launches, logging and checkpoints."""
FULL_CORE = Limit(90, 80)
"""CPU of a process, % of one core. A thread that never waits reaches 95 to 100."""
FULL_HOST = Limit(95, 90)
"""CPU of the host, %. Above this, processes wait for a core."""
IO_WAIT = Limit(30, 20)
"""% of the samples in uninterruptible sleep. Short driver calls also cause it."""
SAW_TOOTH = 50.0
"""Difference between highest and lowest busy, in points, that makes single gaps visible. Each
sample is the mean since the previous one. Gaps too short for the samples appear as slower waves of
up to 45 points."""
FEWEST_BETWEEN = 3.5
"""Fewest samples from one gap to the next. With fewer, some gaps are missed."""
NOISE = 0.1
"""Share of the range on both sides of the mean that counts as noise, not as a crossing. Each wave
crosses the mean, even if its tip falls between two samples."""
WHOLE = (0.9, 1.1)
"""Smallest and largest share of the window that the driver's samples must cover. A smaller share
means that some are missing, a larger one that some repeat."""

BUSY = Limit(90, 85)
"""Busy, %. Above this, a kernel is always running, and its efficiency matters."""
FEW_SMS = Limit(30, 40)
"""SM active, %. Matmuls have 80 and more. A kernel that waits for a peer (NCCL) has 5 to 25."""
FEW_WATTS = Limit(28, 33)
"""Power, % of the limit. An idle device draws 10 to 17, copies in memory about 50."""
SMS_WORK = Limit(50, 40)
"""SM active, %. Above this, the kind of work matters. Below it, the device is poorly used,
according to NVIDIA: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html
"""
HALF_OF_SMS = Limit(SMS_WORK.begin, SMS_WORK.begin + 10)
"""SM active, %. Up to this, there is too little work for the SMs, whatever its kind."""
NO_TENSOR = Limit(1, 2)
"""Tensor active, %. Even a job with small matmuls has several; GPM's noise is below one."""
FP64 = 10.0
"""FP64 active, %. From this on, the work is a simulation that needs the precision."""
DRAM = Limit(70, 60)
"""DRAM active, %. The practical maximum is about 90; reading with small gaps reaches 70."""
LITTLE_TENSOR = Limit(25, 30)
"""Tensor active, %. Above this, memory is not the only limit."""

TENSOR_WORKS = Limit(25, 20)
"""Tensor active, %, from which tensor cores are the bottleneck. Good training reaches 35 to 40 % of
the peak and has about 40. Work between its matmuls takes the rest of the time."""
PIPE_WORKS = Limit(40, 35)
"""FP32, FP16 or FP64 active, %, from which these units are the bottleneck (as in gpmtop). An FMA is
issued together with loads and stores, so even a dense FP32 product hardly exceeds 80."""
MEMORY_WORKS = Limit(75, 65)
"""Memory busy, %, of a device without GPM. A real H100 has 11 while it multiplies matrices
(gpu-burn); decoding and copies have 80 and more. This is time, not bandwidth."""
MUCH_POWER = Limit(70, 65)
"""Power, % of the limit, of a device without GPM. A real H100 has 90 while it multiplies matrices,
and about 50 for copies in memory."""
NVLINK_WORKS = Limit(20e9, 10e9)
"""Bytes per second in one direction: a tenth of NVLink's bandwidth, and far more than the flags for
which GPUs wait."""

PCIE_SHARE = Limit(70, 60)
"""% of the link's bandwidth without headers. Copies reach about 85."""
LINK_LOAD = Limit(50, 30)
"""Busy, %. An idle device slows its link down to save power, which is normal."""
FAST_STATES = 3
"""Slowest performance state (P3) in which the link must be fast. With little work, both may slow.
"""

POWER_CAP = Limit(30, 15)
"""% of the time at the power limit. Less means single peaks."""
LIMIT_LOWERED = 0.97
"""Share of the default power limit below which it counts as lowered. Rounding causes less."""
HEAT = Limit(5, 1)
"""% of the time slowed by heat: four samples of a minute, not one."""
HARDWARE = Limit(4, 0.5)
"""% of the time slowed by hardware: three samples of a minute. It should never happen."""
CLOCK_LOAD = Limit(80, 70)
"""Busy, %. With little work, clocks are low without a problem."""
LOW_CLOCK = Limit(60, 65)
"""SM clock, % of the maximum. GeForce and laptop devices run at 70 to 90 under load."""
NO_REASON = Limit(80, 70)
"""% of the time without any clock event reason."""

HELD = Limit(1.0 * GIB, 0.75 * GIB)
"""Bytes held. A context alone takes about half of this."""
IDLE_SECONDS = 300.0
"""Seconds without work. A user who reads a result or edits a cell comes back sooner."""
IDLE = Limit(1, 3)
"""Highest busy, %. A display or a monitor sometimes causes 1."""
UNATTRIBUTED = Limit(1.5 * GIB, 1.25 * GIB)
"""Bytes that no process holds. Driver contexts and rounding take up to about one GiB."""
GHOST = Limit(20, 10)
"""Busy, %, without a process."""
FULL = Limit(98, 97)
"""Memory, % of the usable. Allocators that reserve 90 to 95 are not a problem."""
FULL_MARK = 0.95
"""Share of the memory in use that is marked even if it is no finding."""

STRAGGLER = Limit(-8, -5)
"""SM clock, % from the median of its peers. Healthy devices of one model differ by 2 to 4."""
AT_WORK = 50.0
"""Busy, %, that a sample needs for its clock to count. Below it, the device was mostly idle."""
STRAGGLER_LOAD = Limit(50, 40)
"""Busy, %, that the device and its peers need. Below it, clocks mean nothing."""
MORE_MEMORY = Limit(15, 12)
"""Memory above the median of its peers, % of the total."""
LESS_BUSY = Limit(25, 20)
"""Busy below the median of its peers, in points."""

RANK_SECONDS = 20.0
"""Window of the ranks of a job: several steps of most jobs, and more than a slow collective."""
FALLEN = Limit(50, 60)
"""Power, % of its highest in ten minutes, of a device without GPM that may wait in a collective. It
then draws a fifth to a third of it."""
RANK_LESS_BUSY = Limit(10, 6)
"""Busy below the median of the other ranks, in points. A rank that waits for others in NCCL is
always busy, so this one waits for something else."""
RANK_MORE_POWER = Limit(15, 10)
"""Power above the median of the other ranks, in points of the limit. Healthy GPUs that do the same
work differ by up to 5."""
RANK_MORE_TENSOR = Limit(10, 7)
"""Tensor active above the median of the other ranks, in points. Ranks that do the same work differ
by 1 or 2."""
WINDOWS = (
    RANK_SECONDS,
    SHORT_SECONDS,
    WINDOW_SECONDS,
    IDLE_SECONDS,
    LONG_SECONDS,
)
"""All windows."""
FEWEST_RANKS = 3
"""Fewest ranks for a comparison. Of two, either may be the slow one."""

LOG_SECONDS = 86_400.0
"""Age up to which an Xid in the kernel's log is a finding of doctor."""
XID_SECONDS = 3600.0
"""Seconds for which an Xid is a finding."""
ECC_SECONDS = LONG_SECONDS
"""Window in which corrected errors are counted."""
ECC_MANY = 10
"""Corrected errors in that window. One may be cosmic radiation, many mean a row that wears out."""

FEWEST_PEERS = 3
"""Fewest other GPUs of a job in a fleet for a comparison. With two GPUs, either may be wrong."""
DEVIATIONS = 5.0
"""Robust standard deviations that make a straggler, in a fleet or among ranks, if its peers differ
among themselves."""
WARM_MARGIN, HOT_MARGIN = 15, 5
"""°C below the slowdown from which a temperature is marked as warm, and as hot."""
HOT, HOT_MEMORY = 85.0, 95.0
"""°C in a fleet. Data centre GPUs slow down from about 87, their memory from 95."""
