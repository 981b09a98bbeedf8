"""Jobs: processes with the same launcher, such as torchrun, or in the same Slurm job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gputop.agent.snapshot import Process
from gputop.ui.processes.columns import program_and_arguments

SHELLS = {
    "bash",
    "sh",
    "dash",
    "zsh",
    "fish",
    "ksh",
    "tcsh",
    "csh",
    "tmux",
    "screen",
}
SESSIONS = {
    "login",
    "su",
    "sudo",
    "sshd",
    "cron",
    "Xorg",
    "gnome-shell",
    "code",
}
SERVICES = {
    "init",
    "systemd",
    "tini",
    "supervisord",
    "slurmstepd",
    "jupyter-lab",
}
RUNTIMES = {"containerd-shim", "containerd-shim-runc-v2", "conmon", "dockerd"}
NO_LAUNCHERS = SHELLS | SESSIONS | SERVICES | RUNTIMES
"""Programs that start unrelated processes, which are not a job."""


class Job(NamedTuple):
    """Processes that belong together, without duplicates. The launcher is the first."""

    name: str
    processes: tuple[Process, ...]


def process_key(process: Process) -> tuple[int, float | None, str | None]:
    """Return the identity of a process, which may be on several devices."""
    return process.pid, process.start_time, process.machine


def program_of(process: Process) -> str:
    """Return the base name of the program. A login shell has a `-` before it."""
    name, _ = program_and_arguments(process.command or "")
    return name.removeprefix("-").rstrip(":")


def launcher_of(process: Process) -> Process | None:
    """Return the parent, or None if it is unknown or starts unrelated processes.

    The parent uses no device, so its row has no UUID.
    """
    if process.parent_pid is None or process.parent_command is None:
        return None
    parent = Process(
        process.parent_pid,
        device_uuid="",
        kind=process.kind,
        command=process.parent_command,
        start_time=process.parent_start_time,
        machine=process.machine,
    )
    return None if program_of(parent) in NO_LAUNCHERS else parent


def job_of(process: Process, processes: Iterable[Process]) -> Job | None:
    """Return the job of a process, or None if the process is alone.

    The job is the Slurm job, or else the launcher and all of its processes.
    """
    found: dict[int, Process] = {}
    launcher = launcher_of(process)
    name = "job"
    if process.slurm_job is not None:
        name = f"Slurm job {process.slurm_job}"
    if launcher is not None:
        found[launcher.pid] = launcher
    for each in processes:
        if each.machine != process.machine:
            continue
        same_job = (
            process.slurm_job is not None
            and each.slurm_job == process.slurm_job
        )
        same_parent = launcher is not None and each.parent_pid == launcher.pid
        if same_job or same_parent or each.pid == process.pid:
            found.setdefault(each.pid, each)
    if len(found) < 2:
        return None
    return Job(name, tuple(found.values()))
