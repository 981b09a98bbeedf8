import pytest

from gputop.agent.linux.cgroup import Cgroup, parse_cgroup

ID = "4f1c0ab2d9e7" + "8635" * 13
OTHER = "b00b1e5c0de5" + "9ace" * 13
SHORT = ID[:12]
UID = "2b7c1f30-5a4e-4d1b-9c7e-0f6a8b9c0d1e"
UID_ = UID.replace("-", "_")
STATIC = "7260904bbd08e72e4dff95d9fccd2ee8"
QOS = "/kubepods.slice/kubepods-burstable.slice"
USER = "/user.slice/user-1000.slice/user@1000.service"
TABLE: dict[str, tuple[str, Cgroup]] = {
    "a session": ("0::/user.slice/user-1000.slice/session-4.scope\n", Cgroup()),
    "docker, systemd": (f"0::/system.slice/docker-{ID}.scope\n", Cgroup(SHORT)),
    "docker, cgroupfs": (f"0::/docker/{ID}\n", Cgroup(SHORT)),
    "docker, v1, one hierarchy without it": (
        f"13:rdma:/\n12:devices:/docker/{ID}\n0::/system.slice/containerd.service\n",
        Cgroup(SHORT),
    ),
    "docker in docker": (f"0::/docker/{OTHER}/docker/{ID}\n", Cgroup(SHORT)),
    "docker, ended": (f"0::/system.slice/docker-{ID}.scope (deleted)\n", Cgroup(SHORT)),
    "ecs": (f"9:memory:/ecs/0f1d{'0' * 28}/{ID}\n", Cgroup(SHORT)),
    "podman": (f"0::/machine.slice/libpod-{ID}.scope/container\n", Cgroup(SHORT)),
    "podman's conmon": (f"0::/machine.slice/libpod-conmon-{ID}.scope\n", Cgroup()),
    "kubernetes, containerd": (
        f"0::{QOS}/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope\n",
        Cgroup(SHORT, UID),
    ),
    "kubernetes, cri-o": (
        f"0::{QOS}/kubepods-burstable-pod{UID_}.slice/crio-{ID}.scope/container\n",
        Cgroup(SHORT, UID),
    ),
    "kubernetes, two drivers": (
        (
            f"1:name=systemd:/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice"
            f":cri-containerd:{ID}\n"
        ),
        Cgroup(SHORT, UID),
    ),
    "kubernetes, a static pod": (
        f"0::{QOS}/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope\n",
        Cgroup(SHORT, STATIC),
    ),
    "slurm": (
        "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n",
        Cgroup(slurm_job="4711"),
    ),
    "slurm, v1": (
        "9:memory:/slurm/uid_1000/job_1234/step_0/task_0\n5:cpuset:/slurm/uid_1000/job_1234\n",
        Cgroup(slurm_job="1234"),
    ),
    "slurm in kubernetes": (
        (
            f"0::/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope"
            "/system.slice/slurmstepd.scope/job_3/step_0\n"
        ),
        Cgroup(SHORT, UID, "3"),
    ),
    "lxc": ("0::/lxc.payload.trainer/system.slice/ssh.service\n", Cgroup("trainer")),
    "lxc's monitor": ("0::/lxc.monitor.trainer\n", Cgroup()),
    "nspawn, a dash": ("0::/machine.slice/machine-dev\\x2dbox.scope/payload\n", Cgroup("dev-box")),
    "nspawn, a service": (
        "0::/machine.slice/systemd-nspawn@fedora.service/payload\n",
        Cgroup("fedora"),
    ),
    "a virtual machine": ("0::/machine.slice/machine-qemu\\x2d1\\x2dwin.scope\n", Cgroup()),
    "an id that is too short": (f"0::/docker/{ID[:-1]}\n", Cgroup()),
    "no id": (f"0::/system.slice/backup-{ID.upper()}.scope\n", Cgroup()),
    "one line without its colons": (f"/docker/{ID}", Cgroup(SHORT)),
}


@pytest.mark.parametrize(("cgroup", "place"), TABLE.values(), ids=TABLE)
def test_place(cgroup: str, place: Cgroup) -> None:
    assert parse_cgroup(cgroup) == place
