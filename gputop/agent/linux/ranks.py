"""Rank of a process in a parallel job, from its environment.

Launchers such as torchrun, mpirun and srun set these variables before they start a rank. Only the
variables of `NAMES` are kept of an environment, which may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gputop.agent.linux import procfs

ENVIRON_BYTES = 1 << 21
"""Most bytes of an environment to read: the kernel's usual limit for a new program."""
RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Variables with the rank and the number of ranks: of torchrun, DeepSpeed and Accelerate, Open MPI,
MPICH, PMIx and srun. The first that is set counts: srun often starts a torchrun on each host."""
TORCH, SLURM = "RANK", "SLURM_PROCID"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
SLURM_JOB, SLURM_STEP = "SLURM_JOB_ID", "SLURM_STEP_ID"
RUN, NAMESPACE = "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"
NAMES = frozenset(
    [
        *(name for pair in RANKS for name in pair),
        *(ADDRESS, PORT, SLURM_JOB, SLURM_STEP, RUN, NAMESPACE),
    ]
)
"""The only variables that are kept."""
NO_RUN = ("", "none")
"""Values of `TORCHELASTIC_RUN_ID` for a run without an id."""
THIS_HOST = ("localhost", "127.", "::1", "0.0.0.0")  # noqa: S104 - nothing listens here
"""Beginnings of addresses that mean another machine on each machine."""
MOST_RANKS = 1 << 20
LONGEST = 256
"""Most characters of a variable. Names of hosts have up to 253."""


class Rank(NamedTuple):
    """Place of a process in a parallel job; all None if it is in none."""

    rank: int | None = None
    world_size: int | None = None
    """Number of ranks of the job, if known."""
    job_id: str | None = None
    """The same for all ranks of a job, on all hosts."""


def read_variables(pid: int, proc: str) -> dict[str, str]:
    """Return the variables of a process. Raises OSError if they are hidden. May block."""
    return kept_variables(procfs.read(f"{proc}/{pid}/environ", ENVIRON_BYTES))


def kept_variables(data: bytes) -> dict[str, str]:
    """Return the variables of `NAMES` in the content of /proc/PID/environ."""
    found = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and procfs.text(name) in NAMES and len(value) <= LONGEST:
            found[procfs.text(name)] = procfs.text(value)
    return found


def rank_of(variables: Mapping[str, str], home: str, parent_pid: int) -> Rank:
    """Return the rank that these variables describe.

    `home` is the name of the process's machine or container.
    """
    for name, size_name in RANKS:
        rank = _number(variables.get(name))
        if rank is None:
            continue
        if name == SLURM and SLURM_STEP not in variables:
            # The script of a batch job has these numbers, too, and is no rank.
            continue
        size = _number(variables.get(size_name))
        if size is not None and size <= rank:
            size = None
        if name == TORCH and size is None:
            # A variable of this name may mean anything.
            continue
        return Rank(rank, size, _job_id(variables, home, parent_pid))
    return Rank()


def _job_id(variables: Mapping[str, str], home: str, parent_pid: int) -> str:
    """Return the id of a job. Without one for all hosts, it is the launcher on this host."""
    address, port = variables.get(ADDRESS), variables.get(PORT)
    if address and port:
        if address.startswith(THIS_HOST):
            address = home
        return f"{address}:{port}"
    job, step = variables.get(SLURM_JOB), variables.get(SLURM_STEP)
    if job and step:
        return f"slurm {job}.{step}"
    if variables.get(NAMESPACE):
        return variables[NAMESPACE]
    run = variables.get(RUN, "")
    if run not in NO_RUN:
        return run
    return f"{home} pid {parent_pid}"


def _number(text: str | None) -> int | None:
    """Return a plausible number, or None."""
    if text is None or not text.isdecimal() or len(text) > LONGEST:
        return None
    number = int(text)
    return number if number < MOST_RANKS else None
