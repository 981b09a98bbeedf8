from typing import Any

from gputop.agent.linux.cgroup import parse_cgroup

ID = "4f1c0ab2d9e7" + "8635" * 13
OTHER = "b00b1e5c0de5" + "9ace" * 13
UID = "2b7c1f30-5a4e-4d1b-9c7e-0f6a8b9c0d1e"
UID_ = UID.replace("-", "_")
STATIC = "7260904bbd08e72e4dff95d9fccd2ee8"
UNIT = "/system.slice/containerd.service"
SLURM = "/system.slice/slurmstepd.scope"
BURST = "kubepods-burstable-pod"
POD = f"0::/kubepods.slice/kubepods-burstable.slice/{BURST}{UID_}.slice"
CASES = {
    "a session": "0::/user.slice/user-1000.slice/session-4.scope\n",
    "docker, systemd": f"0::/system.slice/docker-{ID}.scope\n",
    "docker, cgroupfs": f"0::/docker/{ID}\n",
    "docker, v1, one hierarchy without it": f"13:rdma:/\n12:devices:/docker/{ID}\n0::{UNIT}\n",
    "docker in docker": f"0::/docker/{OTHER}/docker/{ID}\n",
    "docker, ended": f"0::/system.slice/docker-{ID}.scope (deleted)\n",
    "ecs": f"9:memory:/ecs/0f1d{'0' * 28}/{ID}\n",
    "podman": f"0::/machine.slice/libpod-{ID}.scope/container\n",
    "podman's conmon": f"0::/machine.slice/libpod-conmon-{ID}.scope\n",
    "kubernetes, containerd": f"{POD}/cri-containerd-{ID}.scope\n",
    "kubernetes, cri-o": f"{POD}/crio-{ID}.scope/container\n",
    "kubernetes, two drivers": f"1:name=systemd:{UNIT}/{BURST}{UID_}.slice:cri-containerd:{ID}\n",
    "kubernetes, a static pod": f"{POD.replace(UID_, STATIC)}/cri-containerd-{ID}.scope\n",
    "slurm": f"0::{SLURM}/job_4711/step_0/user/task_0\n",
    "slurm, v1": "9:memory:/slurm/uid_1000/job_1234/step_0\n5:cpuset:/slurm/uid_1000/job_1234\n",
    "slurm in kubernetes": f"{POD}/cri-containerd-{ID}.scope{SLURM}/job_3/step_0\n",
    "lxc": "0::/lxc.payload.trainer/system.slice/ssh.service\n",
    "lxc's monitor": "0::/lxc.monitor.trainer\n",
    "nspawn, a dash": "0::/machine.slice/machine-dev\\x2dbox.scope/payload\n",
    "nspawn, a service": "0::/machine.slice/systemd-nspawn@fedora.service/payload\n",
    "a virtual machine": "0::/machine.slice/machine-qemu\\x2d1\\x2dwin.scope\n",
    "an id that is too short": f"0::/docker/{ID[:-1]}\n",
    "no id": f"0::/system.slice/backup-{ID.upper()}.scope\n",
    "one line without its colons": f"/docker/{ID}",
}


def test_place(snapshot: Any) -> None:
    assert "\n".join(f"{case}: {parse_cgroup(text)}" for case, text in CASES.items()) == snapshot
