"""The container, the pod and the Slurm job that a process is in, told from its control groups."""

from __future__ import annotations

import re

from gputop.frozen import dataclass

ID_DIGITS = 12
"""How much of a container's id its own tools show."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs; each is None for one that is in none."""

    container: str | None = None
    """The first digits of its id; its name where containers have no id (LXC, systemd-nspawn)."""
    pod: str | None = None
    """The uid of the Kubernetes pod, with dashes where it has them."""
    slurm_job: str | None = None


# The id alone (cgroupfs driver), or behind the runtime's name (systemd driver; with colons where
# containerd has one and the kubelet has the other). conmon watches a container from outside of it,
# as does lxc.monitor; qemu is a machine, but no container.
_CONTAINER = re.compile(
    r"/(?:(?![^/]*conmon)[^/]*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?(?=/|$)"
    r"|/(?:lxc/|lxc\.payload[./])(?P<lxc>[^/]+)"
    r"|/machine-(?!qemu)(?P<scope>[^/]+)\.scope(?=/|$)"
    r"|/systemd-nspawn@(?P<service>[^/]+)\.service(?=/|$)"
)
# Of a static pod it is a digest, without dashes.
_POD = re.compile(
    r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
# In front of the name, or behind it, stands the node's where one machine runs several slurmd.
_JOB = re.compile(
    r"/(?:slurm(?:_[^/]*)?|(?:[^/]*_)?slurmstepd\.scope)/(?:uid_[0-9]+/)?job_([0-9]+)(?=/|$)"
)


def place_of(cgroup: str) -> Place:
    """What the text of `/proc/PID/cgroup` says, of version 1 or 2, or of both at once.

    Of containers in containers it is the innermost. Never raises; names come as they are.
    """
    # `hierarchy:controllers:path`; in version 1 a hierarchy may know nothing of the container.
    paths = [line.split(":", 2)[-1].removesuffix(" (deleted)") for line in cgroup.split("\n")]
    return Place(
        next(filter(None, map(_container, paths)), None),
        next(filter(None, map(_pod, paths)), None),
        next(filter(None, map(_slurm_job, paths)), None),
    )


def _container(path: str) -> str | None:
    found = None
    for match in _CONTAINER.finditer(path):
        found = match
    if found is None:
        return None
    if found["id"]:
        return found["id"][:ID_DIGITS]
    # systemd escapes the dash, the one such character that a machine's name may have.
    return found["lxc"] or (found["scope"] or found["service"]).replace("\\x2d", "-")


def _pod(path: str) -> str | None:
    uids: list[str] = _POD.findall(path) if "kubepods" in path else []
    return uids[-1].replace("_", "-") if uids else None


def _slurm_job(path: str) -> str | None:
    match = _JOB.search(path)
    return match[1] if match else None
