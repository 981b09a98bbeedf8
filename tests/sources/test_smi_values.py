"""Values under nvidia-smi's names that are no readings: what NVML is asked, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gputop.output.nvidia_smi import ALIASES, COLUMNS
from gputop.schema.device import DeviceState
from gputop.schema.smi_fields import NONE, smi_fields
from gputop.sources.nvml import smi_values
from gputop.sources.nvml.driver import NvmlReader, start
from gputop.sources.nvml.query import nvml as nvml_module
from tests.driver import GPU_IS_LOST, NO_PERMISSION, UNKNOWN, FakeDevice, FakeDriver, loaded

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = Path(__file__).parents[1] / "data" / "captures" / "names.txt"
OLDER = "nvidia-ml-py is older than the record, and the value is [N/A]"
ASKED = tuple(field.name for field in smi_fields().values() if field.question)


def read(nvml: FakeDriver, *names: str, version: str = "595.80", **device: Any) -> list[str]:
    """Return the texts of a device under these names."""
    nvml.write(FakeDevice(**device))
    start()
    return list(texts(*names, version=version).values())


def texts(*names: str, version: str = "595.80") -> dict[str, str]:
    (reading,) = NvmlReader(0, version).read(gpm=False, smi=names)
    return dict(reading.sample.nvidia_smi)


def test_all_names_and_aliases_are_known() -> None:
    rows = [line.split() for line in NAMES.read_text().splitlines()]
    words = [word for row in rows for word in row]
    assert (len(rows), len(set(words))) == (241, 282)
    assert set(words) == COLUMNS.keys() | ALIASES.keys()
    assert {row[0] for row in rows} == smi_fields().keys()


def test_a_sample_has_them_only_if_they_are_asked_for(nvml: FakeDriver) -> None:
    assert read(nvml) == []
    nvml.forget_calls()
    assert texts("serial", "name", "no such name") == {"serial": "1650923012345"}
    assert nvml.calls()["nvmlDeviceGetSerial"] == 1
    assert nvml.calls()["nvmlDeviceGetVbiosVersion"] == 0


def test_one_call_answers_all_names_that_it_can(nvml: FakeDriver) -> None:
    pci = [name for name in ASKED if name.startswith("pci.")]
    smoothing = [name for name in ASKED if name.startswith("power_smoothing.")]
    assert read(nvml, *pci)[0] == "0x0000"
    calls = []
    for names in ((), tuple(pci), tuple(smoothing)):
        reader = NvmlReader(0, "595.80")
        reader.read(gpm=False, smi=names)
        nvml.forget_calls()
        reader.read(gpm=False, smi=names)
        calls.append(nvml.calls().total())
    assert calls[1:] == [calls[0] + 1, calls[0] + 1]


def test_every_question_is_answered(nvml: FakeDriver) -> None:
    """The fake device has few of them: the others are not available, each for its own reason."""
    nvml.write(FakeDevice())
    start()
    unknown = {field.name for field in smi_fields().values() if field.question == NONE}
    assert texts(*ASKED).keys() == set(ASKED) - unknown
    assert unknown == {f"gpu.base.{n}" for n in ("current", "requested", "default", "min", "max")}


@pytest.mark.parametrize(
    ("code", "text"),
    [(NO_PERMISSION, "[Insufficient Permissions]"), (UNKNOWN, "[Unknown Error]"), (6, "[N/A]")],
)
def test_an_error_has_the_words_of_nvidia_smi(nvml: FakeDriver, code: int, text: str) -> None:
    assert read(nvml, "serial", fail={"nvmlDeviceGetSerial": code}) == [text]


def test_a_lost_device_is_lost_as_a_whole(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(fail={"nvmlDeviceGetSerial": GPU_IS_LOST}))
    start()
    (reading,) = NvmlReader(0).read(gpm=False, smi=("serial",))
    assert reading.sample.state is DeviceState.LOST
    assert reading.sample.nvidia_smi == {}


def test_a_function_that_the_driver_lacks(
    build_driver: Callable[..., Path], tmp_path: Path
) -> None:
    old = FakeDriver(
        tmp_path, build_driver("nvmlDeviceGetPlatformInfo", "nvmlDeviceGetFieldValues")
    )
    with loaded(old):
        names = ("platform.host_id", "platform.peer_type", "edpp_multiplier")
        assert read(old, *names) == ["[N/A]"] * 3


def test_a_function_that_the_bindings_lack(
    nvml: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(nvml_module, "nvmlDeviceGetAddressingMode", raising=False)
    assert read(nvml, "addressing_mode", texts={"addressing_mode": "1"}) == ["[N/A]"]


def test_a_text_that_is_no_utf_8(nvml: FakeDriver) -> None:
    assert read(nvml, "vbios_version", texts={"vbios_version": "96\udcff"}) == ["96\ufffd"]


@pytest.mark.parametrize(
    ("version", "text"), [("580.82", "97.00"), ("580.65", "[N/A]"), ("nonsense", "[N/A]")]
)
def test_numbers_of_fields_hold_from_a_driver_on(nvml: FakeDriver, version: str, text: str) -> None:
    assert read(nvml, "edpp_multiplier", version=version, values={"field.274": 97}) == [text]


@pytest.mark.skipif(not hasattr(nvml_module, "nvmlGpuFabricInfo_v3"), reason=OLDER)
@pytest.mark.parametrize("newest", ["2", "3"])
def test_the_fabric_of_drivers_with_an_older_record(nvml: FakeDriver, newest: str) -> None:
    fabric = {"state": "3", "clique": "7", "health_mask": f"{0b1_0010_0110_1001:#x}"}
    fabric |= {"health": "2", "cluster_byte": "171", "version": newest, "status": "999"}
    names = [name for name in ASKED if name.startswith("fabric.")]
    found = read(nvml, *names, texts={f"fabric.{key}": text for key, text in fabric.items()})
    assert dict(zip(names, found, strict=True)) == {
        "fabric.state": "Completed",
        "fabric.status": "999",
        "fabric.cliqueId": "7",
        "fabric.clusterUuid": "abababab-abab-abab-abab-abababababab",
        "fabric.health.summary": "Unhealthy" if newest == "3" else "N/A",
        "fabric.health.bandwidth": "Degraded",
        "fabric.health.route_recovery_in_progress": "False",
        "fabric.health.route_unhealthy": "False",
        "fabric.health.access_timeout_recovery": "True",
        "fabric.health.incorrect_configuration": "Incorrect SystemGuid",
        "fabric.health.partition_assigned": "True",
    }


@pytest.mark.skipif(not hasattr(nvml_module, "nvmlPlatformInfo_v2"), reason=OLDER)
def test_bytes_of_a_chassis_are_not_cut_at_a_zero(nvml: FakeDriver) -> None:
    names = ("platform.gpu_fabric_guid", "platform.chassis_serial_number", "platform.tray_index")
    chassis = {"host": "1", "guid": "0x12003400560000ab", "chassis": "1820925000123", "tray": "200"}
    found = read(nvml, *names, texts={f"platform.{key}": text for key, text in chassis.items()})
    assert found == ["0x12003400560000AB", "1820925000123", "200"]


@pytest.mark.parametrize(
    ("place", "speed", "text"),
    [
        ("pci0000:16/0000:16:01.0/0000:17:00.0", "32.0 GT/s PCIe", "5"),
        ("pci0000:16/0000:16:01.0/0000:20:00.0/0000:17:00.0", "16.0 GT/s PCIe", "4"),
        ("pci0000:16/0000:16:01.0/0000:17:00.0", "Unknown", "[N/A]"),
        ("pci0000:00/0000:17:00.0", None, "[N/A]"),
        (None, None, "[N/A]"),
    ],
    ids=["port", "switch", "unknown", "virtual machine", "none"],
)
def test_the_generation_of_the_host_is_its_root_port_s(
    nvml: FakeDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str | None,
    speed: str | None,
    text: str,
) -> None:
    devices = tmp_path / "devices"
    devices.mkdir()
    monkeypatch.setattr(smi_values, "PCI_DEVICES", devices)
    if place is not None:
        (tmp_path / place).mkdir(parents=True)
        (devices / "0000:17:00.0").symlink_to(tmp_path / place)
    if place is not None and speed is not None:
        port = tmp_path.joinpath(*place.split("/")[:2])
        (port / "max_link_speed").write_text(f"{speed}\n")
    assert read(nvml, "pcie.link.gen.hostmax") == [text]
