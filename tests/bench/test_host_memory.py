from pathlib import Path

import pytest

from gputop.bench.worker.host_memory import available_bytes
from tests.fake_root import fake_root

MIB = 1 << 20
UNLIMITED = "9223372036854771712"
HOST = {"/proc/meminfo": f"MemTotal: 999 kB\nMemAvailable:  {4096 << 10} kB\n"}
V1_MOUNT = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
OTHERS = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "32 31 0:9 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
)


def version_1(path: str, limit: str | int, used: int, stat: str = "rss 0\n") -> dict[str, str]:
    folder = f"/sys/fs/cgroup/memory{path}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def version_2(path: str, limit: str | int, used: int, stat: str = "anon 0\n") -> dict[str, str]:
    folder = f"/sys/fs/cgroup{path}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": stat,
    }


def inside(own: str, mounts: str) -> dict[str, str]:
    """What a process sees of its groups and of the mounted trees."""
    return {"/proc/self/cgroup": own, "/proc/self/mountinfo": OTHERS + mounts}


JOB = inside("9:name=systemd:/\n4:memory:/slurm/job_7\n0::/\n", V1_MOUNT.format(root="/"))
CASES = {
    "the machine alone": ({}, 4096),
    "version 1": (JOB | version_1("/slurm/job_7", 600 * MIB, 100 * MIB), 500),
    "version 1 without a limit": (JOB | version_1("/slurm/job_7", UNLIMITED, 100 * MIB), 4096),
    "version 1, a limit above": (
        JOB
        | version_1("/slurm/job_7", UNLIMITED, 100 * MIB)
        | version_1("/slurm", 900 * MIB, 700 * MIB),
        200,
    ),
    "version 1, a limit above that a container does not see": (
        inside("4:memory:/docker/4f1c\n", V1_MOUNT.format(root="/docker/4f1c"))
        | version_1("", UNLIMITED, 100 * MIB, f"hierarchical_memory_limit {512 * MIB}\n"),
        412,
    ),
    "version 1, files in memory that can be dropped": (
        JOB
        | version_1(
            "/slurm/job_7",
            600 * MIB,
            600 * MIB,
            f"inactive_file 1\ntotal_inactive_file {450 * MIB}\n",
        ),
        450,
    ),
    "version 2": (
        inside("0::/job\n", V2_MOUNT.format(root="/"))
        | version_2("/job", 600 * MIB, 100 * MIB)
        | version_2("", "max", 0),
        500,
    ),
    "version 2, a limit above": (
        inside("0::/slurm/job_7\n", V2_MOUNT.format(root="/"))
        | version_2("/slurm/job_7", "max", 5)
        | version_2("/slurm", 1000 * MIB, 400 * MIB),
        600,
    ),
    "version 2, seen from its neighbour": (
        inside("0::/../docker-4f1c.scope\n", V2_MOUNT.format(root="/"))
        | version_2("", 300 * MIB, 100 * MIB),
        200,
    ),
    "version 2, files in memory that can be dropped": (
        inside("0::/job\n", V2_MOUNT.format(root="/"))
        | version_2("/job", 600 * MIB, 600 * MIB, f"inactive_file {450 * MIB}\nactive_file 7\n"),
        450,
    ),
    "both, the memory in version 1": (
        inside(
            "4:memory:/job\n0::/job\n",
            V1_MOUNT.format(root="/")
            + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        )
        | version_1("/job", 600 * MIB, 100 * MIB),
        500,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_memory_that_may_be_taken(case: str, tmp_path: Path) -> None:
    files, mib = CASES[case]
    assert available_bytes(fake_root(tmp_path, HOST | files)) == mib * MIB


def test_a_machine_that_shows_nothing(tmp_path: Path) -> None:
    assert available_bytes(fake_root(tmp_path, {})) is None
    strange = {"/proc/self/cgroup": "?\n", "/proc/self/mountinfo": "what - is\n"}
    (tmp_path / "strange").mkdir()
    assert available_bytes(fake_root(tmp_path / "strange", HOST | strange)) == 4096 * MIB
