"""Jobs: processes with the same launcher, such as torchrun, or in the same Slurm job."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.agent.snapshot import Process
from gputop.ui.processes.columns import without_folder

NO_LAUNCHERS = {
    *("bash", "sh", "dash", "zsh", "fish", "ksh", "tcsh", "csh"),
    *("tmux", "screen", "login", "su", "sudo", "sshd", "cron"),
    *("Xorg", "gnome-shell", "code", "jupyter-lab"),
    *("init", "systemd", "tini", "supervisord", "slurmstepd"),
    *("containerd-shim", "containerd-shim-runc-v2", "conmon", "dockerd"),
}
"""Programs that start unrelated processes, which are not a job."""


def program_of(process: Process) -> str:
    """Return the base name of the program. A login shell has a `-` before it."""
    command = without_folder(process.command or "")
    return command.partition(" ")[0].removeprefix("-").rstrip(":")


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


def job_of(process: Process, processes: Iterable[Process]) -> list[Process]:
    """Return all processes of its Slurm job, and its launcher with all that this started.

    The launcher is the first. There are no duplicates, and none if the process is alone.
    """
    found: dict[int, Process] = {}
    launcher = launcher_of(process)
    if launcher is not None:
        found[launcher.pid] = launcher
    for each in processes:
        same_job = (
            process.slurm_job is not None
            and each.slurm_job == process.slurm_job
        )
        same_parent = launcher is not None and each.parent_pid == launcher.pid
        if each.machine == process.machine and (same_job or same_parent):
            found.setdefault(each.pid, each)
    return [*found.values()]
