"""The topology of machines with several GPUs, as `nvidia-smi topo -m` shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gputop.cli import main
from gputop.commands import topo
from gputop.sources.interface import DriverError
from gputop.sources.nvml import topology
from gputop.sources.nvml.topology import read_topology
from tests.driver import GPU_IS_LOST, RESET_REQUIRED, FakeDevice, FakeDriver

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU, SWITCH = "0", "2"

REMEDY = "Read dmesg, or reboot the machine."


def bus(number: int) -> str:
    return f"00000000:{0x17 + 0x10 * number:02X}:00.0"


def linked(*ends: str, kind: str = GPU) -> dict[str, str]:
    """Return NVLinks that lead to these addresses."""
    remote = {f"nvlink.{n}.remote": end for n, end in enumerate(ends)}
    return remote | {f"nvlink.{n}.type": kind for n in range(len(ends))}


def machine(nvml: FakeDriver, *texts: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the links of a machine whose GPUs have these keys."""
    nvml.write(*(FakeDevice(texts=each) for each in texts))
    return [gpu.links for gpu in read_topology()]


@pytest.mark.parametrize(
    ("level", "word"),
    [("0", "PSB"), ("10", "PIX"), ("20", "PXB"), ("30", "PHB"), ("40", "NODE"), ("50", "SYS")],
)
def test_a_path_through_pcie_has_nvidia_smis_word(nvml: FakeDriver, level: str, word: str) -> None:
    found = machine(nvml, {"topology.1": level}, {"topology.0": level})
    assert found == [("X", word), (word, "X")]


def test_nvlinks_lead_to_a_gpu_or_through_switches(nvml: FakeDriver) -> None:
    direct = machine(
        nvml,
        linked(bus(1), bus(1), bus(2)) | {"topology.1": "50"},
        linked(bus(0), bus(0)) | {"topology.2": "40"},
        linked(bus(0)) | {"topology.1": "40"},
    )
    assert direct == [("X", "NV2", "NV1"), ("NV2", "X", "NODE"), ("NV1", "NODE", "X")]
    behind = linked(*["00000000:05:00.0"] * 18, kind=SWITCH)
    some_down = linked(*["00000000:05:00.0"] * 16, kind=SWITCH)
    assert machine(nvml, behind, some_down) == [("X", "NV16"), ("NV16", "X")]


def test_a_driver_that_does_not_tell(nvml: FakeDriver) -> None:
    assert machine(nvml, {}, {}) == [("X", "N/A"), ("N/A", "X")]
    (gpu, _) = read_topology()
    assert (gpu.cpu_affinity, gpu.numa_affinity, gpu.gpu_numa_id) == (None, None, None)


def printed(nvml: FakeDriver, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    sets = {"cpu_affinity.0": "0xff00000000000f", "cpu_affinity.1": "1", "memory_affinity.0": "5"}
    nvml.write(
        FakeDevice(texts={**sets, "topology.1": "50", "numa_node": "2"}),
        FakeDevice(texts={"topology.0": "50"}),
    )
    assert main(["topo", *options]) == 0
    return capsys.readouterr().out


def test_the_matrix(nvml: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(nvml, capsys).splitlines()[:3] == [
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tSYS\t0-3,48-55,64\t0,2\t\t2",
        "GPU1\tSYS\t X \tN/A\tN/A\t\tN/A",
    ]


def test_the_document(nvml: FakeDriver, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = json.loads(printed(nvml, capsys, "--json"))["gpus"]
    assert first == {
        "index": 0,
        "uuid": "GPU-00000000-fa4e-4dcf-8a3b-000000000000",
        "links": ["X", "SYS"],
        "cpu_affinity": "0-3,48-55,64",
        "numa_affinity": "0,2",
        "gpu_numa_id": 2,
        "state": "ok",
    }
    assert second["cpu_affinity"] is None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (FakeDevice(code=GPU_IS_LOST), "LOST: it no longer answers on its bus"),
        (FakeDevice(code=RESET_REQUIRED), "NEEDS RESET: the driver has given up on it"),
        (FakeDevice(hang=True), "NOT RESPONDING: calls to its driver hang or fail"),
        (
            FakeDevice(fail={"nvmlDeviceGetCpuAffinity": GPU_IS_LOST}),
            "LOST: it no longer answers on its bus",
        ),
    ],
)
def test_one_bad_gpu_does_not_hide_the_others(
    nvml: FakeDriver,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: FakeDevice,
    says: str,
) -> None:
    monkeypatch.setattr(topology, "ANSWER_SECONDS", 0.5)
    fine = {"topology.0": "50", "topology.1": "50", "topology.2": "50"}
    nvml.write(FakeDevice(texts=fine), fault, FakeDevice(texts=fine))
    assert main(["topo"]) == 0
    said = capsys.readouterr()
    assert said.err == f"gputop: GPU 1: {says}\n"
    first, bad, last = (line.split("\t")[1:4] for line in said.out.splitlines()[1:4])
    assert bad == ["N/A", "N/A", "N/A"]
    assert (first[0], first[2], last[0], last[2]) == (" X ", "SYS", "SYS", " X ")


def test_no_gpu_answers(
    nvml: FakeDriver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "ANSWER_SECONDS", 0.2)
    nvml.write(FakeDevice(hang=True))
    assert failed(capsys) == (
        3,
        f"gputop: error: No GPU answers: calls to its driver hang. {REMEDY}\n",
    )


def failed(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as end:
        main(["topo", *options])
    return end.value.code, capsys.readouterr().err


def test_a_lost_device_or_no_driver_is_one_line(
    nvml: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml.write(FakeDevice(code=GPU_IS_LOST))
    with pytest.raises(DriverError):
        read_topology()
    status, error = failed(capsys)
    assert (status, error.count("\n")) == (3, 1)
    nvml.write()
    assert failed(capsys)[0] == 3


def test_a_driver_that_hangs_does_not_hang_gputop(
    nvml: FakeDriver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topo, "PATIENCE_SECONDS", 0.2)
    nvml.write(FakeDevice(), init_hang=True)
    status, error = failed(capsys)
    assert (status, error) == (
        3,
        "gputop: error: the driver said nothing for 0.2 s. Read dmesg, or reboot the machine.\n",
    )


def test_simulated_devices_have_no_topology(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--demo", "topo"])
    assert "--demo is not for `topo`" in capsys.readouterr().err
