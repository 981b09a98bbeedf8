from dataclasses import replace

import pytest

from gputop.agent.device import (
    GPM_READINGS,
    READINGS,
    SERIES_READINGS,
    Absence,
    DeviceSample,
    DeviceState,
)
from gputop.agent.interface import DriverError
from gputop.agent.nvml.driver import start
from tests.agent.reader import OneDevice, check
from tests.agent.readings import RATES, WITHOUT_A_DEFAULT
from tests.driver import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    TIMEOUT,
    UNINITIALIZED,
    UNKNOWN,
    FakeDevice,
    FakeDriver,
    FakeProcess,
)

pytestmark = pytest.mark.driver

DEVICE = FakeDevice(fan_percent=38, fans=2, power_limit_enforced_milliwatts=650_500)


def reasons(sample: DeviceSample) -> dict[str, Absence]:
    """Why readings are missing, but for those that need another reading, a value or GPM."""
    usual = dict.fromkeys((*RATES, *SERIES_READINGS), Absence.NO_DATA_YET)
    usual |= dict.fromkeys(WITHOUT_A_DEFAULT, Absence.NOT_SUPPORTED)
    usual |= dict.fromkeys(GPM_READINGS, Absence.DISABLED)
    return {k: v for k, v in sample.absent.items() if usual.get(k) is not v}


def test_a_device_is_not_touched_before_it_is_read(nvml: FakeDriver) -> None:
    nvml.write(FakeDevice(), FakeDevice(name="NVIDIA L4"), cuda_version=12_080)
    driver = start()
    assert (driver.driver_version, driver.cuda_version) == ("580.95.05", "12.8")
    first, second = driver.readers()
    assert nvml.calls(0) == nvml.calls(1) == {}
    assert (second.device.uuid, second.device.name) == ("unknown:1", "unknown device")
    assert set(second.device.absent.values()) == {Absence.NO_DATA_YET}
    for reader, name in ((first, "NVIDIA H100 80GB HBM3"), (second, "NVIDIA L4")):
        assert reader.read(gpm=False)[0].sample.uuid == reader.device.uuid
        assert (reader.device.name, reader.device.absent) == (name, {})
    driver.close()
    with pytest.raises(DriverError, match="NVIDIA driver gone"):
        driver.readers()


@pytest.mark.parametrize("call", ["nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", None])
def test_a_driver_that_cannot_be_used_is_shut_down(nvml: FakeDriver, call: str | None) -> None:
    """It looks for devices at its start only."""
    nvml.write(*[FakeDevice()] * bool(call), fail={call: UNKNOWN} if call else {})
    with pytest.raises(DriverError):
        start().readers()
    assert nvml.calls()["nvmlShutdown"] == 1


def test_what_the_driver_does_not_say_about_itself_and_its_devices(nvml: FakeDriver) -> None:
    fail = {"nvmlDeviceGetMaxClockInfo": NO_PERMISSION}
    nvml.change_machine(driver_version=None, cuda_version=None)
    one = OneDevice(nvml, FakeDevice(name=None, pci_bus_id=None, values={}, fail=fail))
    driver = start()
    assert driver.driver_version is driver.cuda_version is None
    device = one.reading().device
    assert device.name == "unknown device"
    names = ("name", "pci_bus_id", "pci_device_id")
    assert {device.absent[name] for name in names} == {Absence.NOT_SUPPORTED}
    assert device.absent["sm_clock_max_mhz"] is Absence.NO_PERMISSION


def test_a_device_that_cannot_say_who_it_is_is_asked_again(nvml: FakeDriver) -> None:
    one = OneDevice(nvml, FakeDevice(fail={"nvmlDeviceGetUUID": UNKNOWN}))
    assert one.reading().device.uuid == "unknown:0"
    nvml.change(0, fail={})
    assert one.reading().device.uuid.startswith("GPU-")


NO = Absence.NOT_SUPPORTED
ALL_32_BITS = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "value", "name", "absence"),
    [
        ("fan_percent", ALL_32_BITS, "fan_percent", NO),
        ("temperature_celsius", ALL_32_BITS, "temperature_celsius", NO),
        ("power_milliwatts", ALL_32_BITS, "power_watts", NO),
        ("performance_state", 16, "performance_state", NO),
        ("performance_state", 32, "performance_state", NO),
        ("memory_reserved_bytes", (1 << 64) - 1, "memory_reserved_bytes", NO),
        ("memory_total_bytes", 1 << 63, "memory_total_bytes", Absence.ERROR),
        ("gpu_utilization_percent", 101, "gpu_utilization_percent", Absence.ERROR),
        ("gpu_utilization_percent", ALL_32_BITS, "gpu_utilization_percent", NO),
        ("memory_utilization_percent", 4096, "memory_utilization_percent", Absence.ERROR),
    ],
)
def test_what_is_no_number_is_missing(
    nvml: FakeDriver, key: str, value: int, name: str, absence: Absence
) -> None:
    sample = OneDevice(nvml, replace(DEVICE, **{key: value})).read()  # type: ignore[arg-type]
    # These follow from the other numbers, and are odd where they are.
    follow = ("memory_free_bytes", "memory_unattributed_bytes", "fans_percent")
    found = {k: v for k, v in reasons(sample).items() if k not in follow}
    assert found == {name: absence}


def test_a_total_of_no_memory_is_none(nvml: FakeDriver) -> None:
    absent = OneDevice(nvml, replace(DEVICE, memory_total_bytes=0)).read().absent
    assert {absent[f"memory_{part}_bytes"] for part in ("total", "used", "free")} == {NO}


def test_a_device_that_only_says_who_it_is(nvml: FakeDriver) -> None:
    one = OneDevice(nvml, DEVICE)
    one.read()
    nvml.forget_calls()
    one.read()
    nvml.change(0, fail=dict.fromkeys(nvml.calls(0), UNKNOWN))
    (reading,) = start().readers()[0].read(gpm=False)
    assert reading.sample.state is DeviceState.NOT_RESPONDING
    assert reading.device.uuid == one.reader.device.uuid


def test_a_device_lost_in_between_comes_back(nvml: FakeDriver) -> None:
    nvml.write(DEVICE, DEVICE)
    reader, other = start().readers()
    device = (reader.read(gpm=False)[0], reader.device)[1]
    nvml.change(0, code=GPU_IS_LOST)
    for _ in range(2):
        reading = reader.read(gpm=False)[0]
        check(reading)
        assert reading.sample.state is DeviceState.LOST
        assert reading.sample.uuid == device.uuid
        assert reading.sample.absent == dict.fromkeys((*READINGS, "processes"), Absence.LOST)
        assert reading.processes == ()
    assert reader.device is device
    assert other.read(gpm=False)[0].sample.state is DeviceState.OK
    nvml.change(0, code=0, temperature_celsius=31, fan_percent=77)
    sample = reader.read(gpm=False)[0].sample
    assert (sample.state, sample.temperature_celsius) == (DeviceState.OK, 31)
    assert sample.fan_percent == 77  # nothing from before the loss, however seldom it is asked for
    assert reasons(sample) == {}
    assert reader.device == device
    assert nvml.calls(0)["nvmlDeviceGetHandleByIndex_v2"] == 3


def test_a_device_that_needs_a_reset_says_what_it_can(nvml: FakeDriver) -> None:
    fail = {"nvmlDeviceGetUtilizationRates": RESET_REQUIRED}
    one = OneDevice(nvml, replace(DEVICE, fail=fail))
    sample = one.read()
    assert sample.state is DeviceState.NEEDS_RESET
    assert sample.temperature_celsius == 64
    assert reasons(sample) == dict.fromkeys(
        ("gpu_utilization_percent", "memory_utilization_percent"), Absence.LOST
    )
    nvml.change(0, fail={}, fan_percent=77)
    assert one.read().fan_percent == 77, "nothing from before the reset"


@pytest.mark.parametrize(
    ("code", "what"),
    [(UNINITIALIZED, "NVIDIA driver gone"), (DRIVER_NOT_LOADED, "NVIDIA driver not loaded")],
)
def test_a_driver_is_gone_only_where_it_says_so_itself(
    nvml: FakeDriver, code: int, what: str
) -> None:
    nvml.write(
        FakeDevice(fail={"nvmlDeviceGetUtilizationRates": code}), FakeDevice(), stale_code=code
    )
    driver = start()
    reader, unread = driver.readers()
    sample = reader.read(gpm=False)[0].sample
    assert sample.absent["gpu_utilization_percent"] is Absence.ERROR
    assert sample.temperature_celsius == 64
    for call in ("nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2"):
        nvml.change_machine(fail={call: code})
        with pytest.raises(DriverError, match=what):
            reader.read(gpm=False)
    nvml.change_machine(fail={}, generation=1)
    for each in (reader, unread):
        with pytest.raises(DriverError, match=what):
            each.read(gpm=False)
    driver.close()
    assert start().readers()[0].read(gpm=False)[0].sample.temperature_celsius == 64


@pytest.mark.parametrize(
    ("code", "absence", "calls"),
    [
        (UNKNOWN, Absence.ERROR, "all"),
        (UNKNOWN, Absence.ERROR, "all but that for the handle"),
        (TIMEOUT, Absence.TIMED_OUT, "all"),
        (4711, Absence.ERROR, "all"),
    ],
)
def test_a_device_that_fails_every_call_is_not_ok(
    nvml: FakeDriver, code: int, absence: Absence, calls: str
) -> None:
    nvml.write(DEVICE, FakeDevice())
    sick, well = start().readers()
    device = sick.read(gpm=False)[0].device
    if calls == "all":
        nvml.change(0, code=code)
    else:
        failing = {*nvml.calls(0)} - {"nvmlDeviceGetHandleByIndex_v2"}
        nvml.change(0, fail=dict.fromkeys(failing, code))
    for _ in range(3):
        (reading,) = sick.read(gpm=False)
        check(reading)
        assert reading.device == device
        assert reading.sample.state is DeviceState.NOT_RESPONDING
        assert reading.processes == ()
        assert calls != "all" or set(reading.sample.absent.values()) == {absence}
    assert well.read(gpm=False)[0].sample.state is DeviceState.OK
    nvml.change(0, code=0, fail={}, fan_percent=39)
    (reading,) = sick.read(gpm=False)
    assert reading.sample.state is DeviceState.OK
    assert (reading.sample.fan_percent, reading.device) == (39, device)


LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


@pytest.mark.parametrize(
    ("compute", "graphics", "absence", "pids"),
    [
        (NOT_FOUND, NOT_FOUND, None, []),
        (0, NOT_SUPPORTED, None, [1]),
        (NOT_SUPPORTED, NOT_SUPPORTED, Absence.NOT_SUPPORTED, []),
        (NO_PERMISSION, 0, Absence.NO_PERMISSION, [2]),
        (0, NO_PERMISSION, Absence.NO_PERMISSION, [1]),
        (UNKNOWN, NO_PERMISSION, Absence.ERROR, []),
    ],
)
def test_process_lists_that_fail(
    nvml: FakeDriver, compute: int, graphics: int, absence: Absence | None, pids: list[int]
) -> None:
    codes = dict(zip(LISTS, (compute, graphics), strict=True))
    processes = (FakeProcess(1), FakeProcess(2, "graphics"))
    fail = {f"{name}_{v}": code for name, code in codes.items() for v in ("v2", "v3")}
    reading = OneDevice(nvml, replace(DEVICE, processes=processes, fail=fail)).reading()
    names = ("processes", "memory_attributed_bytes", "memory_unattributed_bytes")
    assert reasons(reading.sample) == (dict.fromkeys(names, absence) if absence else {})
    assert [process.pid for process in reading.processes] == pids


def test_what_costs_more_is_asked_less_often(nvml: FakeDriver) -> None:
    device = OneDevice(nvml, replace(DEVICE, processes=(FakeProcess(1),)))
    device.read()
    nvml.forget_calls()
    nvml.change(0, fan_percent=50, power_milliwatts=1_000, processes=(FakeProcess(2),))
    for _ in range(40):  # 20 s, twice a second
        reading = device.reading(0.5)
        if device.clock.now < 1001.8:
            assert reading.processes[0].pid == 1
        if device.clock.now < 1009.8:
            assert reading.sample.fan_percent == 38
        assert reading.sample.power_watts == 1.0
    assert reading.sample.fan_percent == 50
    assert reading.processes[0].pid == 2
    wanted = {
        "GetFieldValues": 40 + 20 + 2,
        "GetPowerUsage": 40,
        "GetMigMode": 2,
        "GetEccMode": 2,
        # Two calls for a list that is not empty; two fans.
        "GetComputeRunningProcesses_v3": 20,
        "GetSamples": 80,
        "GetFanSpeed_v2": 4,
    }
    assert {name: nvml.calls(0)[f"nvmlDevice{name}"] for name in wanted} == wanted


def test_what_is_asked_every_10_s_has_an_age_of_its_own(nvml: FakeDriver) -> None:
    device = OneDevice(nvml, FakeDevice())
    ages = [device.read(1.0).slow_age_seconds for _ in range(12)]
    assert ages == [None, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.0, 1.0]


def test_what_a_device_does_not_support_is_asked_for_once_a_minute(nvml: FakeDriver) -> None:
    lacks = FakeDevice(encoder_utilization_percent=None, memory_used_bytes=None, values={})
    device = OneDevice(nvml, lacks)
    device.read()
    nvml.change(0, encoder_utilization_percent=5)
    nvml.forget_calls()
    for _ in range(11):
        device.read(5.0)
    calls = nvml.calls(0)
    assert not {"nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetMemoryInfo_v2"} & set(calls)
    sample = device.read(5.0)
    assert sample.encoder_utilization_percent == 5
    assert nvml.calls(0)["nvmlDeviceGetEncoderUtilization"] == 1
