import errno
import os
from pathlib import Path

import pytest

from gputop.agent.linux.driver_files import same_address
from gputop.health.doctor.kernel_log import KernelLog, LoggedXid, read_kernel_log
from tests.fake_root import fake_root

LOG = """\
6,339,5140900,-;NET: Registered PF_NETLINK protocol family
4,900,4000000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen
 SUBSYSTEM=pci
12,901,4100500000,c;NVRM: Xid (PCI:0000:27:00): 31, pid=4711, name=python, Ch 00000008
4,902,4200000000,-;NVRM: Xid (PCI:0000:17:00)
4,903,4200000000,-;somebody: NVRM: Xid (PCI:0000:17:00): 79, made up
3,904,bad,-;NVRM: Xid (PCI:0000:17:00): 13
"""


def test_the_xids_with_their_age(tmp_path: Path) -> None:
    root = fake_root(tmp_path, {"/dev/kmsg": LOG})
    assert read_kernel_log(root, lambda: 4200.0) == KernelLog(
        (LoggedXid("0000:17:00", 79, 200.0), LoggedXid("0000:27:00", 31, 99.5))
    )
    behind = read_kernel_log(root, lambda: 4050.0).xids
    assert [each.age_seconds for each in behind] == [50.0, 0.0], "never below zero"


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert read_kernel_log(tmp_path) == KernelLog(refused="no such file or directory")
    (tmp_path / "dev" / "kmsg").mkdir(parents=True)
    assert read_kernel_log(tmp_path) == KernelLog(refused="is a directory")


def test_it_is_read_to_its_end_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel hands it out: a record a read, EPIPE where some were lost, then EAGAIN."""
    record = LOG.splitlines()[1].encode() + b"\n"
    answers: list[bytes | OSError] = [record, OSError(errno.EPIPE, ""), record]
    answers += [OSError(errno.EAGAIN, ""), record]
    root = fake_root(tmp_path, {"/dev/kmsg": ""})

    def hand_out(descriptor: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", hand_out)
        log = read_kernel_log(root, lambda: 4000.0)
    assert [each.code for each in log.xids] == [79, 79]
    assert answers == [record]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0000:17:00", "00000000:17:00.0", True),
        ("0000:AF:00", "00000000:af:00.0", True),
        ("0000:17:00", "00000001:17:00.0", False),
        ("0000:17:00", "00000000:27:00.0", False),
        ("", "", False),
        ("x:y:z", "x:y:z", False),
    ],
)
def test_addresses_as_the_kernel_and_nvml_write_them(one: str, other: str, same: bool) -> None:
    assert same_address(one, other) is same
